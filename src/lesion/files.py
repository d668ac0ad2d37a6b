"""Files and folders that somebody named: every way in which a path or its text can be wrong is one clear error.

Whatever reads a file that a person or a download supplied goes through here. What cannot be read ends in a
`LesionError` (`UsageError` where the path itself was wrong) that names the file and what to do; nothing but a regular
file of a limited size is opened, so that a device or a pipe neither hangs nor fills the memory.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lesion.errors import LesionError, UsageError
from lesion.plain import short, unruly

STUDY_BYTES = 1 << 20
"""The largest study file, 1 MiB."""
SUMMARY_BYTES = 1 << 30
"""The largest summary or other file that `lesion` wrote, 1 GiB."""
DATA_BYTES = 4 << 30
"""The largest file of a data set, 4 GiB."""
CACHE = "LESION_CACHE"
"""Names the folder in which lesion keeps what it can make again."""

Fault = type[LesionError]
_HALF = re.compile("[\ud800-\udfff]")
_REASONS = {
    errno.ENAMETOOLONG: "a name in it is longer than file systems allow; give a shorter path",
    errno.ELOOP: "its symbolic links lead in a circle; give the path of the real file or folder",
    errno.EACCES: "permission denied; check the permissions of it and of the folders above it",
    errno.EPERM: "permission denied; check the permissions of it and of the folders above it",
}
_REASONS_OF: dict[type[BaseException], str] = {
    UnicodeError: "it is not UTF-8 text",
    RecursionError: "it is nested too deeply",
    MemoryError: "it needs more memory than there is",
    IndexError: "an entry is missing",
    TypeError: "a value in it is of another kind than it should be",
    AttributeError: "a value in it is of another kind than it should be",
}
# What reading a value of the wrong shape, size or kind raises.
UNFIT = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError, OSError)


def named(path: str | Path, what: str = "path") -> Path:
    """The path that a person gave, `~` expanded; it need not exist."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"The {what} is empty; give the name of a file or folder.")
    if unruly(text):
        raise UsageError(
            f"The {what} '{short(text)}' holds control characters or broken text; rename the file or folder."
        )
    try:
        expanded = Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"The {what} '{short(text)}' names a home folder that is not known; write the path in full."
        ) from None
    refuse_unreachable(expanded)
    return expanded


def refuse_unreachable(path: Path) -> None:
    """Refuse a path that the system cannot follow; one that merely does not exist is fine."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        raise UsageError(f"{short(str(path))} cannot be used: {reason(error)}.") from None


def existing(path: str | Path, what: str = "path") -> Path:
    """The path of a regular file that is there."""
    file = named(path, what)
    if file.is_dir():
        raise UsageError(f"{file} is a folder; give the path of a file in it.")
    if not file.exists():
        raise UsageError(f"There is no file {short(str(file), 300)}.")
    if not file.is_file():
        raise UsageError(f"{file} is a device or a pipe; give an ordinary file.")
    return file


def cache_folder(name: str = "") -> Path:
    """A folder for one kind of file, which need not exist: in `LESION_CACHE`, or in the user's `.cache/lesion`."""
    given = os.environ.get(CACHE)
    if given:
        return named(given, CACHE) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "lesion" / name


def reason(error: BaseException) -> str:
    """Why something could not be read or written, for the end of a sentence; what to do too where that is known."""
    if isinstance(error, OSError) and error.errno is not None:
        return _REASONS.get(error.errno) or (error.strerror or str(error)).lower()
    if isinstance(error, KeyError):
        return f"it has no {short(error.args[0]) if error.args else 'such key'}"
    if known := next((words for kind, words in _REASONS_OF.items() if isinstance(error, kind)), None):
        return known
    text = short(" ".join(str(error).split()), 200)
    return text.rstrip(".") or type(error).__name__


def read_bytes(path: Path, *, limit: int = DATA_BYTES, fault: Fault = LesionError) -> bytes:
    """The content of a regular file.

    `fault` is raised where the file is there and cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"There is no file {short(str(path), 300)}.") from None
    except (OSError, ValueError) as error:
        raise fault(f"{short(str(path), 300)} cannot be read: {reason(error)}.") from error
    try:
        _refuse_unordinary(handle, path, limit, fault)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except (OSError, MemoryError) as error:
        raise fault(f"{path} cannot be read: {reason(error)}.") from error
    finally:
        os.close(handle)


def _refuse_unordinary(handle: int, path: Path, limit: int, fault: Fault) -> None:
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode):
        what = "a folder" if stat.S_ISDIR(about.st_mode) else "a device or a pipe"
        raise UsageError(f"{path} is {what}; give an ordinary file.")
    if about.st_size > limit:
        raise fault(f"{path} has {about.st_size:,} bytes; at most {limit:,} are read here. Is it the right file?")


def read_text(path: Path, *, limit: int = DATA_BYTES, fault: Fault = LesionError) -> str:
    """The text of a UTF-8 file, a byte order mark removed."""
    return decoded(read_bytes(path, limit=limit, fault=fault), path, fault)


def decoded(data: bytes, path: Path, fault: Fault) -> str:
    """The text of a file's bytes."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise fault(f"{path}, line {line}: this is not UTF-8 text; save the file as UTF-8.") from error


