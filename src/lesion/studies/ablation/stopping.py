"""Stopping: which answers a layer study still needs, round by round, as a function of the stored answers.

A cell is an edit on a task. In a round the baseline and every open cell are asked the next items, in the seeded order
of the draw: each cell about as many as it needs to be decided, all tasks of a model in one call. Then the cells are
decided item by item, as if nothing beyond that item had been asked (`sequential_families`). How much a round asks thus
has no part in what is decided: an interrupted study, or one whose folder holds more answers than it needs, comes to the
same decisions.

A cell left open when all items have been asked lost more than the effect there, but not so much more that this could
not be luck.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool

from lesion.core.values import alike
from lesion.edits.edit import BASELINE
from lesion.statistics.sequential_families import EXCEEDS, NOT, OPEN, Decision, Standing
from lesion.studies.ablation.study import StopPlan
from lesion.studies.ablation.sweep import PlaceEdit, text_of

FIRST = 12  # items of the first round: few cells can be decided before
BUDGET = 64  # requests of a round at least: few open cells are asked more items at once, so that batches stay full
SHARE = 32  # and at least one for so many stored answers, so that rounds are not too many
NAMES: Mapping[int, Decision] = {EXCEEDS: "exceeds", NOT: "not", OPEN: "open"}
Place = tuple[str, str]
"""A task and the text form of an edit: a cell, or the baseline."""
Right = Bool[np.ndarray, " items"]


def baseline_of(task: str) -> Place:
    """The baseline of a task."""
    return task, str(BASELINE)


class Verdicts:
    """Whether the answers of one model were right: `rows` are task, edit, item and the verdict of all stored ones."""

    def __init__(self, rows: Iterable[tuple[str, str, str, bool]]) -> None:
        self._right: dict[Place, dict[str, bool]] = {}
        self.add(rows)

    def add(self, rows: Iterable[tuple[str, str, str, bool]]) -> None:
        """Take in more answers."""
        for task, edit, item, right in rows:
            self._right.setdefault((task, edit), {})[item] = bool(right)

    def of(self, task: str, edit: str, items: Sequence[str]) -> Right | None:
        """[items] whether each was answered rightly under an edit; None where one has no answer yet."""
        known = self._right.get((task, edit), {})
        return np.array([known[item] for item in items], dtype=bool) if known.keys() >= set(items) else None


class Stopping:
    """Where the stopped study of one model stands.

    Args:
        plan: the effect, the rule and its level.
        items: the ids of each task's items in seeded order.
        edits: the cells of every task.

    Attributes:
        reached: how many items every cell and baseline was asked, in whole rounds.
    """

    def __init__(self, plan: StopPlan, items: Mapping[str, Sequence[str]], edits: Sequence[PlaceEdit]) -> None:
        self.plan, self.items = plan, items
        self.reached = {
            (task, text): 0 for task in items for text in (str(BASELINE), *(text_of(edit, task) for edit in edits))
        }
        self._families = [
            _Family(plan, task, tuple(text_of(edit, task) for edit in kind), len(ids))
            for task, ids in items.items()
            for kind in alike(edits, "unit", "factor")
        ]
        self._next: dict[Place, int] | None = None

    @property
    def decided(self) -> dict[Place, Decision]:
        """What every cell is."""
        return {
            (family.task, edit): NAMES[call]
            for family in self._families
            for edit, call in zip(family.edits, family.standing.called.tolist(), strict=True)
        }

    @property
    def full(self) -> int:
        """Answers of the full table: the most that can be asked."""
        return sum(len(self.items[task]) for task, _ in self.reached)

    @property
    def answers(self) -> int:
        """Answers that were asked for."""
        return sum(self.reached.values())

    def round(self) -> dict[Place, int]:
        """Up to which item the next round asks; empty where all is decided or all items have been asked.

        Every open cell is asked the items it needs if it goes on as it has begun, or more (`stretched`). The baseline
        is asked what the furthest cell is.
        """
        if self._next is None:
            wanted = {(family.task, edit): stop for family in self._families for edit, stop in family.wanted().items()}
            totals = {task: len(ids) for task, ids in self.items.items()}
            self._next = _with_baselines(stretched(wanted, self.reached, totals), self.reached)
        return self._next

    def look(self, verdicts: Verdicts) -> bool:
        """Take in the next round and decide anew; False where there is none, or it is not answered in full yet."""
        stops = self.round()
        right: dict[str, dict[str, Right]] = {}
        for (task, edit), stop in stops.items():
            answered = verdicts.of(task, edit, self.items[task][:stop])
            if answered is None:
                return False
            right.setdefault(task, {})[edit] = answered
        self.reached |= stops
        for family in self._families:
            if family.task in right:
                family.look(right[family.task])
        self._next = None
        return bool(stops)

    def replay(self, verdicts: Verdicts) -> Stopping:
        """Go through all rounds that are answered in full; this itself."""
        while self.look(verdicts):
            pass
        return self

    def progress(self) -> str:
        """What was saved, as a sentence without its subject: `decided after 812 of 5,400 answers: …`."""
        undecided = list(self.decided.values()).count("open")
        once = sum(map(len, self.items.values()))
        share = (
            f"{self.answers:,} of {self.full:,} answers: {self.answers / once:.1f} evaluations of the unedited model"
            f" instead of {self.full / once:.1f}."
        )
        if not undecided:
            return f"decided after {share}"
        how = "not decided yet after" if self.round() else "left open with all items asked, after"
        return f"{undecided} of {len(self.decided)} cells {how} {share}"


def stretched(
    stops: Mapping[Place, int], reached: Mapping[Place, int], totals: Mapping[str, int], budget: int | None = None
) -> dict[Place, int]:
    """A round with enough answers: where they are too few, every cell goes further in proportion to what it is asked.

    Args:
        stops: up to which item each cell is asked.
        reached: up to which it has been asked, and the baselines.
        totals: how many items each task has.
        budget: answers of the round at least, those of the baseline too; fewer where nothing is left to ask. By default
            `BUDGET`, or a `SHARE`-th of the stored answers if that is more.
    """
    if budget is None:
        budget = max(BUDGET, sum(reached.values()) // SHARE)
    while True:
        answers = sum(stop - reached[place] for place, stop in _with_baselines(stops, reached).items())
        further = {
            (task, edit): min(totals[task], stop + math.ceil((stop - reached[task, edit]) / 4))
            for (task, edit), stop in stops.items()
        }
        if answers >= budget or further == stops:
            return dict(stops)
        stops = further


def _with_baselines(stops: Mapping[Place, int], reached: Mapping[Place, int]) -> dict[Place, int]:
    """The stops, and before them those of the baselines: as far as the furthest cell."""
    baselines: dict[Place, int] = {}
    for (task, _), stop in stops.items():
        baseline = baseline_of(task)
        baselines[baseline] = max(stop, baselines.get(baseline, reached[baseline]))
    return baselines | dict(stops)


class _Family:
    """The cells of a task that are decided together, the answers that count, and what follows from them."""

    def __init__(self, plan: StopPlan, task: str, edits: tuple[str, ...], items: int) -> None:
        self.task, self.edits = task, edits
        self.standing = Standing.first(len(edits), plan.effect, plan.level, items, plan.rule)
        self._differences = np.zeros((len(edits), items), dtype=np.int64)
        self._known = np.zeros(len(edits), dtype=np.int64)

    def wanted(self) -> dict[str, int]:
        """Up to which item every cell should be asked next that is open and has not been asked all."""
        total = self._differences.shape[1]
        stops = np.full(len(self.edits), min(FIRST, total))
        if self._known.any():
            stops = self.standing.until_decided(self._differences, self._known)
        cells = zip(self.edits, stops.tolist(), self._known.tolist(), strict=True)
        return {edit: stop for edit, stop, known in cells if stop > known}

    def look(self, right: Mapping[str, Right]) -> None:
        """Go on with more answers: whether each was right, from the first item on, of the baseline and some cells."""
        baseline = right[str(BASELINE)].astype(np.int64)
        for cell, edit in enumerate(self.edits):
            if edit in right:
                known = self._known[cell] = len(right[edit])
                self._differences[cell, :known] = baseline[:known] - right[edit]
        self.standing = self.standing.follow(self._differences[:, : int(self._known.max())], self._known)
