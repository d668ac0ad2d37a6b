"""The dot plot of a tuning study as PNG for papers and slides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from lesion.report import wording
from lesion.report.figures import COLOURS, PAGE, STYLE, png
from lesion.studies.tuning import charts as tuning_charts


def dots(summary: Mapping[str, Any]) -> bytes:
    """What every arm gains and costs: a panel per task, a row per arm, its interval, and a small dot per seed."""
    tasks = summary["baseline"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE, 0.9 + 0.34 * len(summary["arms"])), layout="constrained")
        axes = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
        for index, (axis, task) in enumerate(zip(axes, tasks, strict=True)):
            rows = tuning_charts.gains(summary, index)
            for place, one in enumerate(rows):
                colour = COLOURS[one.tone % len(COLOURS)]
                axis.plot([100 * one.low, 100 * one.high], [place, place], color=colour, linewidth=1.4)
                axis.plot([100 * one.mean], [place], "o", color=colour, markersize=5)
                if len(one.seeds) > 1:
                    seeds = [100 * value for value in one.seeds]
                    axis.plot(seeds, [place + 0.25] * len(seeds), "o", color=colour, markersize=2.4, alpha=0.6)
            axis.axvline(0.0, color="#888888", linewidth=0.7)
            axis.set_title(f"{wording.short(task['task'], 28)}  (n = {task['items']:,})", loc="left")
            axis.set_xlabel("change of accuracy, points")
        axes[0].set_yticks(range(len(summary["arms"])), [wording.short(arm["label"], 30) for arm in summary["arms"]])
        axes[0].set_ylim(len(summary["arms"]) - 0.4, -0.6)
        return png(figure)
