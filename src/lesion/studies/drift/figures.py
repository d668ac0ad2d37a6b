"""The figures of a drift study as PNG files for papers and slides: a panel per family, a line per model."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from lesion.report import wording
from lesion.report.figures import COLOURS, COLUMN, MARKERS, PAGE, STYLE, png
from lesion.studies.drift.charts import AXIS, height_at, null_band, stretches
from lesion.studies.drift.values import Drifts, Family, Value

CHECKS = {"cosine": "cosine", "cka": "CKA"}
MARKS = {"hinge": "D", "step": "s"}


def figures(found: Drifts) -> dict[str, bytes]:
    """File name → PNG: `drift.png` with NMI, `checks.png` with what does not depend on it; none without numbers."""
    if not any(model.curve.along("nmi") for model in found.models):
        return {}
    drawn = {"drift.png": information(found)}
    names = {name: told for name, told in CHECKS.items() if any(m.curve.along(name) for m in found.models)}
    names |= {label: f"NMI with {label}" for label in found.labellings}
    if names:
        drawn["checks.png"] = checks(found, names)
    return drawn


def information(found: Drifts) -> bytes:
    """NMI by layer, after Nepal et al. (2025): bands of ± one standard deviation over runs, and the null's in grey.

    Above each panel a row per model: critical blocks in grey, its hinge (diamond) or step (square) with the interval.
    """
    families = found.families
    wide = min(2, len(families))
    high = -(-len(families) // wide)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN if wide == 1 else PAGE, 3.4 * high + 0.2), layout="constrained")
        axes = figure.subplots(high, wide, sharey=True, squeeze=False)
        for axis in axes.flat[len(families) :]:
            axis.set_axis_off()
        for axis, family in zip(axes.flat, families, strict=False):
            _null(axis, family)
            _lines(axis, family, "nmi")
            _rows(axis, family)
            axis.set_title(wording.short(family.name, 40), loc="left")
            axis.legend(
                handles=_legend(family), frameon=False, handlelength=2, loc="upper center", ncols=3, fontsize=6.5,
                bbox_to_anchor=(0.5, -0.17), columnspacing=1.2,
            )  # fmt: skip
        for row in axes:
            row[0].set_ylabel(f"NMI with the clusters of layer {found.reference}")
        return png(figure)


def checks(found: Drifts, names: dict[str, str]) -> bytes:
    """A row of panels per family: cosine and CKA with the reference, and NMI with each labelling of the tokens."""
    families = found.families
    with mpl.rc_context(STYLE):
        width = min(PAGE, max(COLUMN, 1.8 * len(names)))
        figure = Figure(figsize=(width, 1.9 * len(families) + 0.2), layout="constrained")
        axes = figure.subplots(len(families), len(names), sharey=True, squeeze=False)
        for row, family in zip(axes, families, strict=True):
            for axis, (measure, name) in zip(row, names.items(), strict=True):
                _lines(axis, family, measure)
                axis.set_title(wording.short(name, 26), loc="left")
            row[0].set_ylabel(wording.short(family.name, 24))
        return png(figure)


def _lines(axis: Axes, family: Family, measure: str) -> None:
    for index, model in enumerate(family.models):
        colour = COLOURS[index % len(COLOURS)]
        places = model.curve.along(measure)
        for run in stretches(places):
            layers = [layer for layer, _ in run]
            means = np.array([value.mean for _, value in run])
            axis.plot(
                layers, means, color=colour, linewidth=1.1, marker=MARKERS[index % len(MARKERS)], markersize=2.6,
                markerfacecolor="white", markeredgewidth=0.7,
            )  # fmt: skip
            spread = np.array([value.std or 0.0 for _, value in run])
            axis.fill_between(layers, means - spread, means + spread, color=colour, alpha=0.14, linewidth=0)
        if measure == "nmi":
            _place(axis, family, index, places)
    axis.set_xlim(-0.4, family.blocks + 0.4)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    axis.set_xlabel(AXIS if measure == "nmi" else "layer")
    axis.grid(axis="y", linewidth=0.4, color="#DDDDDD")
    axis.set_axisbelow(True)


def _place(axis: Axes, family: Family, index: int, places: Sequence[tuple[int, Value]]) -> None:
    at = family.models[index].curve.departure
    height = height_at(places, at.layer) if at else None
    if at and height is not None:
        axis.plot(at.layer, height, MARKS[at.kind], color=COLOURS[index % len(COLOURS)], markersize=4.6, zorder=4)


def _null(axis: Axes, family: Family) -> None:
    band = null_band([model.curve for model in family.models])
    if band:
        layers, low, mean, high = (list(column) for column in zip(*band, strict=True))
        axis.fill_between(layers, low, high, color="#555555", alpha=0.18, linewidth=0)
        axis.plot(layers, mean, color="#555555", linewidth=0.9, linestyle=(0, (1, 2)))


def _rows(axis: Axes, family: Family) -> None:
    """A row per model above the curves; the axis is lengthened for them, its numbers stay between 0 and 1."""
    step = 0.05
    top = 1.05 + step * len(family.models)
    for index, model in enumerate(family.models):
        at = 1.05 + step * (len(family.models) - 1 - index) + step / 2
        colour = COLOURS[index % len(COLOURS)]
        for block in model.critical_blocks:
            axis.fill_between([block, block + 1], at - 0.4 * step, at + 0.4 * step, color="#BBBBBB", linewidth=0)
        departure = model.curve.departure
        if departure:
            if departure.low is not None and departure.high is not None:
                axis.plot([departure.low, departure.high], [at, at], color=colour, linewidth=1.4)
            axis.plot(departure.layer, at, MARKS[departure.kind], color=colour, markersize=3)
    axis.set_ylim(-0.02, top + 0.01)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])


def _legend(family: Family) -> list[Line2D | Patch]:
    lines: list[Line2D | Patch] = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], linewidth=1.1,
               markerfacecolor="white", markersize=3, label=wording.short(label, 30))
        for i, label in enumerate(family.labels)
    ]  # fmt: skip
    for kind in sorted({model.curve.departure.kind for model in family.models if model.curve.departure}):
        lines.append(Line2D([], [], color="#555555", marker=MARKS[kind], markersize=3, label=f"{kind}, interval"))
    if any(model.critical_blocks for model in family.models):
        lines.append(Patch(color="#BBBBBB", label="critical block"))
    if any(model.curve.along("null") for model in family.models):
        lines.append(Patch(color="#555555", alpha=0.25, label="null: tokens shuffled"))
    return lines
