"""Tasks matched in difficulty: is a place critical for one task and not for another because the one is more fragile?

A task at its ceiling can lose much of its margin before an answer changes, and one near its limit cannot. So both are
compared on items that the unedited model gets right with the same probability of the right answer: pairs, an item of
each task. On these the baseline of both tasks is 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import POINTS, Form
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, column
from lesion.report.values import Estimate, Number
from lesion.statistics.contrasts import difference_of_drops
from lesion.statistics.critical import critical, p_critical, pairs
from lesion.statistics.matching import matched
from lesion.statistics.paired import Contrast, holm, paired_drop
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.material import Material
from lesion.studies.ablation.sweep import Factor, by_edit
from lesion.tasks.wrapped import gold_name

CALIPER = 0.5
"""The log-odds of a pair differ by at most so much, in nats: odds by a factor of 1.65."""
FEWEST = 8
"""With fewer pairs nothing is tested."""
ABOUT = (
    "Pairs of items, one of each task, that the unedited model gets right and whose right answers have log-odds within"
    f" {CALIPER:g} nats of each other. Stands: critical for A and spared by B, each by its exact test on these items."
)
Right = Bool[np.ndarray, " pairs"]


@dataclass(frozen=True)
class MatchedPlace:
    """One block on the matched items of two tasks.

    Attributes:
        lost: by the skill, of 1; other: by the other task; difference: the one minus the other.
        stands: critical for the skill and spared by the other.
    """

    layer: int
    lost: Contrast
    other: Contrast
    difference: Contrast
    stands: bool


@dataclass(frozen=True)
class Matched:
    """The blocks that are critical for a skill and not called so for another task, again on matched items.

    Attributes:
        count: of pairs.
        available: items that each task had to offer: right without an edit, with a known probability.
        difficulty: the mean log-odds of the pairs' right answers, of each task, in nats.
        places: empty with fewer than `FEWEST` pairs.
    """

    model: str
    unit: Unit
    factor: Factor
    skill: str
    other: str
    layers: tuple[int, ...]
    count: int
    available: tuple[int, int]
    difficulty: tuple[float, float]
    places: tuple[MatchedPlace, ...]

    @property
    def standing(self) -> list[int]:
        """The blocks that stay critical for the one and spare the other."""
        return [place.layer for place in self.places if place.stands]


def compared(views: Sequence[View], answers: pd.DataFrame, level: float) -> list[Matched]:
    """Every ordered pair of tasks of a model with a block that is critical for the first and not for the second.

    Only tasks whose right answers have probabilities take part: those with a screen, and those that compare two
    tokens. None where evaluation stopped.
    """
    every = []
    for view in views:
        for label in view.labels:
            curves = [curve for curve in view.curves if curve.label == label and not curve.stopped and not curve.untold]
            if len(curves) < 2:
                continue
            own = answers[answers["model_name"] == curves[0].model]
            known = {curve.task: _known(own, curve.task) for curve in curves}
            for skill, other in permutations(curves, 2):
                layers = _apart(skill, other)
                if layers and known[skill.task] and known[other.task]:
                    every.append(_matched(skill, other, layers, known, own, level))
    return every


def _apart(skill: Curve, other: Curve) -> tuple[int, ...]:
    elsewhere = {cell.layer for cell in other.cells if cell.critical is False}
    return tuple(sorted(cell.layer for cell in skill.cells if cell.critical and cell.layer in elsewhere))


def _known(answers: pd.DataFrame, task: str) -> dict[str, float]:
    """The log-odds of the right answer of every item that is right without an edit, in nats."""
    of_task = answers[answers["task"] == task]
    unedited = by_edit(of_task).get(str(BASELINE))
    if unedited is None or "scores" not in answers:
        return {}
    golds = by_edit(answers[answers["task"] == gold_name(task)]).get(str(BASELINE))
    right = unedited.index[unedited["correct"].astype(bool)]
    if golds is not None:
        scores = {item: golds.loc[item, "scores"] for item in right if item in golds.index}
    elif unedited["tokens"].eq(0).all() or not unedited["scores"].map(len).eq(2).all():
        return {}
    else:
        scores = {item: unedited.loc[item, "scores"] for item in right}
    return {item: _log_odds(float(each[0])) for item, each in scores.items() if len(each) and each[0] < 0}


def _log_odds(log_probability: float) -> float:
    """log(p / (1 − p)) of log p, which is below 0."""
    return log_probability - math.log(-math.expm1(log_probability))


def _matched(
    skill: Curve,
    other: Curve,
    layers: tuple[int, ...],
    known: Mapping[str, Mapping[str, float]],
    answers: pd.DataFrame,
    level: float,
) -> Matched:
    sides = known[skill.task], known[other.task]
    names = [list(side) for side in sides]
    scores: list[Float[np.ndarray, " items"]] = [np.array(list(side.values()), dtype=np.float64) for side in sides]
    places = matched(scores[0], scores[1], CALIPER)
    chosen = [[own[place] for place in places[:, side]] for side, own in enumerate(names)]
    means = [float(own[places[:, side]].mean()) if len(places) else math.nan for side, own in enumerate(scores)]
    tested = _tested(skill, other, layers, chosen, answers, level) if len(places) >= FEWEST else ()
    available = len(names[0]), len(names[1])
    about = (skill.model, skill.unit, skill.factor, skill.task, other.task, layers, len(places), available)
    return Matched(*about, (means[0], means[1]), tested)


def _tested(
    skill: Curve,
    other: Curve,
    layers: Sequence[int],
    chosen: Sequence[Sequence[str]],
    answers: pd.DataFrame,
    level: float,
) -> tuple[MatchedPlace, ...]:
    edited: list[list[Right]] = []
    for curve, items in zip((skill, other), chosen, strict=True):
        frames = by_edit(answers[answers["task"] == curve.task])
        cells = [curve.at(layer) for layer in layers]
        edited.append([frames[cell.edit].loc[list(items), "correct"].to_numpy(dtype=bool) for cell in cells if cell])
    right: Right = np.ones(len(chosen[0]), dtype=bool)
    chances = [curve.result.guessing for curve in (skill, other)]
    harmed = holm([p_critical(pairs(right, own), chance=chances[0]) for own in edited[0]])
    kept = holm([p_spared(pairs(right, own), chance=chances[1]) for own in edited[1]])
    places = []
    for place, layer in enumerate(layers):
        lost, other_lost = (paired_drop(right, side[place], level) for side in edited)
        stands = critical(harmed[place]) and critical(kept[place])
        difference = difference_of_drops(lost, other_lost)
        difference = replace(difference, high=min(1.0, difference.high))  # neither task can gain on these items
        places.append(MatchedPlace(layer, lost, other_lost, difference, stands))
    return tuple(places)


class MatchedRow(Row):
    """One block on the matched items of two tasks; log-odds of the right answers in nats, means over pairs."""

    model: str = column("Model", label=True)
    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)
    skill: str = column("Task A")
    other: str = column("Task B")
    layer: int = column("Block", label=True)
    pairs: int = column("Pairs")
    nats: Number = column("Log-odds of A", Form(2))
    other_nats: Number = column("of B", Form(2))
    lost: Estimate = column("A loses", POINTS)
    other_lost: Estimate = column("B loses", POINTS)
    difference: Estimate = column("Difference", POINTS)
    stands: bool = column("Stands", lambda stands: "●" if stands else "")


def part(material: Material) -> Part | None:
    """Every block of every pair of tasks on the matched items; None without such a pair."""
    if material.answers.empty:
        return None
    every = compared(material.views, material.answers, material.summary.study.level)
    if not every:
        return None
    rows = [
        MatchedRow(
            model=of.model, unit=of.unit, factor=of.factor, skill=of.skill, other=of.other, layer=place.layer,
            pairs=of.count, nats=of.difficulty[0], other_nats=of.difficulty[1], lost=Estimate.of(place.lost),
            other_lost=Estimate.of(place.other), difference=Estimate.of(place.difference), stands=place.stands,
        )
        for of in every
        for place in of.places
    ]  # fmt: skip
    table = Rows(
        "matched", rows, (MatchedRow,), "Blocks that are critical for A and not called so for B, at equal difficulty",
        "Losses in points of 100, on pairs that the unedited model gets right.", "stands", "those that stand",
    )  # fmt: skip
    return Part("Is it more than a difference in difficulty?", table, (), at_equal_difficulty(every), ABOUT, "Matched")


@rule(
    "At equal difficulty block L is critical for A and spares B.",
    "At equal difficulty it is not shown that block L is specific to A.",
    "No comparison at equal difficulty: only n pairs of items are alike.",
    needs=f"at least {FEWEST} pairs of items with log-odds within {CALIPER:g} nats; both exact tests on these items,"
    " Holm-corrected over the blocks of the pair of tasks",
)
def at_equal_difficulty(every: Sequence[Matched]) -> Iterable[Claim]:
    """What stands on matched items; of several factors, of places switched off alone."""
    zero = {(each.model, each.unit) for each in every if each.factor == 0}
    for of in (each for each in every if each.factor == 0 or (each.model, each.unit) not in zero):
        subject = of.model if len({each.model for each in every}) > 1 else ""
        if not of.places:
            alike = wording.counted(of.count, "pair")
            yield Claim(
                (f"{of.skill} and {of.other}: no comparison, since only {alike} of items are alike.",), (), subject
            )
            continue
        unit = "block" if of.unit == "block" else f"{wording.UNIT_NAMES[of.unit]} of block"
        standing = of.standing
        one = len(standing) == 1
        verdict = (
            f"{wording.numbered(unit, standing)} {'is' if one else 'are'} critical for {of.skill} and"
            f" {'spares' if one else 'spare'} {of.other}"
            if standing
            else f"{wording.numbered(unit, of.layers)}: more than a difference in difficulty is not shown between"
            f" {of.skill} and {of.other}"
        )
        best = max(of.places, key=lambda place: (place.stands, place.difference.value))
        yield Claim(
            (
                f"At equal difficulty ({wording.counted(of.count, 'pair')} of items) {verdict}.",
                f"Block{wording.SPACE}{best.layer} takes {POINTS.text(best.lost.value)} of {of.skill} and"
                f" {POINTS.text(best.other.value)} of {of.other}, difference"
                f" {POINTS.text(Estimate.of(best.difference))}.",
            ),
            (),
            subject,
        )
