"""The spectra of a truncation search as inline SVG: singular values, and what the chosen edit keeps of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from lesion.report import scales, wording
from lesion.report.scales import Scale
from lesion.studies.truncation.cells import JOINT, Cell, Search, Spectrum
from lesion.studies.truncation.charts import BOTTOM, LEFT, RIGHT, TOP, drawn, swatch

MOST_COLOURS = 8
"""More spectra than this in one panel are drawn in grey."""


def panels(search: Search) -> list[tuple[str, list[Spectrum]]]:
    """A panel per kind of matrix: a heading and its spectra; those without a value above 0 are left out."""
    known = [one for one in search.spectra if any(value > 0 for value in one.values)]
    kinds: dict[str, list[Spectrum]] = {}
    for one in known:
        kinds.setdefault(_kind(one.address), []).append(one)
    return list(kinds.items())


def chart(search: Search, of: Sequence[Spectrum], size: tuple[int, int]) -> Markup:
    """Singular values against their number, both logarithmic; shaded: what the chosen edit keeps of its matrix."""
    width, height = size
    values = [value for one in of for value in one.values if value > 0]
    last = max(one.places[-1] for one in of)
    x = scales.ratios([1.0, float(last)], LEFT, width - RIGHT)
    x = Scale(x.low, x.high, x.start, x.end, tuple((v, t) for v, t in x.ticks if v >= 1), logarithmic=True)
    y = scales.ratios(values, height - BOTTOM, TOP)
    parts = scales.axes(x, y, ("number of the singular value", "singular value"), height)
    cut = chosen_cells(search)
    strokes: list[Markup] = []
    hits: list[Markup] = []
    for index, one in enumerate(of):
        cell = cut.get(one.address)
        if cell is not None:
            parts.append(_kept(cell, x, y))
        at = [(x.at(float(place)), y.at(value)) for place, value in zip(one.places, one.values, strict=True)]
        faint = not _coloured(of, cut) and cell is None
        tone = 6 if faint else index if _coloured(of, cut) else 1
        line = Markup('<g class="t{}"><path class="{}" d="M{}"/></g>').format(
            tone, "error" if faint else "stroke", "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
        )
        strokes.insert(0 if faint else len(strokes), line)  # the chosen one lies on top
        told = (
            f"{one.address}: largest {wording.figures(one.values[0], 3)}, smallest {wording.figures(one.values[-1], 3)}"
        )
        if cell is not None:
            told += f"\nchosen: {cell.name} kept, rank {cell.rank} of {cell.of}"
        hits.append(Markup('<circle class="point" data-tip="{}" cx="{:.1f}" cy="{:.1f}" r="6"/>').format(told, *at[0]))
    return drawn(
        "Singular values against their number; the numbers stand in spectra.csv.", size, [*parts, *strokes, *hits]
    )


def legend(search: Search, of: Sequence[Spectrum]) -> list[tuple[Markup, str]]:
    """A picture and an address per spectrum; beside the chosen one, and of many, the others are one entry."""
    cut = chosen_cells(search)
    if _coloured(of, cut):
        return [(swatch(index, "stroke"), one.address) for index, one in enumerate(of)]
    there = [(swatch(1, "stroke"), one.address) for one in of if one.address in cut]
    others = f"{len(of) - len(there)} {'others' if there else 'matrices'}"
    return [*there, (swatch(6, "error"), others)]


def _coloured(of: Sequence[Spectrum], cut: Mapping[str, Cell]) -> bool:
    """Whether every spectrum has its own colour: few of them, and none to stand out from the others."""
    return len(of) == 1 or (len(of) <= MOST_COLOURS and not any(one.address in cut for one in of))


def chosen_cells(search: Search) -> dict[str, Cell]:
    """Address → the cell of the chosen edit there."""
    parts = (search.chosen or "").split(JOINT)
    return {search.by_edit[part].address: search.by_edit[part] for part in parts if part in search.by_edit}


def _kept(cell: Cell, x: Scale, y: Scale) -> Markup:
    if cell.rank == 0:
        return Markup("")
    first, last = (1, cell.rank) if cell.side == "top" else (cell.of - cell.rank + 1, cell.of)
    left, right = x.at(max(x.low, first - 0.5)), x.at(last + 0.5)
    return Markup('<rect class="baseband" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
        left, y.end, max(2.0, right - left), y.start - y.end
    )


def _kind(address: str) -> str:
    block, _, rest = address.partition(".")
    return rest if block.isdecimal() and rest else address
