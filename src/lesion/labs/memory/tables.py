"""What `lesion lab memory` prints: where the noise lies, truncations beside controls, sizes, and slopes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.labs.memory.charts import TRIGGERS
from lesion.labs.memory.findings import findings
from lesion.labs.memory.size_findings import MARKS, Row, lines
from lesion.report import wording

SIGNALS = {"feed_forward": "feed-forward → τ", "value": "value → recall", "value_noise": "value → τ"}
FEW = 5
"""With so many noises a side and its ratio stand in one line of the terminal's table."""
MOST_ROWS = 4
"""At most so many ranks from each end of the spectrum are printed; summary.json has them all."""


def text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of a `summary.json` of the memory lab."""
    told = Text()
    for finding in findings(summary):
        told.append(f"{finding.subject}: ", style="bold").append(f"{' '.join(finding.headline)}\n")
    key = (
        f"{MARKS['top']} noise on top, {MARKS['bottom']} at the bottom, {MARKS['between']} between, {MARKS['tied']}"
        f" tied, {MARKS['absent']} absent, {MARKS[None]} draws of codes disagree; σ of the noise over the largest other"
        " σ, after the last step."
    )
    triggers = "; ".join(f"{name}: {what}" for name, what in TRIGGERS.items())
    return Group(
        told,
        _truncations(summary),
        _sizes(summary),
        Text(f"{key}\n", style="dim"),
        _slopes(summary),
        Text(f"{triggers}.", style="dim"),
    )


def told_once(rows: Sequence[Row]) -> list[Row]:
    """Every truncation once: everything and nothing are the same from both sides."""
    rank = max(row["rank"] for row in rows)
    return [
        row for row in rows if row["control"] or (row["rank"] and not (row["rank"] == rank and row["side"] == "bottom"))
    ]


def shown(rows: Sequence[Row]) -> list[Row]:
    """Rows of the ranks next to both ends of the spectrum."""
    rank = max(row["rank"] for row in rows)
    return [row for row in told_once(rows) if min(row["rank"], rank - row["rank"]) < MOST_ROWS]


def _truncations(summary: Mapping[str, Any]) -> Table:
    rows = summary["truncated"]
    rank = max(row["rank"] for row in rows)
    title = f"Truncations of W: components kept, of {rank}"
    table = _table(title, ("kept", "draws", "accuracy", "p f*", "p common", "clean loss"))
    for row in shown(rows):
        table.add_row(
            kept(row, rank),
            f"{row['draws']}" if row["draws"] > 1 else "",
            wording.percent(row["clean_accuracy"], 0),
            f"{row['p_correct']:.3f}",
            f"{row['p_noise']:.3f}",
            f"{row['clean_loss']:.3f}",
            style="dim" if row["control"] else "",
        )
    return table


def _sizes(summary: Mapping[str, Any]) -> RenderableType:
    rows = summary["sizes"]
    if not rows:
        return Text("No size of the sweep fits into this width.")
    noises = sorted({row["noise"] for row in rows})
    table = _table("Where the noise lies", ("codes and classes", *(f"α = {noise:g}" for noise in noises)))
    # Of many noises the numbers stand below the marks, so that 80 columns hold the names of the codes.
    between = wording.SPACE if len(noises) <= FEW else "\n"
    table.columns[0].min_width = len("orthonormal,")
    for line in lines(rows):
        table.add_row(line.name, *(_places(row, between) for row in line.rows))
    return table


def kept(row: Row, rank: int) -> str:
    """`19 smallest`, `19 random`, `all` or `none`."""
    if row["rank"] in (0, rank):
        return "all" if row["rank"] else "none"
    names = {"top": "largest", "bottom": "smallest", None: "random"}
    return f"{row['rank']} {names[row['side']]}"


def _places(row: Row | None, between: str) -> str:
    """`▼→▲ 1.20`: the sides after the first and the last step, and the last ratio."""
    if row is None:
        return ""
    first, last = row["places"][0], row["places"][-1]
    return f"{MARKS[first['side']]}→{MARKS[last['side']]}{between}{last['ratio']:.2f}"


def _slopes(summary: Mapping[str, Any]) -> Table:
    found = summary["first_step"]
    title = f"First gradient step: powers of the vocabulary, α = {found['noise']:g}"
    headings = ("signal", "trigger", "batches", f"{100 * found['level']:g} % interval", "exact", "last two")
    table = _table(title, headings, left=2)
    for row in found["slopes"]:
        low, high = row.get("low"), row.get("high")
        told = f"[{number(low)}, {number(high)}]" if number(low) != wording.DASH else ""
        sampled = number(row.get("slope")) if "slope" in row else ""
        exactly = number(row["exact"]), number(row["late"])
        table.add_row(SIGNALS[row["signal"]], row["trigger"], sampled, Text(told), *exactly)
    return table


def number(value: float | None) -> str:
    """Three decimals; a dash where there is no number."""
    if value is None or math.isnan(value):
        return wording.DASH
    return f"{value:.3f}".replace("-", wording.MINUS)


def _table(title: str, headings: Sequence[str], left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < left else "right", no_wrap=index > 0)
    return table
