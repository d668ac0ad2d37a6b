"""The figures as PNG files for papers and slides: accuracy against ablated layer, and drops as a heat map."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lesion.report import wording
from lesion.report.views import Line, View, drop_scale, runs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#56B4E9", "#444444", "#CC79A7")
"""After Okabe and Ito (2008), the yellow darkened: told apart by colour-blind readers, and on white paper."""
MARKERS = ("o", "s", "D", "^", "v", "P")
COLUMN, PAGE = 3.5, 7.2  # widths in inches of one column and of a page
ROOM_FOR_ITEMS = 24  # layers, up to which every cell of a heat map has room for a number of items
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "savefig.dpi": 300,
}


def accuracy(view: View, level: float) -> bytes:
    """Accuracy against ablated layer as PNG: a panel per task, a line per model.

    After Nepal et al. (2025, Figures 1 and 2).
    Dashed: the baseline; where asking stopped, a piece over every layer, on the items of that cell.
    Shaded: intervals at `level`. Filled marks with a number: critical layers; where asking stopped, those
    whose drop exceeds the effect.
    """
    with mpl.rc_context(STYLE):
        wide = min(3, len(view.panels))
        high = -(-len(view.panels) // wide)
        handles = _legend(view, level)
        across = 1 if wide == 1 else 2 if max(map(len, view.labels)) > 24 else 3
        deep = 0.16 * max(0, -(-len(handles) // across) - 4)  # inches for the rows of a long legend
        figure = Figure(figsize=(COLUMN if wide == 1 else PAGE, 2.35 * high + 0.5 + deep), layout="constrained")
        axes = figure.subplots(high, wide, sharey=True, squeeze=False)
        for axis in axes.flat[len(view.panels) :]:
            axis.set_axis_off()
        for axis, (task, of_task) in zip(axes.flat, view.panels.items(), strict=False):
            _panel(axis, view, of_task)
            axis.set_title(title(task, of_task), loc="left")
        for row in axes:
            row[0].set_ylabel("accuracy")
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=across,
            frameon=False,
            handlelength=2.4,
        )
        return png(figure)


def title(task: str, of_task: Sequence[Line]) -> str:
    """The task's name with the number of items; of a study that stopped asking, those of its cells from … to."""
    if any(line.stopped for line in of_task):
        return f"{wording.short(task, 30)}\nn = {_items(of_task)}"
    counts = ", ".join(f"{n:,}" for n in sorted({line.items for line in of_task}))
    return f"{wording.short(task, 30)}  (n = {counts})"


def _items(of_lines: Sequence[Line]) -> str:
    """`3–10 of 12, stopped`: how many items the cells of stopped lines were asked."""
    return "; ".join(
        wording.of_drawn(min(line.fewest for line in of_drawn), max(line.items for line in of_drawn), drawn)
        for drawn in sorted({line.drawn for line in of_lines if line.drawn is not None})
        for of_drawn in [[line for line in of_lines if line.drawn == drawn]]
    )


def heat(of_view: View) -> bytes:
    """Drops as PNG: a row per model and task, a column per layer.

    Dot: critical; grey: not answered. Where asking stopped, a dot says that the drop exceeds the effect, a question
    mark that it was left undecided, small numbers how many items a cell was asked, if there is room, and the title from
    how many to how many all of them.
    """
    of_lines = of_view.lines
    several = len(of_view.labels) > 1
    names = [
        f"{wording.short(line.label, 32)} · {wording.short(line.task, 20)}" if several else wording.short(line.task, 40)
        for line in of_lines
    ]
    with mpl.rc_context(STYLE):
        room = 0.9 + 0.06 * max(map(len, names))  # inches for the names and the colour bar
        width = max(COLUMN, min(PAGE, room + 0.32 * len(of_view.layers)))
        stopped = any(line.stopped for line in of_lines)
        height = 1.1 + 0.32 * len(of_lines) if stopped else 0.9 + 0.24 * len(of_lines)
        figure = Figure(figsize=(width, height), layout="constrained")
        axis = figure.subplots()
        drops = np.array([[_drop(line, layer) for layer in of_view.layers] for line in of_lines])
        full = drop_scale(of_lines)
        scale = LinearSegmentedColormap.from_list("drop", ["#0072B2", "#F7F7F7", "#D55E00"])
        colours = scale.with_extremes(bad="#CFCFCF")
        image = axis.imshow(drops, cmap=colours, vmin=-full, vmax=full, aspect="auto", interpolation="nearest")
        for row, line in enumerate(of_lines):
            for point in line.points:
                if point.called:
                    axis.plot(of_view.layers.index(point.layer), row, "o", color="black", markersize=2.6)
                elif point.decided == "open":
                    axis.text(of_view.layers.index(point.layer), row, "?", ha="center", va="center", fontsize=7)
                if line.stopped and len(of_view.layers) <= ROOM_FOR_ITEMS:
                    axis.text(
                        of_view.layers.index(point.layer), row + 0.47, f"{point.items}", ha="center", va="bottom",
                        fontsize=4.5,
                    )  # fmt: skip
        axis.set_yticks(range(len(names)), names)
        stride = next(s for s in (1, 2, 4, 5, 10, 20, 50, 1000) if len(of_view.layers) <= 16 * s)
        shown = [i for i, layer in enumerate(of_view.layers) if layer % stride == 0]
        axis.set_xticks(shown, [str(of_view.layers[i]) for i in shown])
        axis.set_xlabel(wording.axis_name(of_view.unit, of_view.factor))
        if stopped:
            axis.set_title(f"n = {_items(of_lines)}", loc="left", fontsize=7)
        axis.tick_params(length=0)
        for row in range(1, len(of_lines)):
            if several and of_lines[row].task != of_lines[row - 1].task:
                axis.axhline(row - 0.5, color="white", linewidth=3)
        axis.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axis, pad=0.02, aspect=12)
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))
        bar.set_label("drop (points)")
        bar.outline.set_visible(False)
        return png(figure)


