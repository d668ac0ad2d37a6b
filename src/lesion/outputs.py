"""Output folders: each belongs to one kind of study, holds no links, and keeps nothing of runs that were killed."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from lesion.atomic import is_leftover, keep
from lesion.errors import LesionError, UsageError
from lesion.files import parse_json, read_text, understood
from lesion.plain import short, unruly

MARK = "lesion.json"
"""Names the kind of study that a folder belongs to."""
LOCK = "lock"
KINDS = {
    "layers": "`lesion ablate`",
    "isolation": "`lesion isolate` or `lesion evaluate`",
    "truncation": "`lesion truncate`",
    "search": "`lesion search`",
    "tuning": "`lesion tune`",
    "drift": "`lesion drift`",
    "effects": "`lesion effects`",
    "interaction": "`lesion interact`",
    "patching": "`lesion patch`",
    "overlay": "`lesion overlay`",
    "comparison": "`lesion compare`",
    "demo": "`lesion demo`",
    "recall": "`lesion lab recall`",
    "recall-sweep": "a study of `lesion lab recall` trainings",
    "memory": "`lesion lab memory`",
    "lineage": "`lesion lab lineage`",
    "planted": "`lesion lab planted`",
}
"""What made the folder, by the kind that is noted in it; a kind of another package is none of these."""
_KIND = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FILES = (".json", ".html", ".csv", ".toml", ".edit", ".sqlite", ".sqlite-wal", ".sqlite-shm", ".safetensors", LOCK)
_FOLDERS = ("figures", "cells", "layers", "model", "checkpoints", "references")
_SIGNS = (
    "summary.json", "report.html", "answers.sqlite", "plan.json",
    "tuning.json", "screen.json", "training.safetensors", "resume.safetensors", "statistics.safetensors",
    "truncated.json", "best.edit",
)  # fmt: skip
"""What shows that a study lies in a folder."""
_SIGNS_OF = {"recall-sweep": ("study.toml",), "tuning": ("model", "cells")}
"""What else such a study would overwrite."""
_MODEL = "config.json"
_FAMILIES = ("lineage", "planted")
"""Kinds whose folders hold folders of models, under names of their own: whatever lies there is theirs."""


_MARK_BYTES = 1 << 16
_WRITTEN = re.compile(r"(figures/[^/\\\0]+\.(svg|png)|[^/\\\0]+\.csv)")
"""What a report may delete of the report before: nothing of other kinds, nothing outside the folder."""
_DELETE = f"delete {MARK} and write the report again, which makes it anew"
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.DOTALL)


def default_folder(name: str, identity: str) -> Path:
    """`lesion-out/NAME-IDENTITY`: the folder of a study for which none was named.

    The name comes from a file that somebody else may have written; of the identity the first eight digits are used.
    """
    if re.search(r"[/\\]", name):
        fault = "holds a separator of folders"
    elif unruly(name):
        fault = "holds control characters or broken text"
    elif name.startswith(".") or name != name.strip():
        fault = "begins with a dot, or begins or ends with a space"
    elif _RESERVED.fullmatch(name):
        fault = "is reserved by Windows"
    elif len(name) > 100 or len(name.encode()) > 200:
        fault = "is longer than 100 characters or 200 bytes"
    else:
        return Path("lesion-out") / f"{name}-{identity[:8]}"
    raise UsageError(
        f"The study's name '{short(name, 60)}' {fault}, so that no folder can be called after it; give a plain name, or"
        " name the folder with --out."
    )


def own(folder: Path, kind: str, *, adopt: bool = False) -> None:
    """Note that a folder belongs to a kind of study, or refuse it. Call it before anything else is written there.

    With `adopt`, the study that lies there has been read as one of this kind: where no note is, one is written, and a
    wrong or damaged one is refused with what a reader of the folder can do.
    """
    refuse_links(folder)
    refuse_another = _refuse_wrong_note if adopt else refuse_another_kind
    if not refuse_another(folder, kind):
        keep(folder / MARK, json.dumps({"kind": kind}) + "\n")


def refuse_another_kind(folder: Path, kind: str) -> bool:
    """Refuse a folder that belongs to another kind of study; whether it belongs to this one already.

    A folder in which nothing but the note of another kind lies belongs to none.
    """
    noted = kind_of(folder)
    if noted == kind:
        return True
    if noted is None and os.path.lexists(folder / _MODEL):
        raise UsageError(
            f"{folder} holds a model ({_MODEL}), and a study would be mixed with it; give another folder with --out."
        )
    signs = (*_SIGNS, *_SIGNS_OF.get(kind, ()))
    if noted in _FAMILIES:
        signs += tuple(sorted(path.name for path in folder.iterdir() if path.name not in (MARK, LOCK)))
    sign = next((name for name in signs if os.path.lexists(folder / name)), None)
    if sign is not None and noted is None:
        raise UsageError(
            f"{folder / sign} is there already, and no {MARK} beside it says which command made it; give another folder"
            " with --out."
        )
    if sign is not None:
        raise UsageError(
            f"{folder} belongs to {made_by(noted or kind)}, and {made_by(kind)} would overwrite files there ({sign});"
            " give another folder with --out."
        )
    return False


def made_by(kind: str) -> str:
    """What makes folders of a kind: `lesion ablate`, or for one of another package that kind itself."""
    return KINDS.get(kind, f"a study of kind {kind}")


def _refuse_wrong_note(folder: Path, kind: str) -> bool:
    """`refuse_another_kind` for a folder whose study has been read as one of this kind: it is the note that errs."""
    noted = kind_of(folder, _DELETE)
    if noted not in (None, kind) and any(os.path.lexists(folder / name) for name in _SIGNS):
        raise UsageError(
            f"{folder / MARK} says that the folder belongs to {made_by(str(noted))}, but what lies in it was read as a"
            f" study of {made_by(kind)}. If it is one, {_DELETE}; if not, get the folder anew."
        )
    return noted == kind


def kind_of(folder: Path, advice: str = "give another folder with --out") -> str | None:
    """The kind of study that a folder belongs to; None where nothing is noted.

    `advice`: what to do where the note is damaged, the end of a sentence.
    """
    path = folder / MARK
    if not os.path.lexists(path):
        return None
    with understood(path, advice):
        try:
            kind = parse_json(read_text(path, limit=_MARK_BYTES), MARK)["kind"]
        except LesionError as error:  # its words are the reason
            raise ValueError(str(error).rstrip(".")) from error
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise ValueError("it names no kind of study")
        return str(kind)


def refuse_links(folder: Path) -> None:
    """Refuse a folder through which a file elsewhere would be written, or in which a write would fail or wait.

    A received archive can hold a link where a study would write a file or open a folder.
    """
    for path in _entries(folder):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            what = "a link; a study writes only into its own folder"
        elif stat.S_ISDIR(status.st_mode):
            if not path.name.endswith(_FILES):
                continue
            what = "a folder, where a file belongs"
        elif not stat.S_ISREG(status.st_mode):
            what = "a device or a pipe"
        elif path.name in _FOLDERS and path.parent == folder:
            what = "a file, where a folder belongs"
        elif path.name.endswith(".sqlite") and status.st_nlink > 1:
            what = "a hard link: SQLite loses answers in a file with two names"
        else:
            continue
        raise LesionError(f"{path} is {what}. Remove it, or give another folder with --out.")


def note_written(folder: Path, kind: str, names: Collection[str]) -> None:
    """Note the tables and figures that a report wrote; those of the report before that it has not are deleted.

    `names` are relative to the folder: `items.csv`, `figures/difference.svg`.
    """
    path = folder / MARK
    before = parse_json(read_text(path, limit=_MARK_BYTES), MARK).get("written", ())
    for name in before if isinstance(before, list) else ():
        if isinstance(name, str) and _WRITTEN.fullmatch(name) and name not in names:
            (folder / name).unlink(missing_ok=True)
    keep(path, json.dumps({"kind": kind, "written": sorted(names)}) + "\n")


def clear_leftovers(folder: Path) -> None:
    """Remove the unfinished files that killed processes left in a folder; those of a living process stay."""
    for path in _entries(folder):
        if is_leftover(path):
            path.unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[Path]:
    """What lies in a folder, and in those folders of it that studies write into."""
    pending = [folder]
    while pending:
        place = pending.pop()
        try:
            for entry in sorted(place.iterdir()):
                yield entry
                inside = place != folder or entry.name in _FOLDERS
                if inside and not entry.is_symlink() and entry.is_dir():
                    pending.append(entry)
        except OSError as error:
            raise LesionError(
                f"{place} cannot be read: {error.strerror or error}; give another folder with --out."
            ) from error
