"""Summaries of tunings made up for tests of the page: any gains, names and number of seeds."""

import numpy as np

from lesion.core.rates import approximate
from lesion.statistics.over_seeds import crossed
from lesion.statistics.paired import wilson
from lesion.studies.tuning.report import TuningSummary
from lesion.studies.tuning.run import differences_of, verdict
from lesion.studies.tuning.study import TuningStudy

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
    stop_loops: int | None = None,
    looped: float = 0.0,
    title: str | None = None,
    by: str | None = None,
) -> TuningSummary:
    """A summary in which every arm has gained about as much as given, and lost about so much on each control."""
    gains = GAINS if gains is None else gains
    controls = {"primer:atlas": -0.01} if controls is None else controls
    rng = np.random.default_rng(5)
    tasks = {task: 0.0, **controls}
    ease = {name: rng.random(items) for name in tasks}
    baseline = {name: ease[name] < 0.8 for name in tasks}
    right: dict[str, np.ndarray] = {}
    arms = []
    for arm, gain in gains.items():
        entries = []
        for name, lost in tasks.items():
            shifts = (gain if name == task else lost) + spread * rng.standard_normal((seeds, 1))
            noisy = ease[name][None] + 0.02 * rng.standard_normal((seeds, items))
            correct = noisy < 0.8 + shifts
            if name == task:
                right[arm] = correct
            change = crossed(correct, np.repeat(baseline[name][None], seeds, 0))
            entries.append(
                {
                    "task": name,
                    "items": items,
                    "accuracy": float(correct.mean()),
                    "seeds": [_accuracy(row, looped) for row in correct],
                    "change": {"value": change.value, "low": change.low, "high": change.high, "seeds": change.seeds},
                }
            )
        arms.append(
            {
                "name": arm,
                "blocks": [BLOCKS.get(arm, [seed, seed + 2]) for seed in range(seeds)],
                "rank": 19 if arm == "all-adapter" else None,
                "parameters": {"all-full": 1_476_608, "all-adapter": 355_072}.get(arm, 369_152),
                "rate": rates[-1],
                "rates": [{"rate": rate, "validation": 0.8 + rate, "seeds": [0.8] * seeds} for rate in rates]
                if len(rates) > 1
                else [],
                "tasks": entries,
                "curves": [
                    {
                        "seed": seed,
                        "rate": rate,
                        "points": [
                            {"step": step, "loss": 0.02 / step + 0.001 * seed, "reward": 0.05 * step if by else None}
                            for step in range(1, 11)
                        ],
                    }
                    for rate in rates
                    for seed in range(seeds)
                ],
            }
        )
    study = TuningStudy.make(
        name="tuning", model=model, task=task, controls=list(controls), arms=list(gains), seeds=list(range(seeds)),
        steps=10, rows=32, learning_rates=list(rates), budget=2, stop_loops=stop_loops, title=title, by=by,
    )  # fmt: skip
    summary = TuningSummary.model_validate(
        {
            "version": "0.1.0",
            "approximate": approximate(stop_loops),
            "study": study,
            "examples": 320,
            "held_out": 200 if len(rates) > 1 else 0,
            "model": {"name": model, "blocks": 8, "parameters": 1_738_880, "fingerprint": "831e39a35e2498d9"},
            "layers": {
                "source": None, "items": 100, "drops": [0.9, 0.3, 0.88, 0.5, 0.4, 0.8, 0.6, 0.85], "critical": [0, 2],
            },
            "random_from": [1, 3, 4, 5, 6, 7] if "random" in gains else None,
            "baseline": [
                {"task": name, "items": items, "accuracy": _accuracy(baseline[name], looped)} for name in tasks
            ],
            "arms": arms,
            "differences": differences_of(right, 0.95),
            "verdict": None,
        }
    )  # fmt: skip
    return summary.model_copy(update={"verdict": verdict(summary.arms, summary.differences)})


def _accuracy(right: np.ndarray, looped: float) -> dict[str, float]:
    low, high = wilson(int(right.sum()), len(right))
    shares = {"truncated": looped, "looped": looped, "unparsed": 0.01, "nonfinite": 0.0}
    return {"value": float(right.mean()), "low": low, "high": high, **shares}
