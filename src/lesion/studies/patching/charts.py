"""The charts of a patching study: heat maps of blocks × classes of positions, one for each kind of place."""

from __future__ import annotations

import altair as alt
import pandas as pd

from lesion.report import heatmap, theme, wording
from lesion.studies.patching.findings import HALF, WHERE, share, significant
from lesion.studies.patching.result import Direction, PatchedCell, PatchedTask
from lesion.studies.patching.study import Kind

TITLES: dict[Kind, str] = {
    "block": "Residual stream after the block",
    "attention": "What the attention adds",
    "mlp": "What the MLP adds",
    "head": "What a head gives",
}
LEGIBLE = 16
"""Up to so many blocks the cells of a map have room for a number."""
LEAST = 0.1
"""The colours of a map of heads are full at its largest effect, and at no less than this."""
HEAT = ["x", "y", "value", "text", "tip", "marked"]


def heat_map(task: PatchedTask, direction: Direction, kind: Kind) -> alt.LayerChart:
    """The share of the logit difference that a patch restores or breaks; boxed: at least half by its interval."""
    cells = task.of(direction, kind)
    positions = [name for name in WHERE if any(cell.position == name for cell in cells)]
    rows = [_row(task, cell) for name in positions for cell in cells if cell.position == name]
    return heatmap.heat(
        pd.DataFrame(rows, columns=HEAT),
        "block",
        "",
        full=1.0,
        columns=task.layers,
        rows=[label(name) for name in positions],
        colours=(theme.SHARE, theme.LOSS),
        height=26,
    )


def head_map(task: PatchedTask, direction: Direction, position: str) -> alt.LayerChart:
    """The same of every head at one class of positions: blocks × heads."""
    cells = [cell for cell in task.of(direction, "head") if cell.position == position]
    rows = [_row(task, cell) | {"y": cell.head} for cell in cells]
    return heatmap.heat(
        pd.DataFrame(rows, columns=HEAT),
        "block",
        "head",
        full=max(LEAST, *(abs(cell.effect.value or 0.0) for cell in task.of(direction, "head"))),
        columns=task.layers,
        rows=sorted({cell.head for cell in cells if cell.head is not None}),
        colours=(theme.SHARE, theme.LOSS),
        height=20,
    )


def label(position: str) -> str:
    """A class of positions as a row is called."""
    return position if position != "next" else "token behind"


def _row(task: PatchedTask, cell: PatchedCell) -> dict[str, object]:
    verb = "restores" if cell.direction == "denoise" else "breaks"
    p = "" if cell.effect.p_corrected is None else f"; corrected p {wording.p_value(cell.effect.p_corrected)}"
    moved = "rises" if cell.direction == "denoise" else "falls"
    nats = cell.log_probability.value
    tip = (
        f"{_name(cell)}\nat the {WHERE[cell.position]}"
        f" ({wording.counted(cell.items, 'pair')})\n{verb} {share(cell.effect)}{p}\nlog-probability of the right token"
        f" {moved} by {wording.DASH if nats is None else wording.figures(nats, 3)} nats"
    )
    value = cell.effect.value
    text = wording.points(value, 0) if len(task.layers) <= LEGIBLE else ""
    sure = significant(cell) and (cell.place == "head" or (cell.effect.low or 0.0) >= HALF)
    return {"x": cell.layer, "y": label(cell.position), "value": value, "text": text, "tip": tip, "marked": sure}


def _name(cell: PatchedCell) -> str:
    if cell.place == "head":
        return wording.capital(wording.place("head", cell.layer, cell.head))
    return f"{TITLES[cell.place]}, block{wording.SPACE}{cell.layer}"
