"""`lesion edit`: an edit file shown, and two combined into a third."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.help import register
from lesion.cli.parsing import checked
from lesion.cli.terminal import Terminal, say
from lesion.edits.edit import refuse_absent
from lesion.errors import UsageError
from lesion.models.source import find

app = typer.Typer(help="Show and combine .edit files.", no_args_is_help=True)


class Operation(StrEnum):
    """How two selections become one."""

    minus = "minus"
    both = "and"
    either = "or"


def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="An .edit file.")]) -> None:
    """Show what an edit changes, in which model, and the data it was made from."""

    refuse_absent(file)
    from lesion.cli.editing import describe
    from lesion.edits.files.artefact import read_edit

    Terminal().print(describe(read_edit(file)))


def combine(
    first: Annotated[Path, typer.Argument(metavar="A", help="An .edit file.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another, made for the same model.")],
    op: Annotated[
        Operation,
        typer.Option(
            help="Set operation: minus (in A, not in B), and (in both), or (in either); truncations: only or."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The .edit file to write.")],
    factor: Annotated[float | None, typer.Option(help="Factor of the new edit, needed where A and B differ.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that A and B were made for, to count the selected weights.")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of that model.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")] = False,
) -> None:
    """Combine the selections of two edits; truncations of different matrices are joined."""
    for file in (first, second):
        refuse_absent(file)
    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists; give --out another name, or --overwrite to replace it.")
    if model is not None:
        find(model, revision)
    from lesion.edits.files.artefact import combined, read_edit

    files = read_edit(first), read_edit(second)
    loaded = None
    if model is not None:
        from lesion.models.load import load

        loaded = load(model, revision=revision)
    path = combined(*files, op.value, out, factor=factor, model=loaded)
    made = read_edit(path)
    counts = made.selected
    if counts is None:
        clauses = ["what it selects is not counted; with --model it is"]
    else:
        selected, total = sum(c.selected for c in counts), sum(c.total for c in counts)
        clauses = [f"{selected:,} of {total:,} weights selected"] * bool(counts)
    clauses += [f"of {cut.address} {cut} kept" for cut in made.cuts]
    say(f"{made.label} ({made.digest}): {'; '.join(clauses)}")
    say(f"edit: {path}")


register(app, "show", checked(show), example="show an edit")
register(app, "combine", checked(combine))
