"""The figures of an isolation as PNG files for papers and slides: trade-off, distribution and consistency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

from lesion.report import scales, wording
from lesion.report.figures import COLOURS, COLUMN, MARKERS, PAGE, STYLE, lay_out, png
from lesion.report.trials import Asked, Edited, Effect, Evaluation
from lesion.studies.isolation import curves, distribution, sweeps, tradeoff
from lesion.studies.isolation.label_placement import Marked
from lesion.studies.isolation.sweeps import Series

GREY = "#888888"


def drawn(
    found: Evaluation | None, maps: Sequence[distribution.Distribution], overlaps: Sequence[curves.Overlap]
) -> dict[str, bytes]:
    """Every figure: file name → PNG."""
    pictures: dict[str, bytes] = {}
    if found is not None:
        for skill in found.skills:
            for regime, edits in sweeps.regimes(found.tried).items():
                controls = sweeps.comparable(found, skill, edits)
                if controls:
                    name = "tradeoff" if len(found.skills) == 1 else f"tradeoff-{found.skills.index(skill)}"
                    pictures[f"{name}-{regime}.png"] = trade_off(found, edits, skill, controls, boost=regime == "boost")
    for one in maps:
        if one.blocks:
            pictures[f"distribution-{one.slug}.png"] = heat(one)
    if overlaps:
        pictures["consistency.png"] = consistency(overlaps)
    return pictures


def trade_off(
    found: Evaluation, edits: Sequence[Edited], skill: Asked, controls: Sequence[Asked], *, boost: bool
) -> bytes:
    """Accuracy on the skill against every control; grey: matched random controls from lowest to highest."""
    series = sweeps.paths(edits)
    with mpl.rc_context(STYLE):
        wide = min(2, len(controls))
        high = -(-len(controls) // wide)
        figure = Figure(figsize=(COLUMN if wide == 1 else PAGE, 2.9 * high + 0.5), layout="constrained")
        axes = figure.subplots(high, wide, squeeze=False)
        for axis in axes.flat[len(controls) :]:
            axis.set_axis_off()
        planes = [
            (axis, _plane(axis, found, series, skill, control, boost=boost))
            for axis, control in zip(axes.flat, controls, strict=False)
        ]
        handles = [
            _handle(found.colours.index(one.stops[0].edits[0].method_name), index, one.label)
            for index, one in enumerate(series)
        ]
        handles.append(Line2D([], [], color=GREY, marker="+", linestyle="", label="matched random, lowest to highest"))
        handles.append(Line2D([], [], color="#555555", linestyle=(0, (5, 3)), linewidth=0.9, label="unedited model"))
        if any(task.guessed is not None for task in (skill, *controls)):
            handles.append(Line2D([], [], color="#555555", linestyle=":", linewidth=1, label="chance"))
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = 1 if wide == 1 else 3 if longest <= 36 else 2
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
        lay_out(figure)
        for axis, marked in planes:
            marked.name(axis)
        return png(figure)


def heat(one: distribution.Distribution) -> bytes:
    """Share selected per kind of matrix (rows) and block (columns); the head as its own row."""
    rows = [*one.kinds, *([distribution.HEAD] if one.head is not None else [])]
    shares = np.full((len(rows), len(one.blocks)), np.nan)
    for i, kind in enumerate(rows):
        for j, block in enumerate(one.blocks):
            count = one.head if kind == distribution.HEAD else one.at(kind, block)
            if count is not None and count.share is not None:
                shares[i, j] = count.share
    with mpl.rc_context(STYLE):
        width = max(COLUMN, min(PAGE, 1.9 + 0.34 * len(one.blocks)))
        figure = Figure(figsize=(width, 0.95 + 0.26 * len(rows)), layout="constrained")
        axis = figure.subplots()
        colours = LinearSegmentedColormap.from_list("share", ["#F7F7F7", "#009E73"]).with_extremes(bad="#CFCFCF")
        image = axis.imshow(shares, cmap=colours, vmin=0, vmax=one.full, aspect="auto", interpolation="nearest")
        if len(one.blocks) <= 16:
            for (i, j), value in np.ndenumerate(shares):
                if np.isfinite(value) and (rows[i] != distribution.HEAD or j == 0):
                    axis.text(j, i, distribution.share(float(value)), ha="center", va="center", fontsize=5.5)
        axis.set_yticks(range(len(rows)), [wording.short(row, 28) for row in rows])
        stride = next(s for s in (1, 2, 4, 5, 10, 20, 50, 1000) if len(one.blocks) <= 16 * s)
        shown = [i for i, block in enumerate(one.blocks) if block % stride == 0]
        axis.set_xticks(shown, [str(one.blocks[i]) for i in shown])
        axis.set_xlabel("block")
        axis.set_title(wording.short(one.label, 60), loc="left")
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axis, pad=0.02, aspect=12)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: distribution.share(value)))
        bar.set_label("selected (%)")
        bar.outline.set_visible(False)
        return png(figure)


def consistency(overlaps: Sequence[curves.Overlap]) -> bytes:
    """Mean IoU between repeats against the number of samples; dashed: by chance."""
    with mpl.rc_context(STYLE):
        names = curves.labels(overlaps)
        columns = 2 if len(names) > 4 and max(map(len, names)) <= 24 else 1
        figure = Figure(figsize=(COLUMN, 2.5 + 0.15 * -(-(len(names) + 1) // columns)), layout="constrained")
        axis = figure.subplots()
        for index, label in enumerate(names):
            colour = COLOURS[index % len(COLOURS)]
            of_label = sorted((one for one in overlaps if one.label == label), key=lambda one: one.samples)
            samples = [one.samples for one in of_label]
            axis.plot(
                samples, [one.mean for one in of_label], color=colour, marker=MARKERS[index % len(MARKERS)],
                markerfacecolor="white", markersize=3.6, linewidth=1.1, label=wording.short(label, 40),
            )  # fmt: skip
            for one in of_label:
                if one.low is not None and one.high is not None:
                    axis.vlines(one.samples, one.low, one.high, color=colour, alpha=0.5, linewidth=1)
            chances = [one.chance if one.chance is not None else float("nan") for one in of_label]
            dashed: dict[str, Any] = {"color": colour, "linewidth": 0.8, "linestyle": (0, (5, 3))}
            if len(of_label) > 1:
                axis.plot(samples, chances, **dashed)
            else:  # one point is no line
                axis.axhline(chances[0], **dashed)
        axis.set_xscale("log")
        counts = sorted({one.samples for one in overlaps})
        axis.set_xticks(counts, [f"{count:,}" for count in counts])
        axis.minorticks_off()
        if len(counts) == 1:
            axis.set_xlim(counts[0] / 2, counts[0] * 2)
        axis.set_ylim(0, 1.02)
        axis.set_xlabel("texts of each data set")
        axis.set_ylabel("overlap of sets (IoU)")
        axis.grid(axis="y", linewidth=0.4, color="#DDDDDD")
        axis.set_axisbelow(True)
        handles, _ = axis.get_legend_handles_labels()
        handles.append(Line2D([], [], color=GREY, linewidth=0.8, linestyle=(0, (5, 3)), label="by chance"))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
        return png(figure)


def _plane(
    axis: Axes, found: Evaluation, series: Sequence[Series], skill: Asked, control: Asked, *, boost: bool
) -> Marked:
    marked = Marked()
    for index, one in enumerate(series):
        colour = COLOURS[found.colours.index(one.stops[0].edits[0].method_name) % len(COLOURS)]
        line = []
        for stop in one.stops:
            both = [
                (skill.effects[edit.key], control.effects[edit.key])
                for edit in stop.edits
                if edit.key in skill.effects and edit.key in control.effects
            ]
            if not both:
                continue
            at = (float(np.mean([x.value for x, _ in both])), float(np.mean([y.value for _, y in both])))
            line.append(at)
            for x, y in both:
                marked.crosses += _random(axis, x, y)
                if len(both) > 1:
                    axis.plot(x.value, y.value, ".", color=colour, markersize=2, alpha=0.6)
                else:
                    _errors(axis, x, y, colour)
            axis.plot(*at, MARKERS[index % len(MARKERS)], color=colour, markerfacecolor="white", markersize=4, zorder=3)
            marked.marks.append(at)
            if text := tradeoff.stop_name(one, stop):
                marked.labels.append((text, at, colour))
        if len(line) > 1:
            axis.plot(*zip(*line, strict=True), color=colour, linewidth=1)
    dashed: dict[str, Any] = {"color": "#555555", "linewidth": 0.8, "linestyle": (0, (5, 3)), "zorder": 0}
    if skill.value is not None:
        axis.axvline(skill.value, **dashed)
    if control.value is not None:
        axis.axhline(control.value, **dashed)
    dotted: dict[str, Any] = {"color": "#555555", "linewidth": 0.9, "linestyle": ":", "zorder": 0}
    if skill.guessed is not None:
        axis.axvline(skill.guessed, **dotted)
    if control.guessed is not None:
        axis.axhline(control.guessed, **dotted)
    axis.margins(0.08)
    axis.set_xlabel(f"accuracy on {wording.short(skill.name, 36)}")
    axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axis.set_ylabel(f"{'perplexity' if control.scored else 'accuracy'} on {wording.short(control.name, 22)}")
    if control.scored:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        ticks = apart(scales.decades(low, high), 0.05 * math.log(high / low))
        axis.set_yticks(ticks, [wording.figures(tick, 3) for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(high, low)
    else:
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    # Above the plane, where no mark can lie.
    place, text = ((1.0, "right"), "ideal ↗") if boost else ((0.0, "left"), "↖ ideal")
    axis.text(place[0], 1.01, text, transform=axis.transAxes, ha=place[1], va="bottom", color="#009E73", fontsize=7)
    return marked


def apart(ticks: Sequence[float], distance: float) -> list[float]:
    """The ticks of which each lies at least a distance of logarithms above the last."""
    found: list[float] = []
    for tick in ticks:
        if not found or math.log(tick / found[-1]) >= distance:
            found.append(tick)
    return found


def _errors(axis: Axes, x: Effect, y: Effect, colour: str) -> None:
    if x.low is not None and x.high is not None:
        axis.hlines(y.value, x.low, x.high, color=colour, alpha=0.45, linewidth=0.8)
    if y.low is not None and y.high is not None:
        axis.vlines(x.value, y.low, y.high, color=colour, alpha=0.45, linewidth=0.8)


def _random(axis: Axes, x: Effect, y: Effect) -> list[tuple[float, float]]:
    """Draw the random controls of one edit; where their cross lies."""
    if x.random is None or y.random is None or x.random.mean is None or y.random.mean is None:
        return []
    axis.plot(x.random.mean, y.random.mean, "+", color=GREY, markersize=4, markeredgewidth=0.7)
    if x.random.lowest is not None and x.random.highest is not None:
        axis.hlines(y.random.mean, x.random.lowest, x.random.highest, color=GREY, linewidth=0.7)
    if y.random.lowest is not None and y.random.highest is not None:
        axis.vlines(x.random.mean, y.random.lowest, y.random.highest, color=GREY, linewidth=0.7)
    return [(x.random.mean, y.random.mean)]


def _handle(colour: int, index: int, label: str) -> Line2D:
    return Line2D(
        [], [], color=COLOURS[colour % len(COLOURS)], marker=MARKERS[index % len(MARKERS)], linewidth=1.1,
        markerfacecolor="white", markersize=3.6, label=wording.short(label, 44),
    )  # fmt: skip
