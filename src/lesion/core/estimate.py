"""Estimates: what a run will cost, from a few items with all their edits, said once before the rest begins.

Items are exchangeable, and edits are not: so the first part of the work is a few items of every task, by the length of
their prompts, each under every edit. To fill and empty a batch costs as much for few answers as for many: so they go in
two parts, a small one and a larger one, and the difference tells what their work takes. Work is counted in tokens:
prompts of a task may begin alike, and what they share is read once for each edit.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import psutil

from lesion.errors import LesionError
from lesion.plain import amount, duration
from lesion.progress import Watcher
from lesion.tasks.prompts import common_start

if TYPE_CHECKING:
    from lesion.core.inference import PendingAnswer
    from lesion.core.row import StoredAnswer

SHARE, LEAST = 0.06, 8
"""Of the items of a task that go first, and how many at least."""
SHARE_OF_OTHERS, FEW_OTHERS = 0.03, 5
"""The same of work that comes one by one, texts say."""
WORTH = 60
"""Of fewer answers none go first: they are soon given."""
ROW_BYTES = 600
"""Of a stored answer, beside its text."""
SOON = 30.0
"""What takes fewer seconds needs no further estimate."""
FULL = 0.4
"""Work in full batches takes at least this share of the time that it takes of those that went first."""
TOKEN = 8.0
"""A token of an answer is as much work as so many of a prompt, which are read at once."""
LATER = 1.4
"""Written answers of later work take so much longer: few edits at a time, some of them written into the weights."""
PAGE = 2.0
"""Seconds that the numbers and the page take at least, behind the last answer."""
WIDE = 1.5
"""The factor of the range of a loop of which only the time is known."""
FULLER = 0.88
"""The same work among all that is left takes this share of the time, since batches are fuller."""
WITHIN = 1.5
"""A range is at least this factor wide to either side, as estimates have been off (`docs/how-to/check.md`)."""


class DryRun(LesionError):  # noqa: N818 (it is none)
    """The run was to say what it costs and no more."""


@runtime_checkable
class Expecting(Protocol):
    """A watcher that wants to know how long the rest may take."""

    def expect(self, seconds: float) -> None:
        """The work that is left may take so many seconds; infinitely many: an estimate is to come."""
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
        now: the seconds of those that come at once, before other work of the study.
    """

    what: str
    count: int
    tokens: int
    seconds: float
    factor: float
    disk: int = 0
    now: float = 0.0

    @property
    def text(self) -> str:
        """`11,600 answers to come, 1,200,000 tokens with their prompts: about 12 min (9 min to 16 min); memory …`."""
        tokens = f", {self.tokens:,} tokens with their prompts" if self.tokens else ""
        low, high = duration(self.seconds / self.factor), duration(self.seconds * self.factor)
        disk = f", disk {amount(self.disk)}" if self.disk else ""
        return (
            f"{self.count:,} {self.what} to come{tokens}: about {duration(self.seconds)} ({low} to {high}); memory so"
            f" far {amount(memory())}{disk}"
        )


def first_items(cells: Mapping[str, PendingAnswer], rows: int, later: int = 0) -> list[dict[str, PendingAnswer]]:
    """Of each task the cells of a few items, by the length of their prompts, a quarter of them before the others; empty
    where there is too little to do.

    Args:
        cells: that are pending.
        rows: that an engine answers at once: fewer would tell too little of its speed.
        later: how many answers other work of the study gives.
    """
    if len(cells) + later < WORTH:
        return []
    tasks: dict[str, dict[str, dict[str, PendingAnswer]]] = defaultdict(lambda: defaultdict(dict))
    for key, cell in cells.items():
        tasks[cell.choice.name][cell.item.id][key] = cell
    return [part for items in tasks.values() if len(items) > LEAST for part in _few(items, rows)]


