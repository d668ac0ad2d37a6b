"""Trainings that differ in their seed alone, gathered: means and spreads of everything that is measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import repeat

from scipy import stats

from lesion.report.values import Estimate
from lesion.statistics.paired import holm
from lesion_labs.recall.model import Recipe
from lesion_labs.recall.result import (
    MARGINS,
    MEASURES,
    CutMeasures,
    CutSpreads,
    Difference,
    Group,
    RecallSummary,
    Replacement,
    SeedsPhase,
    SeedsPhases,
    Spread,
    Spreads,
)


def groups(summaries: Sequence[RecallSummary]) -> list[Group]:
    """One group for each recipe but for its seed, in the order of the summaries."""
    alike: dict[Recipe, list[RecallSummary]] = {}
    for summary in summaries:
        alike.setdefault(summary.recipe.model_copy(update={"seed": 0}), []).append(summary)
    return [_group(members) for members in alike.values()]


def _group(summaries: Sequence[RecallSummary]) -> Group:
    seeds = [_averaged(summary.truncated) for summary in summaries]
    truncated = []
    for place in seeds[0]:
        random = place.model_copy(update={"side": None, "control": "random"})
        beyond = None
        if place.control is None and all(random in rows for rows in seeds):
            beyond = _spreads([{name: rows[place][name] - rows[random][name] for name in MEASURES} for rows in seeds])
        truncated.append(CutSpreads(**dict(place), **dict(_spreads([rows[place] for rows in seeds])), beyond=beyond))
    phases = [summary.phases for summary in summaries]
    margins = {
        name: _phase([each.learned.get(name) for each in phases], sum(name in each.untrained for each in phases))
        for name in MARGINS
    }
    return Group(
        recipe=summaries[0].recipe,
        seeds=tuple(summary.recipe.seed for summary in summaries),
        full=_spreads([dict(summary.full) for summary in summaries]),
        truncated=tuple(truncated),
        phases=SeedsPhases(margins=margins, attention=_phase([each.attention for each in phases])),
    )


def _averaged(rows: Sequence[CutMeasures]) -> dict[Replacement, dict[str, float]]:
    """The measures of every replacement; the draws of a random projection are averaged."""
    places: dict[Replacement, list[CutMeasures]] = {}
    for row in rows:
        place = Replacement(matrix=row.matrix, keep=row.keep, rank=row.rank, side=row.side, control=row.control)
        places.setdefault(place, []).append(row)
    return {
        place: {measure: math.fsum(row.of(measure) for row in draws) / len(draws) for measure in MEASURES}
        for place, draws in places.items()
    }


def _spreads(rows: Sequence[Mapping[str, float]]) -> Spreads:
    return Spreads(**{measure: Spread.over([row[measure] for row in rows]) for measure in MEASURES})


def _phase(steps: Sequence[int | None], untrained: int = 0) -> SeedsPhase:
    came = [float(step) for step in steps if step is not None]
    # No interval: Student's would reach below the first step.
    over_seeds = Spread.over(came).model_copy(update={"low": None, "high": None}) if came else None
    return SeedsPhase(came=len(came), of=len(steps), untrained=untrained, steps=over_seeds)


def differences(group: Group) -> list[Difference]:
    """The differences of a group's central matrices to random projections, tested where there are several seeds."""
    rows = [row for matrix in group.central for row in group.rows(matrix, side="top")]
    compared = [(row, row.beyond.p_noise) for row in rows if row.beyond]
    several = len(group.seeds) > 1
    p = [_p(spread, len(group.seeds)) for _, spread in compared] if several else []
    tests = zip(p, map(float, holm(p)), strict=True) if compared and several else repeat((None, None))
    return [
        Difference(
            matrix=row.matrix,
            keep=row.keep or 0.0,
            difference=Estimate(value=spread.mean, low=spread.low, high=spread.high, p=alone, p_corrected=corrected),
        )
        for (row, spread), (alone, corrected) in zip(compared, tests, strict=False)
    ]


def _p(difference: Spread, count: int) -> float:
    """The p-value of Student's test that a mean over so many seeds is 0."""
    if not difference.std:
        return 0.0 if difference.mean else 1.0
    return float(2 * stats.t.sf(abs(difference.mean) * math.sqrt(count) / difference.std, count - 1))
