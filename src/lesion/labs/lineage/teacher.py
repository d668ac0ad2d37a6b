"""A teacher's words: what a model says to training questions, where the judge finds it right; kept as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lesion import atomic as whole
from lesion.engines.engine import Decoding, Request
from lesion.engines.sampling import SAMPLING
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.labs.lineage.material import mixture
from lesion.labs.lineage.recipes import Distill
from lesion.models.load import Model
from lesion.progress import Silent, Watcher
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task

FILE = "teacher.jsonl"


@dataclass(frozen=True)
class Lesson:
    """A training question with what the teacher said to it, which is right."""

    task: Task
    item: Item
    text: str


@dataclass(frozen=True)
class Lessons:
    """What a teacher's words come to: those that are right, and how many questions it was asked."""

    right: tuple[Lesson, ...]
    asked: int


def teach(teacher: Model, recipe: Distill, out: Path, *, watcher: Watcher | None = None) -> Lessons:
    """Ask a teacher the training questions of a recipe; or read what it said, where `out` has it.

    `out/teacher.jsonl` holds a line on who was asked what, then a line for every question with what was said and
    whether it is right. It is written when all are answered.

    Raises:
        LesionError: nothing that the teacher says is right, or the file cannot be written.
    """
    asked = mixture(recipe.shares, recipe.seed, recipe.questions)
    path = out / FILE
    head: dict[str, object] = {"teacher": teacher.fingerprint, "recipe": asdict(recipe)}
    if recipe.temperature > 0:
        head["sampling"] = SAMPLING
    said = _read(path, head, len(asked))
    if said is None:
        said = _ask(teacher, asked, recipe, watcher or Silent())
        rows = (
            {"id": item.id, "text": text, "right": right} for (_, item), (text, right) in zip(asked, said, strict=True)
        )
        try:
            out.mkdir(parents=True, exist_ok=True)
            whole.replace(path, "".join(f"{json.dumps(row)}\n" for row in (head, *rows)))
        except OSError as error:
            raise LesionError(f"{path} cannot be written: {error.strerror or error}; give another --out.") from error
    lessons = tuple(Lesson(task, item, text) for (task, item), (text, right) in zip(asked, said, strict=True) if right)
    if not lessons:
        raise LesionError(
            f"Nothing that the teacher {teacher.name} says to {len(asked):,} training questions is right, so there is"
            " nothing to learn from it; train it longer, or another one."
        )
    return Lessons(lessons, len(asked))


def _ask(
    teacher: Model, asked: Sequence[tuple[Task, Item]], recipe: Distill, watcher: Watcher
) -> list[tuple[str, bool]]:
    """What the teacher says to each question, and whether it is right."""
    watcher.begin(f"{teacher.name} as teacher", len(asked), 0)
    requests = [
        Request(
            str(place),
            encode(teacher, task, item),
            decoding=Decoding(task.max_new_tokens, task.stop, recipe.temperature, seed=recipe.seed),
        )
        for place, (task, item) in enumerate(asked)
    ]
    said: dict[int, tuple[str, bool]] = {}
    for response in TransformersEngine(teacher).answer(requests):
        task, item = asked[int(response.key)]
        said[int(response.key)] = response.answer.text.strip(), task.judge(item, response.answer).correct
        watcher.answered(1)
    return [said[place] for place in range(len(asked))]


def _read(path: Path, head: dict[str, object], count: int) -> list[tuple[str, bool]] | None:
    """What the file holds, where it is whole and of this teacher and recipe."""
    try:
        first, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if first != json.loads(json.dumps(head)) or len(rows) != count:
            return None
        return [(str(row["text"]), bool(row["right"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        return None
