"""From the answers of a tuning study to its numbers: gains over the untuned model, differences, damage, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Bool

from lesion.core.rates import approximate, rates
from lesion.core.study_file import TaskChoice
from lesion.models.load import Model
from lesion.statistics import paired
from lesion.statistics.over_seeds import crossed
from lesion.studies.tuning.result import (
    WORTH,
    Accuracy,
    ArmResult,
    Baseline,
    Change,
    Curve,
    Difference,
    Drops,
    TriedRate,
    Tuned,
    TunedModel,
    TuningSummary,
    Verdict,
)
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy
from lesion.studies.tuning.training import Arm, Data, Trained, budget_of, random_pool
from lesion.tasks.task import Item

Answers = Callable[[str, TaskChoice, Sequence[Item]], pd.DataFrame]
"""The answers of the model with a fingerprint to items of a task, in their order."""
Rates = Mapping[str, tuple[float, Mapping[float, Sequence[float]]]]
"""By arm, the chosen learning rate, and by rate the accuracy of every seed on held-out items; empty for one rate."""
Right = Mapping[str, Bool[np.ndarray, "seeds items"]]
"""Whether each arm is right on each item of a task."""

COMPARED = ((CRITICAL, RANDOM), (CRITICAL, LEAST), (CRITICAL, ALL_ADAPTER), (CRITICAL, ALL_FULL))
"""The differences that are reported, the first of which decides the verdict."""


def summarise(
    study: TuningStudy,
    model: Model,
    data: Data,
    arms: Sequence[Sequence[Arm]],
    rates: Rates,
    cells: Mapping[tuple[str, float, int], Trained],
    drops: Drops | None,
    examples: int,
    answers: Answers,
    notes: Sequence[str],
) -> TuningSummary:
    """All numbers of a study.

    `arms` has for every name in the study its arm under every seed, `cells` what is trained by name, rate and seed,
    `drops` what every block is worth where an arm depends on it. `examples` is how many items were trained on.
    """
    baseline = []
    tasks: dict[str, list[Tuned]] = {of_name[0].name: [] for of_name in arms}
    right: dict[TaskChoice, dict[str, np.ndarray]] = {}
    for choice, items in data.test.items():
        before = answers(model.fingerprint, choice, items)
        baseline.append(Baseline(task=choice.name, items=len(items), accuracy=accuracy(before, study.level)))
        right[choice] = {}
        for name, of_name in tasks.items():
            trained = [cells[name, rates[name][0], seed] for seed in study.seeds]
            frames = [answers(cell.fingerprint, choice, items) for cell in trained]
            right[choice][name] = own = np.stack([_right(frame) for frame in frames])
            untuned = np.repeat(_right(before)[None], len(frames), axis=0)
            of_name.append(
                Tuned(
                    task=choice.name,
                    items=len(items),
                    accuracy=own.mean(),
                    seeds=[accuracy(frame, study.level) for frame in frames],
                    change=Change(**vars(crossed(own, untuned, study.level))),
                )
            )
    entries = [_arm(study, of_name, rates, cells, tasks[of_name[0].name]) for of_name in arms]
    differences = differences_of(right[data.choice], study.level)
    blocks = len(model.anatomy.blocks)
    pool = random_pool(blocks, budget_of(study, blocks), () if drops is None else drops.critical)
    return TuningSummary(
        approximate=approximate(study.stop_loops),
        study=study,
        model=TunedModel(
            name=study.model.name,
            blocks=blocks,
            parameters=sum(p.numel() for p in model.network.parameters()),
            fingerprint=model.fingerprint,
        ),
        examples=examples,
        held_out=len(data.validation) if len(study.learning_rates) > 1 else 0,
        layers=drops,
        random_from=pool if RANDOM in study.arms else None,
        baseline=baseline,
        arms=entries,
        differences=differences,
        verdict=verdict(entries, differences),
        notes=notes,
    )


def differences_of(right: Right, level: float) -> tuple[Difference, ...]:
    """The differences of `COMPARED` between the arms that there are, on the same seeds and items."""
    return tuple(
        Difference(first=first, second=second, **vars(crossed(right[first], right[second], level)))
        for first, second in COMPARED
        if first in right and second in right
    )


def verdict(arms: Sequence[ArmResult], differences: Sequence[Difference]) -> Verdict | None:
    """Whether tuning the critical blocks pays; None where critical and random blocks were not both tuned."""
    gains = {arm.name: arm.gain for arm in arms}
    main = next((pair for pair in differences if (pair.first, pair.second) == COMPARED[0]), None)
    return None if main is None else decide(gains[CRITICAL], main, gains.get(ALL_FULL))


def decide(gain: Change, main: Difference, full: Change | None) -> Verdict:
    """Whether tuning the critical blocks pays, by one comparison that is named before anything is measured.

    It *pays* when the interval of critical minus random blocks lies above 0 and so does that of the gain itself; it
    *does not pay* when the whole interval of the difference lies below `WORTH`; otherwise it *cannot tell*. It cannot
    tell either where neither the gain of all blocks in full nor that of the critical ones is sure: nothing was learned
    that could be compared.

    `gain` is that of the critical blocks, `full` that of all blocks in full; `main` is critical minus random blocks.
    """
    if full is not None and full.low <= 0 and gain.low <= 0:
        return Verdict(word="cannot tell", reason="nothing learned")
    if main.low > 0:
        sure = gain.low > 0
        return Verdict(word="pays", reason="better") if sure else Verdict(word="cannot tell", reason="no gain")
    if main.high < WORTH:
        return Verdict(word="does not pay", reason="no better")
    return Verdict(word="cannot tell", reason="undecided")


def accuracy(answers: pd.DataFrame, level: float) -> Accuracy:
    """The share of right answers with its interval, and how the answers ended."""
    return Accuracy(**vars(paired.accuracy(_right(answers), level)), **rates(answers))


def _arm(
    study: TuningStudy,
    arms: Sequence[Arm],
    rates: Rates,
    cells: Mapping[tuple[str, float, int], Trained],
    tasks: Sequence[Tuned],
) -> ArmResult:
    name = arms[0].name
    chosen, validation = rates[name]
    curves = [
        Curve(seed=seed, rate=rate, points=cells[name, rate, seed].points)
        for rate in study.learning_rates
        for seed in study.seeds
    ]
    return ArmResult(
        name=name,
        blocks=[arm.blocks for arm in arms],
        rank=arms[0].rank,
        parameters=arms[0].parameters,
        rate=chosen,
        rates=[TriedRate(rate=rate, validation=np.mean(own), seeds=own) for rate, own in validation.items()],
        tasks=tasks,
        curves=curves,
    )


def _right(answers: pd.DataFrame) -> Bool[np.ndarray, " items"]:
    return answers["correct"].to_numpy(dtype=bool)
