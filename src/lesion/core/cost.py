"""Cost: how long the work on a study took and what it used again, in `cost.json`, apart from what was found.

A study that was killed and taken up again finds what an uninterrupted one finds, byte for byte, and costs more. So what
tells of the work is no part of a summary; reports read it from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.errors import LesionError
from lesion.files import stored_object

FILE = "cost.json"


def read(folder: Path) -> dict[str, Any]:
    """What is known of the cost of the study in a folder, by part; nothing where the file is missing or damaged."""
    try:
        return stored_object(Path(folder) / FILE, "") or {}
    except LesionError:
        return {}


def note(folder: Path, part: str, cost: Mapping[str, Any]) -> None:
    """Write one part of the cost; the others stay.

    Raises:
        LesionError: the folder cannot be written.
    """
    try:
        replace(Path(folder) / FILE, json.dumps(read(folder) | {part: dict(cost)}, indent=1))
    except OSError as error:
        raise LesionError(f"{folder} cannot be written: {error.strerror or error}; give another with --out.") from error


def beside(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The summary with the cost of its study under `cost`, for pages and terminals; it is not to be written so."""
    return {**summary, "cost": read(folder)}
