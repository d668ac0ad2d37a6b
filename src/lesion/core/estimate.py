"""Estimates: what a run will cost, from a few items with all their edits, said once before the rest begins.

Items are exchangeable, and edits are not: so the first part of the work is a few items of every task, by the length of
their prompts, each under every edit. What they took, times what is left, is the estimate.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import psutil
import torch

from lesion.errors import LesionError
from lesion.plain import amount, duration
from lesion.progress import Watcher

if TYPE_CHECKING:
    from lesion.core.inference import PendingAnswer
    from lesion.core.row import StoredAnswer

SHARE, LEAST = 0.03, 2
"""Of the items of a task that go first, and how many at least."""
WORTH = 60
"""Of fewer answers none go first: they are soon given."""
ROW_BYTES = 600
"""Of a stored answer, beside its text."""
SOON = 30.0
"""What takes fewer seconds needs no further estimate."""
WIDE = 1.5
"""The factor of the range of a loop of which only the time is known."""
WITHIN = 1.2
"""A range is at least this factor wide to either side: what comes later may run in fuller batches."""


class DryRun(LesionError):  # noqa: N818 (it is none)
    """The run was to say what it costs and no more."""


@runtime_checkable
class Expecting(Protocol):
    """A watcher that wants to know how long the rest may take."""

    def expect(self, seconds: float) -> None:
        """The work that is left may take so many seconds."""
        ...


@dataclass(frozen=True)
class Estimate:
    """What is left to do.

    Attributes:
        what: is counted: `answers`.
        count: how many are to come.
        tokens: of prompts and answers; 0 where they are not known.
        seconds: they may take.
        factor: by which the truth may differ to either side, from the spread over items.
        disk: bytes they will fill; 0 where nothing is known.
    """

    what: str
    count: int
    tokens: int
    seconds: float
    factor: float
    disk: int = 0

    @property
    def text(self) -> str:
        """`11,600 answers to come, 1,200,000 tokens: about 12 min (9 min to 16 min); memory so far 1.2 GiB, …`."""
        tokens = f", {self.tokens:,} tokens" if self.tokens else ""
        low, high = duration(self.seconds / self.factor), duration(self.seconds * self.factor)
        disk = f", disk {amount(self.disk)}" if self.disk else ""
        return (
            f"{self.count:,} {self.what} to come{tokens}: about {duration(self.seconds)} ({low} to {high}); memory so"
            f" far {amount(memory())}{disk}"
        )


def first_items(cells: Mapping[str, PendingAnswer], rows: int) -> list[dict[str, PendingAnswer]]:
    """Of each task the cells of a few items, by the length of their prompts; empty where there is too little to do.

    Args:
        cells: that are pending.
        rows: that an engine answers at once: fewer would tell too little of its speed.
    """
    if len(cells) < WORTH:
        return []
    tasks: dict[str, dict[str, dict[str, PendingAnswer]]] = defaultdict(lambda: defaultdict(dict))
    for key, cell in cells.items():
        tasks[cell.choice.name][cell.item.id][key] = cell
    return [_few(items, rows) for items in tasks.values() if len(items) > LEAST]


def _few(items: Mapping[str, Mapping[str, PendingAnswer]], rows: int) -> dict[str, PendingAnswer]:
    edits = max(map(len, items.values()))
    by_length = sorted(items.values(), key=lambda cells: len(next(iter(cells.values())).prompt))
    count = max(LEAST, math.ceil(SHARE * len(by_length)), min(math.ceil(rows / edits), len(by_length) // 4))
    places = [round((place + 0.5) * len(by_length) / count - 0.5) for place in range(count)]
    return {key: cell for place in places for key, cell in by_length[place].items()}


def of_answers(
    first: Sequence[tuple[Mapping[str, PendingAnswer], Sequence[StoredAnswer], float]],
    left: Mapping[str, PendingAnswer],
    what: str,
) -> Estimate:
    """The estimate for the cells that are left, from those that went first: of each task, its answers and seconds.

    A task of which none went first counts as the others do.
    """
    seconds = tokens = disk = variance = 0.0
    known = 0
    for cells, rows, took in first:
        task = rows[0].task
        of_task = sum(cell.choice.name == task for cell in left.values())
        known, share = known + of_task, of_task / len(rows)
        prompts = {cell.item.id: len(cell.prompt) for cell in cells.values()}
        of_items: dict[str, float] = defaultdict(float)
        for row in rows:
            of_items[row.item] += prompts[row.item] + row.tokens
        spread = statistics.stdev(of_items.values()) / statistics.fmean(of_items.values()) if len(of_items) > 1 else 0.0
        seconds += share * took
        tokens += share * sum(of_items.values())
        disk += share * sum(ROW_BYTES + len(row.text) for row in rows)
        variance += (share * took * spread / math.sqrt(len(of_items))) ** 2
    factor = max(WITHIN, 1 + 2 * math.sqrt(variance) / seconds) if seconds else WITHIN
    more = len(left) / known if known else 1.0
    return Estimate(what, len(left), round(more * tokens), more * seconds, factor, round(more * disk))


class Estimating:
    """A watcher that hands on what it is told, and says what the work will cost once a little of it is done.

    Args:
        watcher: is told everything.
        dry: whether the run ends with what it says.
    """

    def __init__(self, watcher: Watcher, *, dry: bool = False) -> None:
        self.inner = watcher
        self._dry, self._what, self._said = dry, "", False
        self._left = self._wanted = self._done = 0
        self._began = 0.0

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """A loop begins."""
        self._left, self._done, self._what = total - stored, 0, what
        self._wanted = max(LEAST + 1, math.ceil(SHARE * self._left))
        self._began = time.monotonic()
        self.inner.begin(model, total, stored, what)

    def answered(self, count: int) -> None:
        """So many more are done; the estimate is said when the first few are.

        Raises:
            DryRun: nothing more is to be done.
        """
        self.inner.answered(count)
        before, self._done = self._done, self._done + count
        if before < self._wanted <= self._done < self._left:
            left = self._left - self._done
            seconds = (time.monotonic() - self._began) / self._done * left
            estimate = Estimate(self._what, left, 0, seconds, WIDE)
            if self._dry or seconds > SOON:
                self.say(estimate)

    def note(self, text: str) -> None:
        """Handed on."""
        self.inner.note(text)

    def say(self, estimate: Estimate) -> None:
        """Say what is left, unless it is little more than what was said before.

        Raises:
            DryRun: nothing more is to be done.
        """
        if isinstance(self.inner, Expecting):
            self.inner.expect(estimate.seconds)
        if not self._said or estimate.seconds > SOON:
            self.inner.note(estimate.text)
        self._said = True
        if self._dry:
            raise DryRun("This was a dry run: it stops here, and the answers given are kept.")


def memory() -> int:
    """The bytes that this process holds: at most so far on an accelerator, else now on the machine."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return int(psutil.Process().memory_info().rss)
