"""The invariance as PNG files: variants of a family on one plot per task, and drops over a training's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lesion.report import figures, wording
from lesion.report.figures import COLOURS, COLUMN, MARKERS, PAGE, STYLE
from lesion.report.views import View
from lesion.studies.ablation.invariance import charts as invariance_charts

Entry = Mapping[str, Any]


def curves(family: Entry, task: Entry, view: View, names: Mapping[str, str], level: float) -> bytes | None:
    """Accuracy against the block that is cut, a line per variant; None where there is only one.

    After Nepal et al. (2025, Figures 1, 2 and 5). Models of different depth lie over their relative depth.
    """
    name = task["task"]
    if len(view.labels) < 2 or name not in view.panels:
        return None
    if not invariance_charts.depths_differ(family):
        single = View(view.unit, view.factor, view.slug, {name: view.panels[name]}, view.labels, view.layers)
        return figures.accuracy(single, level)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, 2.9), layout="constrained")
        axis = figure.subplots()
        for index, curve in enumerate(invariance_charts.depth_curves(task, view, names)):
            colour = COLOURS[curve.tone % len(COLOURS)]
            x, y = [point.x for point in curve.points], [point.y for point in curve.points]
            mark = MARKERS[index % len(MARKERS)]
            label = wording.short(curve.name, 44)
            axis.plot(x, y, mark, linestyle="-", color=colour, linewidth=1.1, markersize=2.6, label=label)
            axis.fill_between(
                x,
                [point.y if point.low is None else point.low for point in curve.points],
                [point.y if point.high is None else point.high for point in curve.points],
                color=colour, alpha=0.1, linewidth=0,
            )  # fmt: skip
        axis.set_ylim(-0.06, 1.04)
        axis.yaxis.set_major_formatter(PercentFormatter(1))
        axis.xaxis.set_major_formatter(PercentFormatter(1))
        axis.set_xlabel("depth of the block switched off")
        axis.set_ylabel("accuracy")
        axis.set_title(f"{wording.short(name, 30)}  (n = {task.get('items')})", loc="left")
        axis.grid(axis="y", linewidth=0.4, color="#DDDDDD")
        figure.legend(loc="outside lower center", ncols=1, frameon=False)
        return figures.png(figure)


def time(axis: Mapping[str, Any], task: str) -> bytes:
    """Drops over a training: a row per checkpoint, a column per block; dot: critical, ring: critical from there on."""
    rows, layers = axis["rows"], axis["layers"]
    with mpl.rc_context(STYLE):
        width = max(COLUMN, min(PAGE, 1.9 + 0.32 * len(layers)))
        figure = Figure(figsize=(width, 1.1 + 0.22 * len(rows)), layout="constrained")
        place = figure.subplots()
        drops = np.array([[_drop(row, layer) for layer in layers] for row in rows], dtype=float)
        full = float(axis["full"])
        scale = LinearSegmentedColormap.from_list("drop", ["#0072B2", "#F7F7F7", "#D55E00"])
        image = place.imshow(
            drops,
            cmap=scale.with_extremes(bad="#CFCFCF"),
            vmin=-full,
            vmax=full,
            aspect="auto",
            interpolation="nearest",
        )
        for height, row in enumerate(rows):
            for layer, cell in row["cells"].items():
                across = layers.index(layer)
                if cell["critical"]:
                    place.plot(across, height, "o", color="black", markersize=2.6)
                if cell["onset"]:
                    place.plot(across, height, "o", color="black", markersize=6, fillstyle="none", markeredgewidth=0.8)
        names = [f"{wording.short(row['label'], 24)}  {wording.percent(row['baseline'], 0)}" for row in rows]
        place.set_yticks(range(len(rows)), names)
        stride = next(s for s in (1, 2, 4, 5, 10, 20, 1000) if len(layers) <= 16 * s)
        shown = [index for index, layer in enumerate(layers) if layer % stride == 0]
        place.set_xticks(shown, [str(layers[index]) for index in shown])
        place.set_xlabel("block switched off  (dot: critical, ring: from here on)")
        place.set_title(f"{wording.short(axis['source'], 30)}, {wording.short(task, 24)}", loc="left")
        place.tick_params(length=0)
        place.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=place, pad=0.02, aspect=12)
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
        bar.set_label("drop (points)")
        bar.outline.set_visible(False)
        return figures.png(figure)


def _drop(row: Mapping[str, Any], layer: int) -> float:
    cell = row["cells"].get(layer)
    return float("nan") if cell is None or cell["drop"] is None else float(cell["drop"])
