"""The made study with asking stopped: block 0 left open, block 1 not, block 2 exceeding the effect on sums.

Item 9 alone is wrong without a cut, so that on the items of a cell asked fewer than ten the baseline is always right.
"""

import pandas as pd
from made import Form, form, records, right, scores, valid

from lesion.studies.ablation.result import AblationSummary

DRAWN = 12
ASKED = {0: 10, 1: 6, 2: 3, 3: 6}


def stopped(
    models: tuple[str, ...] = ("base",), *, finished: bool = True
) -> tuple[AblationSummary, pd.DataFrame, pd.DataFrame]:
    """Summary, answers and items."""
    answers, items = records(models)
    places = {item: place for _, of in items.groupby("task") for place, item in enumerate(of["item"])}
    asked = {"baseline": 10} | {f"{layer}×0": n for layer, n in ASKED.items()}
    kept = [places[item] < asked[edit] for item, edit in zip(answers["item"], answers["edit"], strict=True)]
    return valid(stopped_form(models, finished=finished)), answers[kept].reset_index(drop=True), items


def stopped_form(models: tuple[str, ...] = ("base",), *, finished: bool = True) -> Form:
    """The summary as JSON holds it."""
    summary = form(models)
    summary["study"]["stop"] = {"when": "decided", "effect": 0.3, "level": 0.05, "rule": "closed e-BH"}
    for model in summary["models"]:
        for task in model["tasks"]:
            for cell in task["cells"]:
                layer = cell["layer"]
                n = ASKED[layer]
                k, unedited = (sum(right(task["task"], cut, i) for i in range(n)) for cut in (layer, None))
                drop = (unedited - k) / n
                cell |= scores(k, n, cell["truncated"]) | {
                    "drop": {"value": drop, "low": max(-1.0, drop - 0.4), "high": min(1.0, drop + 0.4)},
                    "baseline": scores(unedited, n),
                    "decided": "exceeds" if cell["critical"] else "open" if layer == 0 else "not",
                    "critical": None,
                }
            task["baseline"]["items"] = 10
            task["stopping"] = {"effect": 0.3, "level": 0.05, "items": DRAWN, "finished": finished}
    return summary
