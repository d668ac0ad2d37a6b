"""The recorded form of every summary: each number of the record comes out of the typed result that replaced it.

The records hold summaries as dictionaries that were written before results had types; they are not written anew. A
function here takes the JSON of a typed summary and gives the recorded form, key by key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lesion.core.rates import loops

Json = dict[str, Any]


def old_drift(summary: Json) -> Json:
    """The recorded form of a drift study."""
    study = summary["study"]
    drawn = 50 if 50 in study["clusters"] else study["clusters"][0]
    same = (
        *("name", "title", "seed", "level", "clusters", "runs", "items", "layer_zero", "normalise", "nmi", "starts"),
        *("part", "solution", "elbow", "prompt_style", "max_new_tokens", "dtype", "study"),
    )
    return {
        "study": {
            **{name: study.get(name) for name in same},
            "version": summary["version"],
            "identity": summary["identity"],
            "task": study["task"]["name"],
            "drawn": drawn,
            **loops(study.get("stop_loops")),
            "layers": "layer 0 is what enters block 0; layer l is the output of block l - 1",
        },
        "models": [_old_drift_model(model) for model in summary["models"]],
        "notes": summary["notes"],
    }


def _old_drift_model(model: Json) -> Json:
    tokens = model["tokens"]
    where = {"from": tokens["start"], "to": tokens["end"]}
    drawn = next(curve for curve in model["curves"] if curve["clusters"] == model["clusters"])
    nearest = drawn["nearest"] or {"distance": None, "block": None, "chance": None}
    classes = [where | _old_leaving(row) for row in tokens["classes"]]
    for row in (overall := where | _old_leaving(tokens["overall"]), *classes):
        for name in ("token", "id", "home"):
            del row[name]
    del overall["class"], overall["examples"]
    return {
        **{name: model[name] for name in ("family", "variant", "fingerprint", "blocks", "clusters", "critical")},
        "model": model["name"],
        "layers": [_old_layer(layer, MEASURES) | {"labels": _old_labels(layer)} for layer in drawn["layers"]],
        "shape": _old_shape(drawn["shape"]),
        "ceiling": drawn["ceiling"],
        "by_clusters": [
            {
                "clusters": curve["clusters"],
                "layers": [_old_layer(layer, MEASURES[:3]) for layer in curve["layers"]],
                "shape": _old_shape(curve["shape"]),
                "ceiling": curve["ceiling"],
            }
            for curve in model["curves"]
        ],
        "distance": nearest["distance"],
        "nearest": nearest["block"],
        "chance": nearest["chance"],
        "runs": [_old_run(run) for run in model["runs"]],
        "between": [tokens["start"], tokens["end"]],
        "everything": overall,
        "overall": overall["share"],
        "tokens": [where | _old_leaving(row) for row in tokens["types"]],
        "classes": classes,
        "flow": [where | _old_flow(row) for row in tokens["flow"]],
    }


MEASURES = ("nmi", "null", "null_high", "cosine", "cka")


def _old_layer(layer: Json, measures: tuple[str, ...]) -> Json:
    old = {"layer": layer["layer"]}
    for name in measures:
        value = layer[name] or {"mean": None, "std": None}
        old |= {name: value["mean"], f"{name}_std": value["std"]}
    return old


def _old_labels(layer: Json) -> Json:
    return {name: {"nmi": value["mean"], "std": value["std"]} for name, value in layer["labels"].items()}


def _old_shape(shape: Json | None) -> Json | None:
    if shape is None:
        return None
    departures = {kind: {k: v for k, v in shape[kind].items() if k != "kind"} for kind in ("hinge", "step")}
    return shape | departures


def _old_run(run: Json) -> Json:
    return {name: value for name, value in run.items() if value is not None}


def _old_leaving(row: Json) -> Json:
    share = row["share"]
    return {
        **{name: row[name] for name in ("token", "id", "count", "left", "home", "examples")},
        "class": row["kind"],
        "share": share["value"],
        "low": share["low"],
        "high": share["high"],
    }


def _old_flow(row: Json) -> Json:
    into = [{("cluster" if name == "name" else name): value for name, value in to.items()} for to in row["into"]]
    return {**{name: row[name] for name in ("number", "count", "left", "others")}, "cluster": row["name"], "into": into}


FORMS: dict[str, Callable[[Json], Json]] = {"drift": old_drift}