def _few(items: Mapping[str, Mapping[str, PendingAnswer]], rows: int) -> Iterator[dict[str, PendingAnswer]]:
    edits = max(map(len, items.values()))
    by_length = sorted(items.values(), key=lambda cells: len(next(iter(cells.values())).prompt))
    count = max(LEAST, math.ceil(SHARE * len(by_length)), min(math.ceil(rows / edits), len(by_length) // 4))
    places = [round((place + 0.5) * len(by_length) / count - 0.5) for place in range(count)]
    for part in (places[1::4], [place for number, place in enumerate(places) if number % 4 != 1]):
        yield {key: cell for place in part for key, cell in by_length[place].items()}


def of_answers(
    first: Sequence[tuple[Mapping[str, PendingAnswer], Sequence[StoredAnswer], float]],
    left: Mapping[str, PendingAnswer],
    what: str,
    later: Mapping[str, int] = MappingProxyType({}),
) -> Estimate:
    """The estimate for the cells that are left, from those that went first: of each task, its answers and seconds.

    A task of which none went first counts as the others do.

    Args:
        first: those that went first.
        left: are to come now.
        what: they are called.
        later: how many answers to each task other work of the study gives; of tasks that are not among these nothing
            is known yet, and they are not counted.
    """
    seconds = now = start = tokens = disk = variance = 0.0
    tasks: dict[str, dict[str, PendingAnswer]] = defaultdict(dict)
    for key, cell in left.items():
        tasks[cell.choice.name][key] = cell
    later = {rows[0].task: later[rows[0].task] for _, rows, _ in first if rows[0].task in later}
    known, to_come = 0, len(left) + sum(later.values())
    for (small, _, soon), (large, rows, took) in zip(first[::2], first[1::2], strict=True):
        task, cells = rows[0].task, large
        said = statistics.fmean(row.tokens for row in rows)
        less, more_work, rest = (_work(part, said) for part in (small, large, tasks[task]))
        each = took / more_work
        if more_work > less:
            each = min(each, max((took - soon) / (more_work - less), FULL * each))
        start = max(start, took - each * more_work)
        here = len(tasks[task])
        each *= FULLER * (rest / here if here else more_work / len(rows))  # of an answer
        of_task = here + later.get(task, 0)
        now += here * each
        known, share = known + of_task, of_task / len(rows)
        prompts = {cell.item.id: len(cell.prompt) for cell in cells.values()}
        of_items: dict[str, float] = defaultdict(float)
        for row in rows:
            of_items[row.item] += prompts[row.item] + row.tokens
        spread = statistics.stdev(of_items.values()) / statistics.fmean(of_items.values()) if len(of_items) > 1 else 0.0
        seconds += (here + (LATER if said else 1.0) * later.get(task, 0)) * each
        tokens += share * sum(of_items.values())
        disk += share * sum(ROW_BYTES + len(row.text) for row in rows)
        variance += (of_task * each * spread / math.sqrt(len(of_items))) ** 2
    factor = max(WITHIN, 1 + 2 * math.sqrt(variance) / seconds) if seconds else WITHIN
    more = to_come / known if known else 1.0
    what = "answers" if later else what
    return Estimate(
        what, to_come, round(more * tokens), start + more * seconds + PAGE, factor, round(more * disk), start + now
    )


def _work(cells: Mapping[str, PendingAnswer], said: float) -> float:
    """The work of answers of so many tokens each, in tokens of prompts: of an edit, what they share is read once."""
    prompts: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for cell in cells.values():
        prompts[str(cell.edit)].add(tuple(cell.prompt))
    of_prompts = {frozenset(of_edit): 0 for of_edit in prompts.values()}  # edits have the same ones, as a rule
    for of_edit in of_prompts:
        in_order = sorted(of_edit)
        shared = sum(common_start(*pair) for pair in pairwise(in_order))
        of_prompts[of_edit] = sum(map(len, in_order)) - shared
    return TOKEN * said * len(cells) + sum(of_prompts[frozenset(of_edit)] for of_edit in prompts.values())


class Estimating:
    """A watcher that hands on what it is told, and says what the work will cost once a little of it is done.

    Args:
        watcher: is told everything.
        dry: whether the run ends with what it says.
    """

    def __init__(self, watcher: Watcher, *, dry: bool = False) -> None:
        self.inner = watcher
        self._dry, self._what, self._said, self._preparing, self._known = dry, "", False, False, False
        self._left = self._wanted = self._done = self._before = 0
        self._began = 0.0

    def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
        """A loop begins."""
        self._left, self._done, self._what, self._known = total - stored, 0, what, False
        self._wanted = max(FEW_OTHERS, math.ceil(SHARE_OF_OTHERS * self._left))
        self.inner.begin(model, total, stored, what)

    def answered(self, count: int) -> None:
        """So many more are done; the estimate is said when the first few are."""
        self.inner.answered(count)
        before, self._done = self._done, self._done + count
        if not before:  # what is made ready before the first one is done only once
            self._began, self._before = time.monotonic(), count
        elif not self._known and self._wanted <= self._done < self._left:
            self._known = True
            left = self._left - self._done
            seconds = (time.monotonic() - self._began) / (self._done - self._before) * left
            estimate = Estimate(self._what, left, 0, seconds, WIDE, now=seconds)
            if seconds > SOON or (self._dry and not self._preparing):
                self.say(estimate)

    def note(self, text: str) -> None:
        """Handed on."""
        self.inner.note(text)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Loops within it come before the answers of a study: a dry run goes on behind the short ones."""
        self._preparing = True
        try:
            yield
        finally:
            self._preparing = False

    def uncounted(self, *, more: bool = False) -> str:
        """A sentence where other work comes after what a dry run counts."""
        return " What comes after these is not counted." if more or self._preparing else ""

    def wait(self) -> None:
        """Nothing is known yet of the time that the work in hand will take."""
        if isinstance(self.inner, Expecting):
            self.inner.expect(math.inf)

    def say(self, estimate: Estimate) -> None:
        """Say what is left, unless it is little more than what was said before."""
        if isinstance(self.inner, Expecting):
            self.inner.expect(estimate.now)
        if not self._said or estimate.seconds > SOON:
            self.inner.note(estimate.text)
        self._said = True
        if self._dry:
            raise DryRun(f"This was a dry run: it stops here, and what was done is kept.{self.uncounted()}")


def memory() -> int:
    """The bytes that this process holds: at most so far on an accelerator, else now on the machine."""
    import torch  # whoever measures has loaded it; a command that is refused need not wait for it

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return int(psutil.Process().memory_info().rss)
