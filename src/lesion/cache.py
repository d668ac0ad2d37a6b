"""Cache: the folder of a user in which lesion keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

from lesion.files import named

FOLDER = "LESION_CACHE"


def cache_folder(name: str = "") -> Path:
    """A folder for one kind of file, which need not exist: in `LESION_CACHE`, or in the user's `.cache/lesion`."""
    given = os.environ.get(FOLDER)
    if given:
        return named(given, FOLDER) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "lesion" / name
