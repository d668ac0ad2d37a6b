"""The tables of a drift study: rows for CSV files, and short ones for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.studies.drift import findings as drift_prose
from lesion.studies.drift.charts import place_text
from lesion.studies.drift.reading import found
from lesion.studies.drift.token_tables import token_text
from lesion.studies.drift.values import Curve, Departure, Drifts, Family, Followed, Leaving, Shape, Value

MEASURES = ("nmi", "null", "cosine", "cka")
ACROSS = 4
"""The terminal's table of layers has at most so many models side by side."""
MOST_LEFT = 6
"""The terminal shows so many of the tokens that left, of every model."""


def csv(found: Drifts) -> dict[str, pd.DataFrame]:
    """File name → table, of those that have rows, unrounded; a missing number is empty.

    `drift.csv` has a row per model, number of clusters and layer; `shapes.csv` one per model and number of clusters,
    with the best hinge and the best step whichever was chosen; `tokens.csv` one per token or class that was followed,
    `flow.csv` one per pair of clusters.
    """
    layers, shapes, tokens, flow = [], [], [], []
    for model in found.models:
        who = {"model": model.name, "family": model.family or None, "variant": model.variant or None}
        for curve in (model.curve, *model.others):
            own = curve is model.curve
            for layer in curve.layers:
                row: dict[str, Any] = who | {"clusters": curve.clusters, "layer": layer.layer}
                for name in MEASURES:
                    value = layer.measures.get(name)
                    row |= {name: value and value.mean, f"{name}_std": value and value.std}
                for label in found.labellings if own or layer.labels else ():
                    value = layer.labels.get(label)
                    row |= {f"nmi with {label}": value and value.mean, f"nmi with {label}_std": value and value.std}
                layers.append(row)
            if curve.shape:
                nearest = model.nearest(curve)
                shapes.append(
                    who
                    | {"clusters": curve.clusters, "shape": curve.shape.chosen, "share": curve.shape.share}
                    | {"line_p": curve.shape.p, "f": curve.shape.f, "f_p": curve.shape.f_p}
                    | _columns(curve.shape.hinge)
                    | _columns(curve.shape.step)
                    | {"nearest": nearest and nearest.block, "distance": nearest and nearest.distance}
                    | {"chance": nearest and nearest.chance}
                )
        for one in (*model.classes, *model.tokens):
            tokens.append(
                {"model": model.name, "from": one.start, "to": one.end, "token": one.token, "class": one.kind}
                | {"count": one.count, "left": one.left, "share": one.share, "low": one.low, "high": one.high}
            )
        for cluster in model.flow:
            for into in cluster.into:
                flow.append(
                    {"model": model.name, "from": cluster.start, "to": cluster.end, "cluster": cluster.name}
                    | {"into": into.name, "count": into.count, "share": into.share, "matched": into.matched}
                )
    tables = {"drift.csv": layers, "shapes.csv": shapes, "tokens.csv": tokens, "flow.csv": flow}
    whole = ("clusters", "layer", "nearest")
    found_tables = {}
    for name, rows in tables.items():
        if rows or name == "drift.csv":
            table = pd.DataFrame(rows)
            for column in whole:
                if column in table:
                    table[column] = table[column].astype("Int64")
            found_tables[name] = table
    return found_tables


def _columns(departure: Departure) -> dict[str, float | None]:
    """The numbers of a hinge or step, each under its own heading."""
    names = ("layer", "low", "high", "size", "gain", "p", "detectable")
    return {f"{departure.kind}_{name}": getattr(departure, name) for name in names}


