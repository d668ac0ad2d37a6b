"""Units of work: many requests become slices that one worker answers at a time, the long ones first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from lesion.engines.engine import Request

# A token of a prompt against a token that is generated: prompts are computed side by side.
PROMPT_TOKEN = 1 / 8
# What is left is dealt out in slices of 1 / (SHARES · workers): large ones while there is much, small ones at the end.
SHARES = 1.5


@dataclass(eq=False)
class Unit:
    """What one worker is given at a time.

    Attributes:
        requests: by key, those that have no answer yet.
        cost: the tokens that they are expected to take, those of prompts counted by `PROMPT_TOKEN`.
        deaths: how many workers have died over it.
    """

    number: int
    requests: dict[str, Request]
    cost: float
    deaths: int = 0

    def __str__(self) -> str:
        prompts = len({request.prompt for request in self.requests.values()})
        edits = list(dict.fromkeys(str(request.edit) for request in self.requests.values()))
        named = ", ".join(edits[:3]) + (f" and {len(edits) - 3} more" if len(edits) > 3 else "")
        return f"{len(self.requests)} requests, {prompts} prompt{'s' * (prompts != 1)} under {named}"


def expected(request: Request) -> float:
    """The tokens that an answer may take beyond its prompt; those that are only scored counted by `PROMPT_TOKEN`."""
    if request.choices:
        return PROMPT_TOKEN * sum(map(len, request.choices))
    return PROMPT_TOKEN if request.tokens else float(request.decoding.max_new_tokens)


def cut(
    requests: Iterable[Request], workers: int, rows: int, in_weights: Callable[[Request], Hashable] = lambda _: ()
) -> list[Unit]:
    """Cut requests into units for so many workers that answer `rows` rows at once; the most expensive unit first.

    All edits of a prompt stay together, as far as they fit one batch, unless they are written into the weights, which
    all rows of a batch share: then all prompts of an edit stay together. `in_weights` says what is written.
    """
    bundles = _bundles(requests, rows, in_weights)
    costs = [_cost(bundle) for bundle in bundles]
    left = sum(costs)
    count = sum(map(len, bundles))
    if not count:
        return []
    # A batch, as smaller units would leave most of its rows empty; yet two units at least for every worker.
    smallest = min(left / count * rows, left / (2 * workers))
    units: list[Unit] = []
    part: list[Request] = []
    cost = 0.0
    for bundle, more in zip(bundles, costs, strict=True):
        goal = max(smallest, left / (SHARES * workers))
        # The unit ends where it comes closest to its goal.
        if part and cost + more / 2 > goal:
            units.append(_unit(part, cost))
            part, left, cost = [], left - cost, 0.0
        part += bundle
        cost += more
    units.append(_unit(part, cost))
    units.sort(key=lambda unit: -unit.cost)
    for number, unit in enumerate(units):
        unit.number = number
    return units


def _unit(requests: Sequence[Request], cost: float) -> Unit:
    return Unit(0, {request.key: request for request in requests}, cost)


def _bundles(requests: Iterable[Request], rows: int, in_weights: Callable[[Request], Hashable]) -> list[list[Request]]:
    """Requests of one prompt, by what is written into the weights, then by cost: rows of a batch end together."""
    groups: dict[Hashable, dict[tuple[int, ...], list[list[Request]]]] = {}
    for request in requests:
        same = groups.setdefault(in_weights(request), {}).setdefault(request.prompt, [[]])
        if len(same[-1]) >= max(1, rows):
            same.append([])
        same[-1].append(request)
    ordered: list[list[Request]] = []
    for group in groups.values():
        bundles = [bundle for same in group.values() for bundle in same]
        ordered += sorted(bundles, key=lambda bundle: -_cost(bundle) / len(bundle))
    return ordered


def _cost(bundle: Sequence[Request]) -> float:
    # Edits share what of a prompt lies below the lowest of them: about half of it.
    shared = PROMPT_TOKEN * len(bundle[0].prompt) * (1 + (len(bundle) - 1) / 2)
    return shared + sum(map(expected, bundle))
