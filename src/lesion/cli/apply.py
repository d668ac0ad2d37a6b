"""`lesion apply`, `perturb` and `edit show`: a checkpoint with edits or with noise, and an edit file shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lesion.cli.commands import Model, Revision
from lesion.cli.terminal import Bar, Terminal, say
from lesion.core.fields import MODEL
from lesion.edits.edit import refuse_absent
from lesion.errors import UsageError
from lesion.plain import short


def apply(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Folder of the edited model; it must not exist or be empty. With --order of a GGUF file also"
            " FILE.gguf, which stays quantised.",
        ),
    ],
    edit: Annotated[
        list[str] | None,
        typer.Option(
            help="An .edit file, or an edit as text: 3x0, 3.mlp×0.5, '3.mlp.up top 0.1'; repeatable (all refer to the"
            " unedited weights)."
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="BLOCKS",
            help="The blocks from first to last, repeated or left out: 0-13,10-29. Beside it --edit multiplies"
            " attention or MLP at the new places: 14.mlp×0.5.",
        ),
    ] = None,
    factor: Annotated[
        str | None,
        typer.Option(metavar="FLOAT", help="Factor in place of the edits' own; 0 prunes. Truncations have none."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Accept other weights of the same shapes; the selection is recomputed.")
    ] = False,
    revision: Revision = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Full-precision model that a quantised MODEL was made from; that one is written."
        ),
    ] = None,
) -> None:
    """Write an edited model as an ordinary checkpoint that plain transformers loads."""

    from lesion.core.layers import refuse_no_edit  # help need not wait for the catalogue of tasks
    from lesion.core.preflight import blocks_of

    if order is not None:
        unfit = {"--factor": factor, "--force": force, "--weights": weights}
        _reordered(model, order, edit or [], [flag for flag, value in unfit.items() if value], revision, out)
        return
    if out.suffix.lower() == ".gguf":
        raise UsageError("A GGUF file is written with --order (all blocks in their order: 0-29); give it, or a folder.")
    if not edit:
        raise UsageError("Nothing to write is given; give --edit or --order.")
    number = None if factor is None else _one(factor)
    written = model if weights is None else weights
    blocks = blocks_of(written, revision if weights is None else None)
    refuse_no_edit(edit, {} if blocks is None else {written: blocks})

    from lesion.edits.files import checkpoint
    from lesion.report import wording

    with Bar() as bar:
        done = checkpoint.apply(
            model, edit, out, factor=number, force=force, revision=revision, weights=weights, watcher=bar
        )
    for each in done.edits:
        name = each.file.label
        if each.achieved is not None:
            anew = ", its selection made anew on these weights" if each.afresh else ""
            times = "" if name.endswith((f"x{each.factor}", f"×{each.factor}")) else f" × {each.factor}"
            achieved = f"{each.achieved:.6g}"
            rounded = "" if achieved == each.factor else f", achieved factor {achieved}"
            say(
                f"{name}{times}: {each.selected:,} of {done.total:,} weights selected"
                f" ({each.selected / done.total:.4%}){rounded}{anew}"
            )
        elif each.afresh:
            say(f"{name} was made for other weights; it is these that were truncated")
    for matrix in done.truncated:
        say(f"{matrix.cut.address}: {matrix.cut} kept, {matrix.energy:.4%} of its squared norm")
    say(f"{wording.counted(done.moved, 'weight')} of {written} changed")
    if done.left_out:
        say(f"not copied: {', '.join(done.left_out)}")
    say(f"model: {done.folder} ({_saved(done.folder)})")


def _reordered(
    model: str, order: str, edit: Sequence[str], unfit: Sequence[str], revision: str | None, out: Path
) -> None:
    """Write the model with its blocks in another order."""
    if unfit:
        raise UsageError(f"{unfit[0]} belongs to --edit without --order; leave it out.")
    from lesion.core.preflight import blocks_of

    if (blocks := blocks_of(model, revision)) is None:
        from lesion.models.load import peek

        blocks = peek(model, revision=revision)
    from lesion.models.order import order_text, parse_order

    numbers = parse_order(order, blocks or 0, model)

    from lesion.edits.edit import BASELINE
    from lesion.edits.files.reordering import RECIPE, save_reordered
    from lesion.report.wording import counted

    with Bar() as bar:
        done = save_reordered(model, numbers, out, edit=edit or BASELINE, revision=revision, watcher=bar)
    say(f"{counted(len(done.order), 'block')} in the order {order_text(done.order)}; {model} has {done.blocks}")
    if done.left_out:
        say(f"not copied: {', '.join(done.left_out)}")
    if done.folder.is_dir():
        say(f"recipe for mergekit: {done.folder / RECIPE}")
    say(f"model: {done.folder} ({_saved(done.folder)})")


def _saved(written: Path) -> str:
    """How large the weights of a checkpoint or a GGUF file are: `5.9 MB`."""
    files = written.glob("*.safetensors") if written.is_dir() else [written]
    return f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB"


def _one(factor: str) -> float:
    """The factor that was typed."""
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


def perturb(
    base: Annotated[str, typer.Argument(metavar="BASE", help=MODEL)],
    like: Annotated[str, typer.Option(metavar="MODEL", help="A child of BASE: noise of the norm of its change.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the noisy model; it must not exist or be empty.")],
    scale: Annotated[float, typer.Option(help="So many times as large as the child's change.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Random seed of the noise.")] = 0,
) -> None:
    """Write a model with noise as large as what tuning changed: the control for comparisons with its children."""
    from lesion.edits.files import perturbed

    done = perturbed.perturb(base, like, out, scale=scale, seed=seed)
    say(f"{like}: ‖change‖ / ‖weights‖ = {done.distance:.4g}")
    say(f"noise in {done.tensors[0]:,} of {done.tensors[1]:,} tensors, ‖noise‖ / ‖weights‖ = {done.achieved:.4g}")
    say(f"written: {done.out}")


def show(file: Annotated[Path, typer.Argument(metavar="FILE", help="An .edit file.")]) -> None:
    """Show what an edit changes, in which model, and the data it was made from."""
    refuse_absent(file)
    from lesion.cli.editing import describe
    from lesion.edits.files.artefact import read_edit

    Terminal().print(describe(read_edit(file)))
