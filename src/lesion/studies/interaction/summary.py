"""Which sets of places the designs of a study remove, and from answers to the numbers of these; pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lesion.core.rates import approximate, first_scores, rates, verdicts
from lesion.edits.edit import BASELINE, Edit, composed
from lesion.edits.text import parse
from lesion.report.rows import Endings
from lesion.report.values import Estimate
from lesion.statistics.contrasts import beyond_random, mean
from lesion.statistics.interaction import Values, beyond_sum, beyond_sum_p, drop, orders_of, other_orders, shapley
from lesion.statistics.paired import accuracy, holm
from lesion.studies.interaction import result
from lesion.studies.interaction.result import InteractionTask
from lesion.studies.interaction.study import NAMED_ORDERS, Design, InteractionStudy, ordered, place_key, windows
from lesion.tasks.wrapped import gold_name

Set = tuple[str, ...]
"""Places by their addresses, in the order of the model."""


@dataclass(frozen=True)
class PlannedSets:
    """The sets of every design, each with its places in ascending order.

    Attributes:
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
    def sets(self) -> list[Set]:
        """Every set of two places or more, each once."""
        every = [*self.pairs, *self.windows]
        for order in (*self.orders, *self.permutations):
            every += [tuple(sorted(order[:count], key=place_key)) for count in range(2, len(order) + 1)]
        return list(dict.fromkeys(every))


def planned(study: InteractionStudy, places: Sequence[str], order: Sequence[str] | None) -> PlannedSets:
    """The sets of a study; `order` is that by importance, None where it is not known yet."""
    sets: dict[str, Any] = {}
    if "pairs" in study.design:
        sets["pairs"] = tuple(combinations(places, 2))
    if "windows" in study.design:
        sets["windows"] = tuple(windows(places, study.window))
    if "shapley" in study.design:
        numbers, sets["every"] = orders_of(range(len(places)), study.permutations, study.seed)
        sets["permutations"] = tuple(tuple(places[number] for number in each) for each in numbers)
    if "cumulative" in study.design:
        sets["ordered_by_importance"] = study.order in NAMED_ORDERS
        ranked = list(order or ())
        first = {"most": ranked, "least": ranked[::-1]}.get(study.order, ordered(study))
        if first:
            random = other_orders([places.index(place) for place in first], study.random_orders, study.seed)
            sets["orders"] = (tuple(first), *(tuple(places[number] for number in each) for each in random))
    return PlannedSets(tuple(places), **sets)


def important(answers: Answers, places: Sequence[str]) -> list[str]:
    """The places by their mean drop alone over tasks, the most important first; ties in the order of the model."""
    drops = [np.mean([np.nanmean(answers.drops(task, (place,))) for task in answers.tasks]) for place in places]
    return [places[at] for at in np.argsort(-np.array(drops), kind="stable")]


TIED = 1e-9  # sums of drops that differ by no more than rounding are equal


def edit_of(study: InteractionStudy, places: Sequence[str]) -> Edit:
    """The edit that removes (or scales) these places; a set is one edit, in whichever order it is given."""
    return composed([parse(f"{place}×{study.factor!r}") for place in sorted(places, key=place_key)])


class Answers:
    """What every item has under every set of places removed."""

    def __init__(self, study: InteractionStudy, answers: pd.DataFrame, items: Mapping[str, Sequence[str]]) -> None:
        self._study, self._answers, self.items = study, answers, items
        self._values: dict[tuple[str, Set], Values] = {}

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks."""
        return list(self.items)

    @cached_property
    def _frames(self) -> dict[tuple[str, str], pd.DataFrame]:
        by_edit = self._answers.groupby(["task", "edit"], sort=False)
        return {(str(task), str(edit)): frame.set_index("item") for (task, edit), frame in by_edit}

    def frame(self, task: str, places: Sequence[str]) -> pd.DataFrame:
        """The answers with places removed, in the order of the items; of none, the unedited model's."""
        study = self._study
        edit = edit_of(study, places) if places else BASELINE
        name = gold_name(task) if study.measure == "gold" else task
        return self._frames[name, str(edit)].loc[list(self.items[task])]

    def values(self, task: str, places: Sequence[str]) -> Values:
        """[items] whether each is right, or the log-probability of its gold answer in nats, NaN where not finite."""
        key = task, tuple(sorted(places, key=place_key))
        if key not in self._values:
            read = first_scores if self._study.measure == "gold" else verdicts
            self._values[key] = read(self.frame(*key))
        return self._values[key]

    def all_values(self, task: str) -> np.ndarray:
        """[sets items] of all sets that were looked at."""
        return np.array([values for (name, _), values in self._values.items() if name == task])

    def drops(self, task: str, places: Sequence[str]) -> np.ndarray:
        """[items] what removing these places takes."""
        return self.values(task, ()).astype(float) - self.values(task, places)


def summarise(
    study: InteractionStudy, fingerprint: str, plan: PlannedSets, answers: Answers, guesses: Mapping[str, float]
) -> result.InteractionSummary:
    """All numbers of the study."""
    tasks = tuple(
        InteractionTask(name=name, items=len(ids), guessing=guesses[name], loss=_loss(study, answers, name, guesses))
        for name, ids in answers.items.items()
    )
    sets: list[Set] = [(), *((place,) for place in plan.places), *plan.sets]
    return result.InteractionSummary(
        study=study,
        model=study.model.name,
        fingerprint=fingerprint,
        places=plan.places,
        tasks=tasks,
        removals=tuple(_removal(study, answers, task, places) for task in answers.tasks for places in sets),
        interactions=tuple(
            interaction
            for task in tasks
            for design, of_design in (("pairs", plan.pairs), ("windows", plan.windows))
            for interaction in _interactions(study, answers, task, design, of_design)  # type: ignore[arg-type]
        ),
        order=plan.orders[0] if plan.orders else (),
        steps=tuple(step for task in answers.tasks for step in _steps(study, answers, task, plan.orders)),
        shares=tuple(share for task in answers.tasks for share in _shares(study, answers, task, plan)),
        orders=len(plan.permutations),
        every_order=plan.every,
        approximate=approximate(study.decoding.stop_loops),
        notes=tuple(_notes(study, tasks, answers)),
    )