def text_tables(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's tables, within 80 columns: shapes, NMI by layer, and the tokens that left most surely.

    Raises:
        LesionError: the summary does not have the form that a drift study writes.
    """
    study = found(summary)
    if not study.models:
        return Text("Nothing has been measured yet.")
    parts: list[RenderableType] = [_shapes(study)]
    for family in study.families:
        for first in range(0, len(family.models), ACROSS):
            parts.append(_layers(study, family, range(first, min(first + ACROSS, len(family.models)))))
    parts += [_tokens(model) for model in study.models if model.tokens and len(study.models) < 3]
    runs = study.study.get("runs")
    caption = (
        f"Mean ± standard deviation{f' over {runs} runs' if isinstance(runs, int) and runs > 1 else ''}; brackets: "
        f"{100 * study.level:g} % intervals. Layer l is the output of block l − 1. Null: NMI of shuffled tokens. "
        "Line p: of a straight line. Shape: a hinge by its layer, a step by its block. Apart: layers from the nearest "
        "critical block, 0 within it, and the share of places as near by chance. Last: NMI at the last layer."
    )
    if label := wording.approximate(study.study):
        caption += f" Approximate: {label}"
    return Group(*parts, Text(caption, style="dim"), Text("\n" + " ".join(drift_prose.verdict(study)), style="bold"))


def _shapes(study: Drifts) -> Table:
    compared = any(model.critical is not None for model in study.models)
    headings = ("line p", "shape", "p", "critical", "apart") if compared else ("line p", "shape", "p")
    table = _table(f"Shapes of the drift, {_clusters(study.clusters)}", ("model",), (*headings, "last", "null"))
    for model in study.models:
        shape, departure = model.curve.shape, model.curve.departure
        cells = [wording.p_value(shape.p) if shape else wording.DASH, shape_cell(shape)]
        cells.append(wording.p_value(departure.p) if departure else "")
        if compared:
            nearest = model.nearest(model.curve)
            blocks = wording.layer_runs(model.critical_blocks) if model.critical is not None else wording.DASH
            away = f"{signed(nearest.distance)} ({100 * nearest.chance:.0f}{wording.SPACE}%)" if nearest else ""
            cells += [blocks or "none", away]
        last = model.curve.layers[-1] if model.curve.layers else None
        cells += [short(last.of(name) if last else None) for name in ("nmi", "null")]
        table.add_row(Text(visible(model.name)), *(Text(cell) for cell in cells))
    return table


def shape_cell(shape: Shape | None) -> str:
    """`hinge 3.4 [3.1, 3.7]` by layers, `step 2 [2, 4]` by blocks, `line`, `neither`, `untested`."""
    if shape is None:
        return wording.DASH
    if shape.departure is None:
        return shape.chosen
    return place_text(shape.departure).replace(" at layer", "").replace(" over block", "")


def size(value: float | None) -> str:
    """A size with three digits, `−0.078`; a dash where it is not known."""
    return wording.DASH if value is None else f"{value:.3f}".replace("-", wording.MINUS)


def signed(distance: float) -> str:
    """A distance in layers with its sign: `+0.4`, `−1.2`, `0`."""
    text = f"{abs(distance):.1f}"
    return "0" if float(text) == 0 else f"{'+' if distance > 0 else wording.MINUS}{text}"


def _layers(study: Drifts, family: Family, columns: range) -> Table:
    title = f"NMI with the clusters of layer {study.reference} by layer · {family.name}"
    table = _table(title, ("layer",), [visible(family.labels[index]) for index in columns])
    curves = [family.models[index].curve for index in columns]
    for layer in sorted({one.layer for curve in curves for one in curve.layers}):
        table.add_row(str(layer), *(Text(short(at(curve, layer), std=True)) for curve in curves))
    return table


def at(curve: Curve, layer: int, measure: str = "nmi") -> Value | None:
    """A measure at one layer, or None."""
    return next((one.of(measure) for one in curve.layers if one.layer == layer), None)


def short(value: Value | None, *, std: bool = False) -> str:
    """`0.52`, or with `std` `0.52±0.01`; a dash where it is not known."""
    if value is None:
        return wording.DASH
    text = f"{value.mean:.2f}".replace("-", wording.MINUS)
    return f"{text}±{value.std:.2f}" if std and value.std is not None else text


def _tokens(model: Followed) -> Table:
    first = model.tokens[0]
    overall = "" if model.overall is None else f" (all tokens: {wording.percent(model.overall, 0)})"
    title = f"Tokens that left their cluster between layers {first.start} and {first.end}{overall} · {model.name}"
    table = _table(title, ("token", "class"), ("left", "share"))
    for one in model.tokens[:MOST_LEFT]:
        table.add_row(
            Text(token_text(one.token or "")), Text(visible(one.kind)), f"{one.left:,} of {one.count:,}", _share(one)
        )
    return table


def _share(one: Leaving) -> Text:
    return Text(f"{wording.percent(one.share, 0)} ").append(wording.interval(one.low, one.high, 0), style="dim")


def _clusters(clusters: int | None) -> str:
    return "clusters not told" if clusters is None else wording.counted(clusters, "cluster")


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table
