"""Prefixes: what many prompts begin with, such as the solved examples of a task or a question before its options, is
computed once for each edit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.engine import Request, Work
from lesion.engines.transformers.memory import positions, token_bytes
from lesion.engines.transformers.prefill import TOKENS, Prefilled, prefill
from lesion.engines.transformers.prefix_cache import Begun, Past
from lesion.engines.transformers.ways import FASTEST, Way
from lesion.models.load import Model

RequestColumn = tuple[Request, int]
"""A request, and the column of its edit in the table."""

# A prefix has so many tokens at least, ...
LEAST = 32
# ... and an edit under which it is computed costs as much as so many tokens more: a pass of its own, and copies.
COST = 1024
# On a CPU a token of a network with more parameters in its blocks costs more, and so these are fewer tokens, but some.
# Measured with one million and 106 million parameters.
SMALL, COST_ON_CPU = 1_000_000, 16
# Whatever the edits: on a CPU the weights are read once more for a prefix, and once more for the few rows behind it,
# which do not go together with others. Measured with 358 million parameters.
APART_ON_CPU = 128
# How often prompts that begin alike are parted anew, to see whether more is shared in parts.
DEPTH = 8


@dataclass(eq=False)
class Prefix:
    """What some prompts begin with; no tokens where a prompt shares nothing.

    Prompts are best taken in the order of `rank`; it is 0 for those that share nothing. `parent` is the prefix that
    this one begins with itself, or None.
    """

    tokens: tuple[int, ...] = ()
    rank: int = 0
    parent: Prefix | None = None

    def __len__(self) -> int:
        return len(self.tokens)


NOTHING = Prefix()


def cost_of_edit(model: Model) -> int:
    """What a prefix costs under one more edit, in tokens."""
    if model.device.type != "cpu":
        return COST
    parameters = sum(p.numel() for block in model.anatomy.blocks for p in block.module.parameters())
    return max(COST_ON_CPU, COST * SMALL // max(SMALL, parameters))


def shared(requests: Sequence[Request], cost: int = COST, apart: int = 0) -> list[tuple[int, ...]]:
    """The first tokens that each request shares with others, maybe none, such that least is computed.

    The last token of a prompt is never shared: what follows it is wanted. A prefix costs `cost` tokens under each edit,
    and `apart` once.
    """
    families: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        if len(request.prompt) > LEAST:
            families[request.prompt[:LEAST]].append(index)
    prefixes: list[tuple[int, ...]] = [()] * len(requests)
    for members in families.values():
        for part, length in _best(requests, members, DEPTH, cost, apart)[1]:
            prefix = requests[part[0]].prompt[:length]
            for index in part:
                prefixes[index] = prefix
    return prefixes


def before_options(
    requests: Sequence[Request], families: Sequence[tuple[int, ...]], cost: int = COST, apart: int = 0
) -> list[tuple[int, ...]]:
    """All tokens but the last of the prompt of each request whose options are better scored behind it, else none.

    Options of several tokens are rows of their own, each with the whole prompt before it unless that is a prefix.
    """
    rows: dict[tuple[int, ...], set[tuple[int, ...]]] = defaultdict(set)
    by_identity = {id(request.prompt): request.prompt for request in requests if request.choices}
    edits = Counter(id(request.prompt) for request in requests)
    prompts = {number: (prompt, prompt[:-1]) for number, prompt in by_identity.items()}
    begins: dict[tuple[int, ...], tuple[int, ...]] = {}  # equal ones become the same
    for request in requests:
        if request.choices:
            prompt, _ = prompts[id(request.prompt)]
            rows[prompt].update(choice[:-1] for choice in request.choices)
    found: list[tuple[int, ...]] = []
    for request, family in zip(requests, families, strict=True):
        prompt, begin = prompts.get(id(request.prompt), ((), ()))
        spared = (len(rows[prompt]) - 1) * (len(begin) - len(family)) if request.choices else 0
        found.append(begins.setdefault(begin, begin) if (spared - cost) * edits[id(request.prompt)] > apart else ())
    return found


def _best(
    requests: Sequence[Request], members: list[int], depth: int, cost: int, apart: int
) -> tuple[int, list[tuple[list[int], int]]]:
    """How many tokens need not be computed, at most, and the parts of requests that share so, each with its length.

    Either all share what all have in common, or they are parted by the first token that they do not.
    """
    # Without hashing any prompt: they are long, and the same one comes with every edit.
    prompts = list({id(requests[index].prompt): requests[index].prompt for index in members}.values())
    first, last = min(prompts), max(prompts)
    # What the first and the last of a sorted list have in common, all have.
    places = (place for place, (token, other) in enumerate(zip(first, last, strict=False)) if token != other)
    alike = next(places, len(first))
    length = min(alike, min(map(len, prompts)) - 1)
    edits = len({requests[index].edit for index in members})
    spared = (len(members) - edits) * length - cost * edits - apart
    best = (spared, [(members, length)]) if spared > 0 else (0, [])
    if depth and len(prompts) > 2:
        parts: dict[int, list[int]] = defaultdict(list)
        for index in members:
            if len(requests[index].prompt) > alike:
                parts[requests[index].prompt[alike]].append(index)
        parted = [_best(requests, part, depth - 1, cost, apart) for part in parts.values() if len(part) > 1]
        if sum(value for value, _ in parted) > best[0]:
            best = sum(value for value, _ in parted), [part for _, shares in parted for part in shares]
    return best


def alike(prefixes: Iterable[Prefix]) -> int:
    """How many of the first ones are the same, from prefix on."""
    first, *others = prefixes
    return 1 + sum(1 for _ in takewhile(lambda prefix: prefix is first, others))


class Prefixes:
    """The prefixes of some requests, each computed under an edit when a prompt under that edit first needs it.

    They take about half as much memory as the keys and values of the rows at work: those used longest ago are dropped,
    and under edits for which there is no room from the start a prefix is not shared. A state is that of a whole prefix:
    rows behind it share a pass where they have equally many tokens to read, which those that are scored seldom have.
    """

    def __init__(
        self,
        model: Model,
        gates: Gates,
        table: Table,
        padding: int,
        work: Work,
        requests: Sequence[RequestColumn],
        way: Way = FASTEST,
    ) -> None:
        self.model, self.gates, self.table, self.padding, self.work = model, gates, table, padding, work
        # Counted in bytes where there are states, else in tokens.
        self.most = work.batch_size * (way.row_bytes if way.states else positions(model)) // 2
        self._way = way
        self._of: dict[tuple[int, int], Prefix] = {}
        if not way.resumes:
            requests = ()
        # Prompts and prefixes are long, so they are compared by identity: they are kept here, so that it stays theirs.
        self._requests = [request for request, _ in requests]
        cost, apart = cost_of_edit(model), APART_ON_CPU if model.device.type == "cpu" else 0
        families = shared(self._requests, cost, apart)
        options = before_options(self._requests, families, cost, apart)
        first: dict[int, int] = {}
        for tokens in families:
            first.setdefault(id(tokens), len(first))
        # The prefixes that begin with one family's stand behind it, in a row.
        by_family = sorted(zip(requests, families, options, strict=True), key=lambda entry: first[id(entry[1])])
        known: dict[int, tuple[Prefix, set[int]]] = {}
        for (request, column), family, option in by_family:
            parent: Prefix | None = None
            for tokens in filter(None, (family, option)):
                new = Prefix(tokens, len(known) + 1, parent)
                prefix, columns = known.setdefault(id(tokens), (new, set()))
                if column not in columns and (len(columns) + 1) * self._size(len(prefix)) > self.most:
                    break
                columns.add(column)
                self._of[id(request.prompt), column] = parent = prefix
        self._begun: dict[tuple[int, int], Begun] = {}
        # In the order of their last use.
        self._held: dict[Past, list[tuple[int, int]]] = {}

    def of(self, request: Request, column: int) -> Prefix:
        """What its prompt begins with, where that is shared under the edit of this column."""
        shares = not (self._way.states and (request.choices or request.tokens))
        return self._of.get((id(request.prompt), column), NOTHING) if shares else NOTHING

    def _size(self, length: int) -> int:
        """What a row of so many tokens takes."""
        return self._way.fixed_bytes + length * self._way.token_bytes if self._way.states else length

    def prefill(
        self,
        prompts: Sequence[Sequence[int]],
        prefixes: Sequence[Prefix],
        columns: Sequence[int],
        kept: int = 1,
        wanted: Sequence[int] | None = None,
    ) -> Prefilled:
        """Run prompts behind their prefixes, each under the edit of its column (see `prefill`); counted in `work`."""
        begun = self.begun(prefixes, columns)
        table = self.table.select(torch.tensor(columns))
        computed = prefill(self.model, self.gates, prompts, table, self.padding, kept, wanted, begun)
        self.work.prompt += computed.token_steps
        return computed

    def begun(self, prefixes: Sequence[Prefix], columns: Sequence[int]) -> list[Begun | None]:
        """Where the first tokens of rows are known from, under the edits of their columns; computed if they are not."""
        if not self._of:
            return [None] * len(prefixes)
        starts = self._starts(prefixes, columns)
        self._let_go()
        return starts

    def _starts(self, prefixes: Sequence[Prefix], columns: Sequence[int]) -> list[Begun | None]:
        """As `begun`; nothing is let go meanwhile."""
        wanted: dict[Prefix, set[int]] = defaultdict(set)
        for prefix, column in zip(prefixes, columns, strict=True):
            if prefix.rank and (prefix.rank, column) not in self._begun:
                wanted[prefix].add(column)
        for missing, its_columns in wanted.items():
            self._compute(missing, sorted(its_columns))
        starts = [
            self._begun[prefix.rank, column] if prefix.rank else None
            for prefix, column in zip(prefixes, columns, strict=True)
        ]
        # What these begin with was used as well, after them: it is not let go before them.
        entries = zip(prefixes, columns, strict=True)
        parents = [(prefix.parent.rank, column) for prefix, column in entries if prefix.parent]
        used = [*starts, *(self._begun.get(parent) for parent in parents)]
        for past in {start.past: None for start in used if start is not None}:
            self._held[past] = self._held.pop(past)
        return starts

    def give_up(self) -> bool:
        """Share nothing any more, for memory has run out; whether anything was shared.

        Prefixes are empty and without a rank from now on: what was put in order by them has to be ordered anew.
        """
        was_shared = bool(self._of)
        for prefix in self._of.values():
            prefix.tokens, prefix.rank = (), 0
        self._of.clear()
        self._begun.clear()
        self._held.clear()
        return was_shared

    def _compute(self, prefix: Prefix, columns: Sequence[int]) -> None:
        beside = self._way.fixed_bytes // token_bytes(self.model) if self._way.states else 0
        step = max(1, TOKENS // (len(prefix) + beside))
        for start in range(0, len(columns), step):
            part = columns[start : start + step]
            prompts = [prefix.tokens] * len(part)
            table = self.table.select(torch.tensor(part))
            begun = self._starts([prefix.parent or NOTHING] * len(part), part)
            computed = prefill(self.model, self.gates, prompts, table, self.padding, begun=begun)
            self.work.prompt += computed.token_steps
            past = Past(computed.kept, len(prefix), self._size(len(prefix)))
            self._held[past] = [(prefix.rank, column) for column in part]
            for row, column in enumerate(part):
                self._begun[prefix.rank, column] = Begun(past, row)

    def _let_go(self) -> None:
        size = sum(past.size for past in self._held)
        for past in list(self._held):
            if size <= self.most:
                break
            size -= past.size
            for name in self._held.pop(past):
                del self._begun[name]
