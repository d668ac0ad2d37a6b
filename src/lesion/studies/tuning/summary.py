"""The numbers of a tuning study: gains over the untuned model, differences between arms, damage, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lesion.core.rates import loops, rates
from lesion.core.study_file import TaskChoice
from lesion.models.load import Model
from lesion.statistics.over_seeds import Crossed, crossed
from lesion.statistics.paired import wilson
from lesion.studies.tuning.arms import Arm, budget_of, label, random_pool
from lesion.studies.tuning.cells import Trained
from lesion.studies.tuning.data import Data
from lesion.studies.tuning.layers import Drops
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy
from lesion.tasks.task import Item

Answers = Callable[[str, TaskChoice, Sequence[Item]], pd.DataFrame]
Rates = Mapping[str, tuple[float, Mapping[float, Sequence[float]]]]

WORTH = 0.01
"""A difference of accuracy below this is a trifle: one point."""
COMPARED = ((CRITICAL, RANDOM), (CRITICAL, LEAST), (CRITICAL, ALL_ADAPTER), (CRITICAL, ALL_FULL))
"""The differences that are told, the first of which decides the verdict."""


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
) -> dict[str, Any]:
    """What `summary.json` holds.

    Args:
        study: what was tuned.
        model: with its own weights.
        data: the items.
        arms: of every name in the study, its arm under every seed.
        rates: of every name, the learning rate that was chosen and the accuracy of every seed on validation items under
            each rate.
        cells: what is trained, by name, rate and seed.
        drops: what every block is worth, where that was asked.
        examples: how many were there to train on.
        answers: of a fingerprint, to items of a task, in their order.
        notes: what to tell besides.
    """
    right: dict[tuple[str, TaskChoice], NDArray[np.bool_]] = {}
    baseline: dict[TaskChoice, NDArray[np.bool_]] = {}
    told_baseline = []
    entries = []
    for choice, items in data.test.items():
        frame = answers(model.fingerprint, choice, items)
        baseline[choice] = _right(frame)
        told_baseline.append({"task": choice.name, "items": len(items), **_accuracy(frame, study.level)})
    for of_name in arms:
        name = of_name[0].name
        rate, found = rates[name]
        done = [cells[name, rate, seed] for seed in study.seeds]
        tasks = []
        for choice, items in data.test.items():
            frames = [answers(one.fingerprint, choice, items) for one in done]
            right[name, choice] = np.stack([_right(frame) for frame in frames])
            change = crossed(right[name, choice], _repeated(baseline[choice], len(done)), study.level)
            tasks.append(
                {
                    "task": choice.name,
                    "items": len(items),
                    "accuracy": float(right[name, choice].mean()),
                    "seeds": [_accuracy(frame, study.level) for frame in frames],
                    **_rates(frames),
                    "change": _told(change),
                }
            )
        entries.append(
            {
                "arm": name,
                "label": label(name),
                "blocks": [list(arm.blocks) for arm in of_name],
                "rank": of_name[0].rank,
                "parameters": of_name[0].parameters,
                "rate": rate,
                "rates": [
                    {"rate": tried, "validation": float(np.mean(values)), "seeds": list(values)}
                    for tried, values in found.items()
                ],
                "end": _end(rate, list(found)),
                "tasks": tasks,
                "curves": [
                    {"seed": seed, "rate": tried, "points": [_point(point) for point in cells[name, tried, seed].curve]}
                    for tried in study.learning_rates
                    for seed in study.seeds
                ],
            }
        )
    names = [of_name[0].name for of_name in arms]
    differences = [
        {
            "first": first,
            "second": second,
            **_told(crossed(right[first, data.choice], right[second, data.choice], study.level)),
        }
        for first, second in COMPARED
        if first in names and second in names
    ]
    summary = {
        "kind": "tuning",
        "study": {
            "name": study.name,
            "title": study.title,
            "seed": study.seed,
            "seeds": list(study.seeds),
            "level": study.level,
            "steps": study.steps,
            "rows": study.rows,
            "learning_rates": list(study.learning_rates),
            "budget": study.budget,
            "adapter": study.adapter,
            "examples": examples,
            "validation_items": len(data.validation) if len(study.learning_rates) > 1 else 0,
            "version": version("lesion"),
            **loops(study.stop_loops),
        },
        "model": {
            "name": study.model.name,
            "blocks": len(model.anatomy.blocks),
            "parameters": sum(p.numel() for p in model.network.parameters()),
            "fingerprint": model.fingerprint,
        },
        "task": study.task,
        "controls": list(study.controls),
        "layers": None if drops is None else drops.told(),
        "random_from": _random_from(study, len(model.anatomy.blocks), drops),
        "baseline": told_baseline,
        "arms": entries,
        "differences": differences,
        "notes": list(notes),
    }
    return {**summary, "verdict": verdict(entries, differences)}


def verdict(arms: Sequence[Mapping[str, Any]], differences: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Whether tuning the critical blocks pays; None where critical and random blocks were not both tuned.

    Decided by one comparison, named before anything is seen: critical minus random blocks, these drawn from the blocks
    that are not critical where enough are left. It *pays* when the lower end
    of that difference is above 0 and so is that of the gain itself; it *does not pay* when the upper end is below
    `WORTH`: whatever it may be, it is a trifle or a loss; else it *cannot tell*. It cannot tell either where not
    even all blocks in full gain beyond doubt, for then there was nothing to learn in these steps.

    Args:
        arms: entries of the summary.
        differences: likewise.

    Returns:
        `word` (`pays`, `does not pay`, `cannot tell`) and `reason`, one of `better`, `no better`, `nothing learned`,
        `no gain`, `undecided`.
    """
    by_name = {arm["arm"]: arm["tasks"][0]["change"] for arm in arms}
    against = {(one["first"], one["second"]): one for one in differences}
    main = against.get((CRITICAL, RANDOM))
    if main is None:
        return None
    full = by_name.get(ALL_FULL)
    gain = by_name[CRITICAL]
    if full is not None and full["low"] <= 0 and gain["low"] <= 0:
        return {"word": "cannot tell", "reason": "nothing learned"}
    if main["low"] > 0:
        return {"word": "pays", "reason": "better"} if gain["low"] > 0 else {"word": "cannot tell", "reason": "no gain"}
    if main["high"] < WORTH:
        return {"word": "does not pay", "reason": "no better"}
    return {"word": "cannot tell", "reason": "undecided"}


