"""The outcome of a run: its folder, its numbers, and how many answers were needed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from typing_extensions import TypeVar

S = TypeVar("S", default=Any)


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """What a run left behind.

    Attributes:
        folder: where the store lies.
        summary: the numbers, as in `summary.json`.
        asked: answers asked for in this run; fewer than `planned` when earlier ones were stored.
        planned: answers that the study consists of; where asking stopped, those that its table looks at.
    """

    folder: Path
    summary: S
    asked: int
    planned: int
