"""What a layer study says of one model: its cells on a task, what is critical, and its tasks against each other.

The second half of the claim of Nepal et al. (2025): where mathematics breaks, recall drops far less. It is measured at
the layers that are critical for the first task, as the share of its accuracy that each task loses there.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.edits.edit import BASELINE
from lesion.edits.place import Unit
from lesion.report.values import Estimate
from lesion.statistics.agreement import Agreement, Profile, agreement, profile
from lesion.statistics.critical import SHARE
from lesion.studies.ablation.invariance.result import BetweenTasks, Skill, Subject
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary

FEWEST = 3
"""Of fewer layers no order is worth a comparison."""
FLOOR = 0.05
"""The accuracy that a model must surpass beyond doubt before it can be said to lose a skill."""
FAR = 0.5
"""The other task loses far less where it loses less than this part of what the first one loses."""
SUBJECTS: dict[str, Subject] = {
    "arithmetic": "mathematics",
    "gsm8k": "mathematics",
    "svamp": "mathematics",
    "math500": "mathematics",
    "atlas": "recall",
    "triviaqa": "recall",
    "facts": "recall",
    "reading": "reading",
    "race": "reading",
}
"""What a task asks for, by a word of its name."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One model on one task under the unit and factor that are compared.

    Attributes:
        layers: of its cells.
        harmless: layers that are beyond doubt not critical: even the upper end of their drop is too small.
        profile: None where there are fewer than `FEWEST` cells.
        chance: the accuracy of guessing, in 0…1.
    """

    skill: Skill
    items: int
    layers: tuple[int, ...]
    harmless: tuple[int, ...]
    profile: Profile | None
    chance: float = 0.0


def read(
    study: Study,
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    unit: Unit,
    factor: float,
    names: set[str],
) -> dict[tuple[str, str], Measured]:
    """By model and task what was measured of the models named, where there are any cells.

    Items are resampled alike in all models of a task, and independently of other tasks.
    """
    frames = dict(iter(answers.groupby(["model_name", "task"], sort=False)))
    places = {choice.name: place for place, choice in enumerate(study.tasks)}
    measured = {}
    for model, result in summary.results:
        cells = result.of(unit, factor) if model in names else ()
        if not cells:
            continue
        layers, ordered = tuple(cell.layer for cell in cells), None
        if len(cells) >= FEWEST:
            ids = list(items["item"][items["task"] == result.task])
            table = frames[model, result.task].pivot(index="edit", columns="item", values="correct")
            right = table.loc[[str(BASELINE), *(cell.edit for cell in cells)], ids].to_numpy(dtype=bool)
            ordered = profile(right, layers, len(study.tasks) * study.seed + places[result.task])
        accuracy = result.baseline.accuracy.value or 0.0
        least = SHARE * (accuracy - result.guessing)
        skill = Skill(
            model=model,
            accuracy=accuracy,
            able=(result.baseline.accuracy.low or 0.0) > max(FLOOR, result.guessing),
            critical=[cell.layer for cell in cells if cell.critical],
            reliability=ordered.reliability if ordered else None,
        )
        spared = (cell for cell in cells if not cell.critical)
        harmless = tuple(cell.layer for cell in spared if cell.drop.high is not None and cell.drop.high < least)
        measured[model, result.task] = Measured(skill, result.items, layers, harmless, ordered, result.guessing)
    return measured


def subject(task: str) -> Subject | None:
    """What a task asks for, as far as its name tells: `primer:arithmetic`, `fewshot:4:gsm8k`."""
    words = re.split(r"[^a-z0-9]+", task.lower())
    return next((SUBJECTS[word] for word in words if word in SUBJECTS), None)


def between(model: str, by_task: Mapping[str, Measured], level: float, seed: int = 0) -> list[BetweenTasks]:
    """One entry per pair of tasks that the model has answered and can do, mathematics first.

    `word` is "holds" where b loses, beyond doubt, less than `FAR` of what a loses at the layers that are critical for
    a, "does not hold" where it loses more beyond doubt, else "cannot tell". The items of two tasks are drawn
    independently; within a task the baseline and all layers are drawn together. `seed` is that of the permutations.
    """
    ordered = sorted(by_task, key=lambda task: subject(task) != "mathematics")  # stable: else as the study names them
    entries = []
    for a, b in itertools.combinations(ordered, 2):
        first, second = by_task[a], by_task[b]
        if first.profile is None or second.profile is None or first.layers != second.layers:
            continue
        if not (first.skill.able and second.skill.able):
            continue
        order = agreement(first.profile, second.profile, level, seed)
        critical, others = first.skill.critical, set(second.skill.critical)
        alone = [layer for layer in critical if layer not in others]
        with np.errstate(invalid="ignore", divide="ignore"):
            lost_a, lost_b = (
                _lost(of, critical, side.chance) for of, side in ((first.profile, first), (second.profile, second))
            )
            difference, ratio = lost_a - lost_b, lost_b / lost_a
            differences, ratios = _ends(difference, level), _ends(ratio, level)
        entries.append(
            BetweenTasks(
                model=model,
                a=a,
                b=b,
                rho=Estimate(value=order.rho, p=order.p),
                true=true(order),
                ceiling=order.ceiling,
                layers=critical,
                critical_shared=[layer for layer in critical if layer in others],
                relative_a=lost_a[0],
                relative_b=lost_b[0],
                alone_a=_lost(first.profile, alone, first.chance)[0],
                alone_b=_lost(second.profile, alone, second.chance)[0],
                difference=Estimate(value=difference[0], low=differences[0], high=differences[1]),
                ratio=Estimate(value=ratio[0], low=ratios[0], high=ratios[1]),
                word="holds" if ratios[1] < FAR else "does not hold" if ratios[0] > FAR else "cannot tell",
            )
        )
    return entries


def true(order: Agreement) -> Estimate:
    """The rank correlation of the true profiles, with its interval."""
    return Estimate(value=order.corrected, low=order.low, high=order.high)


def _lost(profile: Profile, layers: Sequence[int], chance: float) -> Float[np.ndarray, " estimate_and_draws"]:
    """The share of the accuracy above chance that is lost, on average over layers: as measured, then under every draw.

    NaN where there are no layers.
    """
    places = [profile.layers.index(layer) for layer in layers]
    if not places:
        return np.full(1 + len(profile.drawn), np.nan)
    drawn = profile.drawn[:, places].mean(axis=1) / (profile.drawn_baseline - chance)
    return np.concatenate([[profile.drops[places].mean() / (profile.baseline - chance)], drawn])


def _ends(values: Float[np.ndarray, " estimate_and_draws"], level: float) -> tuple[float, float]:
    """Between which numbers `level` of the draws lie, without those that are not a number."""
    known = values[1:][~np.isnan(values[1:])]
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2]) if known.size else (math.nan, math.nan)
    return float(low), float(high)
