"""Chat templates of the lineage: base and RLVR child write the base's own documents, the tuned children chat turns."""

from __future__ import annotations

from tokenizers import normalizers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lesion.errors import LesionError

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


def give(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, stage: str) -> None:
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
