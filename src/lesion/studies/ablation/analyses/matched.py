"""Tasks matched in difficulty: is a place critical for one task and not for another because the one is more fragile?

A task at its ceiling can lose much of its margin before an answer changes, and one near its limit cannot. So both are
compared on items that the unedited model gets right with the same probability of the right answer: pairs, an item of
each task. On these the baseline of both tasks is 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd

from lesion.core.rates import by_edit, verdicts
from lesion.core.values import alike
from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, column, derived
from lesion.report.values import POINTS, Estimate, Form, Number
from lesion.statistics.contrasts import difference_of_drops
from lesion.statistics.critical import critical, p_critical, pairs
from lesion.statistics.matching import matched
from lesion.statistics.paired import holm, paired_drop
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.cell import AcrossTasks, Cell, Curve, critical_and_spared
from lesion.studies.ablation.result import Material
from lesion.tasks.wrapped import gold_name

CALIPER = 0.5
"""The log-odds of a pair differ by at most so much, in nats: odds by a factor of 1.65."""
FEWEST = 8
"""With fewer pairs nothing is tested."""
ABOUT = (
    "Pairs of items, one of each task, that the unedited model gets right and whose right answers have log-odds within"
    f" {CALIPER:g} nats of each other. Stands: critical for A and spared by B, each by its exact test on these items."
)


class MatchedTasks(AcrossTasks):
    """Two tasks of a model, the first with blocks that are critical for it and not called so for the second.

    Attributes:
        pairs: of items, one of each task.
        nats, other_nats: the mean log-odds of their right answers.
    """

    skill: str = column("Task A")
    other: str = column("Task B")
    pairs: int = column("Pairs")
    nats: Number = column("Log-odds of A", Form(2))
    other_nats: Number = column("of B", Form(2))


class MatchedPlace(Row):
    """One of these blocks on the matched items.

    Attributes:
        lost, other_lost: by the two tasks, of 1; difference: the one minus the other.
        critical, spared: for the first task, by the second, each by its corrected test.
    """

    layer: int = column("Block", label=True)
    lost: Estimate = column("A loses", POINTS)
    other_lost: Estimate = column("B loses", POINTS)
    difference: Estimate = column("Difference", POINTS)
    critical: bool
    spared: bool

    @derived.column("Stands", lambda stands: "●" * stands)
    def stands(self) -> bool:
        """Whether it stays critical for the one and spares the other."""
        return self.critical and self.spared


Comparison = tuple[MatchedTasks, list[MatchedPlace]]
"""Two tasks with their places; none where fewer than `FEWEST` pairs are alike."""


def compared(curves: Iterable[Curve], answers: pd.DataFrame, level: float) -> list[Comparison]:
    """Every ordered pair of tasks of a model with a block that is critical for the first and not for the second.

    Only tasks whose right answers have probabilities take part: those with a screen, and those that compare two
    tokens. None where evaluation stopped.
    """
    every = []
    for sweep in alike((curve for curve in curves if not curve.stopped and not curve.untold), "unit", "factor"):
        for own in alike(sweep, "model"):
            of_model = answers[answers["model_name"] == own[0].model]
            known = {curve.task: _known(of_model, curve.task) for curve in own} if len(own) > 1 else {}
            for skill, other in permutations(own, 2):
                cells = [(cell, other.at(cell.layer)) for cell in skill.cells if cell.critical]
                apart = [(cell, beside) for cell, beside in cells if beside is not None and beside.critical is False]
                if apart and known[skill.task] and known[other.task]:
                    every.append(_matched(skill, other, apart, known, of_model, level))
    return every


def _known(answers: pd.DataFrame, task: str) -> dict[str, float]:
    """The log-odds of the right answer of every item that is right without an edit, in nats."""
    of_task = answers[answers["task"] == task]
    unedited = by_edit(of_task).get(str(BASELINE))
    if unedited is None:
        return {}
    golds = by_edit(answers[answers["task"] == gold_name(task)]).get(str(BASELINE))
    right = unedited.index[verdicts(unedited)]
    if golds is not None:
        scores = {item: golds.loc[item, "scores"] for item in right if item in golds.index}
    elif unedited["tokens"].eq(0).all() or not unedited["scores"].map(len).eq(2).all():
        return {}
    else:
        scores = {item: unedited.loc[item, "scores"] for item in right}
    logs = {item: float(each[0]) for item, each in scores.items() if len(each) and each[0] < 0}
    return {item: log - math.log(-math.expm1(log)) for item, log in logs.items()}  # log(p / (1 − p)) of log p


def _matched(
    skill: Curve,
    other: Curve,
    cells: Sequence[tuple[Cell, Cell]],
    known: Mapping[str, Mapping[str, float]],
    answers: pd.DataFrame,
    level: float,
) -> Comparison:
    sides = known[skill.task], known[other.task]
    scores = [np.array(list(side.values()), dtype=np.float64) for side in sides]
    alike_items = matched(scores[0], scores[1], CALIPER)
    count = len(alike_items)
    nats = [float(own[alike_items[:, at]].mean()) if count else math.nan for at, own in enumerate(scores)]
    tasks = MatchedTasks(
        model=skill.model, unit=skill.unit, factor=skill.factor, skill=skill.task, other=other.task, pairs=count,
        nats=nats[0], other_nats=nats[1],
    )  # fmt: skip
    if count < FEWEST:
        return tasks, []
    edited = []
    for at, (curve, side) in enumerate(zip((skill, other), sides, strict=True)):
        items = [list(side)[place] for place in alike_items[:, at]]
        frames = by_edit(answers[answers["task"] == curve.task])
        edited.append([verdicts(frames[pair[at].edit].loc[items]) for pair in cells])
    right = np.ones(count, dtype=bool)
    harmed = holm([p_critical(pairs(right, own), chance=skill.result.guessing) for own in edited[0]])
    kept = holm([p_spared(pairs(right, own), chance=other.result.guessing) for own in edited[1]])
    lines = []
    for place, (cell, _) in enumerate(cells):
        lost, other_lost = (paired_drop(right, side[place], level) for side in edited)
        difference = difference_of_drops(lost, other_lost)
        difference = replace(difference, high=min(1.0, difference.high))  # neither task can gain on these items
        lines.append(
            MatchedPlace(
                layer=cell.layer, lost=Estimate.of(lost), other_lost=Estimate.of(other_lost),
                difference=Estimate.of(difference), critical=critical(harmed[place]), spared=critical(kept[place]),
            )
        )  # fmt: skip
    return tasks, lines


def part(material: Material) -> Part | None:
    """Every block of every pair of tasks on the matched items; None without such a pair."""
    if material.answers.empty:
        return None
    every = compared(material.curves, material.answers, material.summary.study.level)
    if not every:
        return None
    table = Rows(
        "matched", [(tasks, place) for tasks, own in every for place in own], (MatchedTasks, MatchedPlace),
        "The blocks compared",
        "Critical for A and not called so for B. Losses in points of 100, on pairs that the unedited model gets right.",
        "stands", "those that stand",
    )  # fmt: skip
    return Part("Is it more than a difference in difficulty?", table, (), at_equal_difficulty(every), ABOUT, "Matched")


@rule
def at_equal_difficulty(every: Sequence[Comparison]) -> Iterable[Claim]:
    """What stands on matched items; of several factors, of places switched off alone.

    Says: At equal difficulty block L is critical for A and spares B. | At equal difficulty it is not shown that block L
    is critical for A and spares B. | No comparison at equal difficulty: only n pairs of items are alike.
    Needs: at least 8 pairs of items with log-odds within 0.5 nats; both exact tests on these items, Holm-corrected over
    the blocks of the pair of tasks
    """
    zero = {(tasks.model, tasks.unit) for tasks, _ in every if tasks.factor == 0}
    for tasks, own in every:
        if tasks.factor != 0 and (tasks.model, tasks.unit) in zero:
            continue
        alike_items = wording.counted(tasks.pairs, "pair")
        few = f"{tasks.skill} and {tasks.other}: no comparison, since only {alike_items} of items are alike."
        sentences: tuple[str, ...] = (few,)
        if own:
            standing = [place.layer for place in own if place.stands]
            layers = standing or [place.layer for place in own]
            stands = critical_and_spared(tasks.unit, layers, tasks.factor, tasks.skill, tasks.other)
            verdict = f"{'it is not shown that ' * (not standing)}{stands}"
            best = max(own, key=lambda place: (place.stands, place.difference.value or 0.0))
            lost = f"{POINTS.text(best.lost.value)} of {tasks.skill} and {POINTS.text(best.other_lost.value)}"
            sentences = (
                f"At equal difficulty ({alike_items} of items) {verdict}.",
                f"Block{wording.SPACE}{best.layer} takes {lost} of {tasks.other}, difference"
                f" {POINTS.text(best.difference)}.",
            )
        yield Claim(sentences, subject=wording.among(tasks.model, [other.model for other, _ in every]))
