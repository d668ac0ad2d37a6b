"""What `lesion lab recall` prints: the full model, truncations beside their controls, and the two phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.report import wording
from lesion.report.recall_groups import finding, name, told
from lesion.report.recall_prose import phases
from lesion.report.recall_rows import Cuts, Row, by_matrix, central

COLUMNS = ("clean accuracy", "p τ", "p ȳ", "clean loss", "noisy loss")
COLUMN_KEYS = ("clean_accuracy", "p_noise", "p_correct", "clean_loss", "noisy_loss")


def text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of one training's `summary.json`."""
    table = _table("Truncations", ("", "kept", *COLUMNS, "random: accuracy", "random: p τ"))
    table.add_row("full model", "", *_numbers(summary["full"]), "", "", end_section=True)
    found = by_matrix(summary)
    for matrix in central(list(found)):
        for label, kept, row, random in lines(found[matrix]):
            table.add_row(label, kept, *_numbers(row), *random)
        table.add_section()
    caption = (
        "top and bottom: the largest or smallest singular values kept. Random: projections of the same rank, mean and"
        f" range of draws. Noisy loss: its floor is H(α) = {summary['floor']:.3f} nats. More: summary.json."
    )
    return Group(table, Text(caption, style="dim"), *(Text(sentence) for sentence in phases(summary)))


def lines(cuts: Cuts) -> list[tuple[str, str, Row, tuple[str, str]]]:
    """The rows of a matrix: what it is, how much is kept, its numbers, and the random projections beside it."""
    found: list[tuple[str, str, Row, tuple[str, str]]] = [
        (f"{cuts.matrix} deleted", "0", cuts.deleted, ("", "")),
        (f"{cuts.matrix} without its top", str(cuts.without_top["rank"]), cuts.without_top, ("", "")),
    ]
    for side, rows in (("top", cuts.top), ("bottom", cuts.bottom)):
        for row in rows:
            drawn = cuts.drawn(row["rank"], "clean_accuracy"), cuts.drawn(row["rank"], "p_noise")
            random = tuple("" if one is None else f"{one.mean:.3f} [{one.least:.3f}, {one.most:.3f}]" for one in drawn)
            kept = f"{wording.keep(row['keep'])} ({row['rank']})"
            found.append((f"{cuts.matrix} {side}", kept, row, (random[0], random[1]) if side == "top" else ("", "")))
    return found


def sweep_text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of a study: means over seeds, with the lowest and the highest."""
    tables: list[RenderableType] = []
    for group in summary["groups"]:
        title = f"{name(group)}; {wording.counted(len(group['seeds']), 'seed')}"
        table = _table(title, ("", "kept", *COLUMNS, "beyond random: accuracy", "beyond random: p τ"))
        table.add_row("full model", "", *_spreads(group["full"]), "", "", end_section=True)
        names = central(list(dict.fromkeys(row["matrix"] for row in group["truncated"])))
        for row in group["truncated"]:
            if row["matrix"] in names and row["control"] != "random":
                beyond = row.get("beyond")
                differences = ("", "") if beyond is None else (told(beyond[n], sign=True) for n in COLUMN_KEYS[:2])
                kept = "" if row["keep"] is None else wording.keep(row["keep"])
                label = f"{row['matrix']} {row['control'] or row['side']}"
                table.add_row(label, f"{kept} ({row['rank']})".strip(), *_spreads(row), *differences)
        tables += [table, Text(finding(group).sentences[0] + "\n")]
    caption = (
        "Means over seeds, in brackets the lowest and the highest. Random projections: mean of the draws of a seed."
    )
    return Group(*tables, Text(caption, style="dim"))


def _numbers(row: Row) -> list[str]:
    return [f"{row[name]:.3f}" for name in COLUMN_KEYS]


def _spreads(row: Mapping[str, Any]) -> list[str]:
    return [told(row[name]) for name in COLUMN_KEYS]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right")
    return table
