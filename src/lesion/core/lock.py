"""One writer per study folder: a lock that the operating system takes back when its process dies."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

from lesion.errors import LesionError
from lesion.files import reason
from lesion.outputs import LOCK, clear_leftovers, own, refuse_links

_LONGEST = 32
_NUMBER = re.compile(r"[0-9]{0,20}\s?", re.ASCII)
# A link is not followed, and opening a pipe does not wait for somebody at its other end.
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

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
        folder: made when absent, with its parents; the file `lock` in it names the process that holds it.
        kind: of the study that writes there, one of `lesion.outputs.KINDS`; it is noted in the folder.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / LOCK
        self._descriptor: int | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_links(folder)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o644)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the name
            raise LesionError(
                f"{folder} cannot be written ({reason(error)}); give another folder with --out."
            ) from error
        try:
            self._take(folder, descriptor)
            self._descriptor = descriptor
            _held.add(self)
            own(folder, kind)
            clear_leftovers(folder)
        except BaseException:
            if self._descriptor is None:
                os.close(descriptor)
            self.release()
            raise

    def _take(self, folder: Path, descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LesionError(f"{self.path} is no regular file; remove it, or give another folder with --out.")
        try:
            free = _grab(descriptor)
        except OSError as error:
            raise LesionError(
                f"The file system of {folder} cannot lock files ({error.strerror}); "
                "give a folder on a local disk with --out."
            ) from error
        os.lseek(descriptor, 0, os.SEEK_SET)
        holder = os.read(descriptor, _LONGEST + 1).decode("ascii", "replace")
        name = holder.strip()
        if not free:
            if name == str(os.getpid()):
                raise LesionError(f"This process is already writing in {folder}; close that store first.")
            who = f" (pid {name})" if _NUMBER.fullmatch(holder) and name else ""
            raise LesionError(
                f"Another process{who} is writing in {folder}; wait until it ends, or give another folder with --out."
            )
        if not _NUMBER.fullmatch(holder):
            raise LesionError(
                f"{self.path} holds something else than the number of a process and is left as it is; move it away, or"
                " give another folder with --out."
            )
        # The number is only for the message above: a full disk must not keep a finished study from being
        # opened.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))

    def release(self) -> None:
        """Let others write. Doing it twice is doing it once."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        _held.discard(self)


def is_held(folder: Path) -> bool:
    """Whether a process is writing in a folder, this one included."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | _SAFELY)
    except OSError:  # there is no lock
        return False
    try:
        return not _grab(descriptor)
    finally:
        os.close(descriptor)


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


@contextlib.contextmanager
def locked(folder: Path, kind: str) -> Iterator[None]:
    """Let one process at a time write in a folder (`FolderLock`)."""
    lock = FolderLock(folder, kind)
    try:
        yield
    finally:
        lock.release()
