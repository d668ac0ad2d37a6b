"""Reading the folders of a comparison: the models in them, and what each answered under which edit."""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from lesion.core.database import FILE
from lesion.core.store import Store
from lesion.core.values import studies_in
from lesion.edits.edit import Scale, Truncate, parts
from lesion.edits.text import parse
from lesion.errors import UsageError
from lesion.outputs import kind_of
from lesion.plain import visible
from lesion.studies.comparison.result import UNEDITED, Side

KINDS = ("layers", "isolation", "truncation", "tuning")
COMMANDS = "`lesion ablate`, `evaluate`, `isolate`, `truncate` or `tune`"


@dataclass(frozen=True, eq=False)
class Source:
    """One model of one folder with its answers.

    Attributes:
        side: what the result keeps of it.
        kind: of study, as the folder is noted; empty where it is not.
        study: the stored study, as TOML has it.
        answers: columns as of `Store.answers`, of this model.
    """

    side: Side
    kind: str
    study: Mapping[str, Any]
    answers: pd.DataFrame

    @cached_property
    def cells(self) -> dict[tuple[str, str], pd.DataFrame]:
        """(task, edit) → the answers, by item in the order in which the study drew them."""
        groups = self.answers.groupby(["task", "edit"], sort=False)
        return {
            (str(task), str(edit)): rows.drop_duplicates("item").set_index("item")
            for (task, edit), rows in groups
        }  # fmt: skip

    @cached_property
    def items(self) -> dict[str, pd.DataFrame]:
        """task → question and gold of every item that was answered, by item."""
        columns = ["question", "gold", "group"]
        return {
            str(task): rows.drop_duplicates("item").set_index("item")[columns]
            for task, rows in self.answers.groupby("task", sort=False)
        }

    def edits(self, task: str) -> list[str]:
        """The edits under which a task was answered, unedited first, then in the order of their blocks."""
        return sorted((edit for of, edit in self.cells if of == task), key=place_order)

    def scored(self, task: str) -> bool:
        """Whether the answers of a task are log-probabilities: one score each, and nothing is right or wrong."""
        return task in self._scored

    @cached_property
    def _scored(self) -> frozenset[str]:
        single = (self.answers["scores"].map(len) == 1) & (self.answers["ranks"].map(len) == 0)
        return frozenset(str(task) for task, every in single.groupby(self.answers["task"]).all().items() if every)


def read(folders: Sequence[str | Path], labels: Sequence[str] = (), out: Path = Path()) -> list[list[Source]]:
    """The models of every folder with their answers.

    Args:
        folders: of studies; each at most once.
        labels: of the folders; none: their own names.
        out: the folder of the comparison.
    """
    places = studies_in(folders)
    if labels and len(labels) != len(places):
        raise UsageError(f"There are {len(places)} folders and {len(labels)} labels; give one --label for each folder.")
    names = list(labels) or _names(places)
    return [_sources(place, name, out, alone=len(places) == 1) for place, name in zip(places, names, strict=True)]


def _names(places: Sequence[Path]) -> list[str]:
    """The folders by the shortest ends of their paths that tell them apart."""
    whole = [Path(os.path.abspath(place)).parts for place in places]
    for length in range(1, max(map(len, whole)) + 1):
        names = [visible("/".join(parts[-length:])) for parts in whole]
        if len(set(names)) == len(names):
            return names
    return [f"{number} {visible(str(place))}" for number, place in enumerate(places, start=1)]


def _sources(place: Path, name: str, out: Path, *, alone: bool) -> list[Source]:
    kind = kind_of(place)
    if kind == "demo":
        raise UsageError(f"{place} is a demo of several studies; name folders in it, such as {place / 'layers'}.")
    if not (place / FILE).exists() or kind not in (None, *KINDS):
        raise UsageError(f"{place} holds no answers to compare; name folders of {COMMANDS}.")
    with Store.read(place) as store:
        answers, text = store.answers(), store.study[1]
    if answers.empty:
        raise UsageError(f"{place} holds no answers yet; run its study first.")
    study = tomllib.loads(text)
    models = list(dict.fromkeys(zip(answers["model_name"], answers["model"], strict=True)))
    return [
        Source(
            Side(
                label=name if len(models) == 1 else model if alone else f"{name} · {model}",
                folder=str(place),
                place=os.path.relpath(place, out),
                model=model,
                fingerprint=fingerprint,
                engines=tuple(sorted(set(answers.loc[answers["model"] == fingerprint, "engine"]))),
            ),
            kind or "",
            study,
            answers[answers["model"] == fingerprint],
        )
        for model, fingerprint in models
    ]


def digest(sources: Sequence[Source]) -> str:
    """A digest of the answers: it changes with every answer that is added, and with every verdict."""
    parts = hashlib.sha256()
    for source in sources:
        for key, correct in sorted(zip(source.answers["key"], source.answers["correct"], strict=True)):
            parts.update(f"{key}{int(correct)}".encode())
    return parts.hexdigest()[:32]


def blocks_of(edit: str) -> frozenset[str] | None:
    """The blocks that an edit touches; None where its text does not say them."""
    try:
        single = list(parts(parse(edit)))
    except UsageError:
        return None  # a selection of weights
    places = set()
    for part in single:
        if isinstance(part, Scale):
            places.add(str(part.layer))
        elif isinstance(part, Truncate):
            places.add(part.address.partition(".")[0])
    return frozenset(places) or None


def place_order(edit: str) -> tuple[bool, list[int], str]:
    """What sorts edits: unedited first, then by the numbers in their text, `2×0` before `10×0`."""
    return edit != UNEDITED, [int(number) for number in re.findall(r"\d{1,9}", edit)][:4], edit
