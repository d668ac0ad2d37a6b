"""The recorded form of every summary: each number of the record comes out of the typed result that replaced it.

The records hold summaries as dictionaries that were written before results had types; they are not written anew. A
function here takes the JSON of a typed summary and gives the recorded form, key by key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def old_memory(summary: Json) -> Json:
    """The recorded form of an associative memory."""
    study, first_step = summary["study"], summary["first_step"]
    training = [_old_moment(moment) for moment in summary["training"]]
    keys = ("classes", "inputs", "width", "noise", "codes", "steps", "draws", "seed")
    return {
        "lab": summary["kind"],
        "noise": study["noise"],
        "recipe": {key: study[key] for key in keys},
        "full": training[-1],
        "truncated": [_old_truncated(row) for row in summary["truncated"]],
        "training": training,
        "sizes": [_old_size(size) for size in summary["sizes"]],
        "first_step": {
            **{key: first_step[key] for key in ("noise", "length", "batch", "width", "level", "points")},
            "slopes": [_old_power(power) for power in first_step["powers"]],
        },
        "notes": summary["notes"],
    }


def _old_moment(moment: Json) -> Json:
    return {key: value for key, value in moment.items() if key != "predicted" or value is not None}


def _old_truncated(row: Json) -> Json:
    measures = ("clean_accuracy", "p_correct", "p_noise", "clean_loss")
    return {
        **{key: row[key] for key in ("rank", "keep", "side", "control", "tied", "draws")},
        **{name: row[name]["mean"] for name in measures},
        "low": {name: row[name]["low"] for name in measures},
        "high": {name: row[name]["high"] for name in measures},
    }


def _old_size(size: Json) -> Json:
    form = size["closed_form"]
    places = [
        {
            **{key: place[key] for key in ("step", "top", "side", "alignment")},
            "ratio": place["ratio"]["mean"],
            "low": place["ratio"]["low"],
            "high": place["ratio"]["high"],
        }
        for place in size["places"]
    ]
    return {
        **{key: size[key] for key in ("classes", "inputs", "noise", "codes", "draws", "flips", "cuts")},
        "places": places,
        **({key: form[key] for key in ("first", "late", "threshold")} if form else {}),
        **({"predicted": form["ratios"]} if form else {}),
    }


def _old_power(power: Json) -> Json:
    batches = power["batches"]
    sampled = {"slope": batches["value"], "low": batches["low"], "high": batches["high"]} if batches else {}
    return {key: power[key] for key in ("trigger", "signal", "exact", "late")} | sampled


FORMS: dict[str | None, Callable[[Json], Json]] = {"memory": old_memory}
