"""The heat maps of a truncation search: layer × keep for every matrix and side, against the unedited model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import altair as alt
import pandas as pd

from lesion.report import heatmap, theme, wording
from lesion.report.blocks import Figure, Panel, Series
from lesion.studies.truncation.numbers import (
    label_text,
    log_probability,
    nats,
    percent_estimate,
    points_change,
)
from lesion.studies.truncation.result import Cell, Outcome, TruncationSummary

Kind = Literal["screen", "accuracy", "gold"]
FINE = {"accuracy": 0.05, "gold": 0.2, "screen": 0.2}
"""Changes of about this size (in 0…1, or nats) are told apart beside much larger losses: the colour is logarithmic."""
LEAST_FULL = 0.01
MOST_CELLS = 8_000
"""A page draws at most so many cells of maps; further measures stand in the CSV file only."""
MOST_PANELS = 16
"""A figure has at most so many panels; the next go on in another one, which has no file."""
MANY_LAYERS = 10
"""Maps of more layers than this stand above one another, so that cells keep room for their numbers."""
COLUMNS = ["x", "y", "value", "text", "tip", "marked"]


@dataclass(frozen=True)
class Measure:
    """What the colour shows: the change in accuracy, or in the mean log-probability of the gold answers, of a task.

    That of the screen is over all tasks; its task is "".
    """

    kind: Kind
    task: str = ""

    @property
    def name(self) -> str:
        """As a heading."""
        if self.kind == "screen":
            return "Screen of all cells: gold log-probability"
        return f"{self.task}: {'accuracy' if self.kind == 'accuracy' else 'gold log-probability'}"

    def amount(self, value: float) -> str:
        """A difference in the measure's unit: `3.3 points`, `0.31 nats`."""
        if self.kind == "accuracy":
            return f"{wording.points(value, 0 if value >= 0.1 else 1)} points"
        return f"{value:.2g} nats"


@dataclass(frozen=True)
class Map:
    """One matrix and side: a row per keep, a column per layer; `frame` is that of `heatmap.heat`."""

    matrix: str
    side: str
    layers: tuple[int, ...]
    rows: tuple[str, ...]
    frame: pd.DataFrame

    @property
    def shows(self) -> bool:
        """Whether a cell has a number or a sign: a screen leaves whole matrices without one."""
        return bool(self.layers) and bool((self.frame["text"] != "").any())

    @property
    def title(self) -> str:
        """`mlp.up, top of the spectrum kept`."""
        return f"{self.matrix}, {self.side} of the spectrum kept"


@dataclass(frozen=True)
class Maps:
    """All maps of one measure in one scale: the colour is full at the largest change, `full` (in 0…1, or nats)."""

    measure: Measure
    full: float
    maps: tuple[Map, ...]


def measures(summary: TruncationSummary) -> list[Measure]:
    """What the colour can show, the screen first, then of each task what the search maximises first.

    The screen alone has seen every cell; the other maps have a number here and there when there was one.
    """
    of_tasks = [
        measure
        for task in summary.tasks
        for measure in (Measure("accuracy", task.name), Measure("gold", task.name))[:: -1 if summary.by_gold else 1]
    ]
    return [
        measure
        for measure in (Measure("screen"), *of_tasks)
        if any(change(summary, cell, measure) is not None for cell in summary.cells)
    ]


def change(summary: TruncationSummary, cell: Cell, measure: Measure) -> float | None:
    """Edited minus unedited on the same validation items; None where not evaluated in full, or collapsed."""
    if measure.kind == "screen":
        return cell.screen
    outcome = cell.on(measure.task)
    if outcome is None or outcome.collapsed or not cell.complete:
        return None
    if measure.kind == "accuracy":
        return outcome.drop.negative.value
    return summary.gold_change(outcome)


