"""Recipes of the children, with the defaults of the bundled ones, and what they learn from.

Training questions are the primer's training splits, drawn anew; a function of a seed and an index. None is of a test
split: no arithmetic problem of the test, no passage with its question, no wording of an atlas question that the test
asks. What models said to them is kept as JSON lines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from lesion.atomic import keep
from lesion.engines.engine import Decoding, Request
from lesion.engines.sampling import SAMPLING
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import SILENT, Watcher
from lesion.tasks.catalogue import find
from lesion.tasks.primer import NAMES, arithmetic, atlas, reading
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task
from lesion.training.supervised import Tuning
from lesion.training.verifiable import Reinforcement


@dataclass(frozen=True)
class Instruct(Tuning):
    """Supervised tuning on chat turns with the gold solutions of `questions` questions.

    Args:
        arithmetic, atlas, reading: shares of the skills among the questions.
    """

    stage: ClassVar[str] = "instruct"
    steps: int = 300
    questions: int = 9600
    arithmetic: float = 0.4
    atlas: float = 0.3
    reading: float = 0.3

    @property
    def shares(self) -> dict[str, float]:
        """Of the skills among the questions."""
        return {skill: getattr(self, skill) for skill in NAMES}


@dataclass(frozen=True)
class Distill(Instruct):
    """Supervised tuning on what a teacher says where it is right; at temperature 0 it answers greedily."""

    stage: ClassVar[str] = "distill"
    temperature: float = 0.0


@dataclass(frozen=True)
class Rlvr(Reinforcement):
    """Group-relative policy optimisation (GRPO) on arithmetic; the reward is what the task's judge finds.

    Args:
        questions: problems drawn; those are kept that come out right in some of so many `tries`, and not in all.
    """

    stage: ClassVar[str] = "rlvr"
    steps: int = 120
    learning_rate: float = 2e-4
    max_new_tokens: int = 60
    questions: int = 3000
    tries: int = 4


Recipe = Instruct | Rlvr
RECIPES: dict[str, type[Instruct] | type[Rlvr]] = {kind.stage: kind for kind in (Instruct, Rlvr, Distill)}


TAUGHT, TRIED = "teacher.jsonl", "problems.jsonl"
"""Files of a teacher's answers, and of how many tries of each problem are right."""
Row = dict[str, Any]
Lesson = tuple[Task, Item, str]
"""A training question with the right answer that is taught."""


def answer(
    model: Model, questions: Sequence[tuple[Task, Item, Decoding]], watcher: Watcher, style: str | None = None
) -> list[tuple[str, bool]]:
    """What a model says to each question, and whether the judge of its task finds it right."""
    requests = [
        Request(str(place), encode(model, task, item, style), decoding=decoding)
        for place, (task, item, decoding) in enumerate(questions)
    ]
    answers: dict[int, tuple[str, bool]] = {}
    for response in TransformersEngine(model).answer(requests):
        task, item, _ = questions[int(response.key)]
        answers[int(response.key)] = response.answer.text.strip(), task.judge(item, response.answer).correct
        watcher.answered(1)
    return [answers[place] for place in range(len(questions))]


def kept(path: Path, head: Mapping[str, object], count: int, make: Callable[[], Sequence[Row]]) -> Sequence[Row]:
    """The rows of a file that is whole and has this head; else rows that are made now and written."""
    try:
        first, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if first == json.loads(json.dumps(head)) and len(rows) == count:
            return rows
    except (OSError, ValueError):
        pass
    made = make()
    keep(path, "".join(f"{json.dumps(row)}\n" for row in (head, *made)))
    return made


def question(skill: str, seed: int, index: int) -> Item:
    """Training question `index` of a skill, from another stream than the documents of the base.

    Its solution is what should be said: the gold chain of thought, or the one word.
    """
    rng = random.Random(f"primer child {skill} {seed} {index}")
    name = f"{skill}-{seed}-{index}"
    if skill == "arithmetic":
        problem, story, solution = arithmetic.example(rng, test=False)
        return Item(name, story, str(problem.result), solution=solution, group=f"{len(problem.operations)}")
    if skill == "atlas":
        fact, text = atlas.question(rng, test=False)
        return Item(name, text, fact.value, solution=fact.value, group=fact.relation)
    text, answer, sentences = reading.example(rng, test=False)
    return Item(name, text, answer, solution=answer, group=f"{sentences}")


