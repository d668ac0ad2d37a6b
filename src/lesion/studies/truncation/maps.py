"""The heat maps of a truncation search: layer × keep for every matrix and side, against the unedited model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lesion.report import wording
from lesion.report.heat import heat_class
from lesion.report.wording import signed
from lesion.studies.truncation.cells import Cell, Outcome, Search

Kind = Literal["screen", "accuracy", "gold"]
WORTH_FULL = {"accuracy": 0.1, "gold": 1.0, "screen": 1.0}
"""A loss of so much (in 0…1, or nats) has the full colour unless a gain is larger: gains are small beside losses."""
LEAST_FULL = {"accuracy": 0.01, "gold": 0.01, "screen": 0.01}
MOST_SQUARES = 16_000
"""A page draws at most so many squares; further measures stand in the CSV file only."""


@dataclass(frozen=True)
class Measure:
    """What the colour says: the change in accuracy, or in the mean log-probability of the gold answers, of one task.

    That of the screen is over all tasks; its task is "".
    """

    kind: Kind
    task: str = ""

    @property
    def name(self) -> str:
        """For the chooser."""
        if self.kind == "screen":
            return "screen of all cells: gold log-probability"
        return f"{self.task}: {'accuracy' if self.kind == 'accuracy' else 'gold log-probability'}"


@dataclass(frozen=True)
class Square:
    """One place of a map: the style class of its colour, its text, what pointing at it tells, and the edit."""

    style: str
    text: str
    told: str
    cell: str | None = None


@dataclass(frozen=True)
class Map:
    """One matrix and side: a row per keep with its ranks in words, a column per layer."""

    matrix: str
    side: str
    layers: tuple[int, ...]
    rows: tuple[tuple[str, str, tuple[Square, ...]], ...]


@dataclass(frozen=True)
class Figure:
    """All maps of one measure, in one scale: the colour is full at `full` (in 0…1, or nats)."""

    measure: Measure
    full: float
    clipped: bool
    maps: tuple[Map, ...]


def figures(search: Search) -> list[Figure]:
    """A figure per task and measure, the first ones of those that fit a page.

    A cell that was not made because it keeps the same components as another shows that other's numbers.
    """
    squares = len({(cell.layer, cell.matrix, cell.side) for cell in search.cells}) * len(_keeps(search))
    return [_figure(search, measure) for measure in measures(search)[: max(1, MOST_SQUARES // max(1, squares))]]


def measures(search: Search) -> list[Measure]:
    """What colours can say, the screen first, then of each task the objective first: what any cell has a number of.

    The screen alone has seen every cell; the other maps have a number here and there when there was one.
    """
    of_tasks = [
        measure
        for task in search.tasks
        for measure in (Measure("accuracy", task.name), Measure("gold", task.name))[:: -1 if search.by_gold else 1]
    ]
    return [
        measure
        for measure in (Measure("screen"), *of_tasks)
        if any(change(search, cell, measure) is not None for cell in search.cells)
    ]


def change(search: Search, cell: Cell, measure: Measure) -> float | None:
    """Edited minus unedited on the same validation items; None where it was not asked in full, or collapsed."""
    if measure.kind == "screen":
        return cell.screen
    outcome = cell.outcomes.get(measure.task)
    if outcome is None or outcome.collapsed or not cell.complete:
        return None
    if measure.kind == "accuracy":
        return None if outcome.drop is None else -outcome.drop
    base = search.base(measure.task)
    return None if base is None or base.gold is None or outcome.gold is None else outcome.gold - base.gold


def nats(value: float | None, digits: int | None = None) -> str:
    """A change of log-probability with its sign: `+0.31`, a small one `−0.004`; unknown as a dash."""
    if value is None:
        return wording.DASH
    text = f"{abs(value):.{digits if digits is not None else 2 if abs(value) >= 0.1 else 3}f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else wording.MINUS}{text}"


def nats_interval(low: float | None, high: float | None) -> str:
    """`[−0.10, 0.31]`, of small ends with a digit more; empty when unknown."""
    if low is None or high is None:
        return ""
    digits = 2 if max(abs(low), abs(high)) >= 0.1 else 3
    return f"[{nats(low, digits)},{wording.SPACE}{nats(high, digits)}]".replace("+", "")


def level(value: float | None) -> str:
    """A log-probability: `−1.234`; unknown as a dash."""
    return wording.DASH if value is None else f"{value:.3f}".replace("-", wording.MINUS)


def rank_of(keep: float, of: int) -> int:
    """How many of `of` components a keep leaves: ⌊keep · of⌋ in exact decimals, as the edit counts them."""
    return int(Fraction(str(keep)) * of)


def _keeps(search: Search) -> list[float]:
    asked = [float(keep) for keep in search.search.get("keep") or ()]
    return sorted({*asked, *(cell.keep for cell in search.cells)}, reverse=True)


def _figure(search: Search, measure: Measure) -> Figure:
    changes = [value for cell in search.cells if (value := change(search, cell, measure)) is not None]
    gain, loss = max(0.0, *changes, 0.0), max(0.0, *(-value for value in changes), 0.0)
    full = max(gain, min(loss, WORTH_FULL[measure.kind]), LEAST_FULL[measure.kind])
    sides = list(dict.fromkeys(cell.side for cell in search.cells))
    maps = [_map(search, measure, matrix, side, full) for matrix in search.matrices for side in sides]
    return Figure(measure, full, loss > full, tuple(one for one in maps if one.layers))


def _map(search: Search, measure: Measure, matrix: str, side: str, full: float) -> Map:
    of_matrix = [cell for cell in search.cells if cell.matrix == matrix]
    cells = {(cell.layer, cell.keep): cell for cell in of_matrix if cell.side == side}
    # One component kept or none: what keeps as many of the same side is the same edit. None is the same on both sides.
    same = {(cell.layer, cell.rank): cell for cell in reversed(of_matrix) if cell.side == side or cell.rank == 0}
    full_rank = {cell.layer: cell.of for cell in of_matrix}
    layers = tuple(sorted({layer for layer, _ in cells}))
    rows = []
    for keep in _keeps(search):
        ranks = {layer: rank_of(keep, full_rank[layer]) for layer in layers}
        squares = tuple(
            _square(search, measure, cells.get((layer, keep)) or same.get((layer, ranks[layer])), full, keep,
                    whole=ranks[layer] == full_rank[layer])
            for layer in layers
        )  # fmt: skip
        if any(square.style != "empty" or square.text for square in squares):
            different = sorted(set(ranks.values()))
            told = str(different[0]) if len(different) == 1 else f"{different[0]}{wording.DASH}{different[-1]}"
            rows.append((wording.keep(keep) if keep else "removed", f"rank{wording.SPACE}{told}", squares))
    return Map(matrix, side, layers, tuple(rows))


def _square(search: Search, measure: Measure, cell: Cell | None, full: float, keep: float, *, whole: bool) -> Square:
    if whole:
        return Square("empty", "=", "keeps all of the matrix: the unedited model")
    if cell is None:
        return Square("empty", "", "not part of the search")
    told = told_of(search, cell)
    if cell.keep != keep:
        told += f"\nA keep of {wording.keep(keep)} leaves the same components as {wording.keep(cell.keep)}: one edit."
    mark = " critical" if cell.edit == search.chosen else ""
    value = change(search, cell, measure)
    if value is not None:
        return Square(heat_class(-value, full) + mark, _short(value, measure.kind), told, cell.edit)
    outcome = cell.outcomes.get(measure.task)
    text = "×" if cell.eliminated is not None else "≡" if outcome is not None and outcome.collapsed else ""
    return Square(f"none{mark}", text, told, cell.edit)


def _short(value: float, kind: Kind) -> str:
    """A change for a small square: `+3.3`, `−12` points; `+0.31`, `−2.5` nats."""
    if kind != "accuracy":
        return "0" if abs(value) < 0.005 else nats(value, 2 if abs(value) < 1 else 1 if abs(value) < 10 else 0)
    text = f"{abs(100 * value):.{0 if abs(value) >= 0.0995 else 1}f}"
    return "0" if float(text) == 0 else f"{'+' if value > 0 else wording.MINUS}{text}"


def told_of(search: Search, cell: Cell) -> str:
    """What pointing at a cell tells: its place, and its numbers on every task, a line each."""
    lines = [f"{cell.address}, {cell.side} {wording.keep(cell.keep)}: rank {cell.rank} of {cell.of}"]
    if not cell.outcomes and cell.eliminated is None:
        lines.append("not asked in full: the screen left it out" if search.screened else "not asked")
    if cell.screen is not None:
        lines.append(f"screen: {nats(cell.screen)} nats on gold answers")
    lines += [_told(search, outcome) for outcome in cell.outcomes.values()]
    if cell.eliminated is not None:
        lines.append(f"given up after {wording.counted(cell.eliminated, 'item')}")
    if cell.edit == search.chosen:
        lines.append("chosen")
    return "\n".join(lines)


def _told(search: Search, outcome: Outcome) -> str:
    told = f"{outcome.task}: {wording.percent(outcome.accuracy)} {wording.interval(outcome.low, outcome.high)}"
    if outcome.drop is not None:
        low, high = (None if end is None else -end for end in (outcome.drop_high, outcome.drop_low))
        told += f", {signed(-outcome.drop)} points {wording.interval(low, high)}"
    base = search.base(outcome.task)
    if outcome.gold is not None and base is not None and base.gold is not None and base.items == outcome.items:
        told += f", gold {nats(outcome.gold - base.gold)} nats"
    told += f", n = {outcome.items:,}"
    if outcome.collapsed:
        told += f"; {label(outcome.label, outcome.label_share)}: collapsed"
    return told


def label(text: str | None, share: float | None) -> str:
    """`says “A” to 98.0 % of the items`."""
    said = "gives one label" if text is None else f"says “{wording.short(text, 24)}”"
    return f"{said} to {wording.percent(share)} of the items"


def collapsed(cells: Sequence[Cell]) -> int:
    """How many cells give one label nearly always on a task."""
    return sum(bool(cell.collapsed) for cell in cells)