def parse_json(
    text: str,
    where: str,
    *,
    fault: Fault = LesionError,
    line: int = 1,
    halves: bool = False,
    pairs: Callable[..., Any] | None = None,
    **hooks: Any,
) -> Any:
    """A JSON value out of text.

    `line` is that of the file on which the text begins; `halves` lets half a character through, for whoever says better
    where it stands; `pairs` makes an object of its pairs, and `hooks` are the other hooks of `json.loads`.
    """
    try:
        value = json.loads(text, object_pairs_hook=pairs, **hooks)
    except json.JSONDecodeError as error:
        place = f"{where}, line {line + error.lineno - 1}"
        raise fault(f"{place}: this is not JSON ({error.msg} at column {error.colno}).") from error
    except RecursionError as error:
        raise fault(f"{where}, line {line}: this is JSON nested hundreds of levels deep, which is not read.") from error
    except ValueError as error:
        if "digits" not in str(error):
            raise
        raise fault(f"{where}, line {line}: {_TOO_LONG}.") from error
    if not halves and "\\ud" in text.lower() and any(_HALF.search(part) for part in texts(value)):
        raise fault(f"{where}, line {line}: this holds half a character (a lone surrogate such as \\ud800); remove it.")
    return value


def texts(value: Any) -> Iterator[str]:
    """All strings in a JSON value, keys too."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            pending += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            pending += part


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    value = parse_json(read_text(path, limit=SUMMARY_BYTES), str(path))
    if not isinstance(value, dict):
        raise LesionError(f"{path} holds {kind(value)}, where a JSON object {{…}} is expected.")
    return value


def stored_object(path: Path, advice: str) -> dict[str, Any] | None:
    """The object in a JSON file of an output folder; None: there is no such file.

    `advice`: what to do when it is damaged, the end of a sentence.
    """
    if not os.path.lexists(path):
        return None
    text = read_bytes(path, limit=SUMMARY_BYTES)
    with understood(path, advice):
        try:
            value = parse_json(text.decode("utf-8"), path.name, pairs=once)
        except LesionError as error:  # here its words are the reason, and the advice is the caller's
            raise ValueError(str(error).rstrip(".")) from error
        if not isinstance(value, dict):
            raise ValueError(f"it holds {kind(value)}, where a JSON object is expected")
        return value


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of a JSON object, in which no key may stand twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key stands in it twice")
    return table


_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{50}}", re.MULTILINE)


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """The tables of TOML text."""
    if _DEEP_KEY.search(text):  # tomllib takes time and memory that grow with the square of its parts
        raise UsageError(f"{where} is not a study: it is nested too deeply.")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML: {short(str(error), 200)}.") from None
    except RecursionError:
        raise UsageError(f"{where} is not a study: it is nested too deeply.") from None
    except ValueError as error:
        why = _TOO_LONG if "digits" in str(error) else reason(error)
        raise UsageError(f"{where} is not valid TOML: {why}.") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a study file."""
    return parse_toml(read_text(path, limit=STUDY_BYTES, fault=UsageError), str(path))


@contextmanager
def understood(path: str | Path, advice: str) -> Iterator[None]:
    """Whatever does not fit while a received file is interpreted is a damaged file, not a fault of the program.

    `advice`: what to do about it, the end of a sentence.
    """
    try:
        yield
    except LesionError:
        raise
    except UNFIT as error:
        raise LesionError(f"{short(str(path), 300)} is damaged ({reason(error)}); {advice}.") from error


def kind(value: Any) -> str:
    """What a value is, in the words of JSON where it has some, for messages."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    number = isinstance(value, int | float | str)  # a text of another type is a number as it was written
    return names.get(type(value)) or ("a number" if number else f"a value of the type {type(value).__name__}")


_TOO_LONG = f"a whole number has more than {sys.get_int_max_str_digits():,} digits"
