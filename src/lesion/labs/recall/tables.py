"""What `lesion lab recall` prints: the full model, truncations beside their controls, and the two phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.labs.recall.findings import phases
from lesion.labs.recall.groups import decimals, finding, name, told
from lesion.labs.recall.rows import Cuts, Row, Spread, by_matrix, central
from lesion.report import wording

COLUMNS = ("clean accuracy", "p τ", "p ȳ", "clean loss", "noisy loss")
COLUMN_KEYS = ("clean_accuracy", "p_noise", "p_correct", "clean_loss", "noisy_loss")
COMPARED = ("clean_accuracy", "p_noise")
"""Of these the random projections' numbers stand beside."""

Line = tuple[str, str, Row, tuple[Spread | None, Spread | None]]


def text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of one training's `summary.json`, within 80 columns."""
    heads = ("clean\nacc.", "p τ", "p ȳ", "clean\nloss", "noisy\nloss", "random\nacc.", "random\np τ")
    table = _table("Truncations", ("", "kept", *heads))
    table.add_row("full model", "", *_numbers(summary["full"]), "", "", end_section=True)
    found = by_matrix(summary)
    for matrix in central(list(found)):
        for label, kept, row, random in lines(found[matrix]):
            means = ["" if one is None else decimals(one.mean, bare=True) for one in random]
            table.add_row(label, kept, *_numbers(row), *means)
        table.add_section()
    caption = (
        "top, bottom: the largest or smallest singular values kept. random: projections of the same rank, mean of"
        f" draws. Noisy loss: once ȳ is known, {decimals(summary['floor'])} nats is the least. Other matrices:"
        " summary.json."
    )
    return Group(table, Text(caption, style="dim"), *(Text(sentence) for sentence in phases(summary)))


def lines(cuts: Cuts) -> list[Line]:
    """The rows of a matrix: what it is, how much is kept, its numbers, and accuracy and p(τ) of random projections."""
    none = (None, None)
    found: list[Line] = [
        (f"{cuts.matrix} deleted", "", cuts.deleted, none),
        (f"{cuts.matrix} less top", "", cuts.without_top, none),
    ]
    for side, rows in (("top", cuts.top), ("bottom", cuts.bottom)):
        for row in rows:
            accuracy, p_noise = (cuts.drawn(row["rank"], number) for number in COMPARED)
            kept = wording.keep(row["keep"])
            found.append((f"{cuts.matrix} {side}", kept, row, (accuracy, p_noise) if side == "top" else none))
    return found


def sweep_text(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's account of a study, within 80 columns: means over seeds, with the lowest and the highest."""
    tables: list[RenderableType] = []
    for group in summary["groups"]:
        title = f"{name(group)}; {wording.counted(len(group['seeds']), 'seed')}"
        table = _table(title, ("", "kept", "acc.", "p τ", "noisy\nloss", "p τ beyond random"))
        table.add_row("full model", "", *_spreads(group["full"]), "", end_section=True)
        names = central(list(dict.fromkeys(row["matrix"] for row in group["truncated"])))
        for row in group["truncated"]:
            if row["matrix"] in names and row["control"] != "random":
                label = {"deletion": "deleted", "drop-top": "less top", None: row["side"]}[row["control"]]
                kept = "" if row["control"] else wording.keep(row["keep"])
                beyond = told(row["beyond"]["p_noise"], sign=True, bare=True) if "beyond" in row else ""
                table.add_row(f"{row['matrix']} {label}", kept, *_spreads(row), beyond)
        tables += [table, Text(finding(group).sentences[0] + "\n")]
    caption = (
        "Means over seeds, in brackets the lowest and the highest. Beyond random: p(τ) less that behind a random"
        " projection of the same rank, mean of the draws of a seed."
    )
    return Group(*tables, Text(caption, style="dim"))


def _numbers(row: Row) -> list[str]:
    return [decimals(row[name], bare=True) for name in COLUMN_KEYS]


def _spreads(row: Mapping[str, Any]) -> list[str]:
    accuracy, loss = (decimals(row[number]["mean"], bare=True) for number in ("clean_accuracy", "noisy_loss"))
    return [accuracy, told(row["p_noise"], bare=True), loss]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(
        title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right", no_wrap=index + 1 < len(columns))
    return table
