"""The primer's tasks as `Task`s, and its training documents. Everything is a function of a seed and an index."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from lesion.tasks import contrast, running
from lesion.tasks.counterparts import corrupted, shuffled
from lesion.tasks.generated.family import Generated
from lesion.tasks.gold_classes import DERIVATION
from lesion.tasks.primer import arithmetic, atlas, biography, reading, text
from lesion.tasks.task import Answer, Item, Verdict

TEST_SEED = "primer test split"
TEST_ITEMS = 1200
TEXT_ITEMS = 600
POOL_SEED = "primer calibration"
POOL_ITEMS = 2000

# Share of each skill among training documents, from which document on: an opening in which single words come to be
# copied, a part in which the facts of the atlas are learned, one with more to copy, and the rest, in which reading is
# what its test asks for.
OPENING, COPYING, PORTRAITS = 40_000, 124_928, 186_368
MIXTURES = (
    (0, {"arithmetic": 0.20, "atlas": 0.12, "reading": 0.33, "text": 0.05, "listing": 0.30}),
    (OPENING, {"arithmetic": 0.40, "atlas": 0.25, "reading": 0.26, "text": 0.05, "listing": 0.04}),
    (COPYING, {"arithmetic": 0.35, "atlas": 0.14, "reading": 0.32, "text": 0.04, "echo": 0.15}),
    (PORTRAITS, {"arithmetic": 0.42, "atlas": 0.22, "reading": 0.30, "text": 0.04, "echo": 0.02}),
)


@dataclass(frozen=True)
class Document:
    """One training document.

    Attributes:
        skill: a key of the mixture.
        turns: what stands before (empty for running text) and what is to be learned from it, one after another.
    """

    skill: str
    turns: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The whole document as text."""
        return "\n".join(f"{before} {learned}" if before else learned for before, learned in self.turns)


def plain(question: str) -> str:
    """A question as base models are asked it: the same as the prompt style `plain`."""
    return f"Question: {question}\nAnswer:"


def document(seed: int, index: int) -> Document:
    """Training document number `index` of the stream with this seed; never one of the test split."""
    rng = random.Random(f"primer train {seed} {index}")
    mixture = next(mixture for start, mixture in reversed(MIXTURES) if index >= start)
    skill = rng.choices(tuple(mixture), tuple(mixture.values()))[0]
    if skill == "arithmetic":
        _, question, answer = arithmetic.example(rng, test=False)
        return Document(skill, ((plain(question), answer),))
    if skill == "atlas":
        fact, question = atlas.question(rng, test=False)
        return Document(skill, ((plain(question), fact.value),))
    if skill == "reading":
        lesson = reading.lesson(rng, crowd=index < PORTRAITS)
        return Document(skill, tuple((plain(question), answer) for question, answer in lesson))
    if skill in ("echo", "listing"):
        passage = text.echo(rng) if skill == "echo" else text.listing(rng)
        return Document(skill, ((passage, passage),))
    return Document(skill, (("", text.running(rng)),))


def _distinct(name: str, pool: bool, made: Callable[[random.Random, int], tuple[str, Item]]) -> tuple[Item, ...]:
    """The items of a skill to ask, or to observe a model on; of those made with the same key, the first."""
    seed, count = (POOL_SEED, POOL_ITEMS) if pool else (TEST_SEED, TEXT_ITEMS if name == "text" else TEST_ITEMS)
    items: dict[str, Item] = {}
    index = 0
    while len(items) < count:
        key, item = made(random.Random(f"{seed} {name} {index}"), index)
        items.setdefault(key, item)
        index += 1
    return tuple(items.values())


@cache
def _arithmetic(pool: bool) -> tuple[Item, ...]:
    def made(rng: random.Random, index: int) -> tuple[str, Item]:
        problem, question, solution = arithmetic.example(rng, test=not pool)
        identity = f"train-{index}" if pool else str(problem)
        group = _plural(len(problem.operations), "step")
        return str(problem), Item(identity, question, str(problem.result), solution=solution, group=group)

    return _distinct("arithmetic", pool, made)


