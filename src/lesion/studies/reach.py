"""Reach: a warning, as soon as the baseline has been answered, where no place can be critical whatever is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from lesion.edits.edit import BASELINE, Scale
from lesion.studies.critical import out_of_reach
from lesion.studies.row import Row
from lesion.studies.store import Store


class Reach:
    """A keeper of answers (`asking.Keeper`) that warns once for each task whose baseline has too few right answers.

    What the store has of the baseline is looked at first, so that a study that goes on warns before it asks.

    Args:
        store: where answers are kept.
        model: its name.
        items: the ids of each task's items.
        edits: the cells of every task.
        warn: is given the sentence.
    """

    def __init__(
        self,
        store: Store,
        model: str,
        items: Mapping[str, Sequence[str]],
        edits: Sequence[Scale],
        warn: Callable[[str], None],
    ) -> None:
        self._store, self._model, self._warn = store, model, warn
        self._items = {task: set(ids) for task, ids in items.items()}
        self._tests = max(Counter((edit.unit, edit.factor) for edit in edits).values(), default=0)
        self._right: dict[str, dict[str, bool]] = {task: {} for task in items}
        there = store.answers(model=model)
        there = there[there["edit"] == str(BASELINE)]
        self._look(zip(there["task"], there["item"], there["correct"], strict=True))

    def keys(self) -> set[str]:
        """The keys of all answers that there are."""
        return self._store.keys()

    def write(self, rows: Iterable[Row]) -> int:
        """Keep answers; how many of them were new."""
        rows = list(rows)
        new = self._store.write(rows)
        self._look((row.task, row.item, row.correct) for row in rows if row.edit == str(BASELINE))
        return new

    def _look(self, verdicts: Iterable[tuple[str, str, bool]]) -> None:
        """Take in verdicts on the baseline, and warn where one is complete now."""
        for task, item, correct in verdicts:
            if item in self._items.get(task, ()):
                self._right[task][item] = bool(correct)
        for task in [task for task, ids in self._items.items() if self._right[task].keys() == ids]:
            items, right = len(self._items.pop(task)), sum(self._right[task].values())
            warning = out_of_reach(self._model, task, right, items, self._tests) if self._tests and items else None
            if warning is not None:
                self._warn(warning)
