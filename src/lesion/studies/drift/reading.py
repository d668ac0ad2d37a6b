"""How a drift study's summary becomes values: what it must have, and what may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lesion.errors import LesionError
from lesion.report.trials import number
from lesion.statistics.paired import wilson
from lesion.studies.drift.values import (
    Curve,
    Departure,
    Destination,
    Drifts,
    Example,
    Flow,
    Followed,
    Layer,
    Leaving,
    Shape,
    Value,
)
from lesion.tasks.catalogue import canonical


def found(summary: Mapping[str, Any]) -> Drifts:
    """The summary as values.

    Raises:
        LesionError: it does not have the form that a drift study writes.
    """
    try:
        study = dict(summary.get("study") or {})
        level = float(study.get("level") or 0.95)
        return Drifts(
            study=study,
            models=tuple(_model(entry, str(study.get("task") or ""), level) for entry in summary.get("models") or ()),
            notes=tuple(str(note) for note in summary.get("notes") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one that a drift study wrote ({type(error).__name__}: {error}). "
            "Run the study again on the same folder: what was measured is kept."
        ) from error


def _model(entry: Mapping[str, Any], task: str, level: float) -> Followed:
    name = str(entry["model"])
    tokens = [_leaving(row, level) for row in entry.get("tokens") or ()]
    classes = [_leaving(row, level) for row in entry.get("classes") or ()]
    classes.sort(key=lambda row: -(row.low or 0.0))  # as the tokens are: those that most surely left come first
    layers = tuple(_layer(row) for row in entry.get("layers") or ())
    runs = list(entry.get("runs") or ())
    clusters = _whole(entry.get("clusters"))
    others = [
        Curve(_whole(row.get("clusters")), tuple(_layer(one) for one in row.get("layers") or ()), _shape(row))
        for row in entry.get("by_clusters") or ()
    ]
    blocks = _whole(entry.get("blocks"))
    critical = _critical(entry.get("critical"))
    return Followed(
        name=name,
        family=str(entry.get("family") or ""),
        variant=str(entry.get("variant") or ""),
        blocks=max((layer.layer for layer in layers), default=1) if blocks is None else blocks,
        curve=Curve(clusters, layers, _shape(entry)),
        others=tuple(one for one in others if one.clusters != clusters and one.layers),
        critical=critical,
        task=next((name for name in (task, canonical(task)) if name in (critical or {})), None),
        ceiling=number(entry.get("ceiling")),
        overall=number(entry.get("overall")),
        tokens=tuple(row for row in tokens if row.token is not None),
        classes=(*classes, *(row for row in tokens if row.token is None)),
        flow=tuple(_flow(row) for row in entry.get("flow") or ()),
        items=tuple(int(run["items"]) for run in runs if run.get("items") is not None),
        positions=tuple(int(run["tokens"]) for run in runs if run.get("tokens") is not None),
    )


def _layer(row: Mapping[str, Any]) -> Layer:
    measures = {name: _value(row, name) for name in ("nmi", "null", "null_high", "cosine", "cka")}
    labels = {
        str(name): _value({"nmi": one.get("nmi"), "nmi_std": one.get("std")}, "nmi")
        for name, one in (row.get("labels") or {}).items()
    }
    return Layer(
        int(row["layer"]),
        {name: value for name, value in measures.items() if value is not None},
        {name: value for name, value in labels.items() if value is not None},
    )


def _value(row: Mapping[str, Any], name: str) -> Value | None:
    mean = number(row.get(name))
    return None if mean is None else Value(mean, number(row.get(f"{name}_std")))


def _shape(entry: Mapping[str, Any]) -> Shape | None:
    row = entry.get("shape")
    if row is None:
        return None
    line = row["line"]
    degrees = tuple(int(value) for value in line["degrees"])
    return Shape(
        chosen=str(row["chosen"]),
        p=number(line.get("p")),
        f=number(line.get("f")),
        degrees=(degrees[0], degrees[1]),
        f_p=number(line.get("f_p")),
        hinge=_departure("hinge", row["hinge"]),
        step=_departure("step", row["step"]),
        share=number(row.get("share")),
        first=int(row["first"]),
        last=int(row["last"]),
    )


def _departure(kind: str, row: Mapping[str, Any]) -> Departure:
    slopes = [value for value in map(number, row.get("slopes") or ()) if value is not None]
    low, high, size, gain, p, detectable = (
        number(row.get(name)) for name in ("low", "high", "size", "gain", "p", "detectable")
    )
    both = (slopes[0], slopes[1]) if len(slopes) == 2 else None
    return Departure(kind, float(row["layer"]), low, high, size, gain, p, detectable, both)


def _critical(told: Any) -> Mapping[str, tuple[int, ...]] | None:
    if told is None:
        return None
    of_task = told if isinstance(told, Mapping) else {"": told}
    return {str(task): tuple(sorted({int(block) for block in blocks})) for task, blocks in of_task.items()}


def _leaving(row: Mapping[str, Any], level: float) -> Leaving:
    count, left = int(row["count"]), int(row["left"])
    low, high = number(row.get("low")), number(row.get("high"))
    if low is None or high is None:
        low, high = wilson(left, count, level) if count else (None, None)
    token = row.get("token")
    share = number(row.get("share"))
    return Leaving(
        start=int(row["from"]),
        end=int(row["to"]),
        token=None if token is None else str(token),
        kind=str(row.get("class") or ""),
        count=count,
        left=left,
        share=(left / count if count else 0.0) if share is None else share,
        low=low,
        high=high,
        examples=tuple(
            Example(*(_text(one.get(name)) for name in ("before", "token", "after", "item")))
            for one in row.get("examples") or ()
        ),
    )


def _flow(row: Mapping[str, Any]) -> Flow:
    into = [(one, many) for one in row.get("into") or () if (many := int(one["count"]))]
    told = _whole(row.get("count"))
    count = (sum(many for _, many in into) if told is None else told) or 1
    left = _whole(row.get("left"))
    stayed = sum(many for one, many in into if one.get("matched")) if left is None else count - left
    return Flow(
        start=int(row["from"]),
        end=int(row["to"]),
        name=_text(row.get("cluster")),
        count=count,
        stayed=stayed / count,
        into=tuple(
            Destination(_text(one.get("cluster")), many, many / count, bool(one.get("matched"))) for one, many in into
        ),
        others=_whole(row.get("others")) or 0,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)
