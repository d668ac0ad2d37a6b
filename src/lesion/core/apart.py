"""Apart: items drawn so that nothing that other studies asked or showed comes back, by value and not by seed or id.

What another study keeps apart from, and the texts on which its edits are calibrated, are kept apart from as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from lesion.activations.calibration import seeded
from lesion.core.fields import SAMPLES
from lesion.core.study_file import Questions, TaskChoice, study_file
from lesion.edits.edit import Edit, of_weights
from lesion.edits.files.artefact import SUFFIX, read_edit
from lesion.errors import LesionError, UsageError
from lesion.files import read_toml
from lesion.tasks.catalogue import calibration_items, draw, find, source
from lesion.tasks.item_clusters import sharing, shown, value
from lesion.tasks.task import Item, Task


@dataclass(frozen=True)
class Used:
    """What was used to calibrate edits.

    Attributes:
        ids: of each source of items (`catalogue.source`), the calibration texts.
        values: of these texts and of the problems that stand solved in them (`tasks.values`).
    """

    ids: Mapping[str, Collection[str]]
    values: Collection[str]

    @classmethod
    def make(cls, texts: Mapping[str, Collection[str]]) -> Used:
        """Of the ids of calibration texts by data set."""
        ids: dict[str, set[str]] = {}
        values: set[str] = set()
        for data, of_data in texts.items():
            ids.setdefault(source(data), set()).update(of_data)
            with suppress(LesionError):  # a file of calibration texts may be gone: their ids are known
                values.update(*(shown(data, item) for item in calibration_items(find(data)) if item.id in of_data))
        return cls(ids, values)

    def of(self, task: str) -> set[str]:
        """The ids of the items of a task that were, or were asked or solved in, calibration texts."""
        return {*self.ids.get(source(task), ()), *sharing(task, find(task).load(), self.values)}


NOTHING_USED = Used({}, ())


def calibrated_on(edits: Iterable[Edit]) -> Used:
    """The items that were calibration texts of edits, as the provenance in their `.edit` files says."""
    texts: dict[str, set[str]] = {}
    for part in (part for edit in edits for part in of_weights(edit)):
        for inputs in part.selection.inputs:
            for draw_of_texts in inputs.provenance:
                texts.setdefault(draw_of_texts.data, set()).update(draw_of_texts.ids)
    return Used.make(texts)


def chosen_and_tested(task: str, items: Sequence[Item], share: float) -> tuple[list[int], list[int]]:
    """The places of the items on which an edit is chosen, and of those on which it is tested.

    At least two items stand in seeded order: the first of them choose. Of the others, those that ask what chose do not
    test (34 + 12 is no test where 12 + 34 chose); there may be none left.
    """
    ahead = min(max(1, math.ceil(share * len(items))), len(items) - 1)
    values = [value(task, item) for item in items]
    seen = set(values[:ahead])
    return list(range(ahead)), [place for place in range(ahead, len(items)) if values[place] not in seen]


def draw_apart(
    study: Questions, choice: TaskChoice, task: Task, avoid: Collection[str] = (), within: tuple[str, ...] = ()
) -> list[Item]:
    """The items of a task in the order of a study's draw, all that it may ask: none whose value its `apart` showed.

    `avoid` are drawn last; `within` are the studies whose own `apart` led to this one.
    """
    items = draw(task, None, study.seed, avoid)
    if not study.apart:
        return items
    before = frozenset().union(*(_shown(name, within) for name in study.apart))
    left = [item for item in items if value(choice.name, item) not in before]
    if not left:
        raise UsageError(
            f"All {len(items):,} items of {choice.name} were asked or shown by {', '.join(study.apart)}; leave one out"
            " of 'apart', or take another task."
        )
    return left


@cache
def _shown(name: str, within: tuple[str, ...]) -> frozenset[str]:
    """The values of all that a study asks, shows solved or calibrates on, and of all that it keeps apart from."""
    within = (*within, name)
    if name in within[:-1]:
        raise UsageError(f"'apart' goes in a circle: {' → '.join(within)}; take it out of one of them.")
    file = study_file(name)
    document = read_toml(file)
    used = _calibrated(document)
    values = frozenset(used.values)
    keys = {key: document[key] for key in ("tasks", "items", "seed", "apart") if key in document}
    if "tasks" not in keys and not values:
        raise UsageError(f"{name} in 'apart' has no tasks, so that there is nothing to keep apart from.")
    other = Questions.make(**{"tasks": ["any"], **keys})
    values = values.union(*(_shown(each, within) for each in other.apart or ()))
    for choice in other.tasks if "tasks" in keys else ():
        items = draw_apart(other, choice, find(choice.name), used.of(choice.name), within)[: other.items_of(choice)]
        values = values.union(*(shown(choice.name, item) for item in items))
    return values


def _calibrated(document: Mapping[str, Any]) -> Used:
    """What the edits of a study were calibrated on: an isolation draws it, of an evaluation the edit files say it."""
    if document.get("kind") == "evaluation":
        edits = document.get("edits", ())
        files = [edits] if isinstance(edits, str) else edits
        return calibrated_on(read_edit(file).edit for file in files if file.endswith(SUFFIX))
    if document.get("kind") != "isolation" or "skill" not in document:
        return NOTHING_USED
    samples, controls = document.get("samples", SAMPLES), document.get("controls", ())
    size = samples if isinstance(samples, int) else max(samples)
    draws = document.get("repeats", 1), document.get("seed", 0), document.get("replacement", False)
    texts = {}
    for data in (document["skill"], *([controls] if isinstance(controls, str) else controls)):
        pool, orders, _ = seeded(calibration_items(find(data)), size, *draws)
        texts[data] = {pool[place].id for order in orders for place in order}
    return Used.make(texts)
