"""`lesion apply MODEL --edit EDIT --out DIR`: a model's checkpoint written again, with edits in its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.terminal import Terminal, say
from lesion.errors import UsageError
from lesion.plain import short


def apply(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Model: bundled:NAME, a local folder, a GGUF file, or a hub id.")
    ],
    edit: Annotated[
        list[str],
        typer.Option(
            help="An .edit file, or an edit as text: 3x0, 3.mlp×0.5, '3.mlp.up top 0.1'; repeatable (all refer to the"
            " unedited weights)."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the edited model; it must not exist or be empty.")],
    factor: Annotated[
        str | None,
        typer.Option(metavar="FLOAT", help="Factor in place of the edits' own; 0 prunes. Truncations have none."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept other weights of the same shapes; the selection is recomputed.")
    ] = False,
    thin: Annotated[
        bool,
        typer.Option("--thin", help="Also write truncated matrices as two low-rank factors, and report the savings."),
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Full-precision model that a quantised MODEL was made from; that one is written."
        ),
    ] = None,
) -> None:
    """Write an edited model as an ordinary checkpoint that plain transformers loads."""

    from lesion.core.layers import refuse_no_edit  # help need not wait for the catalogue of tasks
    from lesion.core.look_ahead import blocks_of

    number = None if factor is None else _one(factor)
    written = model if weights is None else weights
    blocks = blocks_of(written, revision if weights is None else None)
    refuse_no_edit(edit, {} if blocks is None else {written: blocks})

    from lesion.edits.files import checkpoint
    from lesion.edits.files.thin_factors import counted
    from lesion.report import wording

    console = Terminal(stderr=True)

    class Shards:
        """Says how many shards are written."""

        done = total = 0

        def begin(self, model: str, total: int, stored: int, what: str = "answers") -> None:
            """So many shards in all."""
            self.total = total

        def answered(self, count: int) -> None:
            """So many more are written."""
            self.done += count
            console.print(f"shard {self.done:,} of {self.total:,} written")

        def note(self, text: str) -> None:
            """Something the person should know."""
            console.note(text)

    done = checkpoint.apply(
        model, edit, out, factor=number, force=force, thin=thin, revision=revision, weights=weights, watcher=Shards()
    )
    for deed in done.deeds:
        name = f"{deed.edit.label} ({deed.edit.digest})"
        if deed.achieved is not None:
            anew = ", its selection made anew on these weights" if deed.afresh else ""
            say(
                f"{name} × {deed.factor}: {deed.selected:,} of {done.total:,} weights "
                f"selected ({deed.selected / done.total:.4%}), achieved factor {deed.achieved:.6g}{anew}"
            )
        elif deed.afresh:
            say(f"{name} was made for other weights; it is these that were truncated")
    for matrix in done.truncated:
        saved = f"; {counted(matrix.cut)}" if thin else ""
        say(f"{matrix.cut.address}: {matrix.cut} kept, {matrix.energy:.4%} of its squared norm{saved}")
    say(f"{wording.counted(done.moved, 'weight')} of {written} changed")
    if done.left_out:
        say(f"not copied: {', '.join(done.left_out)}")
    if done.thin is not None:
        say(f"factors: {done.thin}")
    say(f"model: {done.folder}")


def _one(factor: str) -> float:
    """The factor that was typed.

    Raises:
        UsageError: it is no number, or there are several.
    """
    try:
        return float(factor)
    except ValueError:
        pass
    if "," in factor:
        raise UsageError(
            f"--factor takes one number here, not '{short(factor)}': a checkpoint has one factor. Repeat the"
            " command with another --out for the next; `lesion evaluate` takes several."
        )
    raise UsageError(f"--factor takes a number, not '{short(factor)}'.")
