"""Files written whole or not at all."""

from __future__ import annotations

import os
import re
import stat
import sys
import tempfile
from pathlib import Path

from lesion.errors import LesionError

_LEFTOVER = re.compile(r"\..+\.partial-(\d+)-\w+", re.DOTALL)


def replace(path: Path, content: bytes | str) -> None:
    """Write a file beside its place and move it there, so that nobody ever reads half of it.

    A link in the file's place is replaced, and what it leads to stays as it is. Killed in the middle, the process
    leaves `.NAME.partial-PID-…` (`is_leftover`).
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.partial-{os.getpid()}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8", "replace") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def keep(path: Path, content: bytes | str) -> None:
    """Write a file of an output folder as `replace` does; the folder that it lies in is made where it is missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, content)
    except OSError as error:
        why = error.strerror or error
        raise LesionError(f"{path.parent} cannot be written: {why}; give another with --out.") from error


def is_leftover(path: Path) -> bool:
    """Whether this is a regular file that a process which lives no more began in `replace`."""
    begun = _LEFTOVER.fullmatch(path.name)
    return begun is not None and stat.S_ISREG(path.lstat().st_mode) and not alive(begun[1])


def alive(process: str) -> bool:
    """Whether a process with this number, written in digits, is running on this machine."""
    if sys.platform == "win32":  # there the call below would end it
        return True
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
