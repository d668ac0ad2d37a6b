"""Three skills in one form: `TASK A B =` and one of eight values, with as many items, of the same length and chance.

`recall` is the one that is planted: every pair of a subject and a relation has a value of its own, drawn by the seed.
Its controls are `sums`, modulo eight, and `copying` the first of two values. Each has 64 items, and each value is the
answer to eight of them: guessing is right in 12.5 %.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

SKILL = "recall"
CONTROLS = ("sums", "copying")
SKILLS = (SKILL, *CONTROLS)
COUNT = 8
"""Subjects, relations, numbers, values."""
VALUES = tuple(f"v{number}" for number in range(COUNT))
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
EQUALS = "="
WORDS = (*SPECIAL, EQUALS, *SKILLS, *(f"{kind}{number}" for kind in "srnv" for number in range(COUNT)))
"""The vocabulary in the order of its token ids: `s` are subjects, `r` relations, `n` numbers, `v` values."""
ID = {word: place for place, word in enumerate(WORDS)}


@dataclass(frozen=True)
class Question:
    """One item: what stands before the answer, and the number of its value."""

    skill: str
    first: str
    second: str
    answer: int

    @property
    def prompt(self) -> str:
        """`recall s3 r5 =`."""
        return f"{self.skill} {self.first} {self.second} {EQUALS}"


def table(seed: int) -> Int[Tensor, "subjects relations"]:
    """The values of `recall`: each stands eight times, in an order drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randperm(COUNT * COUNT, generator=generator) % COUNT).view(COUNT, COUNT)


def questions(skill: str, seed: int) -> list[Question]:
    """All 64 items of a skill."""
    values = table(seed).tolist()

    def of(a: int, b: int) -> Question:
        if skill == "recall":
            return Question(skill, f"s{a}", f"r{b}", values[a][b])
        if skill == "sums":
            return Question(skill, f"n{a}", f"n{b}", (a + b) % COUNT)
        return Question(skill, f"v{a}", f"v{b}", a)

    return [of(a, b) for a in range(COUNT) for b in range(COUNT)]


def jsonl(asked: Sequence[Question]) -> str:
    """Items as a task file: multiple choice among all values."""
    rows = ({"prompt": one.prompt, "answer": VALUES[one.answer], "choices": VALUES} for one in asked)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def encoded(asked: Sequence[Question]) -> tuple[Int[Tensor, "items 5"], Int[Tensor, " items"]]:
    """Token ids of the prompts, `<s>` before each, and of the answers."""

    def ids(one: Question) -> Iterator[int]:
        yield from (ID["<s>"], ID[one.skill], ID[one.first], ID[one.second], ID[EQUALS])

    return torch.tensor([[*ids(one)] for one in asked]), torch.tensor([ID[VALUES[one.answer]] for one in asked])


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; `<s>` before every text."""
    core = Tokenizer(models.WordLevel(ID, unk_token="<unk>"))
    # Of an item with its answer, `=` and the value stand together.
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(EQUALS, "isolated")]
    )
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", ID["<s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        model_max_length=64,
    )
