"""Which sets of places the designs of a study remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from lesion.statistics.interaction import orders_of, other_orders
from lesion.studies.interaction.study import NAMED_ORDERS, InteractionStudy, ordered, place_key, windows

if TYPE_CHECKING:
    from lesion.studies.interaction.summary import Answers

Set = tuple[str, ...]
"""Places by their addresses, in the order of the model."""


@dataclass(frozen=True)
class PlannedSets:
    """The sets of every design, each with its places in ascending order.

    Attributes:
        places: all of them.
        pairs, windows: the sets that are compared with their members alone.
        orders: of removal: first that of the study, then random ones; none without `cumulative`, or not known yet.
        permutations: of the Shapley values; every: whether they are all that there are.
        ordered_by_importance: whether the study's order is read from the places alone.
    """

    places: Set
    pairs: tuple[Set, ...] = ()
    windows: tuple[Set, ...] = ()
    orders: tuple[Set, ...] = ()
    permutations: tuple[Set, ...] = ()
    every: bool = False
    ordered_by_importance: bool = False

    @property
    def unknown(self) -> bool:
        """Whether the order of removal is not known yet."""
        return self.ordered_by_importance and not self.orders

    @property
    def sets(self) -> list[Set]:
        """Every set of two places or more, each once."""
        every = [*self.pairs, *self.windows]
        for order in (*self.orders, *self.permutations):
            every += [tuple(sorted(order[:count], key=place_key)) for count in range(2, len(order) + 1)]
        return list(dict.fromkeys(every))


def planned(study: InteractionStudy, places: Sequence[str], order: Sequence[str] | None) -> PlannedSets:
    """The sets of a study; `order` is that by importance, None where it is not known yet."""
    named = study.order in NAMED_ORDERS
    cumulative = "cumulative" in study.design
    first = (order if named else ordered(study)) if cumulative else None
    if first and study.order == "least":
        first = list(reversed(first))
    numbers = range(len(places))
    permutations, every = (
        orders_of(numbers, study.permutations, study.seed) if "shapley" in study.design else ([], False)
    )
    random = (
        other_orders([places.index(place) for place in first], study.random_orders, study.seed)
        if cumulative and first
        else []
    )
    named_orders = [[tuple(places[number] for number in each) for each in orders] for orders in (random, permutations)]
    return PlannedSets(
        tuple(places),
        tuple(combinations(places, 2)) if "pairs" in study.design else (),
        tuple(windows(places, study.window)) if "windows" in study.design else (),
        (tuple(first), *named_orders[0]) if first else (),
        tuple(named_orders[1]),
        every,
        cumulative and named,
    )


def important(answers: Answers, places: Sequence[str]) -> list[str]:
    """The places by their mean drop alone over tasks, the most important first; ties in the order of the model."""
    drops = [np.mean([np.nanmean(answers.drops(task, (place,))) for task in answers.tasks]) for place in places]
    return [places[at] for at in np.argsort(-np.array(drops), kind="stable")]
