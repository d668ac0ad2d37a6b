"""What `lesion lab memory` prints: where the noise lies, truncations beside controls, sizes, and slopes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.report import wording
from lesion.report.memory_charts import SIGNALS, TRIGGERS
from lesion.report.memory_prose import findings, part

MOST_ROWS = 4
"""At most so many ranks from each end of the spectrum are printed; summary.json has them all."""
MARKS = {"top": "▲", "bottom": "▼", "between": "◆", "tied": "=", "absent": wording.DASH, None: "?"}


def text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of a `summary.json` of the memory lab."""
    told = Text()
    for finding in findings(summary):
        told.append(f"{finding.subject}: ", style="bold").append(f"{finding.headline}\n")
    key = (
        f"{MARKS['top']} noise on top, {MARKS['bottom']} at the bottom, {MARKS['between']} between, {MARKS['tied']}"
        f" tied, {MARKS['absent']} absent, {MARKS[None]} draws of codes disagree; σ of the noise over the largest other"
        " σ after the first and the last step."
    )
    return Group(told, _truncations(summary), _sizes(summary), Text(key, style="dim"), _slopes(summary))


def shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of the ranks next to both ends of the spectrum."""
    rank = max(row["rank"] for row in rows)
    near = {k for k in range(rank + 1) if k < MOST_ROWS or rank - k < MOST_ROWS}
    wanted = [row for row in rows if row["rank"] in near and (row["control"] == "deletion" or row["rank"])]
    # Everything kept is the same from both sides.
    return [row for row in wanted if not (row["rank"] == rank and row["side"] == "bottom")]


def size_cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, Mapping[str, Any] | None]]]]:
    """The sweep as a table: per codes and size, the cell of every noise (its text, and its row)."""
    noises = sorted({row["noise"] for row in rows})
    found_rows = {(row["codes"], row["classes"], row["inputs"], row["noise"]): row for row in rows}
    found = []
    for kind in ("orthonormal", "gaussian"):
        sizes = list(dict.fromkeys((row["classes"], row["inputs"]) for row in rows if row["codes"] == kind))
        for classes, inputs in sizes:
            cells: list[tuple[str, Mapping[str, Any] | None]] = []
            for noise in noises:
                of = found_rows.get((kind, classes, inputs, noise))
                cells.append(("" if of is None else " → ".join(_place(of["places"][i]) for i in (0, -1)), of))
            several = f", {inputs} inputs" if inputs != classes else ""
            found.append((f"{kind}, m = {classes}{several}", cells))
    return found


def _place(place: Mapping[str, Any]) -> str:
    return f"{MARKS[place['side']]}{wording.SPACE}{place['ratio']:.2f}"


def _truncations(summary: Mapping[str, Any]) -> Table:
    rows = summary["truncated"]
    rank = max(row["rank"] for row in rows)
    table = _table("Truncations of W", ("kept", "draws", "accuracy", "p f*", "p common", "clean loss"))
    for row in shown(rows):
        table.add_row(
            part(row, rank),
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
    for name, cells in size_cells(rows):
        table.add_row(name, *(told for told, _ in cells))
    return table


def _slopes(summary: Mapping[str, Any]) -> Table:
    found = summary["first_step"]
    title = f"First gradient step: powers of the vocabulary, α = {found['noise']:g}"
    headings = ("signal", "trigger", "on batches", f"{100 * found['level']:g} % interval", "exact", "two largest V")
    table = _table(title, headings, left=2)
    for row in found["slopes"]:
        low, high = row.get("low"), row.get("high")
        told = f"[{number(low)}, {number(high)}]" if number(low) != wording.DASH else ""
        sampled = number(row.get("slope")) if "slope" in row else ""
        exactly = number(row["exact"]), number(row["late"])
        table.add_row(SIGNALS[row["signal"]], TRIGGERS[row["trigger"]], sampled, Text(told), *exactly)
    return table


def number(value: float | None) -> str:
    """Three decimals; a dash where there is no number."""
    if value is None or math.isnan(value):
        return wording.DASH
    return f"{value:.3f}".replace("-", wording.MINUS)


def _table(title: str, headings: Sequence[str], left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < left else "right")
    return table
