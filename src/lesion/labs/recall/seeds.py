"""Trainings that differ in their seed alone, gathered: means and spreads of everything that is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from scipy import stats

from lesion.labs.recall.recipe import Recipe
from lesion.labs.recall.result import MARGINS, Control, CutMeasures, Matrix, RecallSummary, Side, Spread
from lesion.labs.recall.study_result import MEASURES, CutSpreads, Group, SeedsPhase, SeedsPhases, Spreads
from lesion.statistics.paired import holm

_LEVEL = 0.95


def spread(values: Sequence[float]) -> Spread:
    """Mean, standard deviation, lowest and highest of a few numbers, and Student's interval for the mean.

    Of a single number there is neither standard deviation nor interval: it says nothing about how others would lie.
    """
    count = len(values)
    mean = math.fsum(values) / count
    std = low = high = None
    if count > 1:
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        half = float(stats.t.ppf((1 + _LEVEL) / 2, count - 1)) * std / math.sqrt(count)
        low, high = mean - half, mean + half
    return Spread(mean=mean, std=std, low=low, high=high, least=min(values), most=max(values))


class Place(NamedTuple):
    """Which replacement of which matrix, whatever the draw."""

    matrix: Matrix
    keep: float | None
    rank: int
    side: Side | None
    control: Control | None


def groups(summaries: Sequence[RecallSummary]) -> list[Group]:
    """One group for each recipe but for its seed, in the order of the summaries."""
    alike: dict[Recipe, list[RecallSummary]] = {}
    for summary in summaries:
        alike.setdefault(replace(summary.recipe, seed=0), []).append(summary)
    return [_group(of_recipe) for of_recipe in alike.values()]


def _group(summaries: Sequence[RecallSummary]) -> Group:
    of_seeds = [averaged(summary.truncated) for summary in summaries]
    truncated = []
    for place in of_seeds[0]:
        rows = [of_seed[place] for of_seed in of_seeds]
        beyond = None
        random = place._replace(side=None, control="random")
        if place.control is None and all(random in of_seed for of_seed in of_seeds):
            beyond = Spreads(
                **{
                    measure: spread([of_seed[place][measure] - of_seed[random][measure] for of_seed in of_seeds])
                    for measure in MEASURES
                }
            )
        measures = {measure: spread([row[measure] for row in rows]) for measure in MEASURES}
        truncated.append(CutSpreads(**place._asdict(), **measures, beyond=beyond))
    return Group(
        recipe=summaries[0].recipe,
        seeds=tuple(summary.recipe.seed for summary in summaries),
        full=Spreads(**{measure: spread([summary.full.of(measure) for summary in summaries]) for measure in MEASURES}),
        truncated=tuple(truncated),
        phases=SeedsPhases(
            margins={name: _margin(name, summaries) for name in MARGINS},
            attention=_phase([summary.phases.attention for summary in summaries]),
        ),
    )


def averaged(rows: Sequence[CutMeasures]) -> dict[Place, dict[str, float]]:
    """The measures of every replacement; the draws of a random projection are averaged."""
    of_place: dict[Place, list[CutMeasures]] = {}
    for row in rows:
        of_place.setdefault(Place(row.matrix, row.keep, row.rank, row.side, row.control), []).append(row)
    return {
        place: {measure: math.fsum(row.of(measure) for row in drawn) / len(drawn) for measure in MEASURES}
        for place, drawn in of_place.items()
    }


def _margin(name: str, summaries: Sequence[RecallSummary]) -> SeedsPhase:
    untrained = sum(name in summary.phases.untrained for summary in summaries)
    return _phase([summary.phases.learned.get(name) for summary in summaries], untrained)


def _phase(steps: Sequence[int | None], untrained: int = 0) -> SeedsPhase:
    came = [float(step) for step in steps if step is not None]
    # No interval: Student's would reach below the first step.
    over_seeds = spread(came).model_copy(update={"low": None, "high": None}) if came else None
    return SeedsPhase(came=len(came), of=len(steps), untrained=untrained, steps=over_seeds)


class Difference(NamedTuple):
    """p(τ) behind the top of a matrix less that behind random projections of the same rank, over seeds.

    Attributes:
        p: that the mean is 0, by Student's test over seeds, corrected by Holm (1979) over all of a group.
    """

    matrix: str
    keep: float
    mean: float
    p: float


def differences(group: Group) -> list[Difference]:
    """The differences of a group's central matrices; none of one seed."""
    count = len(group.seeds)
    if count < 2:
        return []
    compared = [
        (row, row.beyond.p_noise) for matrix in group.central for row in group.rows(matrix, side="top") if row.beyond
    ]
    corrected = holm([_p(difference, count) for _, difference in compared]) if compared else []
    return [
        Difference(row.matrix, row.keep or 0.0, difference.mean, float(p))
        for (row, difference), p in zip(compared, corrected, strict=True)
    ]


def _p(difference: Spread, count: int) -> float:
    """The p-value of Student's test that a mean over so many seeds is 0."""
    if not difference.std:
        return 0.0 if difference.mean else 1.0
    return float(2 * stats.t.sf(abs(difference.mean) * math.sqrt(count) / difference.std, count - 1))
