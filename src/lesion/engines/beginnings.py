"""Beginnings: what many prompts begin with, such as the solved examples of a task, is computed once for each edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

import torch

from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.engine import Decoding, Request
from lesion.engines.memory import positions
from lesion.engines.past import Begun, Past
from lesion.engines.prefill import TOKENS, prefill
from lesion.engines.work import Work
from lesion.models.load import Model

# A beginning has so many tokens at least, ...
LEAST = 32
# ... and spares so many at least under an edit, on average: it takes a pass of its own, and copies.
WORTH = 1024

_Family = tuple[Decoding, tuple[int, ...]]


@dataclass(eq=False)
class Beginning:
    """What some prompts begin with.

    Attributes:
        tokens: none where a prompt shares nothing.
        rank: in the order in which prompts are best asked; 0 for those that share nothing.
        columns: of the table of edits, under which it is asked for.
    """

    tokens: tuple[int, ...] = ()
    rank: int = 0
    columns: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.tokens)


NOTHING = Beginning()


def shared(requests: Iterable[Request]) -> dict[_Family, int]:
    """How many first tokens requests share that begin alike and are decoded alike, where it is worth anything.

    The last token of a prompt is never among them: what follows it is what is asked.
    """
    families: dict[_Family, list[Request]] = defaultdict(list)
    for request in requests:
        if len(request.prompt) > LEAST:
            families[_family(request)].append(request)
    found = {}
    for family, members in families.items():
        # Without hashing any: they are long, and the same one comes with every edit.
        prompts = list({id(request.prompt): request.prompt for request in members}.values())
        first, last = min(prompts), max(prompts)
        # What the first and the last of a sorted list have in common, all have.
        alike = (place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other)
        length = min(next(alike, len(first)), min(map(len, prompts)) - 1)
        edits = len({request.edit for request in members})
        if length >= LEAST and (len(members) - edits) * length >= WORTH * edits:
            found[family] = length
    return found


def _family(request: Request) -> _Family:
    return request.decoding, request.prompt[:LEAST]


class Beginnings:
    """The beginnings of some requests, each computed under an edit when a prompt under that edit first needs it.

    They take about half as much memory as the keys and values of the rows at work: those used longest ago are let go
    of, and what would not fit under all of its edits is not shared.

    Args:
        model: what computes.
        gates: of the model.
        table: of the edits.
        padding: token id.
        work: where what is computed is counted.
        requests: all that will be asked, with the column of each one's edit.
    """

    def __init__(
        self,
        model: Model,
        gates: Gates,
        table: Table,
        padding: int,
        work: Work,
        requests: Sequence[tuple[Request, int]],
    ) -> None:
        self.model, self.gates, self.table, self.padding, self.work = model, gates, table, padding, work
        self.most = work.batch_size * positions(model) // 2
        lengths = shared(request for request, _ in requests)
        self._of: dict[_Family, Beginning] = {}
        for request, column in requests:
            family = _family(request)
            if family not in lengths:
                continue
            if family not in self._of:
                self._of[family] = Beginning(request.prompt[: lengths[family]], len(self._of) + 1)
            self._of[family].columns.add(column)
        self._of = {family: one for family, one in self._of.items() if len(one) * len(one.columns) <= self.most}
        self._begun: dict[tuple[int, int], Begun] = {}
        # In the order of their last use.
        self._held: dict[Past, list[tuple[int, int]]] = {}

    def of(self, request: Request) -> Beginning:
        """What its prompt begins with."""
        return self._of.get(_family(request), NOTHING) if len(request.prompt) > LEAST else NOTHING

    def first(self, ordered: Iterable[Request], most: int) -> int:
        """How many of the first requests, `most` at most, begin as the first one does."""
        these = islice(ordered, most)
        beginning = self.of(next(these))
        return 1 + sum(1 for _ in takewhile(lambda request: self.of(request) is beginning, these))

    def begun(self, beginnings: Sequence[Beginning], columns: Sequence[int]) -> list[Begun | None]:
        """Where the first tokens of rows are known from, each under the edit of its column; computed if they are not.

        Args:
            beginnings: one per row.
            columns: of the table, one per row.
        """
        if not self._of:
            return [None] * len(beginnings)
        wanted: dict[Beginning, set[int]] = defaultdict(set)
        for one, column in zip(beginnings, columns, strict=True):
            if one.rank and (one.rank, column) not in self._begun:
                wanted[one].add(column)
        for one, missing in wanted.items():
            self._compute(one, sorted(missing))
        found = [
            self._begun[one.rank, column] if one.rank else None for one, column in zip(beginnings, columns, strict=True)
        ]
        for past in {one.past: None for one in found if one is not None}:
            self._held[past] = self._held.pop(past)
        self._let_go()
        return found

    def give_up(self) -> bool:
        """Share nothing any more, for memory has run out; whether anything was shared."""
        was_shared = bool(self._of)
        self._of.clear()
        self._begun.clear()
        self._held.clear()
        return was_shared

    def _compute(self, one: Beginning, columns: Sequence[int]) -> None:
        step = max(1, TOKENS // len(one))
        for start in range(0, len(columns), step):
            part = columns[start : start + step]
            prompts = [one.tokens] * len(part)
            table = self.table.select(torch.tensor(part))
            found = prefill(self.model, self.gates, prompts, table, self.padding)
            self.work.prompt += found.token_steps
            past = Past(found.keys, found.values, found.sources, len(one))
            self._held[past] = [(one.rank, column) for column in part]
            for row, column in enumerate(part):
                self._begun[one.rank, column] = Begun(past, row)

    def _let_go(self) -> None:
        size = sum(past.size for past in self._held)
        for past in list(self._held):
            if size <= self.most:
                break
            size -= past.size
            for name in self._held.pop(past):
                del self._begun[name]
