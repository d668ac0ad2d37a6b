"""An edit file described for the terminal: what it changes, where, and from which data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lesion.cli.terminal import facts
from lesion.edits.edit import of_weights
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.selection import Count
from lesion.edits.spectra import counted
from lesion.report import wording


def describe(file: EditFile) -> RenderableType:
    """Everything that `lesion edit show` says. Names are shown as they are, never read as markup."""
    rows = [
        ("file", f"{file.path}, {len(file.data):,} bytes"),
        ("digest", file.digest),
        ("made", f"{file.made} by lesion {file.lesion}"),
        (
            "for the model",
            f"{file.model.name}, fingerprint {file.model.fingerprint} ({file.model.family}, in {file.model.dtype})",
        ),
    ]
    for part in of_weights(file.edit):
        does = "set to 0" if part.factor == 0 else f"multiplied by {part.factor:g}"
        rows += [("selects", f"{part.selection.label} (recipe {part.selection.digest})"), ("weights are", does)]
    for cut in file.cuts:
        rows += [("truncates", f"{cut.address}, {cut.shape[0]:,} × {cut.shape[1]:,}: {cut} kept"), ("", counted(cut))]
    if file.selected:
        selected, total = sum(c.selected for c in file.selected), sum(c.total for c in file.selected)
        rows.append(("selected", f"{selected:,} of {total:,} weights ({selected / total:.4%})"))
    shown: list[RenderableType] = [Text(file.label, style="bold underline"), facts(rows), Text()]
    if of_weights(file.edit):
        shown += [Text("Made from", style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in _data(file))]
    if file.selected:
        shown += [Text(), Text("Selected of every matrix, in percent", style="bold"), _table(file.selected)]
    return Group(*shown)


def _data(file: EditFile) -> list[str]:
    lines = []
    for inputs in file.inputs:
        data = " + ".join(dict.fromkeys(draw.data for draw in inputs.provenance)) or "data that is not named"
        seeds = ", ".join(
            f"seed {draw.seed} repeat {draw.repeat}{' with replacement' if draw.replacement else ''}"
            for draw in inputs.provenance
        )
        cut = sum(draw.cut for draw in inputs.provenance)
        lines.append(
            f"{data}: {wording.counted(inputs.texts, 'text')}, {wording.counted(inputs.tokens, 'token')}"
            + (f"; {seeds}" if seeds else "")
            + (f"; {cut:,} cut at the context" if cut else "")
        )
    return lines or ["no data: the selection looks at the weights alone"]


def _table(counts: Sequence[Count]) -> Table:
    """Block × matrix, the experts of a block taken together."""
    cells: dict[tuple[int | None, str], tuple[int, int]] = {}
    for count in counts:
        key = (count.block, re.sub(r"expert\d+", "experts", count.matrix))
        selected, total = cells.get(key, (0, 0))
        cells[key] = (selected + count.selected, total + count.total)
    names = list(dict.fromkeys(name for _, name in cells))
    blocks = list(dict.fromkeys(block for block, _ in cells))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("block", justify="left")
    for name in names:
        short = name.removeprefix("attention.").removeprefix("mlp.")
        table.add_column(Text(short.replace(".", "\n"), justify="right"), justify="right")
    table.add_column("all", justify="right")
    for block in blocks:
        row = [cells.get((block, name)) for name in names]
        there = [cell for cell in row if cell is not None]
        whole = (sum(cell[0] for cell in there), sum(cell[1] for cell in there))
        label = "–" if block is None else str(block)
        table.add_row(label, *(_share(cell) for cell in row), _share(whole))
    return table


def _share(cell: tuple[int, int] | None) -> str:
    if cell is None:
        return ""
    return "0" if cell[0] == 0 else f"{100 * cell[0] / cell[1]:.3g}"
