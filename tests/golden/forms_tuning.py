"""The recorded form of every summary: each number of the record comes out of the typed result that replaced it.

The records hold summaries as dictionaries that were written before results had types; they are not written anew. A
function here takes the JSON of a typed summary and gives the recorded form, key by key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lesion.core.rates import loops
from lesion.studies.tuning.study import label

Json = dict[str, Any]


def old_tuning(summary: Json) -> Json:
    """The recorded form of a tuning study."""
    study, layers = summary["study"], summary["layers"]
    same = ("name", "title", "seed", "seeds", "level", "steps", "rows", "learning_rates", "budget", "adapter")
    return {
        "kind": "tuning",
        "study": {
            **{name: study[name] for name in same},
            "examples": summary["examples"],
            "validation_items": summary["held_out"],
            "version": summary["version"],
            **loops(study["stop_loops"]),
        },
        "model": summary["model"],
        "task": study["task"],
        "controls": study["controls"],
        "layers": layers
        and {**{name: layers[name] for name in ("items", "drops", "critical")}, "from": layers["source"]},
        "random_from": summary["random_from"],
        "baseline": [
            {"task": before["task"], "items": before["items"], **_old_accuracy(before["accuracy"])}
            for before in summary["baseline"]
        ],
        "arms": [_old_arm(arm) for arm in summary["arms"]],
        "differences": [
            {"first": pair["first"], "second": pair["second"], **_old_change(pair)} for pair in summary["differences"]
        ],
        "notes": summary["notes"],
        "verdict": summary["verdict"],
    }


def _old_arm(arm: Json) -> Json:
    tried = [rate["rate"] for rate in arm["rates"]]
    ends = {min(tried): "smallest", max(tried): "largest"} if len(tried) > 1 else {}
    tasks = [
        {
            "task": task["task"],
            "items": task["items"],
            "accuracy": task["accuracy"],
            "seeds": [_old_accuracy(seed) for seed in task["seeds"]],
            **{name: float(np.mean([seed[name] for seed in task["seeds"]])) for name in ENDINGS},
            "change": _old_change(task["change"]),
        }
        for task in arm["tasks"]
    ]
    same = ("blocks", "rank", "parameters", "rate", "rates", "curves")
    return {
        "arm": arm["name"],
        "label": label(arm["name"]),
        **{name: arm[name] for name in same},
        "end": ends.get(arm["rate"]),
        "tasks": tasks,
    }


ENDINGS = ("truncated", "looped", "unparsed", "nonfinite")


def _old_accuracy(accuracy: Json) -> Json:
    return {"accuracy": accuracy["value"], **{name: accuracy[name] for name in ("low", "high", *ENDINGS)}}


def _old_change(change: Json) -> Json:
    return {"mean": change["value"], **{name: change[name] for name in ("low", "high", "seeds")}}


def old_overlay(summary: Json) -> Json:
    """The recorded form of an overlay."""
    return {
        "kind": "overlay",
        "models": [
            {
                **{name: model[name] for name in ("model", "fingerprint", "correlations", "needed")},
                "profiles": [
                    {name: value for name, value in profile.items() if name != "model"} for profile in model["profiles"]
                ],
            }
            for model in summary["models"]
        ],
        "study": {"folders": summary["folders"], "version": summary["version"]},
        "notes": summary["notes"],
    }


FORMS: dict[str | None, Callable[[Json], Json]] = {"tuning": old_tuning, "overlay": old_overlay}
"""By the kind of a summary, what gives its recorded form."""
