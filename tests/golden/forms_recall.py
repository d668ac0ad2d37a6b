"""The form in which results were recorded: what each number of today's `summary.json` was called then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

RECALL_MEASURES = ("clean_loss", "clean_accuracy", "p_noise", "p_correct", "noisy_loss")


def old_recall(summary: Json) -> Json:
    """A training of the recall laboratory."""
    old = {key: value for key, value in summary.items() if key != "notes"}
    if old["own_answers"] is None:
        del old["own_answers"]
    spectra = {name: _without(spectrum, "noise") for name, spectrum in summary["spectra"].items()}
    return old | {
        "noise": summary["recipe"]["noise"],
        "training": [{**point, "probes": _old_probes(point["probes"])} for point in summary["training"]],
        "spectra": spectra,
    }


def _old_probes(probes: Json) -> Json:
    names = {"copying": "W_OV2", "previous": "W_K1", "following": "W_K2", "trigger": "trigger"}
    return {names[name]: value for name, value in probes.items()}


def old_recall_sweep(summary: Json) -> Json:
    """A study of the recall laboratory."""
    old = {key: value for key, value in summary.items() if key != "notes"}
    study = {key: value for key, value in summary["study"].items() if value is not None}
    return old | {"study": study, "groups": [_old_group(group) for group in summary["groups"]]}


def _old_group(group: Json) -> Json:
    margins = {name: _old_phase(phase) for name, phase in group["phases"]["margins"].items()}
    attention = _old_phase(group["phases"]["attention"])
    assert attention.pop("untrained") == 0
    return group | {
        "recipe": {key: value for key, value in group["recipe"].items() if key != "seed"},
        "full": _old_spreads(group["full"]),
        "truncated": [_old_row(row) for row in group["truncated"]],
        "phases": {**margins, "attention": attention},
    }


def _old_row(row: Json) -> Json:
    old = {key: row[key] for key in ("matrix", "keep", "rank", "side", "control")} | _old_spreads(row)
    return old if row["beyond"] is None else {**old, "beyond": _old_spreads(row["beyond"])}


def _old_spreads(spreads: Json) -> Json:
    return {measure: _old_spread(spreads[measure]) for measure in RECALL_MEASURES}


def _old_spread(spread: Json) -> Json:
    return {"deviation" if name == "std" else name: value for name, value in spread.items()}


def _old_phase(phase: Json) -> Json:
    old = {key: phase[key] for key in ("came", "of", "untrained")}
    if phase["steps"] is None:
        return old
    steps = _old_spread(phase["steps"])
    assert steps.pop("low") is steps.pop("high") is None
    return {**old, **steps}


def _without(values: Json, name: str) -> Json:
    """The values without one that is missing."""
    return {key: value for key, value in values.items() if key != name or value is not None}


FORMS: dict[str, Callable[[Json], Json]] = {"recall": old_recall, "recall-sweep": old_recall_sweep}
"""What gives the recorded form of a summary, by its kind."""
