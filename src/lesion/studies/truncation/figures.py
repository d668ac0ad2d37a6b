"""The heat maps of a truncation search as PNG files for papers and slides: a panel per matrix and side."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from lesion.report import wording
from lesion.report.figures import COLUMN, PAGE, STYLE, png
from lesion.studies.truncation import maps as truncation_maps
from lesion.studies.truncation.cells import Search
from lesion.studies.truncation.maps import Map

MOST_PANELS = 16
"""At most so many panels are drawn; `cells.csv` has all numbers."""


def heat(search: Search, drawn: truncation_maps.Figure) -> bytes:
    """The change of one measure by keep (rows) and layer (columns); dot: the chosen edit, grey: nothing to compare."""
    maps = drawn.maps[:MOST_PANELS]
    accuracy = drawn.measure.kind == "accuracy"
    factor = 100.0 if accuracy else 1.0
    wide = 1 if len(maps) == 1 else 2
    high = -(-len(maps) // wide)
    rows = max(len(one.rows) for one in maps)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(COLUMN if wide == 1 else PAGE, high * (0.75 + 0.17 * rows)), layout="constrained")
        axes = figure.subplots(high, wide, squeeze=False)
        for axis in axes.flat[len(maps) :]:
            axis.set_axis_off()
        images = [
            _panel(axis, search, drawn, one, factor * drawn.full) for axis, one in zip(axes.flat, maps, strict=False)
        ]
        bar = figure.colorbar(
            images[0],
            ax=axes,
            pad=0.02,
            aspect=24,
            shrink=min(1.0, 2 / high),
            extend="min" if drawn.clipped else "neither",
        )
        what = "accuracy (points)" if accuracy else "gold log-probability (nats)"
        bar.set_label(f"{what}, {wording.short(drawn.measure.task, 30) or 'screen'}")
        bar.outline.set_visible(False)
        return png(figure)


def _panel(axis: Axes, search: Search, drawn: truncation_maps.Figure, one: Map, full: float) -> AxesImage:
    values = np.array([[_value(search, drawn, square.cell) for square in squares] for _, _, squares in one.rows])
    scale = LinearSegmentedColormap.from_list("change", ["#D55E00", "#F7F7F7", "#0072B2"])
    colours = scale.with_extremes(bad="#CFCFCF")
    image = axis.imshow(values, cmap=colours, vmin=-full, vmax=full, aspect="auto", interpolation="nearest")
    for row, (_, _, squares) in enumerate(one.rows):
        for column, square in enumerate(squares):
            if square.cell is not None and square.cell == search.chosen:
                axis.plot(column, row, "o", color="black", markersize=2.6)
    axis.set_yticks(range(len(one.rows)), [keep for keep, _, _ in one.rows])
    stride = next(s for s in (1, 2, 4, 5, 10, 20, 50, 1000) if len(one.layers) <= 16 * s)
    shown = [i for i, layer in enumerate(one.layers) if layer % stride == 0]
    axis.set_xticks(shown, [str(one.layers[i]) for i in shown])
    axis.set_title(f"{wording.short(one.matrix, 28)}, {one.side}", loc="left")
    axis.set_xlabel("layer")
    axis.set_ylabel("rank kept")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image


def _value(search: Search, drawn: truncation_maps.Figure, edit: str | None) -> float:
    cell = search.by_edit.get(edit or "")
    value = None if cell is None else truncation_maps.change(search, cell, drawn.measure)
    return float("nan") if value is None else value * (100.0 if drawn.measure.kind == "accuracy" else 1.0)
