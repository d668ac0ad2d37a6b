"""A model described for the terminal: what lies on the table, what of it can be edited, and what cannot."""

from __future__ import annotations

import re
from collections import defaultdict

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lesion.cli.terminal import facts
from lesion.engines.transformers.engine import way_of
from lesion.models.anatomy import Block
from lesion.models.facts import facts_of
from lesion.models.load import Model
from lesion.models.matrices import Matrix
from lesion.report.wording import layer_runs


def _kind(block: Block) -> tuple[tuple[object, ...], ...]:
    """What two blocks must agree in to be shown as one."""
    return tuple((name, m.shape, m.storage.kind, m.stored_as) for name, m in block.matrices.items())


def _rows(block: Block) -> list[tuple[str, Matrix, int]]:
    """The matrices of a block as (name, one of them, how many), with alike experts as one row."""
    alike: dict[tuple[str, tuple[int, int], str], list[Matrix]] = defaultdict(list)
    for name, matrix in block.matrices.items():
        pattern = name if matrix.storage.expert is None else re.sub(r"expert\d+", "expert*", name)
        alike[pattern, matrix.shape, matrix.storage.kind].append(matrix)
    rows = []
    for (pattern, _, _), matrices in alike.items():
        experts = layer_runs(m.storage.expert for m in matrices if m.storage.expert is not None)
        rows.append((pattern.replace("*", experts), matrices[0], len(matrices)))
    return rows


def _matrices(model: Model) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading, justify in (
        ("blocks", "left"),
        ("matrix", "left"),
        ("out × in", "right"),
        ("stored as", "left"),
        ("dtype", "left"),
        ("parameters", "right"),
    ):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    groups: dict[tuple[tuple[object, ...], ...], list[Block]] = defaultdict(list)
    for block in model.anatomy.blocks:
        groups[_kind(block)].append(block)
    for blocks in groups.values():
        where = layer_runs(block.index for block in blocks)
        rows = _rows(blocks[0])
        for name, matrix, count in rows:
            out, into = matrix.shape
            each = f"{out * into:,}" if count == 1 else f"{count} × {out * into:,}"
            stored, dtype = f"{matrix.storage.kind}{', packed' if matrix.packed else ''}", matrix.stored_as
            table.add_row(Text(where), Text(name), f"{out:,} × {into:,}", stored, dtype, each)
            where = ""
        if not rows:
            table.add_row(Text(where), Text("none found", style="italic"), "", "", "", "")
    return table


def _uncovered(model: Model) -> list[str]:
    """Parameters in which no matrix lies, the same of every block on one line."""
    inside = {id(block.module): block.index for block in model.anatomy.blocks}
    prefixes = {
        f"{name}.": inside[id(module)] for name, module in model.network.named_modules() if id(module) in inside
    }
    together: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for name, reason in model.anatomy.uncovered:
        size = model.network.get_parameter(name).numel()  # of a packed one as it is stored
        prefix = next((p for p in prefixes if name.startswith(p)), None)
        if prefix is None:
            together[name, reason, size] = []
        else:
            stem = prefix.removesuffix(f"{prefixes[prefix]}.")
            together[f"{stem}*.{name.removeprefix(prefix)}", reason, size].append(prefixes[prefix])
    return [
        f"{name.replace('*', '{' + layer_runs(blocks) + '}', 1) if blocks else name}: {reason} "
        f"({size:,}{' each' if len(blocks) > 1 else ''})"
        for (name, reason, size), blocks in together.items()
    ]


def describe(model: Model) -> RenderableType:
    """Everything that `lesion show` says about a model. Names are shown as they are, never read as markup."""
    anatomy = model.anatomy
    known = (*facts_of(model), ("answers", str(way_of(model))))
    parts: list[RenderableType] = [Text(model.name, style="bold underline"), facts(known), Text()]
    if not anatomy.known:
        parts.append(Text("The anatomy below was found by structure: a few tokens prove it.", style="bold yellow"))
    parts += [Text(model.complaint(), style="bold red")] if model.not_finite else []
    parts += [Text(note) for note in anatomy.notes]
    if anatomy.notes:
        parts.append(Text())
    parts += [_matrices(model), Text(), Text("Not covered by any matrix", style="bold")]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in _uncovered(model)]
    return Group(*parts)