def all_maps(summary: TruncationSummary) -> list[Maps]:
    """The maps of every measure, the first ones of those that fit a page.

    A cell that was not made because it keeps the same components as another shows that other's numbers.
    """
    cells = len({(cell.layer, cell.matrix, cell.side) for cell in summary.cells}) * len(_keeps(summary))
    return [_maps(summary, measure) for measure in measures(summary)[: max(1, MOST_CELLS // max(1, cells))]]


def figures(summary: TruncationSummary, maps: Maps, name: str) -> list[Figure]:
    """A panel per matrix and side; what does not fit one figure stands in further ones.

    Args:
        summary: of the search.
        maps: of one measure.
        name: of the first figure's file; none where it is empty.
    """
    drawn = []
    for start in range(0, len(maps.maps), MOST_PANELS):
        some = maps.maps[start : start + MOST_PANELS]
        if any(len(each.layers) > MANY_LAYERS for each in some):
            charts = tuple(_chart(maps, each).properties(title=each.title) for each in some)
            panels: tuple[Panel, ...] = (Panel(charts),)
        else:
            panels = tuple(Panel((_chart(maps, each),), each.title) for each in some)
        drawn.append(Figure(name if start == 0 else "", panels, _caption(summary, maps), _legend(maps)))
    return drawn


def _chart(maps: Maps, of: Map) -> alt.LayerChart:
    return heatmap.heat(
        of.frame,
        "layer",
        "kept · rank",
        full=maps.full,
        columns=of.layers,
        rows=of.rows,
        height=24,
        bend=FINE[maps.measure.kind],
    )


def _legend(maps: Maps) -> tuple[Series, ...]:
    amount = f"full colour at {maps.measure.amount(maps.full)}, logarithmic"
    return (
        Series(f"gained, {amount}", colour=theme.GAIN, area=True),
        Series(f"lost, {amount}", colour=theme.LOSS, area=True),
    )


def _caption(summary: TruncationSummary, maps: Maps) -> str:
    measure = maps.measure
    accuracy = measure.kind == "accuracy"
    what = "accuracy, in points," if accuracy else "the mean log-probability of the gold answers, in nats,"
    if measure.kind == "screen":
        where = "the validation items of each task that the screen looked at"
    else:
        base = summary.base(measure.task)
        level = wording.percent(base.accuracy.value) if accuracy else f"{log_probability(base.gold)} nats"
        where = f"the validation items of {measure.task} (n = {base.items:,}, unedited {level})"
    boxed = " Boxed: the chosen edit." if summary.chosen else ""
    drawn = {(each.matrix, each.side) for each in maps.maps}
    left = sorted({f"{cell.matrix} ({cell.side})" for cell in summary.cells if (cell.matrix, cell.side) not in drawn})
    without = f" Not drawn, because no cell was evaluated in full: {wording.listed(left)}." if left else ""
    return f"{measure.name}. Change in {what} on {where}.{boxed}{without}"


def _keeps(summary: TruncationSummary) -> list[float]:
    return sorted({*summary.study.keep, *(cell.keep for cell in summary.cells)}, reverse=True)


def rank_of(keep: float, of: int) -> int:
    """How many of `of` components a keep leaves: ⌊keep · of⌋ in exact decimals, as the edit counts them."""
    return int(Fraction(str(keep)) * of)


def _maps(summary: TruncationSummary, measure: Measure) -> Maps:
    changes = [value for cell in summary.cells if (value := change(summary, cell, measure)) is not None]
    full = max(LEAST_FULL, *map(abs, changes), 0.0)
    sides = list(dict.fromkeys(cell.side for cell in summary.cells))
    maps = [_map(summary, measure, matrix, side) for matrix in summary.matrices for side in sides]
    return Maps(measure, full, tuple(each for each in maps if each.shows))


def _map(summary: TruncationSummary, measure: Measure, matrix: str, side: str) -> Map:
    of_matrix = [cell for cell in summary.cells if cell.matrix == matrix]
    cells = {(cell.layer, cell.keep): cell for cell in of_matrix if cell.side == side}
    # What keeps as many components of the same side is the same edit. None kept is the same on both sides.
    same = {(cell.layer, cell.rank): cell for cell in reversed(of_matrix) if cell.side == side or cell.rank == 0}
    full_rank = {cell.layer: cell.of for cell in of_matrix}
    layers = tuple(sorted({layer for layer, _ in cells}))
    entries: list[tuple[object, ...]] = []
    rows = []
    for keep in _keeps(summary):
        ranks = {layer: rank_of(keep, full_rank[layer]) for layer in layers}
        name = _row_name(keep, sorted(set(ranks.values())))
        before = len(entries)
        for layer in layers:
            cell = cells.get((layer, keep)) or same.get((layer, ranks[layer]))
            if ranks[layer] == full_rank[layer]:
                entries.append((layer, name, None, "=", "keeps all of the matrix: the unedited model", False))
            elif cell is not None:
                entries.append((layer, name, *_entry(summary, measure, cell, keep)))
        if len(entries) > before:
            rows.append(name)
    return Map(matrix, side, layers, tuple(rows), pd.DataFrame(entries, columns=COLUMNS).astype({"value": float}))


def _row_name(keep: float, ranks: Sequence[int]) -> str:
    span = "" if not ranks else str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}{wording.DASH}{ranks[-1]}"
    return f"{wording.keep(keep) if keep else 'removed'} · {span}"


def _entry(
    summary: TruncationSummary, measure: Measure, cell: Cell, keep: float
) -> tuple[float | None, str, str, bool]:
    """Value (losses above 0), text, tip and mark of a cell as `heatmap.heat` takes them."""
    tip = cell_tip(summary, cell)
    if cell.keep != keep:
        tip += f"\n{wording.keep(keep)} leaves the same components as {wording.keep(cell.keep)}: the same edit"
    marked = cell.edit == summary.chosen
    value, outcome = change(summary, cell, measure), cell.on(measure.task)
    if value is not None:
        return 0.0 - value, _short(value, measure.kind), tip, marked
    text = "×" if cell.eliminated is not None else "≡" if outcome is not None and outcome.collapsed else ""
    return None, text, tip, marked


def _short(value: float, kind: Kind) -> str:
    """A change for a cell: `+3.3`, `−12` points; `+0.31`, `−2.5` nats."""
    if kind != "accuracy":
        return "0" if abs(value) < 0.005 else nats(value, 2 if abs(value) < 1 else 1 if abs(value) < 10 else 0)
    text = f"{abs(100 * value):.{0 if abs(value) >= 0.0995 else 1}f}"
    return "0" if float(text) == 0 else f"{'+' if value > 0 else wording.MINUS}{text}"


def cell_tip(summary: TruncationSummary, cell: Cell) -> str:
    """What pointing at a cell shows: its place, and its numbers on every task, a line each."""
    lines = [f"{cell.address}, {cell.side} {wording.keep(cell.keep)}: rank {cell.rank} of {cell.of}"]
    if not cell.outcomes and cell.eliminated is None:
        lines.append("not evaluated in full: the screen left it out")
    if cell.screen is not None:
        lines.append(f"screen: {nats(cell.screen)} nats on gold answers")
    lines += [_outcome_line(summary, outcome) for outcome in cell.outcomes]
    if cell.eliminated is not None:
        lines.append(f"given up after {wording.counted(cell.eliminated, 'item')}")
    if cell.edit == summary.chosen:
        lines.append("chosen")
    return "\n".join(lines)


def _outcome_line(summary: TruncationSummary, outcome: Outcome) -> str:
    line = f"{outcome.task}: {percent_estimate(outcome.accuracy)}"
    if outcome.drop.value is not None:
        line += f", {points_change(outcome.drop.negative)}"
    gold = summary.gold_change(outcome)
    line += "" if gold is None else f", gold {nats(gold)} nats"
    line += f", n = {outcome.items:,}"
    return line + (f"; {label_text(outcome.label, outcome.label_share)}: collapsed" if outcome.collapsed else "")
