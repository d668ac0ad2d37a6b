"""A warning, while the study still runs, where the baseline keeps something from showing whatever is cut.

No place can be critical where too few items are right; near guessing a loss cannot be told from chance. Each warning
says the smallest drop that the items can show.

An engine answers all edits of a prompt together, so the baseline is complete only when nearly everything is. The
warning therefore comes as soon as the accuracy so far makes it likely, at the latest with the complete baseline, and
before anything is evaluated where there are too few items for any accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from lesion.core.row import StoredAnswer
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.report.wording import counted
from lesion.statistics.critical import MORE, fewest_right, tested
from lesion.statistics.detectable import likely_near_guessing, shows_from, too_low
from lesion.statistics.paired import wilson
from lesion.studies.ablation.sweep import PlaceEdit, by_kind

EARLY = 30  # items of the baseline from which on a warning may come before all are answered
SURE = 0.95  # level of the interval of the accuracy so far that has to be too low as a whole


class Reach:
    """Warns once for each task whose baseline has too few right answers or is near guessing.

    Stored answers are looked at first, so that a continued study warns before it evaluates anything.
    """

    def __init__(
        self,
        store: Store,
        model: str,
        items: Mapping[str, Sequence[str]],
        edits: Sequence[PlaceEdit],
        warn: Callable[[str], None],
        guessing: Mapping[str, float] | None = None,
    ) -> None:
        self._model, self._warn, self._guessing = model, warn, guessing or {}
        self._items = {task: set(ids) for task, ids in items.items()}
        self._tests = max(map(len, by_kind(edits)), default=0)
        self._right: dict[str, dict[str, bool]] = {task: {} for task in items}
        stored = store.answers(model=model)
        self._look(zip(*(stored[column] for column in ("edit", "task", "item", "correct")), strict=True))

    def watch(self, answered: Iterable[list[StoredAnswer]]) -> Iterator[list[StoredAnswer]]:
        """The rows that were stored together, looked at as they pass."""
        for rows in answered:
            self._look((row.edit, row.task, row.item, row.correct) for row in rows)
            yield rows

    def _look(self, verdicts: Iterable[tuple[str, str, str, bool]]) -> None:
        """Take in verdicts (edit, task, item, correct), and warn where the baseline has too few."""
        for edit, task, item, correct in verdicts:
            if edit == str(BASELINE) and item in self._items.get(task, ()):
                self._right[task][item] = bool(correct)
        for task, ids in list(self._items.items()) if self._tests else ():
            known, right = len(self._right[task]), sum(self._right[task].values())
            warning = self._warning(task, right, known, len(ids))
            if warning is not None:
                self._warn(warning)
            if warning is not None or known == len(ids):
                del self._items[task]

    def _warning(self, task: str, right: int, known: int, items: int) -> str | None:
        """A warning where `right` of `known` answers leave too few right ones among all items; else None."""
        needed = fewest_right(self._tests)
        if known < items < needed:
            there = f"There {'is' if items == 1 else 'are'} {counted(items, 'item')}"
            return (
                f"{self._model}, {task}: nothing can be critical here. {there}, and {needed} right answers are needed"
                f" for an edit that leaves none right to be critical ({tested(self._tests)}). {MORE}"
            )
        if known == items:
            guessing = self._guessing.get(task, 0.0)
            return too_low(self._model, task, right, items, self._tests, guessing) if items else None
        if known < EARLY:
            return None
        if items * wilson(right, known, SURE)[1] >= needed:
            guessing = self._guessing.get(task, 0.0)
            return likely_near_guessing(self._model, task, right, known, items, self._tests, guessing)
        return (
            f"{self._model}, {task}: it is likely that nothing can be critical here. The unedited model has {right} of"
            f" {known} items right so far; of all {items} it would need {needed} right for an edit that leaves none"
            f" right to be critical ({tested(self._tests)}). {shows_from(items, self._tests)} What is"
            " answered is kept if you stop now."
        )
