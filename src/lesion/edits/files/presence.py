"""Whether the `.edit` file that a person named is there; it is not read."""

from __future__ import annotations

from pathlib import Path

from lesion.errors import UsageError


def refuse_absent(path: Path) -> None:
    """Refuse the path of no `.edit` file, naming those that lie there."""
    if path.is_dir():
        inside = sorted(entry.name for entry in path.glob("*.edit"))
        hint = f": it has {', '.join(inside[:5])}" if inside else ""
        raise UsageError(f"{path} is a folder; give an .edit file{hint}.")
    if not path.exists():
        near = sorted(entry.name for entry in path.parent.glob("*.edit")) if path.parent.is_dir() else []
        hint = f" In {path.parent} there are {', '.join(near[:5])}." if near else ""
        raise UsageError(f"There is no file {path}.{hint}")
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give an .edit file.")
