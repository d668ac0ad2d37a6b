"""Stopping: which answers a layer study still needs, round by round, as a function of the answers that there are.

A cell is an edit on a task. In a round the baseline and every open cell are asked the next items, in the seeded order
of the draw: each cell about as many as it needs to be decided, all tasks of a model in one call. Then the cells are
decided item by item, as if nothing beyond that item had been asked (`sequential_families`). So how much a round asks
has no part in what is decided, and a study which was interrupted, or whose folder holds more answers than it needs,
comes to the same decisions.

What is decided is what the full table would say of the drop: a cell exceeds the effect when its drop over all the items
does, and beyond them too, and it does not when its drop over all the items does not. So what is left open when all have
been asked lost more than the effect there, but not so much more that this could not be luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from lesion.core.row import Row
from lesion.edits.edit import BASELINE, Scale
from lesion.statistics.sequential import Decision
from lesion.statistics.sequential_families import EXCEEDS, NOT, OPEN, Standing, follow, until_decided
from lesion.studies.ablation.study import StopPlan

FIRST = 12
"""Items of the first round: few cells can be decided before."""
BUDGET = 64
"""Requests of a round, at least: when few cells are open they are asked more items at once, and batches stay full."""
SHARE = 32
"""And at least one for so many answers that there are, so that rounds are not too many."""
NAMES: Mapping[int, Decision] = {EXCEEDS: "exceeds", NOT: "not", OPEN: "open"}


@dataclass(frozen=True)
class Slice:
    """What a round asks of a task: the items from `start` up to `stop`, of the draw, under each of the edits.

    Attributes:
        task: its name.
        start, stop: places in the seeded order of the items.
        edits: text forms.
    """

    task: str
    start: int
    stop: int
    edits: tuple[str, ...]

    @property
    def answers(self) -> int:
        """How many answers these are."""
        return (self.stop - self.start) * len(self.edits)


class Verdicts:
    """Whether the answers of one model were right, by task, edit and item. A keeper of answers (`asking.Keeper`).

    Args:
        rows: task, edit, item and whether the answer was right, of all answers that there are.
    """

    def __init__(self, rows: Iterable[tuple[str, str, str, bool]]) -> None:
        self._right: dict[tuple[str, str], dict[str, bool]] = {}
        for task, edit, item, right in rows:
            self._right.setdefault((task, edit), {})[item] = bool(right)

    def add(self, row: Row) -> None:
        """Remember one more answer."""
        self._right.setdefault((row.task, row.edit), {})[row.item] = row.correct

    def of(self, task: str, edit: str, items: Sequence[str]) -> Bool[np.ndarray, " items"] | None:
        """[items] whether each was answered rightly under an edit; None where one has no answer yet."""
        there = self._right.get((task, edit), {})
        if any(item not in there for item in items):
            return None
        return np.array([there[item] for item in items], dtype=bool)


class Stopping:
    """Where the stopped study of one model stands.

    Args:
        plan: the effect, and the level of the false discovery rate.
        items: the ids of each task's items in seeded order.
        edits: the cells of every task.

    Attributes:
        asked: items of each task that the baseline was asked, in whole rounds.
        reached: likewise items of every cell, by task and text form of the edit.
    """

    def __init__(self, plan: StopPlan, items: Mapping[str, Sequence[str]], edits: Sequence[Scale]) -> None:
        self.plan, self.items = plan, items
        self.asked = dict.fromkeys(items, 0)
        self.reached = {(task, str(edit)): 0 for task in items for edit in edits}
        kinds: dict[tuple[str, float], list[str]] = {}
        for edit in edits:
            kinds.setdefault((edit.unit, edit.factor), []).append(str(edit))
        self._families = [
            _Family(plan, task, tuple(kind), len(ids)) for task, ids in items.items() for kind in kinds.values()
        ]
        self._next: tuple[Slice, ...] | None = None

    @property
    def decided(self) -> dict[tuple[str, str], Decision]:
        """What every cell is, by task and text form of the edit."""
        return {
            (of.task, edit): NAMES[call]
            for of in self._families
            for edit, call in zip(of.edits, of.standing.called.tolist(), strict=True)
        }

    @property
    def full(self) -> int:
        """Answers of the full table: the most that can be asked."""
        return sum(map(len, self.items.values())) + sum(len(self.items[task]) for task, _ in self.reached)

    @property
    def answers(self) -> int:
        """Answers that were asked for."""
        return sum(self.asked.values()) + sum(self.reached.values())

    def open(self, task: str) -> list[str]:
        """The edits that are not decided on a task."""
        return [edit for (of, edit), what in self.decided.items() if of == task and what == "open"]

    def round(self) -> tuple[Slice, ...]:
        """What the next round asks, of all tasks together; nothing where all is decided or all items have been asked.

        Every open cell is asked the items it needs if it goes on as it has begun. Where these are too few for a round,
        all are asked more in proportion (`stretched`). The baseline is asked what the furthest cell is.
        """
        if self._next is None:
            stops = {(of.task, edit): stop for of in self._families for edit, stop in of.wanted().items()}
            totals = {task: len(ids) for task, ids in self.items.items()}
            self._next = self._slices(stretched(stops, self.reached, self.asked, totals))
        return self._next

    def _slices(self, stops: Mapping[tuple[str, str], int]) -> tuple[Slice, ...]:
        """Up to which item every cell is asked, as slices: cells that are asked the same items together."""
        alike: dict[tuple[str, int, int], list[str]] = {}
        for task in self.items:
            of_task = {edit: stop for (of, edit), stop in stops.items() if of == task}
            if self.asked[task] < (furthest := max(of_task.values(), default=0)):
                alike[task, self.asked[task], furthest] = [str(BASELINE)]
            for edit, stop in of_task.items():
                alike.setdefault((task, self.reached[task, edit], stop), []).append(edit)
        return tuple(Slice(*where, tuple(edits)) for where, edits in alike.items())

    def look(self, verdicts: Verdicts) -> bool:
        """Take in the next round and decide anew.

        Args:
            verdicts: the answers, perhaps with more than those of the round.

        Returns:
            False where the round is not answered in full yet, and nothing has changed; or there is none.
        """
        slices = self.round()
        right: dict[str, dict[str, Bool[np.ndarray, " items"]]] = {}
        for one in slices:
            furthest = max(other.stop for other in slices if other.task == one.task)
            for edit, stop in ((str(BASELINE), furthest), *((edit, one.stop) for edit in one.edits)):
                found = verdicts.of(one.task, edit, self.items[one.task][:stop])
                if found is None:
                    return False
                right.setdefault(one.task, {})[edit] = found
        for one in slices:
            for edit in one.edits:
                if edit == str(BASELINE):
                    self.asked[one.task] = one.stop
                else:
                    self.reached[one.task, edit] = one.stop
        for of in self._families:
            if of.task in right:
                of.look(right[of.task])
        self._next = None
        return bool(slices)

    def replay(self, verdicts: Verdicts) -> Stopping:
        """Go through all rounds that are answered in full; this itself."""
        while self.look(verdicts):
            pass
        return self

    def told(self) -> str:
        """What was saved, as a sentence without its subject: `decided after 812 of 5,400 answers: …`."""
        undecided = list(self.decided.values()).count("open")
        once = sum(map(len, self.items.values()))
        share = (
            f"{self.answers:,} of {self.full:,} answers: {self.answers / once:.1f} evaluations of the unedited model"
        )
        instead = f" instead of {self.full / once:.1f}"
        if not undecided:
            return f"decided after {share}{instead}."
        cells = f"{undecided} of {len(self.reached)} cells"
        if self.round():
            return f"{cells} not decided yet after {share}{instead}."
        return f"{cells} left open with all items asked, after {share}{instead}."


def stretched(
    stops: Mapping[tuple[str, str], int],
    reached: Mapping[tuple[str, str], int],
    asked: Mapping[str, int],
    totals: Mapping[str, int],
    budget: int | None = None,
) -> dict[tuple[str, str], int]:
    """A round with enough answers: where they are too few, every cell goes further in proportion to what it is asked.

    Args:
        stops: up to which item each cell is asked, by task and edit.
        reached: up to which it has been asked.
        asked: up to which item of each task the baseline has been asked.
        totals: how many items each task has.
        budget: answers of the round at least, those of the baseline too; by default `BUDGET`, or a `SHARE`-th of the
            answers that there are if that is more.

    Returns:
        Such stops that there are enough, or that nothing is left to ask of these cells.
    """
    if budget is None:
        budget = max(BUDGET, (sum(asked.values()) + sum(reached.values())) // SHARE)
    while True:
        answers = sum(stop - reached[cell] for cell, stop in stops.items())
        for task, already in asked.items():
            answers += max(0, max((stop for (of, _), stop in stops.items() if of == task), default=0) - already)
        further = {
            (task, edit): min(totals[task], stop + math.ceil((stop - reached[task, edit]) / 4))
            for (task, edit), stop in stops.items()
        }
        if answers >= budget or further == stops:
            return dict(stops)
        stops = further


class _Family:
    """The cells of a task that are decided together, the answers that count, and what follows from them."""

    def __init__(self, plan: StopPlan, task: str, edits: tuple[str, ...], items: int) -> None:
        self.plan, self.task, self.edits = plan, task, edits
        self.standing = Standing.first(len(edits))
        self._differences = np.zeros((len(edits), items), dtype=np.int64)
        self._known = np.zeros(len(edits), dtype=np.int64)

    def wanted(self) -> dict[str, int]:
        """Up to which item every cell should be asked next that is open and has not been asked all."""
        total = self._differences.shape[1]
        if self._known.any():
            how = self.plan.effect, self.plan.level, total
            stops = until_decided(self.standing, self._differences, self._known, *how)
        else:
            stops = np.full(len(self.edits), min(FIRST, total))
        return {
            edit: stop
            for edit, stop, known in zip(self.edits, stops.tolist(), self._known.tolist(), strict=True)
            if stop > known
        }

    def look(self, right: Mapping[str, Bool[np.ndarray, " items"]]) -> None:
        """Go on with more answers: whether each was right, from the first item on, of the baseline and some cells."""
        for cell, edit in enumerate(self.edits):
            if edit in right:
                self._known[cell] = len(right[edit])
                baseline = right[str(BASELINE)][: len(right[edit])]
                self._differences[cell, : len(right[edit])] = baseline.astype(np.int64) - right[edit]
        most = int(self._known.max())
        self.standing = follow(
            self.standing, self._differences[:, :most], self._known, self.plan.effect, self.plan.level,
            population=self._differences.shape[1],
        )  # fmt: skip
