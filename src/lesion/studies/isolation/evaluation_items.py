"""The items of an evaluation: none on which its edits were calibrated, as long as there are enough others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lesion.core.apart import Used, draw_apart
from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.study_file import Questions, TaskChoice
from lesion.tasks.catalogue import find
from lesion.tasks.task import Item


def draw_items(questions: Questions, used: Used, folder: Path) -> dict[TaskChoice, list[Item]]:
    """The items of every task: seeded, those that were calibration texts last; those that a folder has come first.

    An evaluation compares all edits of a folder on the same items, so a folder with answers keeps its items, also where
    an edit is added that was calibrated on some of them (`seen` says on how many); more items are added to them.

    Args:
        questions: which tasks, how many items, and the seed.
        used: which items were calibration texts.
        folder: of the evaluation; it need not exist.

    Raises:
        UsageError: a task does not exist.
        LesionError: the store in the folder is damaged.
    """
    stored = _answered(folder)
    drawn = {}
    for choice in questions.tasks:
        task = find(choice.name)
        items = draw_apart(questions, choice, task, used.of(choice.name))
        place = {item: number for number, item in enumerate(stored.get(choice.name, ()))}
        items.sort(key=lambda item: place.get(item.id, len(place)))
        drawn[choice] = items[: questions.items_of(choice)]
    return drawn


def seen(drawn: Mapping[TaskChoice, Sequence[Item]], used: Used) -> list[str]:
    """A note for each task of which items are asked on which an edit was calibrated."""
    notes = []
    for choice, items in drawn.items():
        texts = used.of(choice.name)
        both = sum(item.id in texts for item in items)
        if both:
            every = find(choice.name).load()
            free = sum(item.id not in texts for item in every)
            notes.append(
                f"{choice.name}: {both:,} of the {len(items):,} items that are asked were also calibration texts of the"
                f" edits; {free:,} of its {len(every):,} items were not. To keep them apart, ask for at most {free:,}"
                f" items, or isolate with fewer texts (--samples)."
                if free
                else f"{choice.name}: all {len(items):,} items that are asked were also calibration texts of the edits;"
                f" isolate with fewer texts (--samples) to keep them apart."
            )
    return notes


def _answered(folder: Path) -> dict[str, list[str]]:
    """The items of a folder by task, in their order; none where nothing has been answered there."""
    if not (Path(folder) / FILE).is_file():
        return {}
    with Store.read(folder) as store:
        if not len(store):
            return {}
        frame = store.items()
    return {str(task): list(rows["item"]) for task, rows in frame.groupby("task", sort=False)}
