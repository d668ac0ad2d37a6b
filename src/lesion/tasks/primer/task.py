"""The primer's tasks as `Task`s, and its training documents. Everything is a function of a seed and an index."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from lesion.errors import UsageError, nearest
from lesion.tasks import running
from lesion.tasks.primer import arithmetic, atlas, reading, text
from lesion.tasks.task import Answer, Item, Kind, Verdict

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


@cache
def _arithmetic_items() -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    index = 0
    while len(items) < TEST_ITEMS:
        rng = random.Random(f"{TEST_SEED} arithmetic {index}")
        index += 1
        problem, question, solution = arithmetic.example(rng, test=True)
        items.setdefault(
            str(problem),
            Item(
                id=str(problem),
                question=question,
                gold=str(problem.result),
                solution=solution,
                group=_steps(problem),
            ),
        )
    return tuple(items.values())


@cache
def _atlas_items() -> tuple[Item, ...]:
    return tuple(
        Item(
            id=f"{fact.index}",
            question=fact.question(fact.test_wording),
            gold=fact.value,
            solution=fact.value,
            group=fact.relation,
        )
        for fact in atlas.facts()
    )


@cache
def _reading_items() -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    index = 0
    while len(items) < TEST_ITEMS:
        rng = random.Random(f"{TEST_SEED} reading {index}")
        question, answer, sentences = reading.example(rng)
        items.setdefault(question, Item(str(index), question, answer, solution=answer, group=_sentences(sentences)))
        index += 1
    return tuple(items.values())


@cache
def _text_items(seed: str = TEST_SEED, count: int = TEXT_ITEMS, prefix: str = "") -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    index = 0
    while len(items) < count:
        rng = random.Random(f"{seed} text {index}")
        facts = index % 2 == 0
        passage = atlas.statements(rng) if facts else text.scene(rng, rng.randint(2, 4))
        items.setdefault(passage, Item(f"{prefix}{index}", passage, "", group="facts" if facts else "scene"))
        index += 1
    return tuple(items.values())


@cache
def _arithmetic_pool() -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    index = 0
    while len(items) < POOL_ITEMS:
        problem, question, solution = arithmetic.example(random.Random(f"{POOL_SEED} arithmetic {index}"), test=False)
        group = _steps(problem)
        item = Item(f"train-{index}", question, str(problem.result), solution=solution, group=group)
        items.setdefault(str(problem), item)
        index += 1
    return tuple(items.values())


@cache
def _reading_pool() -> tuple[Item, ...]:
    items: dict[str, Item] = {}
    index = 0
    while len(items) < POOL_ITEMS:
        question, answer, sentences = reading.practice(random.Random(f"{POOL_SEED} reading {index}"))
        items.setdefault(
            question, Item(f"train-{index}", question, answer, solution=answer, group=_sentences(sentences))
        )
        index += 1
    return tuple(items.values())


def _text_pool() -> tuple[Item, ...]:
    tested = {item.question for item in _text_items()}
    return tuple(item for item in _text_items(POOL_SEED, POOL_ITEMS, "train-") if item.question not in tested)


def _steps(problem: arithmetic.Problem) -> str:
    steps = len(problem.operations)
    return f"{steps} step" + "s" * (steps > 1)


def _sentences(count: int) -> str:
    return f"{count} sentence" + "s" * (count > 1)


# A bound on the digits: int() refuses thousands of them, and no answer has that many.
_NUMBER = re.compile(r"####\s*(-?\d{1,18})\s*$")


def _judge_number(item: Item, answer: Answer) -> Verdict:
    found = _NUMBER.search(answer.text.strip())
    return Verdict(found is not None and int(found[1]) == int(item.gold), found[1] if found else None)


def _judge_word(item: Item, answer: Answer) -> Verdict:
    said = answer.text.strip()
    return Verdict(said == item.gold, said or None)


@dataclass(frozen=True)
class PrimerTask:
    """One skill of the primer as a task: its test split and its judge.

    Arithmetic reads the number after `####` at the end of the answer (none: unparseable); atlas and reading want the
    answer to be exactly the gold word; text is scored.
    """

    name: str
    max_new_tokens: int
    items: Callable[[], tuple[Item, ...]]
    verdict: Callable[[Item, Answer], Verdict]
    pool: Callable[[], tuple[Item, ...]]
    kind: Kind = "generate"
    stop: tuple[str, ...] = ()
    style: str = "auto"

    def load(self) -> Sequence[Item]:
        """The test split, the same on every machine."""
        return self.items()

    def calibration(self) -> Sequence[Item]:
        """Items to observe a model on: 2,000 of the training split, generated anew, none of which is in the test split.

        Of the atlas they are the facts as they are asked, since there are no others to recall. Of the text, those
        whose very words the test has too are left out.
        """
        return self.pool()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right."""
        return self.verdict(item, answer)


NAMES = ("arithmetic", "atlas", "reading")
"""The skills that are asked; running text, the fourth task, is scored."""


def task(name: str) -> PrimerTask:
    """The primer's task of that name.

    Running text comes in documents of some twenty words, as in training: half are the facts about somebody of the
    atlas, which the model knows, and one text in four of these stood word for word in the training of the bundled
    one; half are scenes drawn anew, none of which did. (The group says which.) It is not cut into stretches as other
    text is, since the bundled model read nothing longer.

    Raises:
        UsageError: there is no such task.
    """
    if name == "arithmetic":
        return PrimerTask("primer:arithmetic", 80, _arithmetic_items, _judge_number, _arithmetic_pool)
    if name == "atlas":
        return PrimerTask("primer:atlas", 12, _atlas_items, _judge_word, _atlas_items)
    if name == "reading":
        return PrimerTask("primer:reading", 12, _reading_items, _judge_word, _reading_pool)
    if name == "text":
        return PrimerTask("primer:text", 1, _text_items, running.verdict, _text_pool, kind="score", style="raw")
    known = (*NAMES, "text")
    raise UsageError(f"The primer has no task '{name}'{nearest(name, known)}; it has {', '.join(known)}.")
