"""Heat maps: a cell for every pair of a column and a row, the stronger in colour the further its value is from 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from lesion.report import theme
from lesion.report.plots import LINES, either, tip, unvalidated

MOST_WIDE = 1400
"""A chart asks for at most so much room, in pixels."""
LETTER = 0.55 * theme.TEXT
"""The width of a letter or digit, about."""
FITS = f"length(datum.text) < 2 || (width || {theme.WIDTH}) >= datum.room"
"""Whether a text is shown in its cell."""


@unvalidated
def heat(
    frame: pd.DataFrame,
    across: str,
    upright: str,
    *,
    full: float,
    columns: Sequence[Any] | None = None,
    rows: Sequence[Any] | None = None,
    colours: tuple[str, str] = (theme.LOSS, theme.GAIN),
    height: int = 28,
    bend: float = 0.0,
) -> alt.LayerChart:
    """A cell for every pair of a column and a row, the stronger in colour the further its value is from 0.

    Args:
        frame: columns x, y, value (None: a dashed outline), text (in the cell, where the cell is wide enough for it;
            perhaps of several lines), tip, marked (boxed); further columns go along, so that a click can open what a
            cell stands for (`edit`, `model`, `task`).
        across: title of the columns.
        upright: title of the rows.
        full: the value, without its sign, at which the colour is full.
        columns: in order; by default as they come.
        rows: likewise.
        colours: of values above and below 0.
        height: of a row, in pixels.
        bend: values of about this size and below are told apart as well as large ones (a symmetric logarithm); 0: the
            colour is in proportion to the value.
    """
    columns = list(dict.fromkeys(frame["x"])) if columns is None else list(columns)
    rows = list(dict.fromkeys(frame["y"])) if rows is None else list(rows)
    values = pd.to_numeric(frame["value"])
    widths = [_width(str(text), len(columns)) for text in frame["text"]]
    widest = min(MOST_WIDE, max(widths, default=0))
    label = max((len(line) for row in rows for line in str(row).split("\n")), default=0)
    least = min(MOST_WIDE, widest + round(min(170, LETTER * label)) + 18)
    cells = frame.assign(
        size=values.abs(),
        ink=[_ink(math.copysign(strength(abs(value), full, bend), value), colours) for value in values],
        room=widths,
    )
    base = alt.Chart()
    known = base.transform_filter("isValid(datum.value)")
    scale = {"type": "symlog", "constant": bend} if bend else {}
    opacity = alt.Opacity(
        field="size", type="quantitative", legend=None,
        scale=alt.Scale(domain=[0, full], range=[0, 1], clamp=True, **scale),
    )  # fmt: skip
    sign = either(alt.FillValue, "datum.value < 0", colours[1], colours[0])
    unknown = base.transform_filter("!isValid(datum.value)")
    layers = [
        unknown.mark_rect(fill=theme.PAPER, stroke=theme.LINE, strokeDash=[3, 2]),
        known.mark_rect(fill=theme.SHADE),
        known.mark_rect().encode(fill=sign, opacity=opacity),
        base.mark_text(
            lineBreak="\n",
            lineHeight=theme.TEXT + 2,
            dy=alt.ExprRef(f"-{(theme.TEXT + 2) / 2:g} * (length(split(datum.text, '\\n')) - 1)"),
        ).encode(
            text=alt.Text(field="text", type="nominal"),
            color=alt.Color(field="ink", type="nominal", scale=None, legend=None),
            opacity=either(alt.OpacityValue, FITS, 1, 0),
        ),
        base.transform_filter("datum.marked").mark_rect(fill=None, stroke=theme.INK, strokeWidth=2),
    ]
    # What the layers share stands above them once: Altair copies every layer several times.
    # In a file, and before a script runs, a map is as wide as its texts need; on the page it is moved sideways.
    wide = {"width": widest} if widest > theme.WIDTH else {}
    return alt.layer(*layers, data=cells, height=height * max(1, len(rows)), usermeta={"least": least}, **wide).encode(
        x=alt.X(
            field="x", type="ordinal", sort=None, scale=alt.Scale(domain=columns, padding=0.06),
            axis=alt.Axis(title=across, labelAngle=0, domain=False),
        ),
        y=alt.Y(
            field="y", type="ordinal", sort=None, scale=alt.Scale(domain=rows, padding=0.06),
            axis=alt.Axis(title=upright or None, maxExtent=180, labelLimit=170, domain=False, labelExpr=LINES),
        ),
        tooltip=tip(),
    )  # fmt: skip


def strength(size: float, full: float, bend: float = 0.0) -> float:
    """How strong the colour of a value without its sign is, in 0…1, before it is clamped."""
    return math.log1p(size / bend) / math.log1p(full / bend) if bend else size / full


def _ink(strength: float, colours: tuple[str, str]) -> str:
    """The colour of the text in a cell whose colour has this share of its full strength; NaN: a cell without one."""
    if math.isnan(strength):
        return theme.INK
    return theme.text_on(colours[strength < 0], round(min(1.0, abs(strength)), 2))


def _width(text: str, columns: int) -> int:
    """How wide a map of so many columns must be for a text to fit its cell."""
    return round(columns * (LETTER * max(map(len, text.split("\n"))) + 1))
