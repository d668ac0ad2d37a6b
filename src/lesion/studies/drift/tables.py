"""The tables of a drift study: layers, shapes, tokens that left and where clusters went; and those of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table as TerminalTable
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.forms import decimals
from lesion.report.table import Column, Table, plain_columns, terminal_table
from lesion.report.values import Mean
from lesion.studies.drift.charts import place_text, plain
from lesion.studies.drift.result import (
    BY_TOKEN,
    CHECKS,
    Curve,
    Departure,
    DriftOfModel,
    DriftSummary,
    Family,
    Leaving,
    Shape,
)
from lesion.studies.drift.token_drift import token_text

HEADINGS = {"nmi": "NMI", "null": "Null", BY_TOKEN: "NMI by token"} | {
    name: wording.capital(title) for name, title in CHECKS.items()
}
ACROSS = 4
"""The terminal's table of layers has at most so many models side by side."""
MOST_LEFT = 6
"""The terminal shows so many of the tokens that left, of every model."""
SHOWN = ("model", "clusters", "line_p", "shape", "nearest", "distance")
"""The columns of shapes that the terminal shows."""
LAYERS_CAPTION = (
    "Mean ± standard deviation over runs. Layer 0 is what enters block 0, layer l the output of block l − 1."
)
SHAPES_CAPTION = (
    "Line: p of a straight line by a test over runs that allows the layers of one run to vary together in any way."
    " Shape: the hinge or step chosen where the line is rejected; beside it the best of both. Their p include the"
    " search over places. 80 % power from: the smallest step in NMI, and change of slope per layer at a hinge, that"
    " 80 % of such studies would find. Critical block: the nearest. Apart: layers from it to the hinge or step,"
    " negative before it, 0 within it. By chance: the share of all places that are as near to a critical block."
)
Row = dict[str, object]


def layers(summary: DriftSummary) -> Table:
    """A row per model, number of clusters and layer: `drift.csv`."""
    labels = {f"nmi with {label}": label for label in summary.labellings}
    rows = []
    for model, curve in _curves(summary):
        for layer in curve.layers:
            row = _who(model) | {"clusters": curve.clusters, "layer": layer.layer}
            for name in HEADINGS:
                row |= _spread(name, layer.of(name))
            for name in labels if curve is model.curve or layer.labels else ():
                row |= _spread(name, layer.labels.get(labels[name]))
            rows.append(row)
    headings = HEADINGS | {name: f"NMI with {label}" for name, label in labels.items()}
    return Table(
        "drift",
        _whole(pd.DataFrame(rows)),
        (
            Column("model", "Model", number=False),
            *plain_columns(clusters="Clusters", layer="Layer"),
            *(Column(name, title, row=_written(name)) for name, title in headings.items()),
        ),
        title="All layers",
        caption=LAYERS_CAPTION,
    )


def shapes(summary: DriftSummary) -> Table:
    """A row per model and number of clusters, with the best hinge and step whichever was chosen: `shapes.csv`."""
    rows, chosen = [], {}
    for model, curve in _curves(summary):
        shape, near = curve.shape, curve.nearest
        if shape is None:
            continue
        chosen[model.name, curve.clusters] = shape
        rows.append(
            _who(model)
            | {"clusters": curve.clusters, "shape": shape.chosen, "share": shape.share}
            | {"line_p": shape.line.p, "f": shape.line.f, "f_p": shape.line.f_p}
            | _departure(shape.hinge)
            | _departure(shape.step)
            | {"nearest": near and near.block, "distance": near and near.distance, "chance": near and near.chance}
        )
    three = decimals(3)
    critical = (
        Column("nearest", "Critical block"),
        Column("distance", "Apart, layers", decimals(1, signed=True)),
        Column("chance", "By chance", lambda share: wording.percent(share, 0)),
    )
    return Table(
        "shapes" if rows else "",
        _whole(pd.DataFrame(rows)),
        (
            Column("model", "Model", number=False),
            Column("clusters", "Clusters"),
            Column("line_p", "Line, p", wording.p_value),
            Column("shape", "Shape, by layer or block", number=False,
                   row=lambda row: _shape_cell(chosen[row["model"], row["clusters"]])),
            Column("hinge_layer", "Hinge, layer", decimals(2)),
            Column("hinge_p", "Hinge, p", wording.p_value),
            Column("step_layer", "Step, block", lambda layer: str(int(layer))),
            Column("step_size", "Step, size", three),
            Column("step_p", "Step, p", wording.p_value),
            Column("step_detectable", "80 % power from",
                   row=lambda row: f"{three(row['step_detectable'])}, {three(row['hinge_detectable'])}"),
            *(critical if any(row["nearest"] is not None for row in rows) else ()),
        ),
        title="Line, hinge or step",
        caption=SHAPES_CAPTION,
    )  # fmt: skip


