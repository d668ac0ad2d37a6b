"""The recorded form of every summary: each number of the record comes out of the typed result that replaced it.

The records hold summaries as dictionaries that were written before results had types; they are not written anew. A
function here takes the JSON of a typed summary and gives the recorded form, key by key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


def old_isolation(summary: Json) -> Json:
    """The recorded form of an isolation, an evaluation of edits, or both."""
    study, isolation, evaluation = summary["study"], summary["isolation"], summary["evaluation"]
    label = summary["approximate"]
    return {
        **({} if isolation is None else {"isolation": _old_selections(isolation)}),
        **({} if evaluation is None else {"evaluation": _old_evaluation(evaluation)}),
        "study": {
            **{name: study.get(name) for name in ("name", "title", "seed", "level")},
            "version": summary["version"],
            **({} if label is None else {"stop_loops": study["decoding"]["stop_loops"], "approximate": label}),
        },
        "notes": summary["notes"],
    }


def _old_selections(isolation: Json) -> Json:
    study = isolation["study"]
    selections = []
    for selection in isolation["selections"]:
        counts = {name: sum(matrix[name] for matrix in selection["matrices"]) for name in ("selected", "total")}
        renamed = {("edit" if name == "file" else name): value for name, value in selection.items()}
        selections.append(renamed | counts | {"share": counts["selected"] / counts["total"]})
    same = ("model", "fingerprint", "dtype", "family", "blocks", "disjoint", "texts", "coverage")
    return {
        **{name: isolation[name] for name in same},
        **{name: study[name] for name in ("skill", "controls", "samples", "repeats", "seed", "replacement")},
        "selections": selections,
        "overlap": [
            {name: value for name, value in overlap.items() if name != "mean"} | _old_estimate(overlap, "mean", "")
            for overlap in isolation["overlaps"]
        ],
    }


def _old_evaluation(evaluation: Json) -> Json:
    edits = [
        {name: value for name, value in edit.items() if name != "randoms"} | {"share": edit["selected"] / edit["total"]}
        for edit in evaluation["edits"]
    ]
    return {
        "model": evaluation["model"],
        "dtype": evaluation["dtype"],
        "edits": edits,
        "tasks": [_old_task(task) for task in evaluation["tasks"]],
        "selectivity": [
            {name: entry[name] for name in ("edit", "skill", "control")} | _old_estimate(entry, "difference", "")
            for entry in evaluation["selectivity"]
        ],
        "choice": _old_choice(evaluation["choice"]),
    }


def _old_task(task: Json) -> Json:
    """A task with its cells; what is measured by perplexity has no drop and no p."""
    score = task["kind"] == "score"
    measure, change = ("perplexity", "ratio") if score else ("accuracy", "drop")
    baseline = _old_estimate(task["baseline"], "result", "", measure)
    baseline |= {"tokens": task["baseline"]["tokens"]} if score else task["baseline"]["rates"]
    cells = []
    for cell in task["cells"]:
        rates = {"nonfinite": cell["rates"]["nonfinite"]} if score else cell["rates"]
        tests = {} if score else {name: cell["change"][name] for name in ("p", "p_corrected")}
        random = cell["random"]
        if random is not None:
            old = {measure: random["mean"]} | {name: random[name] for name in ("draws", "lowest", "highest")}
            random = old if score else old | {"drop": random["drop"]} | _old_estimate(random, "beyond", "beyond_")
        cells.append(
            {"edit": cell["edit"], **rates, **tests, "random": random}
            | _old_estimate(cell, "result", "", measure)
            | _old_estimate(cell, "change", f"{change}_", change)
        )
    same = {name: task[name] for name in ("role", "kind", "items", "chance")}
    return {"task": task["name"], **same, "baseline": baseline, "cells": cells}


def _old_choice(choice: Json | None) -> Json | None:
    if choice is None:
        return None
    random = choice["random"]
    if random is not None:
        old = {"draws": random["draws"], "accuracy": random["accuracy"]}
        random = old | _old_estimate(random, "gain_beyond", "gain_beyond_")
    controls = [{"task": one["task"]} | _old_estimate(one, "drop", "drop_") for one in choice["controls"]]
    gain = _old_estimate(choice, "gain", "gain_") | {"p": choice["gain"]["p"]}
    return choice | gain | {"random": random, "controls": controls}


def _old_estimate(row: Json, name: str, prefix: str, old: str = "") -> Json:
    """An estimate as three numbers: `drop`, `drop_low`, `drop_high`."""
    estimate = row[name]
    return {old or name: estimate["value"], f"{prefix}low": estimate["low"], f"{prefix}high": estimate["high"]}


FORMS: dict[str, Callable[[Json], Json]] = {"isolation": old_isolation}