def _value(study: InteractionStudy, values: Values) -> Estimate:
    return Estimate.of(mean(values, study.level) if study.measure == "gold" else accuracy(values, study.level))


def _removal(study: InteractionStudy, answers: Answers, task: str, places: Set) -> result.Removal:
    values = answers.values(task, places)
    return result.Removal(
        task=task,
        places=places,
        items=len(values),
        value=_value(study, values),
        drop=Estimate.of(drop(answers.values(task, ()), values, study.level)) if places else None,
        endings=None if study.measure == "gold" else Endings(**rates(answers.frame(task, places))),
    )


def _interactions(
    study: InteractionStudy, answers: Answers, task: InteractionTask, design: Design, sets: Sequence[Set]
) -> Iterator[result.Interaction]:
    baseline = answers.values(task.name, ())
    rows = [(np.array([answers.values(task.name, (place,)) for place in each]), each) for each in sets]
    tests = [beyond_sum_p(baseline, alone, answers.values(task.name, each)) for alone, each in rows]
    corrected = holm(np.nan_to_num(tests, nan=1.0))
    for (alone, each), p, p_corrected in zip(rows, tests, corrected, strict=True):
        together = answers.values(task.name, each)
        beyond = Estimate.of(beyond_sum(baseline, alone, together, study.level), p, p_corrected)
        drops = tuple(float(np.mean(baseline.astype(float) - values)) for values in alone)
        yield result.Interaction(
            design=design,
            task=task.name,
            places=each,
            alone=drops,
            together=Estimate.of(drop(baseline, together, study.level)),
            beyond=beyond,
            independent=_independent(study, float(baseline.mean()), drops),
            verdict=_verdict(sum(drops), task.loss, beyond),
        )


def _independent(study: InteractionStudy, baseline: float, drops: Sequence[float]) -> float | None:
    """The drop of all places if each kept its own share of the right answers, whatever else is removed."""
    if study.measure == "gold" or not baseline:
        return None
    return baseline * (1 - math.prod(1 - each / baseline for each in drops))


def _loss(study: InteractionStudy, answers: Answers, task: str, guesses: Mapping[str, float]) -> float:
    """What there is to lose on a task until the model guesses."""
    baseline = answers.values(task, ())
    if study.measure == "gold":
        golds = answers.frame(task, ())["gold"]
        return float(np.mean(baseline - np.log(golds.map(golds.value_counts(normalize=True)).to_numpy(dtype=float))))
    return float(baseline.mean()) - guesses[task]


def _verdict(total: float, loss: float | None, beyond: Estimate) -> result.Verdict:
    shown = beyond.value is not None and beyond.is_shown
    if shown and (beyond.value or 0.0) > 0:
        return "redundant"
    if loss is not None and total >= loss - TIED:
        return "cannot tell"
    return "one path" if shown else "no sign"


def _steps(study: InteractionStudy, answers: Answers, task: str, orders: Sequence[Set]) -> Iterator[result.Step]:
    for number, order in enumerate(orders):
        for count in range(1, len(order) + 1):
            values = answers.values(task, order[:count])
            random = np.array([answers.values(task, other[:count]) for other in orders[1:]])
            beyond = None
            if number == 0 and len(random) and count < len(order):
                if study.measure == "gold":
                    beyond = Estimate.of(mean(random.mean(axis=0) - values, study.level))
                else:
                    beyond = Estimate.of(beyond_random(values, random, study.level))
            estimate = _value(study, values)
            yield result.Step(task=task, order=number, places=order[:count], value=estimate, beyond_random=beyond)


def _shares(study: InteractionStudy, answers: Answers, task: str, plan: PlannedSets) -> Iterator[result.ShapleyValue]:
    if not plan.permutations:
        return
    marginals: dict[str, list[np.ndarray]] = {place: [] for place in plan.places}
    for order in plan.permutations:
        before = np.zeros(len(answers.items[task]))
        for count, place in enumerate(order, start=1):
            after = answers.drops(task, order[:count])
            marginals[place].append(after - before)
            before = after
    for place, of_place in marginals.items():
        value, sampling = shapley(np.array(of_place), study.level, every=plan.every)
        last = [marginal for order, marginal in zip(plan.permutations, of_place, strict=True) if order[-1] == place]
        yield result.ShapleyValue(
            task=task,
            place=place,
            value=Estimate.of(value),
            sampling=Estimate.of(sampling),
            alone=float(answers.drops(task, (place,)).mean()),
            last=float(np.mean(last)) if last else None,
        )


def _notes(study: InteractionStudy, tasks: Sequence[InteractionTask], answers: Answers) -> Iterator[str]:
    for task in tasks if study.measure == "gold" else ():
        if items := int(np.isnan(answers.all_values(task.name)).any(axis=0).sum()):
            yield f"{task.name}: of {items} items a log-probability is not finite, so that means over them are unknown."
