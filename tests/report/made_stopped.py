"""The made study with asking stopped: block 0 left open, block 1 not, block 2 exceeding the effect on sums; a screen.

Item 9 alone is wrong without a cut, so that on the items of a cell asked fewer than ten the baseline is always right.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from made import right, study

from lesion.statistics.paired import wilson

DRAWN = 12
ASKED = {0: 10, 1: 6, 2: 3, 3: 6}


def stopped(
    models: tuple[str, ...] = ("base",), *, finished: bool = True
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Summary, answers and items."""
    summary, answers, items = study(models)
    for model in summary["models"]:
        for task in model["tasks"]:
            for entry in task["layers"]:
                layer = entry["layer"]
                n = ASKED[layer]
                k, unedited = (sum(right(task["task"], cut, i) for i in range(n)) for cut in (layer, None))
                drop = (unedited - k) / n
                entry |= {
                    "accuracy": k / n, **dict(zip(("low", "high"), wilson(k, n), strict=True)),
                    "drop": drop, "drop_low": max(-1.0, drop - 0.4), "drop_high": min(1.0, drop + 0.4),
                    "baseline_items": n, "baseline_accuracy": unedited / n,
                    **dict(zip(("baseline_low", "baseline_high"), wilson(unedited, n), strict=True)),
                    "items": n, "p": None, "p_corrected": None,
                    "decided": "exceeds" if entry["critical"] else "open" if layer == 0 else "not",
                }  # fmt: skip
                entry["critical"] = None
            task["baseline"]["items"] = 10
            task["stopping"] = {
                "effect": 0.3, "level": 0.05, "items": DRAWN, "answers": 10 + sum(ASKED.values()), "full": 5 * DRAWN,
                "evaluations": 35 / DRAWN, "exceeds": sum(e["decided"] == "exceeds" for e in task["layers"]), "not": 2,
                "open": 1, "finished": finished,
            }  # fmt: skip
    places = {item: place for _, of in items.groupby("task") for place, item in enumerate(of["item"])}
    asked = {"baseline": 10} | {f"{layer}×0": n for layer, n in ASKED.items()}
    kept = [
        places[item] < asked[edit] for item, edit in zip(answers["item"], answers["edit"], strict=True)
    ]  # fmt: skip
    return summary, answers[kept].reset_index(drop=True), items


def with_screen(summary: dict[str, Any], *, seconds: bool = True) -> dict[str, Any]:
    """The same with a screen of every task; block 3 has no numbers under it."""
    for model in summary["models"]:
        for task in model["tasks"]:
            losses = [(0, 0.75, 2), (1, -0.004, 4), (2, 0.5, 3), (3, None, 1)]
            task["screen"] = {
                "items": 8, "answers": 40, "tokens": 400, "generated": {"answers": 35, "tokens": 245}, "baseline": -0.1,
                "layers": [
                    {"layer": layer, "unit": "block", "factor": 0.0, "lost": lost, "rank": rank,
                     "low": None if lost is None else lost - 0.1, "high": None if lost is None else lost + 0.1,
                     "lost_per_answer": None if lost is None else 5 * lost, "nonfinite": 0 if lost is not None else 8}
                    for layer, lost, rank in losses
                ],
                "agreement": [{"unit": "block", "factor": 0.0, "layers": 4, "tied": 2, "rho": 0.8, "low": 0.4,
                               "high": 0.95}],
            }  # fmt: skip
        asking = {model["model"]: {"screen": {"answers": 80, "seconds": 1.25}}}
        summary |= {"cost": {"asking": asking}} if seconds else {}
    return summary