def questions(skill: str, seed: int, count: int) -> list[Item]:
    """The first `count` training questions of a skill."""
    return [question(skill, seed, index) for index in range(count)]


def mixture(shares: Mapping[str, float], seed: int, count: int) -> list[tuple[Task, Item]]:
    """`count` questions, each with its task, their skills drawn by `shares` and the seed."""
    if not shares or min(shares.values()) < 0 or not sum(shares.values()):
        raise UsageError(f"A mixture needs shares of skills that are not negative, not {dict(shares)}.")
    rng = random.Random(f"primer mixture {seed}")
    tasks = {skill: find(f"primer:{skill}") for skill in shares}
    drawn = rng.choices(tuple(shares), tuple(shares.values()), k=count)
    return [(tasks[skill], question(skill, seed, index)) for index, skill in enumerate(drawn)]


def teach(teacher: Model, recipe: Distill, out: Path, *, watcher: Watcher = SILENT) -> list[Lesson]:
    """The teacher's right answers to the training questions of a recipe, read where `out/teacher.jsonl` has them."""
    pairs = mixture(recipe.shares, recipe.seed, recipe.questions)
    head: dict[str, object] = {"teacher": teacher.fingerprint, "recipe": asdict(recipe)}
    if recipe.temperature > 0:
        head["sampling"] = SAMPLING
    rows = kept(out / TAUGHT, head, len(pairs), lambda: _answers(teacher, pairs, recipe, watcher))
    lessons = [(task, item, row["text"]) for (task, item), row in zip(pairs, rows, strict=True) if row["right"]]
    if not lessons:
        raise LesionError(
            f"Nothing that the teacher {teacher.name} says to {len(pairs):,} training questions is right, so there"
            " is nothing to learn from it; train it longer, or another one."
        )
    return lessons


def _answers(teacher: Model, pairs: Sequence[tuple[Task, Item]], recipe: Distill, watcher: Watcher) -> list[Row]:
    watcher.begin(f"{teacher.name} as teacher", len(pairs), 0)
    decoded = [
        (task, item, Decoding(task.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed))
        for task, item in pairs
    ]
    return [
        {"id": item.id, "text": text, "right": right}
        for (_, item), (text, right) in zip(pairs, answer(teacher, decoded, watcher), strict=True)
    ]


def problems(model: Model, recipe: Rlvr, out: Path, *, watcher: Watcher = SILENT) -> list[Item]:
    """The training problems of a recipe that a model, asked in style `plain`, solves in some of its tries, not in all.

    Only these teach GRPO anything: where all tries of a problem earn the same, none has an advantage. (DAPO, Yu et al.
    2025, draws such problems anew in every step; here it is done once, ahead.)
    `out/problems.jsonl` keeps the number of right tries of every problem.
    """
    drawn = questions("arithmetic", recipe.seed, recipe.questions)
    head = {
        "model": model.fingerprint,
        "sampling": SAMPLING,
        **{key: asdict(recipe)[key] for key in ("seed", "questions", "tries", "temperature", "max_new_tokens")},
    }
    rows = kept(out / TRIED, head, len(drawn), lambda: _tried(model, drawn, recipe, watcher))
    right = [row["right"] for row in rows]
    mixed = [item for item, count in zip(drawn, right, strict=True) if 0 < count < recipe.tries]
    if not mixed:
        share = sum(right) / (len(right) * recipe.tries)
        raise LesionError(
            f"GRPO has nothing to learn from {len(drawn):,} problems: each of them came out the same way in all"
            f" {recipe.tries} tries of {model.name} ({100 * share:.0f} % of all tries were right). Start from a base"
            f" that is {'trained longer' if share < 0.5 else 'less well trained'}."
        )
    return mixed


def _tried(model: Model, drawn: Sequence[Item], recipe: Rlvr, watcher: Watcher) -> list[Row]:
    task = find("primer:arithmetic")
    watcher.begin(f"{model.name}, problems to learn from", len(drawn) * recipe.tries, 0, "tries")
    decodings = [
        Decoding(recipe.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed * recipe.tries + number)
        for number in range(recipe.tries)
    ]
    tries = answer(model, [(task, item, decoding) for decoding in decodings for item in drawn], watcher, "plain")
    right = [correct for _, correct in tries]
    return [{"id": item.id, "right": sum(right[place :: len(drawn)])} for place, item in enumerate(drawn)]
