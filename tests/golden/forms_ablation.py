"""The recorded form of summaries: what is in `summary.json` today, under the names of the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lesion.statistics.critical import rule
from lesion.studies.ablation.result import stopped_rule
from lesion.studies.ablation.study import StopPlan

Form = dict[str, Any]


def old_layers(summary: Form) -> Form:
    """Of a layer study."""
    study = summary["study"]
    stop, loops = study["stop"], study["decoding"]["stop_loops"]
    own = {name: study[name] for name in ("name", "title", "seed", "level")} | {"version": summary["version"]}
    own["rule"] = rule() if stop is None else stopped_rule(StopPlan(**stop))
    own |= {} if stop is None else {"stop": stop}
    own |= {} if loops is None else {"stop_loops": loops, "approximate": summary["approximate"]}
    shared = summary["invariance"]
    return {
        "models": [
            {"model": model["model"], "tasks": [_task(task, study) for task in model["tasks"]]}
            for model in summary["models"]
        ],
        "engine": summary["engine"],
        "study": own,
        "notes": summary["notes"],
    } | ({} if shared is None else {"invariance": _invariance(shared, summary)})


RATES = ("truncated", "looped", "unparsed", "nonfinite")
NOT_FLAT = ("accuracy", "drop", "baseline")


def _spread(name: str, estimate: Form) -> Form:
    """An estimate under flat names; the accuracy's interval has none of its own."""
    prefix = "" if name == "accuracy" else f"{name}_"
    return {name: estimate["value"], f"{prefix}low": estimate["low"], f"{prefix}high": estimate["high"]}


def _scores(of: Form) -> Form:
    return {"items": of["items"], **_spread("accuracy", of["accuracy"]), **{name: of[name] for name in RATES}}


def _task(task: Form, study: Form) -> Form:
    stopping = task["stopping"]
    form = {
        "task": task["task"],
        "items": task["items"],
        "baseline": _scores(task["baseline"]),
        "layers": [_cell(cell) for cell in task["cells"]],
        "planned": task["planned"],
    }
    if stopping is None:
        form["sensitivity"] = task["sensitivity"]
    else:
        answers = task["items"] + sum(cell["items"] for cell in task["cells"])
        decided = [cell["decided"] for cell in task["cells"]]
        form["stopping"] = stopping | {
            "answers": answers,
            "full": stopping["items"] * (1 + len(decided)),
            "evaluations": answers / stopping["items"],
            **{word: decided.count(word) for word in ("exceeds", "not", "open")},
        }
    return form | ({"screen": _screen(task["screen"])} if study["screen"] else {})


def _cell(cell: Form) -> Form:
    drop, baseline = cell["drop"], cell["baseline"]
    form = {key: value for key, value in cell.items() if key not in NOT_FLAT}
    form |= _scores(cell) | _spread("drop", drop) | {"p": drop["p"], "p_corrected": drop["p_corrected"]}
    same = {} if baseline is None else {f"baseline_{key}": value for key, value in _scores(baseline).items()}
    same.pop("baseline_nonfinite", None)
    return form | same


def _screen(screen: Form | None) -> Form | None:
    if screen is None:
        return None
    return {
        **{key: screen[key] for key in ("items", "generated", "baseline")},
        **screen["scored"],
        "layers": [_flat(loss, "lost") for loss in screen["losses"]],
        "agreement": [_flat(each, "rho") for each in screen["agreement"]],
    }


def _flat(of: Form, name: str) -> Form:
    """With the estimate of a name as three numbers."""
    return of | {name: of[name]["value"], "low": of[name]["low"], "high": of[name]["high"]}


def _invariance(shared: Form, summary: Form) -> Form:
    cells = {
        (model["model"], task["task"]): (
            task,
            sorted(
                (c for c in task["cells"] if (c["unit"], c["factor"]) == (shared["unit"], shared["factor"])),
                key=lambda c: c["layer"],
            ),
        )
        for model in summary["models"]
        for task in model["tasks"]
    }
    families = []
    for family in shared["families"]:
        members = [{key: value for key, value in member.items() if key != "source"} for member in family["members"]]
        blocks = {member["model"]: member["blocks"] for member in members}
        tasks = [
            {key: task[key] for key in ("task", "subject", "items", "layers", "overlaps", "joint", "onset")}
            | {"critical": {skill["model"]: skill["critical"] for skill in task["skills"]}}
            | {"pairs": [_pair(pair) for pair in task["pairs"]]}
            | {
                "curves": [
                    _curve(skill, *cells[skill["model"], task["task"]], blocks[skill["model"]])
                    for skill in task["skills"]
                ]
            }
            for task in family["tasks"]
        ]
        between = [_between(each) for each in family["between_tasks"]]
        families.append(family | {"members": members, "tasks": tasks, "between_tasks": between})
    return shared | {"families": families}


def _curve(skill: Form, task: Form, cells: list[Form], blocks: int | None) -> Form:
    accuracy = task["baseline"]["accuracy"]
    assert skill["accuracy"] == accuracy["value"]
    columns = {
        column: [cell[name][key] for cell in cells]
        for column, name, key in (
            *(("accuracy", "accuracy", "value"), ("accuracy_low", "accuracy", "low")),
            *(("accuracy_high", "accuracy", "high"), ("drops", "drop", "value")),
            *(("low", "drop", "low"), ("high", "drop", "high")),
        )
    }
    layers = [cell["layer"] for cell in cells]
    return {
        "model": skill["model"],
        "layers": layers,
        "depth": [layer / (blocks - 1) if blocks and blocks > 1 else None for layer in layers],
        "baseline": accuracy["value"],
        "baseline_low": accuracy["low"],
        "baseline_high": accuracy["high"],
        "able": skill["able"],
        **columns,
        "relative": [drop / accuracy["value"] if accuracy["value"] else None for drop in columns["drops"]],
        "reliability": skill["reliability"],
    }


def _order(of: Form) -> Form:
    return {
        "rho": of["rho"]["value"],
        "p": of["rho"]["p"],
        "corrected": of["true"]["value"],
        "low": of["true"]["low"],
        "high": of["true"]["high"],
        "ceiling": of["ceiling"],
    }


def _pair(pair: Form) -> Form:
    return {
        **{key: pair[key] for key in ("a", "b", "kind", "p_least")},
        **_order(pair),
        "p_corrected": pair["rho"]["p_corrected"],
        "top": {"same": pair["same_top"], "share": pair["top_share"], "two": pair["top_two"]},
    }


def _between(each: Form) -> Form:
    kept = {key: value for key, value in each.items() if key not in ("rho", "true", "difference", "ratio")}
    return kept | _order(each) | _spread("difference", each["difference"]) | _spread("ratio", each["ratio"])


FORMS: dict[str, Callable[[Form], Form]] = {"layers": old_layers}
"""By the kind of a summary."""
