"""Screening: the gold solutions scored under every edit before anything is generated.

A pass over prompt and solution tells the log-probability of the solution; rows share the prompt and the blocks below
the edit. What an edit takes of it ranks the layers at a small part of what generating costs. How well that foretells
the drops of generated accuracy is told in the summary (`summary_screen`); nothing is decided by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lesion.core import cost
from lesion.core.cached_answers import gold_name, gold_of, gold_tasks
from lesion.core.inference import ask, missing
from lesion.core.store import Store
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import Scale
from lesion.engines.engine import Engine
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.ablation.study import Study
from lesion.tasks.task import Item, Task

ITEMS = 100
"""Items of a task that are screened at most: the first of the draw."""
ASKING = "asking"
"""The part of the cost that tells how long asking took, of a study with a screen: by model and part."""


def refuse_doubled(study: Study) -> None:
    """Refuse a screen of what the study asks as a task of its own.

    Raises:
        UsageError: the study has a task and `gold:` of it.
    """
    names = {choice.name for choice in study.tasks}
    doubled = next((name for name in names if gold_name(name) in names), None)
    if study.screen and doubled is not None:
        raise UsageError(
            f"A screen of {doubled} is {gold_name(doubled)}, which this study asks already; leave out one or the other."
        )


def screen(
    study: Study,
    chosen: ModelChoice,
    model: Model,
    tasks: Mapping[TaskChoice, Task],
    drawn: Mapping[TaskChoice, Sequence[Item]],
    edits: Sequence[Scale],
    engine: Engine,
    store: Store,
    watcher: Watcher,
) -> tuple[int, int]:
    """Score the gold solutions of the tasks that generate, under no edit and under each, and keep them as `gold:TASK`.

    Returns:
        How many answers were asked for, and how many the screen has, with those stored before.

    Raises:
        LesionError: an item has neither solution nor gold answer, or its prompt leaves no room for it.
    """
    generating = {choice: task for choice, task in tasks.items() if task.kind == "generate"}
    for choice in tasks:
        if choice not in generating:
            watcher.note(no_screen(choice.name))
    items = {gold_of(choice): drawn[choice][:ITEMS] for choice in generating}
    for choice, some in items.items():
        store.add_items(choice.name, some)
    cells = missing(study, chosen, model, gold_tasks(generating), items, edits, store)
    total = (1 + len(edits)) * sum(map(len, items.values()))
    if cells:
        watcher.begin(chosen.name, total, total - len(cells), "answers of the screen")
        with timed(store.folder, chosen.name, "screen") as done:
            for count in ask(engine, model, chosen.name, cells, store):
                done(count)
                watcher.answered(count)
    return len(cells), total


def no_screen(task: str) -> str:
    """Why a task has no screen, as a sentence."""
    return f"{task} has no screen: its answers are scored, not generated, so that asking costs no more than a screen."


@contextmanager
def timed(folder: Path, model: str, part: str) -> Iterator[Callable[[int], None]]:
    """Measure how long answers take, and add it to what earlier runs into the folder measured.

    Args:
        folder: of the study.
        model: name of the model.
        part: `screen` or `study`.

    Yields:
        What is to be told how many answers have come.
    """
    count = 0

    def done(more: int) -> None:
        nonlocal count
        count += more

    began = time.monotonic()
    try:
        yield done
    finally:
        if count:
            known = cost.read(folder).get(ASKING) or {}
            before = known.setdefault(model, {}).get(part, {"answers": 0, "seconds": 0.0})
            spent = before["seconds"] + time.monotonic() - began
            known[model][part] = {"answers": before["answers"] + count, "seconds": round(spent, 3)}
            cost.note(folder, ASKING, known)