@cache
def _atlas(pool: bool) -> tuple[Item, ...]:
    return tuple(
        Item(str(fact.index), fact.question(fact.test_wording), fact.value, solution=fact.value, group=fact.relation)
        for fact in atlas.facts()
    )


@cache
def _contrast(pool: bool) -> tuple[Item, ...]:
    return tuple(contrast.frequent([contrast.item(i.id, i.question, i.gold, group=i.group) for i in _atlas(pool)]))


def _others(item: Item) -> Iterator[Item]:
    """Another person's fact of the same relation with another value, in the wording of the item."""
    own = atlas.facts()[int(item.id)]
    others = [other for other in atlas.facts() if other.relation == own.relation and other.value != own.value]
    for other in shuffled(others, item):
        yield corrupted(item, str(other.index), other.question(own.test_wording), other.value)


@cache
def _reading(pool: bool) -> tuple[Item, ...]:
    def made(rng: random.Random, index: int) -> tuple[str, Item]:
        question, answer, sentences = reading.example(rng, test=not pool)
        identity, group = f"train-{index}" if pool else str(index), _plural(sentences, "sentence")
        return question, Item(identity, question, answer, solution=answer, group=group)

    return _distinct("reading", pool, made)


@cache
def _text(pool: bool) -> tuple[Item, ...]:
    def made(rng: random.Random, index: int) -> tuple[str, Item]:
        facts = index % 2 == 0
        passage = atlas.statements(rng) if facts else text.scene(rng, rng.randint(2, 4))
        identity = f"train-{index}" if pool else str(index)
        return passage, Item(identity, passage, "", group="facts" if facts else "scene")

    tested = {item.question for item in _text(False)} if pool else set()
    return tuple(item for item in _distinct("text", pool, made) if item.question not in tested)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count > 1)


# A bound on the digits: int() refuses thousands of them, and no answer has that many.
_NUMBER = re.compile(r"####\s*(-?\d{1,18})\s*$")


def _judge_number(item: Item, answer: Answer) -> Verdict:
    number = _NUMBER.search(answer.text.strip())
    return Verdict(number is not None and int(number[1]) == int(item.gold), number[1] if number else None)


def _judge_word(item: Item, answer: Answer) -> Verdict:
    word = answer.text.strip()
    return Verdict(word == item.gold, word or None)


NAMES = ("arithmetic", "atlas", "reading")
"""The skills that are trained in the form in which they are asked; biography follows from running text, which is
scored."""

# Arithmetic reads the number after `####` at the end of the answer (none: unparseable); atlas and reading want the
# answer to be exactly the gold word; biography wants two true sentences; text is scored.
_TASKS = {
    "arithmetic": Generated("primer:arithmetic", 80, _arithmetic, _judge_number, gold_classes=DERIVATION),
    "atlas": Generated("primer:atlas", 12, _atlas, _judge_word),
    # What the bundled model knows, without generating; most other facts of the relation have the value that tempts.
    "atlas?form=contrast": Generated(
        "primer:atlas?form=contrast", 1, _contrast, contrast.verdict, kind="contrast", corrupt=_others
    ),
    "reading": Generated("primer:reading", 12, _reading, _judge_word),
    "biography": Generated(
        "primer:biography", 48, biography.items, biography.judge, style="raw", gold_classes=biography.CLASSES
    ),
    "text": Generated("primer:text", 1, _text, running.verdict, kind="score", style="raw"),
}


def task(name: str) -> Generated:
    """The primer's task of that name.

    Running text comes in documents of some twenty words, as in training: half are the facts about somebody of the
    atlas, which the model knows, and one text in four of these stood word for word in the training of the bundled
    one; half are scenes drawn anew, none of which did. (The group says which.) It is not cut into stretches as other
    text is, since the bundled model read nothing longer.
    """
    return _TASKS[name]
