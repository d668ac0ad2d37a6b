"""The recorded form of every summary: each number of the record comes out of the typed result that replaced it.

The records hold summaries as dictionaries that were written before results had types; they are not written anew. A
function here takes the JSON of a typed summary and gives the recorded form, key by key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lesion.core.rates import loops

Json = dict[str, Any]


def old_truncation(summary: Json) -> Json:
    """The recorded form of a truncation search."""
    study, chosen = summary["study"], summary["nothing"] is None
    best = None
    if summary["best"] is not None:
        cell = next(cell for cell in summary["cells"] if cell["edit"] == summary["best"])
        best = {name: cell[name] for name in ("edit", "address", "keep", "side", "rank", "of", "saved", "score")}
        best |= {"baseline": summary["unedited_score"], "tasks": list(map(_old_test, summary["best_tests"]))}
    composition = None
    if summary["path"]:
        tests = list(map(_old_test, summary["composed_tests"]))
        path = [_old_step(step, study["objective"]) for step in summary["path"]]
        composition = {"path": path, "edit": summary["composed"], "tasks": tests}
    return {
        "study": {
            **{name: study.get(name) for name in ("name", "title", "seed", "level")},
            "version": summary["version"],
            **loops(study["decoding"]["stop_loops"]),
        },
        "model": summary["model"],
        "search": {
            "tasks": [task | {"tempting": task["kind"] == "contrast"} for task in summary["tasks"]],
            "matrices": list(dict.fromkeys(cell["matrix"] for cell in summary["cells"])),
            "layers": sorted({cell["layer"] for cell in summary["cells"]}),
            "keep": study["keep"],
            "sides": ["top", "bottom"] if study["side"] == "both" else [study["side"]],
            "objective": study["objective"],
            "cells": len(summary["cells"]),
            "merged": summary["merged"],
            "screen": summary["screen"] and _flat(summary["screen"], rank_correlation=""),
            "elimination": summary["elimination"],
        },
        "baseline": [_flat(base, accuracy="") | {"collapsed": False} for base in summary["unedited"]],
        "cells": [_old_cell(cell) for cell in summary["cells"]],
        "chosen": best if chosen else None,
        "best": best,
        "nothing": summary["nothing"],
        "composition": composition,
        "spectra": summary["spectra"],
        "tokens": [
            _flat(tokens, p_right="p_right_", p_tempting="p_tempting_", margin="margin_") | {"part": "test"}
            for tokens in summary["tokens"]
        ],
        "revisions": [_flat(outcome, accuracy="") for outcome in summary["revisions"]],
        "notes": summary["notes"],
    }


def _flat(value: Json, **prefixes: str) -> Json:
    """The estimates that are named as numbers of the value itself; their limits begin with the prefix given."""
    old = {name: part for name, part in value.items() if name not in prefixes}
    for name, prefix in prefixes.items():
        estimate = value[name]
        old |= {name: estimate["value"], f"{prefix}low": estimate["low"], f"{prefix}high": estimate["high"]}
    return old


def _old_cell(cell: Json) -> Json:
    old = {name: part for name, part in cell.items() if name != "outcomes"}
    return old | {"tasks": [_flat(outcome, accuracy="", drop="drop_") for outcome in cell["outcomes"]]}


def _old_test(test: Json) -> Json:
    old = _flat(test, accuracy="", gain="gain_", gold_gain="gold_") | {"p": test["gain"]["p"]}
    for name in ("right", "tempting"):
        gain = old.pop(f"{name}_gain")
        if gain is not None:
            key = f"p_{name}_gain"
            old |= {key: gain["value"], f"{key}_low": gain["low"], f"{key}_high": gain["high"]}
    return old


def _old_step(step: Json, objective: str) -> Json:
    first, second = ("accuracy", "gold") if objective == "accuracy" else ("gold", "accuracy")
    old = dict(step)
    for name in ("before", "after"):
        old |= {name: step[name][first], f"gold_{name}": step[name][second]}
    return old


FORMS: dict[str, Callable[[Json], Json]] = {"truncation": old_truncation}
"""By the `kind` of a typed summary, what gives its recorded form."""
