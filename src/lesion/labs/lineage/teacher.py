"""A teacher's words: what a model says to training questions, where the judge finds it right; kept as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

from lesion.engines.engine import Decoding, Request
from lesion.engines.sampling import SAMPLING
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.labs.lineage.kept import kept
from lesion.labs.lineage.material import mixture
from lesion.labs.lineage.recipes import Distill
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task

FILE = "teacher.jsonl"


@dataclass(frozen=True)
class Lesson:
    """A training question with the teacher's right answer."""

    task: Task
    item: Item
    text: str


@dataclass(frozen=True)
class Lessons:
    """A teacher's right answers, and the number of training questions."""

    right: tuple[Lesson, ...]
    questions: int


class _Row(TypedDict):
    id: str
    text: str
    right: bool


def teach(teacher: Model, recipe: Distill, out: Path, *, watcher: Watcher | None = None) -> Lessons:
    """Ask a teacher the training questions of a recipe; or read what it said, where `out/teacher.jsonl` has it.

    Raises:
        LesionError: nothing that the teacher says is right, or the file cannot be written.
    """
    questions = mixture(recipe.shares, recipe.seed, recipe.questions)
    head: dict[str, object] = {"teacher": teacher.fingerprint, "recipe": asdict(recipe)}
    if recipe.temperature > 0:
        head["sampling"] = SAMPLING
    rows = kept(out / FILE, head, len(questions), lambda: _answers(teacher, questions, recipe, watcher or Silent()))
    lessons = tuple(
        Lesson(task, item, row["text"]) for (task, item), row in zip(questions, rows, strict=True) if row["right"]
    )
    if not lessons:
        raise LesionError(
            f"Nothing that the teacher {teacher.name} says to {len(questions):,} training questions is right, so there"
            " is nothing to learn from it; train it longer, or another one."
        )
    return Lessons(lessons, len(questions))


def _answers(teacher: Model, questions: Sequence[tuple[Task, Item]], recipe: Distill, watcher: Watcher) -> list[_Row]:
    watcher.begin(f"{teacher.name} as teacher", len(questions), 0)
    requests = [
        Request(
            str(place),
            encode(teacher, task, item),
            decoding=Decoding(task.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed),
        )
        for place, (task, item) in enumerate(questions)
    ]
    rows: dict[int, _Row] = {}
    for response in TransformersEngine(teacher).answer(requests):
        task, item = questions[int(response.key)]
        right = task.judge(item, response.answer).correct
        rows[int(response.key)] = {"id": item.id, "text": response.answer.text.strip(), "right": right}
        watcher.answered(1)
    return [rows[place] for place in range(len(questions))]