def _drop(line: Line, layer: int) -> float:
    point = line.at(layer)
    return float("nan") if point is None or point.drop is None else point.drop


def _panel(axis: Axes, view: View, of_task: Sequence[Line]) -> None:
    for line in of_task:
        index = view.labels.index(line.label)
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        if line.stopped:
            for point in line.points:
                if point.baseline.accuracy is not None:
                    ends = (point.layer - 0.42, point.layer + 0.42)
                    axis.hlines(point.baseline.accuracy, *ends, color=colour, linewidth=0.9, linestyle=(0, (5, 3)))
        elif line.baseline.accuracy is not None:
            axis.axhline(line.baseline.accuracy, color=colour, linewidth=0.9, linestyle=(0, (5, 3)))
        for run in runs(line, view.layers):
            layers = [point.layer for point in run]
            axis.plot(layers, [point.accuracy for point in run], color=colour, linewidth=1.1)
            known = [point for point in run if point.low is not None and point.high is not None]
            if len(known) > 1:
                axis.fill_between(
                    [point.layer for point in known],
                    [point.low or 0.0 for point in known],
                    [point.high or 0.0 for point in known],
                    color=colour,
                    alpha=0.16 if len(of_task) < 3 else 0.1,
                    linewidth=0,
                )
            elif known:
                axis.vlines(
                    known[0].layer,
                    known[0].low or 0.0,
                    known[0].high or 0.0,
                    color=colour,
                    alpha=0.4,
                    linewidth=2,
                )
        size = 3.6 if len(view.layers) <= 16 else 2.4
        for point in line.points:
            face = colour if point.called else "white"
            axis.plot(
                point.layer, point.accuracy, marker, color=colour, markerfacecolor=face,
                markersize=size * (1.25 if point.called else 1), markeredgewidth=0.8, zorder=3,
            )  # fmt: skip
            if point.decided == "open":
                axis.plot(
                    point.layer, point.accuracy, "x", color=colour, markersize=2.2 * size, markeredgewidth=0.8, zorder=4
                )
    _number_critical(axis, of_task, len(view.layers))
    axis.set_ylim(-0.12, 1.04)
    axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axis.yaxis.set_major_formatter(PercentFormatter(1))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    if view.layers:
        axis.set_xlim(view.layers[0] - 0.5, view.layers[-1] + 0.5)
    axis.set_xlabel(wording.axis_name(view.unit, view.factor))
    axis.grid(axis="y", linewidth=0.4, color="#DDDDDD")
    axis.set_axisbelow(True)


def _number_critical(axis: Axes, of_task: Sequence[Line], layers: int) -> None:
    lowest: dict[int, float] = {}
    for point in (point for line in of_task for point in line.points if point.called):
        lowest[point.layer] = min(point.accuracy, lowest.get(point.layer, 1.0))
    for group in grouped(sorted(lowest), 0 if layers <= 16 else 1):
        axis.annotate(
            wording.layer_runs(group).replace(", ", wording.DASH),
            (sum(group) / len(group), min(lowest[layer] for layer in group)),
            xytext=(0, -4), textcoords="offset points", ha="center", va="top", fontsize=7, fontweight="bold",
        )  # fmt: skip


def grouped(layers: Sequence[int], distance: int) -> list[list[int]]:
    """Sorted layers in groups of neighbours at most `distance` apart: those that share one label."""
    found: list[list[int]] = []
    for layer in layers:
        if found and layer - found[-1][-1] <= distance:
            found[-1].append(layer)
        else:
            found.append([layer])
    return found


def _legend(view: View, level: float) -> list[Line2D]:
    lines = [
        Line2D([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], linewidth=1.1,
               markerfacecolor="white", markersize=3.6, label=wording.short(label, 44))
        for i, label in enumerate(view.labels)
    ]  # fmt: skip
    grey = "#555555"
    undecided = [
        Line2D([], [], color=grey, marker="x", linestyle="", markersize=5, label="left undecided"),
    ] if any(point.decided == "open" for line in view.lines for point in line.points) else []  # fmt: skip
    stopped = view.stopped
    called = "exceeds the effect (numbered)" if stopped else "critical block (numbered)"
    kind, unedited = ("confidence sequence", "unedited, same items") if stopped else ("interval", "unedited model")
    return [
        *lines,
        Line2D([], [], color=grey, linestyle=(0, (5, 3)), linewidth=0.9, label=unedited),
        Line2D([], [], color=grey, marker="o", linestyle="", markersize=4.2, label=called),
        *undecided,
        Line2D([], [], color=grey, alpha=0.25, linewidth=6, label=f"{100 * level:g} % {kind}"),
    ]


def png(figure: Figure) -> bytes:
    """The figure as the bytes of a PNG file, the same for the same figure."""
    FigureCanvasAgg(figure)
    written = io.BytesIO()
    with _any_script():
        figure.savefig(written, format="png", metadata={"Software": "lesion"})
    return written.getvalue()


def lay_out(figure: Figure) -> None:
    """Settle where the axes lie, so that places in them can be worked out before the figure is written."""
    FigureCanvasAgg(figure)
    with _any_script():
        figure.draw_without_rendering()


@contextmanager
def _any_script() -> Iterator[None]:
    with warnings.catch_warnings():
        # A model's name may be in a script that the built-in font does not have: boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield
