"""A model answers questions, their judges say which answers are right, and JSON Lines files keep the rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from lesion.atomic import keep
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item, Task

Row = TypeVar("Row", bound=Mapping[str, object])


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
        answers[int(response.key)] = response.answer.text, task.judge(item, response.answer).correct
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
