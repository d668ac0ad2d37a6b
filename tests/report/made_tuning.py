"""Summaries of tunings made up for tests of the page: any gains, names and number of seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from lesion.statistics.over_seeds import crossed
from lesion.statistics.paired import wilson
from lesion.studies.tuning.arms import label
from lesion.studies.tuning.summary import COMPARED, verdict

GAINS = {"critical": 0.10, "least": 0.02, "random": 0.03, "all-adapter": 0.06, "all-full": 0.12}
BLOCKS = {"critical": [0, 2], "least": [1, 4], "all-adapter": list(range(8)), "all-full": list(range(8))}


def made(
    gains: dict[str, float] | None = None,
    *,
    seeds: int = 3,
    items: int = 400,
    controls: dict[str, float] | None = None,
    rates: tuple[float, ...] = (5e-4, 1.5e-3),
    model: str = "bundled:llama-base",
    task: str = "primer:arithmetic",
    spread: float = 0.01,
) -> dict[str, Any]:
    """A summary in which every arm has gained about as much as given, and lost about so much on each control."""
    gains = GAINS if gains is None else gains
    controls = {"primer:atlas": -0.01} if controls is None else controls
    rng = np.random.default_rng(5)
    tasks = {task: 0.0, **controls}
    ease = {name: rng.random(items) for name in tasks}
    baseline = {name: ease[name] < 0.8 for name in tasks}
    right: dict[tuple[str, str], np.ndarray] = {}
    arms = []
    for arm, gain in gains.items():
        entries = []
        for name, lost in tasks.items():
            shifts = (gain if name == task else lost) + spread * rng.standard_normal((seeds, 1))
            noisy = ease[name][None] + 0.02 * rng.standard_normal((seeds, items))
            right[arm, name] = noisy < 0.8 + shifts
            change = crossed(right[arm, name], np.repeat(baseline[name][None], seeds, 0))
            entries.append(
                {
                    "task": name,
                    "items": items,
                    "accuracy": float(right[arm, name].mean()),
                    "seeds": [_accuracy(row) for row in right[arm, name]],
                    "truncated": 0.0,
                    "unparsed": 0.0,
                    "change": _told(change),
                }
            )
        arms.append(
            {
                "arm": arm,
                "label": label(arm),
                "blocks": [BLOCKS.get(arm, [seed, seed + 2]) for seed in range(seeds)],
                "rank": 19 if arm == "all-adapter" else None,
                "parameters": {"all-full": 1_476_608, "all-adapter": 355_072}.get(arm, 369_152),
                "rate": rates[-1],
                "rates": [{"rate": rate, "validation": 0.8 + rate, "seeds": [0.8] * seeds} for rate in rates]
                if len(rates) > 1
                else [],
                "end": "largest" if len(rates) > 1 else None,
                "tasks": entries,
                "curves": [
                    {
                        "seed": seed,
                        "rate": rate,
                        "points": [{"step": step, "loss": 0.02 / step + 0.001 * seed} for step in range(1, 11)],
                    }
                    for rate in rates
                    for seed in range(seeds)
                ],
            }
        )
    differences = [
        {"first": a, "second": b, **_told(crossed(right[a, task], right[b, task]))}
        for a, b in COMPARED
        if a in gains and b in gains
    ]
    return {
        "kind": "tuning",
        "study": {
            "name": "tuning",
            "title": None,
            "seed": 0,
            "seeds": list(range(seeds)),
            "level": 0.95,
            "steps": 10,
            "rows": 32,
            "learning_rates": list(rates),
            "budget": 2,
            "adapter": None,
            "examples": 320,
            "validation_items": 200 if len(rates) > 1 else 0,
            "version": "0.1.0",
        },
        "model": {"name": model, "blocks": 8, "parameters": 1_738_880, "fingerprint": "831e39a35e2498d9"},
        "task": task,
        "controls": list(controls),
        "layers": {"from": None, "items": 100, "drops": [0.9, 0.3, 0.88, 0.5, 0.4, 0.8, 0.6, 0.85], "critical": [0, 2]},
        "random_from": [1, 3, 4, 5, 6, 7] if "random" in gains else None,
        "baseline": [{"task": name, "items": items, **_accuracy(baseline[name])} for name in tasks],
        "arms": arms,
        "differences": differences,
        "notes": [],
        "verdict": verdict(arms, differences),
    }


def _accuracy(right: np.ndarray) -> dict[str, float]:
    low, high = wilson(int(right.sum()), len(right))
    return {"accuracy": float(right.mean()), "low": low, "high": high, "truncated": 0.0, "unparsed": 0.01}


def _told(one: Any) -> dict[str, Any]:
    return {"mean": one.mean, "low": one.low, "high": one.high, "seeds": list(one.seeds)}