def _random_from(study: TuningStudy, blocks: int, drops: Drops | None) -> list[int] | None:
    """The blocks that `random` was drawn from; None where it is no arm."""
    if RANDOM not in study.arms:
        return None
    return list(random_pool(blocks, budget_of(study, blocks), () if drops is None else drops.critical))


def _right(frame: pd.DataFrame) -> NDArray[np.bool_]:
    return frame["correct"].to_numpy(dtype=bool)


def _repeated(row: NDArray[np.bool_], times: int) -> NDArray[np.bool_]:
    return np.repeat(row[None], times, axis=0)


def _accuracy(frame: pd.DataFrame, level: float) -> dict[str, Any]:
    right = _right(frame)
    low, high = wilson(int(right.sum()), len(right), level)
    return {
        "accuracy": float(right.mean()),
        "low": low,
        "high": high,
        **rates(frame),
    }


def _rates(frames: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Means over seeds."""
    every = [rates(frame) for frame in frames]
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]}


def _told(one: Crossed) -> dict[str, Any]:
    return {"mean": one.mean, "low": one.low, "high": one.high, "seeds": list(one.seeds)}


def _point(point: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": point["step"], "loss": point["loss"]}


def _end(rate: float, rates: Sequence[float]) -> str | None:
    """Whether the chosen of several rates is the smallest or the largest, beyond which better ones may lie."""
    if len(rates) < 2:
        return None
    return "smallest" if rate == min(rates) else "largest" if rate == max(rates) else None
