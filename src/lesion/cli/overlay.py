"""`lesion overlay`: compare what several finished studies say of a model's blocks, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lesion.cli.terminal import Terminal, say
from lesion.errors import UsageError

if TYPE_CHECKING:
    from lesion.studies.overlay.result import OverlaySummary


def overlay(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR …", help="Output folders of finished studies: ablate, drift, isolate, truncate."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Output folder.")],
    seed: Annotated[int, typer.Option(help="Random seed of the permutation test (models of more than 8 blocks).")] = 0,
) -> None:
    """Compare the block profiles of several studies, with rank correlations."""
    from lesion.core.lock import FolderLock
    from lesion.outputs import refuse_another_kind
    from lesion.studies.overlay.summary import summarise

    _refuse_study(out, folders)
    refuse_another_kind(out, "overlay")
    summary = summarise(folders, seed)
    lock = FolderLock(out, "overlay")
    try:
        _show(out, summary)
    finally:
        lock.release()


def show(folder: Path) -> bool:
    """Regenerate the page of an overlay from its summary and print its tables; False where the folder has none."""
    from lesion.core.values import read_summary
    from lesion.outputs import kind_of
    from lesion.studies.overlay.result import OverlaySummary

    if kind_of(folder) != "overlay":
        return False
    summary = read_summary(OverlaySummary, folder, "run `lesion overlay` again")
    if summary is None:
        return False
    _show(folder, summary)
    return True


def _refuse_study(out: Path, folders: list[Path]) -> None:
    if any(out.resolve() == folder.resolve() for folder in folders):
        raise UsageError(f"{out} is one of the studies: its report would be written over. Give another --out.")


def _show(out: Path, summary: OverlaySummary) -> None:
    from lesion.studies.overlay import report as page
    from lesion.studies.overlay import tables

    path = page.write(out, summary)
    Terminal().print(tables.text_tables(summary))
    for note in summary.notes:
        Terminal().note(note)
    say(f"report: {path}")
