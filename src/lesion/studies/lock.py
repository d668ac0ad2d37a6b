"""One writer per study folder: a lock that the operating system takes back when its process dies."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from pathlib import Path

from lesion.errors import LesionError

NAME = "lock"

# Windows locks bytes and then nobody else can read them; the locked byte lies far behind the written process
# id.
_FAR = 1 << 30


def _grab(descriptor: int) -> bool:
    """Whether the lock could be had without waiting."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
    else:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class FolderLock:
    """The right to write in a folder, held until `release` or until the process ends in whatever way.

    The lock is on an open file, not on the file's existence: what a killed process leaves behind stops
    nobody. Children made by fork do not keep it, so a worker that outlives its parent does not block the next
    run.

    Args:
        folder: an existing folder; the file `lock` in it names the process that holds it.

    Raises:
        LesionError: another process holds it, or the file system has no locks.
        OSError: the file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            free = _grab(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise LesionError(
                f"The file system of {folder} cannot lock files ({error.strerror}); "
                "give a folder on a local disk with --out."
            ) from error
        if not free:
            os.lseek(descriptor, 0, os.SEEK_SET)
            holder = os.read(descriptor, 32)
            os.close(descriptor)
            name = holder.decode("ascii", "replace").strip()
            if name == str(os.getpid()):
                raise LesionError(f"This process is already writing in {folder}; close that store first.")
            who = f" (pid {name})" if name.isdigit() else ""
            raise LesionError(
                f"Another process{who} is writing in {folder}; wait until it ends, or give another folder with --out."
            )
        # The number is only for the message above: a full disk must not keep a finished study from being
        # opened.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        self._descriptor: int | None = descriptor
        _held.add(self)

    def release(self) -> None:
        """Let others write. Doing it twice is doing it once."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _held.discard(self)


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
