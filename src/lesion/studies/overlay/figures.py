"""The stack of profiles as a PNG file for papers and slides."""

from __future__ import annotations

import math

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lesion.report import wording
from lesion.report.figures import COLOURS, PAGE, STYLE, png
from lesion.studies.overlay import charts as overlay_charts
from lesion.studies.overlay.profiles import Profile
from lesion.studies.overlay.summary import Of


def stack(of: Of) -> bytes:
    """All profiles of a model, one above the other over the same blocks; shaded: critical, darker for more tasks."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE, 0.5 + 0.95 * len(of.profiles)), layout="constrained")
        axes = figure.subplots(len(of.profiles), 1, sharex=True, squeeze=False)[:, 0]
        for axis, profile in zip(axes, of.profiles, strict=True):
            _row(axis, of, profile)
        axes[0].set_xlim(of.blocks[0] - 0.6, of.blocks[-1] + 0.6)
        axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
        axes[-1].set_xlabel(f"block of {wording.short(of.model, 60)}")
        return png(figure)


def _row(axis: Axes, of: Of, profile: Profile) -> None:
    colour = COLOURS[overlay_charts.KINDS[profile.kind][0]]
    for block in (block for one in of.profiles for block in one.critical):
        axis.axvspan(block - 0.5, block + 0.5, color="#000000", alpha=0.06, linewidth=0)
    if profile.ranked:
        faces = [1.0 if block in profile.critical else 0.55 for block in profile.blocks]
        for block, height, alpha in zip(profile.blocks, profile.values, faces, strict=True):
            axis.bar(block, height, width=0.7, color=colour, alpha=alpha)
        axis.axhline(0, color="#555555", linewidth=0.6)
    else:
        axis.plot(profile.blocks, profile.values, "o-", color=colour, markersize=2.6, linewidth=1.0)
    for block, low, high in zip(profile.blocks, profile.low, profile.high, strict=True):
        if math.isfinite(low) and math.isfinite(high):
            axis.vlines(block, low, high, color="#222222", linewidth=0.8)
    axis.set_title(f"{wording.short(profile.label, 90)}  ({overlay_charts.UNITS[profile.unit]})", loc="left")
    if profile.unit in ("points", "share"):
        decimals = 0 if max(map(abs, profile.values)) >= 0.05 else None
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=decimals, symbol=""))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=3))
    axis.grid(axis="y", linewidth=0.4, color="#DDDDDD")
    axis.set_axisbelow(True)