def tokens(summary: DriftSummary) -> Table:
    """A row per token or class that was followed: `tokens.csv`."""
    rows = [
        {"model": model.name, "from": model.tokens.start, "to": model.tokens.end}
        | {"token": row.token, "class": row.kind, "count": row.count, "left": row.left}
        | {"share": row.share.value, "low": row.share.low, "high": row.share.high}
        for model in summary.models
        for row in (*model.tokens.surest_classes, *model.tokens.types)
    ]
    return Table("tokens" if rows else "", pd.DataFrame(rows))


def flow(summary: DriftSummary) -> Table:
    """A row per pair of clusters of the first run: `flow.csv`."""
    rows = [
        {"model": model.name, "from": model.tokens.start, "to": model.tokens.end, "cluster": cluster.name}
        | {"into": into.name, "count": into.count, "share": into.count / cluster.count, "matched": into.matched}
        for model in summary.models
        for cluster in model.tokens.flow
        for into in cluster.into
    ]
    return Table("flow" if rows else "", pd.DataFrame(rows))


def _curves(summary: DriftSummary) -> list[tuple[DriftOfModel, Curve]]:
    """Every curve with its model; of each model the drawn one comes first."""
    return [
        (model, curve)
        for model in summary.models
        for curve in sorted(model.curves, key=lambda curve: curve.clusters != model.clusters)
    ]


def _who(model: DriftOfModel) -> Row:
    return {"model": model.name, "family": model.family or None, "variant": model.variant}


def _spread(name: str, value: Mean | None) -> Row:
    return {name: value and value.mean, f"{name}_std": value and value.std}


def _written(name: str) -> Callable[[Mapping[str, float | None]], str]:
    """What writes a mean with its standard deviation, `0.512 ± 0.010`."""

    def write(row: Mapping[str, float | None]) -> str:
        mean = row.get(name)
        return plain(None if mean is None else Mean(mean=mean, std=row.get(f"{name}_std")))

    return write


def _departure(departure: Departure) -> Row:
    """The numbers of a hinge or step, each under its own heading."""
    numbers = departure.model_dump(include={"layer", "low", "high", "size", "gain", "p", "detectable"})
    return {f"{departure.kind}_{name}": number for name, number in numbers.items()}


def _whole(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({name: "Int64" for name in ("clusters", "layer", "nearest") if name in frame})


def text_tables(summary: DriftSummary) -> RenderableType:
    """The terminal's tables, within 80 columns: shapes, NMI by layer, and the tokens that left most surely."""
    if not summary.models:
        return Text("Nothing has been measured yet.")
    of_shapes = shapes(summary)
    parts: list[RenderableType] = [of_shapes.terminal(SHOWN)] if len(of_shapes.frame) else []
    parts += [
        _layers(summary, family, range(first, min(first + ACROSS, len(family.models))))
        for family in summary.families
        for first in range(0, len(family.models), ACROSS)
    ]
    parts += [_tokens(model) for model in summary.models if model.tokens.types and len(summary.models) < 3]
    runs = summary.study.runs
    caption = (
        f"Mean ± standard deviation{f' over {runs} runs' if runs > 1 else ''}; brackets: "
        f"{100 * summary.study.level:g} % intervals. Layer l is the output of block l − 1. Line: p of a straight line."
        " Apart: layers from the nearest critical block, 0 within it."
    )
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    return Group(*parts, Text(caption, style="dim"))


def _shape_cell(shape: Shape) -> str:
    """`hinge 3.4 [3.1, 3.7]` by layers, `step 2 [2, 4]` by blocks, `line`, `neither`, `untested`."""
    if shape.departure is None:
        return shape.chosen
    return place_text(shape.departure).replace(" at layer", "").replace(" over block", "")


def _layers(summary: DriftSummary, family: Family, columns: range) -> TerminalTable:
    title = f"NMI with the clusters of layer {summary.reference} by layer · {family.name}"
    table = terminal_table(title, [("layer", False), *((family.labels[index], True) for index in columns)])
    curves = [family.models[index].curve for index in columns]
    known = [dict(curve.along("nmi")) for curve in curves]
    for layer in sorted({layer.layer for curve in curves for layer in curve.layers}):
        table.add_row(str(layer), *(Text(plain(nmi.get(layer), 2, "±")) for nmi in known))
    return table


def _tokens(model: DriftOfModel) -> TerminalTable:
    followed = model.tokens
    title = (
        f"Tokens that left their cluster between layers {followed.start} and {followed.end} (all tokens:"
        f" {wording.percent(followed.overall.share.value, 0)}) · {model.name}"
    )
    table = terminal_table(title, [("token", False), ("class", False), ("left", True), ("share", True)])
    for leaving in followed.types[:MOST_LEFT]:
        counts = f"{leaving.left:,} of {leaving.count:,}"
        table.add_row(Text(token_text(leaving.token or "")), Text(visible(leaving.kind)), counts, _share(leaving))
    return table


def _share(leaving: Leaving) -> Text:
    interval = wording.interval(leaving.share.low, leaving.share.high, 0)
    return Text(f"{wording.percent(leaving.share.value, 0)} ").append(interval, style="dim")
