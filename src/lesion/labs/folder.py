"""Whose a folder is: a laboratory writes only into one that holds nothing of another command's."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lesion.errors import UsageError

KNOWN = (
    "answers.sqlite", "isolation.json", "truncation.json", "plan.json", "best.edit", "statistics.safetensors",
    "study.toml", "cells", "training.safetensors", "truncated.json", "resume.safetensors", "model", "figures",
    "summary.json", "report.html",
)  # fmt: skip
"""What commands of the package leave in their folders."""


def refuse_strangers(folder: Path, own: Collection[str], what: str) -> None:
    """Let nobody write over what is not theirs.

    Args:
        folder: it need not be there.
        own: the names among `KNOWN` that whoever asks may find there.
        what: whose folder it should be, for the message.

    Raises:
        UsageError: something else of the package lies there; it is named.
    """
    found = next((name for name in KNOWN if name not in own and (Path(folder) / name).exists()), None)
    if found is not None:
        raise UsageError(f"{Path(folder) / found} is not of {what}; give another folder with --out.")
