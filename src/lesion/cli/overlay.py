"""`lesion overlay`: lay what several finished studies tell of a model's blocks over each other, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lesion.cli.terminal import Terminal, say
from lesion.errors import LesionError, UsageError
from lesion.files import stored_object
from lesion.plain import tame


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
    from lesion.studies.overlay.summary import profiles, summarise

    _refuse_study(out, folders)
    refuse_another_kind(out, "overlay")
    summary = summarise(profiles(folders, seed))
    lock = FolderLock(out, "overlay")
    try:
        _show(out, summary)
    finally:
        lock.release()


def show(folder: Path) -> bool:
    """Write the page of an overlay anew from its summary and print its tables; False where the folder has none."""
    summary = _summary(folder)
    if summary is None:
        return False
    _show(folder, summary)
    return True


def _refuse_study(out: Path, folders: list[Path]) -> None:
    if any(out.resolve() == folder.resolve() for folder in folders):
        raise UsageError(f"{out} is one of the studies: its report would be written over. Give another --out.")


def _summary(folder: Path) -> dict[str, Any] | None:
    try:
        told = stored_object(folder / "summary.json", "")
    except LesionError:
        return None
    return told if told is not None and told.get("kind") == "overlay" else None


def _show(out: Path, summary: dict[str, Any]) -> None:

    from lesion.studies.overlay import report as page

    path = page.write(out, summary)
    Terminal().print(page.text_tables(tame(summary)))
    for note in summary["notes"]:
        Terminal().note(note)
    say(f"report: {path}")
