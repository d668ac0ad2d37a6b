"""The spectra of a truncation search: singular values, and what the chosen edit keeps of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import pandas as pd

from lesion.report import axes, plots, theme, wording
from lesion.report.blocks import Figure, Panel, Series
from lesion.studies.truncation.result import JOINT, Cell, Spectrum, TruncationSummary

MOST_COLOURS = 8
"""Where there are more blocks than this, all spectra are grey but those that the chosen edit cuts."""
MOST_POINTS = 64
"""Points of a spectrum in its chart, at equal distances on its logarithmic axis."""
CUT, OTHER = 1, 6
"""Numbers of the colours where there are too many blocks for a colour each."""


def figure(summary: TruncationSummary) -> Figure | None:
    """Singular values against their number, a panel per kind of matrix; shaded: what the chosen edit keeps."""
    kinds: dict[str, list[Spectrum]] = {}
    for spectrum in summary.spectra:
        if any(value is not None and value > 0 for value in spectrum.values):
            kinds.setdefault(_place(spectrum.address)[1], []).append(spectrum)
    if not kinds:
        return None
    chosen = chosen_cells(summary)
    blocks = sorted(
        {_place(spectrum.address)[0] for of_kind in kinds.values() for spectrum in of_kind},
        key=lambda block: int(block or -1),
    )
    coloured = len(blocks) <= MOST_COLOURS
    names = {block: f"block {block}" for block in blocks} if coloured else {}
    legend = [Series(name, index) for index, name in enumerate(names.values())]
    if not coloured:
        legend = [Series("cut by the chosen edit", CUT)] if chosen else []
        legend.append(Series("other matrices" if chosen else "matrices", OTHER))
    if any(cell.rank for cell in chosen.values()):
        legend.append(Series("kept by the chosen edit", colour=theme.SOFT, area=True))
    return Figure(
        name="spectra",
        panels=tuple(Panel((_chart(of_kind, chosen, names),), kind) for kind, of_kind in kinds.items()),
        caption="Singular values against their number, both logarithmic; values of 0 are not drawn. All: spectra.csv.",
        legend=tuple(legend),
        small=len(kinds) > 1,
    )


def _chart(spectra: Sequence[Spectrum], chosen: dict[str, Cell], names: dict[str, str]) -> alt.LayerChart:
    lines = pd.DataFrame(
        [
            {"series": spectrum.address, "x": place, "y": value}
            for spectrum in spectra
            for place, value in _points(spectrum)
        ]
    )
    across = axes.ratio_axis("number of the singular value", lines["x"], whole=True)
    upright = axes.ratio_axis("singular value", lines["y"])
    starts = pd.DataFrame(
        [
            {"x": float(spectrum.index[0] + 1), "y": spectrum.values[0], "series": spectrum.address}
            | {"tip": _tip(spectrum, chosen.get(spectrum.address))}
            for spectrum in spectra
        ]
    )
    every = list(dict.fromkeys(lines["series"]))
    blocks = list(names)
    looks = [blocks.index(_place(address)[0]) if blocks else CUT if address in chosen else OTHER for address in every]
    colour, shape = plots.colour(every, looks), plots.shape(every, looks)
    position = {"x": plots.x(across), "y": plots.y(upright)}
    layers: list[alt.Chart] = []
    # What the chosen edit cuts lies on top.
    for is_cut, width in ((False, 1.4), (True, 2.6)):
        opacity = 1.0 if is_cut or names else 0.3
        of_lines, of_starts = (frame[frame["series"].isin(list(chosen)) == is_cut] for frame in (lines, starts))
        if of_lines.empty:
            continue
        drawn = alt.Chart(of_lines).mark_line(strokeWidth=width, opacity=opacity).encode(**position, color=colour)
        point = alt.Chart(of_starts).mark_point(size=40, opacity=opacity)
        layers += [drawn, point.encode(**position, color=colour, shape=shape, tooltip=plots.tip())]
    kept = [
        {"x": max(1.0, first - 0.5), "end": last + 0.5}
        for spectrum in spectra
        if (cell := chosen.get(spectrum.address)) is not None and cell.rank
        for first, last in ((1, cell.rank) if cell.side == "top" else (cell.of - cell.rank + 1, cell.of),)
    ]
    if kept:
        shade = alt.Chart(pd.DataFrame(kept)).mark_rect(color=theme.SOFT, opacity=0.16)
        layers.insert(0, shade.encode(x=plots.x(across), x2=alt.X2(field="end")))
    return alt.layer(*layers)


def _points(spectrum: Spectrum) -> list[tuple[float, float]]:
    """(number from 1, value) of the values above 0, of many some at equal distances on a logarithmic axis."""
    pairs = [
        (float(index + 1), value)
        for index, value in zip(spectrum.index, spectrum.values, strict=True)
        if value is not None and value > 0
    ]
    if len(pairs) <= MOST_POINTS:
        return pairs
    last = math.log(pairs[-1][0])
    steps = {round(MOST_POINTS * math.log(place) / last): (place, value) for place, value in pairs}
    return [pairs[0], *(pair for pair in steps.values() if pair != pairs[0])]


def _tip(spectrum: Spectrum, cell: Cell | None) -> str:
    known = [value for value in spectrum.values if value is not None]
    ends = f"largest {wording.figures(known[0], 3)}, smallest {wording.figures(known[-1], 3)}"
    kept = "" if cell is None else f"\nchosen: {cell.name} kept, rank {cell.rank} of {cell.of}"
    return f"{spectrum.address}: {ends}{kept}"


def chosen_cells(summary: TruncationSummary) -> dict[str, Cell]:
    """Address → the cell of the edit that the search leaves behind."""
    parts = (summary.chosen or "").split(JOINT)
    return {summary.by_edit[part].address: summary.by_edit[part] for part in parts if part in summary.by_edit}


def _place(address: str) -> tuple[str, str]:
    """Block and kind of matrix: `3.mlp.up` is `3`, `mlp.up`."""
    block, _, kind = address.partition(".")
    return (block, kind) if block.isdecimal() and kind else ("", address)
