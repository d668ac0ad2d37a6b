"""The charts of a comparison: paired differences with their intervals, a row per edit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import altair as alt
import pandas as pd

from lesion.report import plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion.report.values import Estimate
from lesion.studies.comparison.findings import shown
from lesion.studies.comparison.items import row_name
from lesion.studies.comparison.result import Compared, ComparisonSummary, Pair

MOST = 24
"""Rows of a chart; of more edits the unedited models and those that differ most are drawn."""
LONGEST = 28
"""Characters of an edit at its row."""
Of = Callable[[Compared], Estimate | None]


def difference(cell: Compared) -> Estimate | None:
    """What the first chart draws."""
    return cell.difference


def extra_drop(cell: Compared) -> Estimate | None:
    """What the second chart draws."""
    return cell.extra_drop


def differences(summary: ComparisonSummary, pair: Pair, task: str, of: Of = difference) -> alt.LayerChart | None:
    """A row per edit of a task with the paired difference and its interval; None where there is none.

    Args:
        summary: of the pair.
        pair: which two sides.
        task: which task.
        of: the number of each edit: `difference` or `extra_drop`.
    """
    scored = summary.task(task).scored
    cells = _chosen([cell for cell in pair.of_task(task) if _known(of(cell))], of)
    if not cells:
        return None
    scale, named = 1.0 if scored else 100.0, "difference" if of is difference else "extra drop"
    names = [_name(cell) for cell in cells]
    if len(set(names)) < len(names):  # edits that differ in what was cut away have rows of their own
        names = [cell.edit for cell in cells]
    rows = []
    for name, cell in zip(names, cells, strict=True):
        estimate = of(cell)
        assert estimate is not None
        assert estimate.value is not None
        low, high = (end if end is not None else estimate.value for end in (estimate.low, estimate.high))
        rows.append(
            {"y": name, "x": scale * estimate.value, "low": scale * low, "high": scale * high}
            | {"colour": _colour(estimate), "tip": _tip(pair, cell, estimate, named, scored=scored)}
            | {"model": row_name(summary, pair, cell), "task": task, "edit": pair.b}
        )
    frame = pd.DataFrame(rows)
    most = max(float(frame[["low", "high"]].abs().max().max()), 1e-9) * 1.08
    unit = "nats" if scored else "points"
    b, a = (wording.short(name, LONGEST) for name in (pair.b, pair.a))
    title = f"{b} minus {a}, {unit}" if of is difference else f"drop in {b} minus drop in {a}, {unit}"
    chart: alt.LayerChart = plots.forest(frame, Axis(wording.printable(title), -most, most))
    return chart.properties(height=max(60, 20 * len(cells)))


def _known(estimate: Estimate | None) -> bool:
    return estimate is not None and estimate.value is not None


def _chosen(cells: Sequence[Compared], of: Of) -> list[Compared]:
    """The unedited models and the edits that differ most, in the order in which they came."""

    def size(cell: Compared) -> tuple[bool, float]:
        estimate = of(cell)
        return not cell.unedited, -abs(estimate.value or 0.0) if estimate else 0.0

    kept = sorted(cells, key=size)[:MOST]
    return [cell for cell in cells if cell in kept]


def _name(cell: Compared) -> str:
    return "unedited" if cell.unedited else wording.short(cell.edit, LONGEST)


def _colour(estimate: Estimate) -> str:
    if not shown(estimate):
        return theme.SOFT
    return theme.tone(0) if (estimate.value or 0.0) > 0 else theme.tone(1)


def legend(of: Of = difference) -> tuple[Series, ...]:
    """What the colours of the rows mean."""
    more, less = ("more right", "fewer right") if of is difference else ("larger drop", "smaller drop")
    return (
        Series(f"{more} (corrected p ≤ .05)", colour=theme.tone(0), area=True),
        Series(f"{less} (corrected p ≤ .05)", colour=theme.tone(1), area=True),
        Series("no difference shown", colour=theme.SOFT, area=True),
    )


def _tip(pair: Pair, cell: Compared, estimate: Estimate, named: str, *, scored: bool) -> str:
    """What pointing at a row shows; `named` is what its estimate is."""

    def number(value: float | None) -> str:
        if value is None:
            return wording.DASH
        return f"{value:.3g}".replace("-", wording.MINUS) if scored else wording.points(value)

    lines = [
        f"{_name(cell)}, {wording.counted(cell.items, 'item')}",
        f"{pair.a}: {number(cell.a.value)}; {pair.b}: {number(cell.b.value)}",
        f"{named} {number(estimate.value)} [{number(estimate.low)},{wording.SPACE}{number(estimate.high)}]",
        f"p {wording.p_value(estimate.p)}, corrected {wording.p_value(estimate.p_corrected)}",
    ]
    if cell.counts is not None:
        lines.append(f"gained {cell.counts.gained}, lost {cell.counts.lost}, wrong in both {cell.counts.both_wrong}")
    return "\n".join(lines)
