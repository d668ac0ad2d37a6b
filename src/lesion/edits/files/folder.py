"""Folder: a checkpoint written beside its place, which it gets when it is whole; and what lies beside the weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lesion.atomic import alive
from lesion.edits.files import card
from lesion.edits.files.card import AppliedEdit
from lesion.errors import LesionError, UsageError
from lesion.models.stored import Checkpoint, inside


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


# What a checkpoint needs beside its weights. Whatever else lies in the folder (other weights, code) stays there.
COPIED = frozenset({".json", ".txt", ".model", ".jinja", ".tiktoken", ".md", ".spm", ".bpe"})
COPIED_NAMES = frozenset({"LICENSE", "NOTICE", "USE_POLICY", "COPYING"})
TEMPLATES = "additional_chat_templates"
KEPT = "lesion"


def copy_others(folder: Path, partial: Path, checkpoint: Checkpoint, edits: Sequence[AppliedEdit]) -> tuple[str, ...]:
    """Copy tokenizer, templates, licences and earlier edits, and add these edits; gives the names of what was not."""
    own = {*checkpoint.shards, checkpoint.index, "config.json", "README.md"}
    left_out = []
    for entry in sorted(folder.iterdir()):
        if entry.name in own:
            continue
        wanted = entry.suffix in COPIED or entry.stem in COPIED_NAMES
        weights = entry.name.endswith(".index.json")  # of the formats that are left out
        if wanted and not weights and entry.is_file() and _safe(folder, entry):
            shutil.copyfile(entry, partial / entry.name)
        elif entry.name == TEMPLATES and entry.is_dir() and not entry.is_symlink():
            (partial / TEMPLATES).mkdir()
            for template in sorted(entry.glob("*.jinja")):
                if _safe(entry, template):
                    shutil.copyfile(template, partial / TEMPLATES / template.name)
        elif entry.name != KEPT and not entry.name.startswith("."):
            left_out.append(entry.name + "/" * entry.is_dir())
    (partial / KEPT).mkdir()
    for edit in edits:
        (partial / KEPT / edit.kept_as).write_bytes(edit.file.data)
    earlier = folder / KEPT
    for entry in sorted(earlier.glob("*.edit")) if earlier.is_dir() and not earlier.is_symlink() else []:
        if _safe(earlier, entry):
            name, number = entry.name, 2
            while (partial / KEPT / name).exists():
                name, number = f"{entry.stem}-{number}.edit", number + 1
            shutil.copyfile(entry, partial / KEPT / name)
    return tuple(left_out)


def _safe(folder: Path, entry: Path) -> bool:
    try:
        return inside(folder, entry.name).is_file()
    except LesionError:
        return False


def base_card(folder: Path, partial: Path, lines: Iterable[str]) -> None:
    """Write the card of a checkpoint that was made from another, with the other's below."""
    readme = folder / "README.md"
    original = readme.read_text(encoding="utf-8", errors="replace") if _safe(folder, readme) else None
    front, rest = card.front_and_rest(original or "")
    below = "" if original is None else f"\n---\n\n# The card of the base model\n\n{rest.strip()}\n"
    (partial / "README.md").write_text(front + "\n".join(lines) + "\n" + below, encoding="utf-8")
