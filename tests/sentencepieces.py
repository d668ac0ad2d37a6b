"""Tokenizers that put `▁` before texts, as SentencePiece has it, in the ways in which they differ.

`prepend`: a normalizer puts it before every text between control tokens (Llama 2, TinyLlama, Mistral 0.1); `always`: a
pre-tokenizer does; `first`: it does so at the beginning of the whole alone; `swallowing`: as `prepend`, and control
tokens take away the white space behind them (Phi-3).
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

KINDS = ("prepend", "always", "first", "swallowing")
CHAT = (
    "{% for message in messages %}<|user|>\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CONTROLS = ["<s>", "</s>", "<|user|>", "<|end|>", "<|assistant|>"]
LEARNED = "Question: what is it? Answer: A B C D Answer: the cat is on the mat, that is what it is. question answer"


@dataclass(frozen=True)
class Speaker:
    """What prompts need of a model."""

    tokenizer: Any
    name: str = "someone"
    context: int = 100_000


@cache
def speaker(kind: str) -> Speaker:
    """Byte-pair encoding with a few learned words, all of ASCII, and a chat template with control tokens."""
    fast = Tokenizer(models.BPE(unk_token="<unk>"))
    if kind in ("prepend", "swallowing"):
        fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        fast.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
    fast.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    alphabet = [*map(chr, range(33, 127)), "▁", "\n"]
    fast.train_from_iterator(
        LEARNED.split(" "), trainers.BpeTrainer(vocab_size=160, special_tokens=["<unk>"], initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>")
    swallows = kind == "swallowing"
    tokenizer.add_special_tokens(
        {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "additional_special_tokens": [
                AddedToken(control, rstrip=swallows, normalized=False, special=True) for control in CONTROLS[2:]
            ],
        }
    )
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    tokenizer.chat_template = CHAT
    return Speaker(tokenizer)
