"""Summaries: all numbers of a study, written as `summary.json` and read back; and rows that several studies have.

A study's `result.py` builds its summary from the values of `lesion.report.values`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from lesion.atomic import keep
from lesion.edits.place import Unit
from lesion.errors import LesionError, UsageError
from lesion.files import stored_object
from lesion.plain import short
from lesion.report.rows import Row, column
from lesion.report.values import Estimate, Value, decimals
from lesion.report.wording import UNIT_NAMES

SUMMARY = "summary.json"


class Summary(Value):
    """All numbers of a study: what `summary.json` holds.

    Attributes:
        kind: of the study, as its folder is noted.
        version: of lesion.
        notes: what a reader should know of them, as sentences.
    """

    kind: str
    version: str = Field(default_factory=lambda: version("lesion"))
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """The JSON."""
        return self.model_dump_json(indent=1, by_alias=True) + "\n"

    def write(self, folder: Path) -> None:
        """Write `summary.json`, whole or not at all; one that holds it already is left as it is."""
        path, text = folder / SUMMARY, self.text()
        with suppress(OSError):
            if path.read_bytes() == text.encode():
                return
        keep(path, text)


class ModelAndTask(Row):
    """Which model and task a line is about."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)


class RankAgreement(Row):
    """How a cheap measure orders the places of one unit, beside drops of accuracy (`statistics.agreement`).

    Attributes:
        tied: of the drops that are equal to others, how many.
        rho: Spearman's (`rank_correlation`), with a bootstrap interval over items.
    """

    unit: Unit = column("Unit", UNIT_NAMES.__getitem__, label=True)
    tied: int = column("Tied drops")
    rho: Estimate = column("ρ with the drops", decimals(2), p="p", corrected=False)


S = TypeVar("S", bound=Summary)
T = TypeVar("T")
V = TypeVar("V", bound=Value)


def alike(every: Iterable[T], *names: str) -> list[list[T]]:
    """Rows or edits in groups whose attributes of these names, as `model` or `task`, are equal; in their order."""
    groups: dict[Hashable, list[T]] = {}
    for each in every:
        groups.setdefault(attrgetter(*names)(each), []).append(each)
    return list(groups.values())


def with_corrected(rows: Sequence[V], field: str, tests: int = 0) -> list[V]:
    """The rows with p of an estimate corrected by Holm over all that have one; of `tests` in all, others count as 1."""
    from lesion.statistics.paired import holm

    p = {place: each.p for place, row in enumerate(rows) if (each := getattr(row, field)).p is not None}
    corrected = dict(zip(p, holm(p.values(), tests), strict=True))
    estimates = [getattr(row, field).model_copy(update={"p_corrected": corrected.get(n)}) for n, row in enumerate(rows)]
    return [row.model_copy(update={field: each}) for row, each in zip(rows, estimates, strict=True)]


def read_summary(kind: type[S], folder: Path, again: str) -> S | None:
    """The summary in a folder, None where it has none; `again` says what to do where it is damaged."""
    return read_value(kind, Path(folder) / SUMMARY, again)


def read_value(kind: type[V], path: Path, again: str) -> V | None:
    """The value in a JSON file; None where there is no file."""
    stored = stored_object(path, again)
    if stored is None:
        return None
    try:
        return kind.model_validate(stored)
    except ValidationError as error:
        first = error.errors()[0]
        place = short(".".join(map(str, first["loc"])), 80) or "the whole"
        raise LesionError(f"{path} is damaged ({place}: {short(first['msg'], 120)}); {again}.") from None


def summary_kind(folder: Path) -> str | None:
    """The kind of study whose typed summary lies in a folder; None where there is no such summary."""
    stored = stored_object(Path(folder) / SUMMARY, "run the study again on that folder") or {}
    kind = stored.get("kind")
    return kind if isinstance(kind, str) else None


def studies_in(folders: Iterable[str | Path], *, or_file: bool = False) -> list[Path]:
    """Folders of finished studies, as they were named; with `or_file` also files."""
    places = [Path(folder) for folder in folders]
    if not places:
        raise UsageError("Name the folders of finished studies.")
    for index, place in enumerate(places):
        if not place.is_dir() and not (or_file and place.is_file()):
            also = (" and no file", " or logs") if or_file else ("", "")
            raise UsageError(f"{place} is no folder{also[0]}; name the folders of finished studies{also[1]}.")
        if os.path.realpath(place) in map(os.path.realpath, places[:index]):
            raise UsageError(f"{place} is named twice; name everything once.")
    return places
