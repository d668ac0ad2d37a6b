"""A teacher's words: what a model says to training questions, where the judge finds it right; kept as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from lesion.engines.engine import Decoding
from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.tasks.task import Item, Task
from lesion_labs.lineage.inference import answer, kept
from lesion_labs.lineage.material import mixture
from lesion_labs.lineage.recipes import Distill

FILE = "teacher.jsonl"


@dataclass(frozen=True)
class Lesson:
    """A training question with the teacher's right answer."""

    task: Task
    item: Item
    text: str


class _Row(TypedDict):
    id: str
    text: str
    right: bool


def teach(teacher: Model, recipe: Distill, out: Path, *, watcher: Watcher | None = None) -> list[Lesson]:
    """The teacher's right answers to the training questions of a recipe, read where `out/teacher.jsonl` has them."""
    questions = mixture(recipe.shares, recipe.seed, recipe.questions)
    head: dict[str, object] = {"teacher": teacher.fingerprint, "recipe": asdict(recipe)}
    if recipe.temperature > 0:
        head["sampling"] = SAMPLING
    rows = kept(out / FILE, head, len(questions), lambda: _answers(teacher, questions, recipe, watcher or Silent()))
    lessons = [
        Lesson(task, item, row["text"]) for (task, item), row in zip(questions, rows, strict=True) if row["right"]
    ]
    if not lessons:
        raise LesionError(
            f"Nothing that the teacher {teacher.name} says to {len(questions):,} training questions is right, so there"
            " is nothing to learn from it; train it longer, or another one."
        )
    return lessons


def _answers(teacher: Model, questions: Sequence[tuple[Task, Item]], recipe: Distill, watcher: Watcher) -> list[_Row]:
    watcher.begin(f"{teacher.name} as teacher", len(questions), 0)
    decoded = [
        (task, item, Decoding(task.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed))
        for task, item in questions
    ]
    return [
        {"id": item.id, "text": text.strip(), "right": right}
        for (_, item), (text, right) in zip(questions, answer(teacher, decoded, watcher), strict=True)
    ]
