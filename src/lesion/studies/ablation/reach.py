"""Reach: a warning, while there is still something to ask, where no place can be critical whatever is cut.

An engine answers all edits of a prompt together, so the baseline is complete only when nearly all has been asked. So
the warning comes as soon as the accuracy so far makes it likely, and at the latest when the baseline is complete;
where there are too few items for any accuracy, it comes before anything is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from lesion.core.row import Row
from lesion.core.store import Store
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.critical import fewest_right, out_of_reach
from lesion.statistics.paired import wilson

EARLY = 30
"""Items of the baseline from which on a warning may come before all are answered."""
SURE = 0.95
"""Level of the interval of the accuracy so far that has to be too low as a whole."""


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
        for task in [task for task in self._items if self._tests]:
            items, known, right = len(self._items[task]), len(self._right[task]), sum(self._right[task].values())
            if known < items < fewest_right(self._tests):
                warning: str | None = self._too_few(task, items)
            elif not known:
                continue
            elif known == items:
                warning = out_of_reach(self._model, task, right, items, self._tests)
                del self._items[task]
            else:
                warning = self._likely(task, right, known, items)
            if warning is not None:
                self._items.pop(task, None)
                self._warn(warning)

    def _too_few(self, task: str, items: int) -> str:
        """A warning where even a model that is always right has too few items."""
        needed = fewest_right(self._tests)
        return (
            f"{self._model}, {task}: nothing can be critical here. There are {items} items, and {needed} right answers"
            f" are needed for an edit that leaves none right to be critical ({self._tests} layers are tested). Give"
            " more with --items."
        )

    def _likely(self, task: str, right: int, known: int, items: int) -> str | None:
        """A warning where the accuracy so far, with its interval, leaves too few right answers among all items."""
        needed = fewest_right(self._tests)
        if known < EARLY or items * wilson(right, known, SURE)[1] >= needed:
            return None
        return (
            f"{self._model}, {task}: it is likely that nothing can be critical here. The unedited model has {right} of"
            f" {known} items right so far; of all {items} it would need {needed} right for an edit that leaves none"
            f" right to be critical ({self._tests} layers are tested). What is answered is kept if you stop now."
        )
