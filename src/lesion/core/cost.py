"""Cost: how long the work on a study took and what it used again, in `cost.json`, apart from what was found.

A study that was killed and taken up again finds what an uninterrupted one finds, byte for byte, and costs more. So what
tells of the work is no part of a summary; reports read it from here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lesion.atomic import keep
from lesion.errors import LesionError
from lesion.files import stored_object

FILE = "cost.json"


def read(folder: Path) -> dict[str, Any]:
    """What is known of the cost of the study in a folder, by part.

    Nothing where the file is missing or damaged; a part in which anything but amounts stands counts as absent.
    """
    try:
        parts = stored_object(Path(folder) / FILE, "") or {}
    except LesionError:
        return {}
    return {name: part for name, part in parts.items() if _USABLE.get(name, _amounts_within)(part)}


def note(folder: Path, part: str, cost: Mapping[str, Any]) -> None:
    """Write one part of the cost; the others stay."""
    keep(Path(folder) / FILE, json.dumps(read(folder) | {part: dict(cost)}, indent=1))


def beside(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The summary with the cost of its study under `cost`, for pages and terminals; it is not to be written so."""
    return {**summary, "cost": read(folder)}


def _amount(value: object) -> bool:
    """Whether a value is a number from 0 on; none that is infinite or too large for a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def _amounts(part: object) -> bool:
    return isinstance(part, dict) and all(map(_amount, part.values()))


def _amounts_within(part: object) -> bool:
    """Whether amounts are all that stands in an object and in the objects of it."""
    return isinstance(part, dict) and all(_amount(value) or _amounts_within(value) for value in part.values())


_USABLE = {"training": _amounts}
