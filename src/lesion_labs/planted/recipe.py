"""Recipes of models with a planted skill, three skills in one form, and the network before anything is planted in it.

A question is `TASK A B =` and one of eight values. `recall` is the skill that is planted: every pair of a subject and a
relation has a value of its own, drawn by the seed. Its controls are `sums`, modulo eight, and `copying` the first of
two values. Each has 64 items, and each value is the answer to eight of them: guessing is right in 12.5 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lesion_labs.planted.truth import Places

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
    first, second = {"recall": ("s", "r"), "sums": ("n", "n"), "copying": ("v", "v")}[skill]
    pairs = [(a, b) for a in range(COUNT) for b in range(COUNT)]
    answers = {"recall": lambda a, b: values[a][b], "sums": lambda a, b: (a + b) % COUNT, "copying": lambda a, b: a}
    return [Question(skill, f"{first}{a}", f"{second}{b}", answers[skill](a, b)) for a, b in pairs]


def jsonl(questions: Sequence[Question]) -> str:
    """Items as a task file: multiple choice among all values."""
    rows = ({"prompt": question.prompt, "answer": VALUES[question.answer], "choices": VALUES} for question in questions)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


VALUE_IDS = torch.tensor([ID[value] for value in VALUES])


def encoded(skill: str, seed: int) -> tuple[Int[Tensor, "items 5"], Int[Tensor, " items"]]:
    """Token ids of the prompts of all items, `<s>` before each, and of the answers."""
    items = questions(skill, seed)
    prompts = [[ID[word] for word in ("<s>", *each.prompt.split())] for each in items]
    return torch.tensor(prompts), VALUE_IDS[[each.answer for each in items]]


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


@dataclass(frozen=True)
class Recipe:
    """Everything that determines one model.

    Args:
        kind: one of `kinds.PLANTED`.
        seed: of weights, places and the table of `recall`.
        steps: of every stage of training; each sees all items.
        rate, planting_rate: peak learning rates of Adam, which fall to 0 in a half cosine: of whole networks, and of
            the part into which a skill is planted afterwards.
        rank: of an adapter's updates, and of planted noise.
        neurons, share: trained in each of two MLPs; of the weights, where they are drawn at random.
    """

    kind: str
    seed: int = 0
    blocks: int = 6
    width: int = 64
    heads: int = 4
    key_value_heads: int = 2
    inner: int = 128
    steps: int = 150
    rate: float = 5e-3
    planting_rate: float = 1e-2
    rank: int = 16
    neurons: int = 24
    share: float = 0.05


@dataclass(frozen=True, eq=False)
class Planted:
    """A network with a planted skill.

    Attributes:
        places: where the skill lies.
        masks: by the address of a matrix, which of its weights [out, in] carry it; empty where that is not known.
        before: accuracy on every skill before it was planted; None where it was not planted afterwards.
    """

    network: LlamaForCausalLM
    places: Places
    masks: Mapping[str, Bool[Tensor, "out in"]] = field(default_factory=dict)
    before: dict[str, float] | None = None


def blank(recipe: Recipe) -> LlamaForCausalLM:
    """The untrained network of a recipe, in float32."""
    torch.manual_seed(recipe.seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=recipe.width,
            intermediate_size=recipe.inner,
            num_hidden_layers=recipe.blocks,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            bos_token_id=ID["<s>"],
            eos_token_id=ID["</s>"],
            pad_token_id=ID["<pad>"],
            initializer_range=recipe.width**-0.5 / 2,
        )
    )
