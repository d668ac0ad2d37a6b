"""The result of a study: its folder and numbers, its page, its tables for a terminal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from rich.console import RenderableType
from typing_extensions import TypeVar

from lesion.core.values import Summary

if TYPE_CHECKING:
    from lesion.report.blocks import Chapter

S = TypeVar("S", bound=Summary, default=Any)


@dataclass(frozen=True)
class StudyResult(ABC, Generic[S]):
    """What every study leaves.

    Attributes:
        folder: where everything lies; a temporary one, removed when Python ends, unless it was named.
        summary: all numbers: what `summary.json` holds.
    """

    folder: Path
    summary: S

    @abstractmethod
    def report(self) -> Path:
        """Write the report into the folder and return the path of `report.html`.

        Raises:
            LesionError: the folder cannot be written.
        """

    @abstractmethod
    def text(self) -> RenderableType:
        """The tables and findings for a terminal; no text of a model or file in them acts on it."""

    def chapter(self) -> Chapter | None:
        """What the study adds to a page over several studies; None: nothing."""
        return None

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know of the numbers."""
        return self.summary.notes

    def done(self) -> list[str]:
        """Lines on what this run did and left; none for a result that was read from its folder."""
        return []


def progress_line(verb: str, done: int, planned: int, what: str = "", already: str = "stored already") -> str:
    """`asked 11 of 12 answers; 1 were stored already`."""
    before = planned - done
    rest = f"; {before:,} were {already}" if before > 0 else ""
    return f"{verb} {done:,} of {planned:,}{what}{rest}"
