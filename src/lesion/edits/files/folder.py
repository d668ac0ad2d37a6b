"""Folder: a folder that is written beside its place and gets its name only when it is whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lesion.atomic import alive
from lesion.errors import LesionError, UsageError


def refuse_occupied(out: Path) -> None:
    """Refuse a target that is a file, or a folder in which something lies."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UsageError(f"{out} is there already and is no folder; give --out a new one.")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"The folder {out} exists and is not empty; nothing in it is overwritten. Give --out a new one."
        )


def clear_leftovers(out: Path, note: Callable[[str], None]) -> None:
    """Remove what killed runs to the same place left beside it, and say so."""
    start = f".{out.name}.partial-"
    for entry in sorted(out.parent.iterdir()) if out.parent.is_dir() else []:
        process = entry.name.removeprefix(start)
        if entry.name.startswith(start) and process.isdecimal() and entry.is_dir() and not entry.is_symlink():
            if process != str(os.getpid()) and alive(process):
                continue
            shutil.rmtree(entry, ignore_errors=True)
            note(f"Removed {entry}, which a run that was stopped in the middle left behind.")


def sync(path: Path) -> None:
    """Have a file or folder on disk, not only on its way there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def emerging(out: Path, note: Callable[[str], None]) -> Iterator[Path]:
    """A folder to write into, which becomes `out` when the `with` ends well and is removed when it does not.

    Killed in the middle, it stays behind as `.NAME.partial-PID`; the next run to the same place removes it and notes
    that.
    """
    refuse_occupied(out)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        clear_leftovers(out, note)
        partial.mkdir()
        yield partial
        for path in partial.rglob("*"):
            sync(path)
        sync(partial)
        os.rename(partial, out)
        sync(out.parent)
    except OSError as error:
        raise LesionError(
            f"{out} cannot be written: {error.strerror or error}. Nothing was left there; make room, or give --out "
            "another place."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
