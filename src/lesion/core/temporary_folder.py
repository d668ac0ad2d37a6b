"""Where a study lies: in the folder that was named, or, from Python, in a temporary one that ends with Python."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lesion.core.database import FILE
from lesion.core.lock import is_held
from lesion.core.store import Store
from lesion.errors import LesionError
from lesion.files import named
from lesion.outputs import LOCK, MARK

PREFIX = "lesion-"
# What a study that got no further than its first look at things leaves.
_EMPTY = {LOCK, MARK, FILE, f"{FILE}-wal", f"{FILE}-shm"}
# The process that made it, by temporary folder; nothing else is ever removed.
_MADE: dict[Path, int] = {}


@contextmanager
def folder_of(out: str | Path | None) -> Iterator[Path]:
    """The folder of a study: `out`, or a temporary one.

    Where the study is refused with nothing done, a folder that was not there before is removed, with the folders that
    were made for it. A temporary one is also removed when Python ends, since results read from it until then. Where the
    study breaks off with something done, it stays, and the error says where it lies. One that is named as `out` later,
    or has that in it, stays too.
    """
    if out is not None:
        out = named(out, "out")
        place = Path(os.path.realpath(out))
        for kept in (place, *place.parents):
            _MADE.pop(kept, None)
        made = [folder for folder in (place, *place.parents) if not os.path.lexists(folder)]
        try:
            yield out
        except LesionError:
            if made and os.path.isdir(place) and _nothing_in(place) and not is_held(place):
                shutil.rmtree(place, ignore_errors=True)
                with contextlib.suppress(OSError):  # it is not there, or something else is in it by now
                    for folder in made[1:]:
                        folder.rmdir()
            raise
        return
    folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
    try:
        yield folder
    except BaseException as error:
        if _nothing_in(folder):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            error.add_note(f"What there is so far lies in {folder}: given as out='{folder}', the study goes on.")
        raise
    _MADE[folder] = os.getpid()


def _nothing_in(folder: Path) -> bool:
    there = {path.name for path in folder.iterdir()}
    if not there <= _EMPTY:
        return False
    if FILE not in there:
        return True
    try:
        with Store.read(folder) as store:
            return len(store) == 0
    except LesionError:
        return False


@atexit.register
def _remove() -> None:
    """Remove the temporary folders of this process; a copy of it, made by a fork, leaves them alone."""
    for folder, process in _MADE.items():
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    _MADE.clear()
