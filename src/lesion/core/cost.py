"""Cost: how long the work on a study took and what it used again, in `cost.json`, apart from what was found.

A study that was killed and taken up again finds what an uninterrupted one finds, byte for byte, and costs more. So what
tells of the work is no part of a summary; reports read it from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, Strict, TypeAdapter, ValidationError

from lesion.atomic import keep
from lesion.errors import LesionError
from lesion.files import stored_object

FILE = "cost.json"
Amount = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


def read(folder: Path) -> dict[str, Any]:
    """What is known of the cost of the study in a folder, by part.

    Nothing where the file is missing or damaged; a part in which anything but amounts stands counts as absent.
    """
    try:
        parts = stored_object(Path(folder) / FILE, "") or {}
    except LesionError:
        return {}
    return {name: part for name, part in parts.items() if _is_sound(part)}


def note(folder: Path, part: str, cost: Mapping[str, Any]) -> None:
    """Write one part of the cost; the others stay."""
    keep(Path(folder) / FILE, json.dumps(read(folder) | {part: dict(cost)}, indent=1))


def _is_sound(part: object) -> bool:
    try:
        TypeAdapter(dict[str, Amount]).validate_python(part)
    except ValidationError:
        return False
    return True
