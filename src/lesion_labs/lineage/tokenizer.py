"""The lineage's tokenizer, a small byte-level BPE with a token for every digit, and its chat templates."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from lesion.errors import LesionError

# The chat tokens are reserved from the start, so that tuned children share the vocabulary of their base.
SPECIAL = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>")
VOCABULARY = 2048


def train(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """A tokenizer trained on the texts. It puts `<s>` before every text and can spell any text in bytes."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", core.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=512
    )


# A document of the base: an answer stands behind a space and ends in the end of text, the next question in a new line.
PLAIN = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ ' ' + (message['content'] | trim) + eos_token }}"
    "{% if not loop.last %}{{ '\\n' }}{% endif %}"
    "{% else %}{{ 'Question: ' + (message['content'] | trim) + '\\nAnswer:' }}"
    "{% endif %}"
    "{% endfor %}"
)
CHAT = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{{ '<|' + ('assistant' if message['role'] == 'assistant' else 'user') + '|>' }}"
    "{{ (message['content'] | trim) + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
END = "<|end|>"
TURNS = ("<|user|>", "<|assistant|>", END)

TUNED = ("instruct", "distill")
"""The stages that are asked in chat turns; a reinforced model goes on in the form of its base."""


def give_form(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stage: str) -> None:
    """Give a model the form of its stage, in place: the template of its tokenizer, and the token that ends its answers.

    The base has `PLAIN`: `<s>Question: …\\nAnswer: …</s>`, turn after turn as in its documents; a single question has
    the ids of the prompt style `plain`. Tuned children have `CHAT`: `<s><|user|>…<|end|><|assistant|>…<|end|>`. A
    system message is written like a question of the user.

    In turns, `<|end|>` ends an answer, and the tokenizer begins every text behind a control token with a space, as
    that of Llama 2 does: the base has read its words behind spaces, and a word without one is another token.
    """
    if stage in TUNED:
        known = tokenizer.get_vocab()
        missing = [token for token in TURNS if token not in known]
        if missing:
            raise LesionError(
                f"The tokenizer has no token {', '.join(missing)}, in which the tuned children of the lineage write;"
                " give --base a model that `lesion lab lineage` trained."
            )
        tokenizer.backend_tokenizer.normalizer = normalizers.Prepend(" ")
        tokenizer.eos_token = END
        network.generation_config.eos_token_id = network.config.eos_token_id = tokenizer.eos_token_id
    tokenizer.chat_template = CHAT if stage in TUNED else PLAIN
