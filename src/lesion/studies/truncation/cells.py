"""A truncation search's summary as values: its cells, the unedited model, what was chosen, and what the test items say.

Accuracies, shares and probabilities are in 0…1, log-probabilities in nats. What the summary does not tell is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar

from lesion.errors import LesionError
from lesion.report import wording
from lesion.report.trials import number

UNEDITED = "baseline"
"""How a summary names the unedited model among edits."""
JOINT = " + "
"""What stands between the parts of an edit in its text."""


@dataclass(frozen=True)
class Task:
    """One task of the search; `tempting`: its items name a wrong token that tempts."""

    name: str
    kind: str
    validation_items: int
    test_items: int
    tempting: bool


@dataclass(frozen=True)
class Unedited:
    """The unedited model on one part (`validation` or `test`) of a task; `label` is its most frequent answer."""

    task: str
    part: str
    items: int
    accuracy: float | None
    low: float | None
    high: float | None
    gold: float | None
    label: str | None
    label_share: float | None


@dataclass(frozen=True)
class Outcome:
    """One cell on the validation items of one task; `gold` is the mean log-probability of the gold answers."""

    task: str
    items: int
    accuracy: float | None
    low: float | None
    high: float | None
    drop: float | None
    drop_low: float | None
    drop_high: float | None
    gold: float | None
    label: str | None
    label_share: float | None
    collapsed: bool


@dataclass(frozen=True)
class Cell:
    """One matrix with a part of its spectrum kept.

    Attributes:
        rank, of: how many singular values are kept, and how many there are.
        saved: parameters fewer as two thin factors; negative where they are more.
        screen: mean log-probability of the gold answers on the screened items, minus the unedited model's.
        eliminated: after how many items it was given up; None: it was not.
        score: what it was chosen by, or not.
        outcomes: task → what it did there; empty where the screen left it out.
    """

    edit: str
    address: str
    layer: int
    matrix: str
    keep: float
    rank: int
    of: int
    side: str
    saved: int | None
    screen: float | None
    eliminated: int | None
    score: float | None
    outcomes: Mapping[str, Outcome]

    @property
    def complete(self) -> bool:
        """Whether it was asked in full."""
        return self.eliminated is None and bool(self.outcomes)

    @property
    def collapsed(self) -> list[str]:
        """The tasks on which it gives one label nearly always."""
        return [outcome.task for outcome in self.outcomes.values() if outcome.collapsed]

    @property
    def name(self) -> str:
        """`the top 1 % of 3.mlp.up`."""
        return (
            f"the {self.side} {wording.keep(self.keep)} of {self.address}"
            if self.rank
            else f"nothing of {self.address}"
        )


@dataclass(frozen=True)
class Tested:
    """An edit on the test items of one task, beside the unedited model; gains are edited minus unedited.

    Those of `p_right` and `p_tempting` are of the probabilities of the two tokens of a contrast.
    """

    task: str
    items: int
    baseline: float | None
    accuracy: float | None
    low: float | None
    high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    p: float | None
    gold_gain: float | None
    gold_low: float | None
    gold_high: float | None
    label_share: float | None
    collapsed: bool
    p_right_gain: float | None = None
    p_right_gain_low: float | None = None
    p_right_gain_high: float | None = None
    p_tempting_gain: float | None = None
    p_tempting_gain_low: float | None = None
    p_tempting_gain_high: float | None = None


@dataclass(frozen=True)
class Step:
    """One step of the greedy composition: what was added, and the score before and after."""

    step: int
    edit: str
    added: str | None
    before: float | None
    after: float | None
    accepted: bool
    reason: str | None


@dataclass(frozen=True)
class Tokens:
    """The right and the tempting token of a task under one edit; `margin` is log p right − log p tempting."""

    task: str
    edit: str
    revision: str | None
    items: int
    p_right: float | None
    p_right_low: float | None
    p_right_high: float | None
    p_tempting: float | None
    p_tempting_low: float | None
    p_tempting_high: float | None
    rank_right: float | None
    rank_tempting: float | None
    margin: float | None
    margin_low: float | None
    margin_high: float | None


@dataclass(frozen=True)
class Along:
    """One revision's accuracy and gold log-probability on the test items of a task, under one edit."""

    revision: str
    edit: str
    task: str
    items: int
    accuracy: float | None
    low: float | None
    high: float | None
    gold: float | None


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a matrix in falling order, their numbers (from 1) beside them; some may be left out."""

    address: str
    places: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Search:
    """The whole summary.

    Attributes:
        study, model, search: as in the summary.
        cost: of the work, as `lesion.core.cost` tells it.
        chosen: the edit chosen on validation items, or None; `nothing` then says why.
        best: the best on validation items, chosen or not.
        best_tests, composed_tests: that edit and the composed one on test items.
        composed: the composed edit, None where nothing was composed.
    """

    study: Mapping[str, Any]
    model: Mapping[str, Any]
    search: Mapping[str, Any]
    cost: Mapping[str, Any]
    tasks: tuple[Task, ...]
    unedited: tuple[Unedited, ...]
    cells: tuple[Cell, ...]
    chosen: str | None
    best: str | None
    nothing: str
    best_tests: tuple[Tested, ...]
    path: tuple[Step, ...]
    composed: str | None
    composed_tests: tuple[Tested, ...]
    spectra: tuple[Spectrum, ...]
    tokens: tuple[Tokens, ...]
    revisions: tuple[Along, ...]
    notes: tuple[str, ...]

    @property
    def level(self) -> float:
        """Of all intervals, in 0…1."""
        return float(self.study.get("level") or 0.95)

    @property
    def by_gold(self) -> bool:
        """Whether edits were chosen by the log-probability of gold answers; else by accuracy."""
        return self.search.get("objective") == "gold"

    @cached_property
    def by_edit(self) -> Mapping[str, Cell]:
        """Text form → cell."""
        return {cell.edit: cell for cell in self.cells}

    @property
    def complete(self) -> int:
        """How many cells were asked in full."""
        return sum(cell.complete for cell in self.cells)

    @property
    def given_up(self) -> int:
        """How many cells were given up early."""
        return sum(cell.eliminated is not None for cell in self.cells)

    @property
    def kept(self) -> str | None:
        """The edit that the search leaves behind: the composition where there is one, else the chosen edit."""
        return self.composed if self.chosen is not None and self.composed and self.composed_tests else self.chosen

    @property
    def matrices(self) -> list[str]:
        """Names of the matrices searched, in the order of the cells."""
        return list(dict.fromkeys(cell.matrix for cell in self.cells))

    @property
    def followed(self) -> list[str]:
        """The revisions that were asked besides the model that was searched."""
        there = [*(one.revision for one in self.revisions), *(one.revision for one in self.tokens)]
        return list(dict.fromkeys(revision for revision in there if revision is not None))

    @property
    def screened(self) -> bool:
        """Whether a screen chose what was asked in full."""
        return bool(self.search.get("screen"))

    @property
    def tests(self) -> list[tuple[str, tuple[Tested, ...]]]:
        """What is told on test items: the best edit, and the composed one where that is another."""
        found = [(self.best, self.best_tests)]
        if self.composed != self.best:
            found.append((self.composed, self.composed_tests))
        return [(edit, tests) for edit, tests in found if edit is not None and tests]

    def base(self, task: str, part: str = "validation") -> Unedited | None:
        """The unedited model on a part of a task."""
        return next((one for one in self.unedited if (one.task, one.part) == (task, part)), None)

    def name(self, edit: str) -> str:
        """An edit in words: `unedited`, `the top 1 % of 3.mlp.up`; of an unknown one its text."""
        if edit == UNEDITED:
            return "unedited"
        parts = edit.split(JOINT)
        return wording.listed([self.by_edit[part].name if part in self.by_edit else part for part in parts])

    def role(self, edit: str) -> str:
        """What an edit is to the search, in a word: `unedited`, `chosen`, `best`, `composed`, or its name."""
        roles = {UNEDITED: "unedited", self.composed: "composed", self.best: "best", self.chosen: "chosen"}
        return roles.get(edit) or self.name(edit)

    def ranked(self) -> list[Cell]:
        """The cells that were asked in full and have a score, the best first; those that collapsed come last."""

        def place(pair: tuple[float, Cell]) -> tuple[bool, float, bool]:
            return bool(pair[1].collapsed), -pair[0], pair[1].edit != self.best

        known = [(cell.score, cell) for cell in self.cells if cell.complete and cell.score is not None]
        return [cell for _, cell in sorted(known, key=place)]


def found(summary: Mapping[str, Any]) -> Search:
    """The summary as values.

    Raises:
        LesionError: it does not have the form that a truncation search writes.
    """
    try:
        chosen, composition = summary.get("chosen") or {}, summary.get("composition") or {}
        best = chosen or summary.get("best") or {}
        search = summary.get("search") or {}
        return Search(
            study=dict(summary.get("study") or {}),
            model=dict(summary.get("model") or {}),
            search=dict(search),
            cost=dict(summary.get("cost") or {}),
            tasks=tuple(_read(Task, entry) for entry in search.get("tasks") or ()),
            unedited=tuple(_read(Unedited, entry) for entry in summary.get("baseline") or ()),
            cells=tuple(_cell(entry) for entry in summary.get("cells") or ()),
            chosen=str(chosen["edit"]) if chosen else None,
            best=str(best["edit"]) if best else None,
            nothing=str(summary.get("nothing") or ""),
            best_tests=tuple(_read(Tested, entry) for entry in best.get("tasks") or ()),
            path=tuple(_read(Step, entry) for entry in composition.get("path") or ()),
            composed=str(composition["edit"]) if composition.get("edit") else None,
            composed_tests=tuple(_read(Tested, entry) for entry in composition.get("tasks") or ()),
            spectra=tuple(_spectrum(entry) for entry in summary.get("spectra") or ()),
            tokens=tuple(_read(Tokens, entry) for entry in summary.get("tokens") or ()),
            revisions=tuple(_read(Along, entry) for entry in summary.get("revisions") or ()),
            notes=tuple(str(note) for note in summary.get("notes") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one that a truncation search wrote ({type(error).__name__}: {error}). "
            "Run the search again on the same folder: what was answered is kept."
        ) from error


READERS: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    "str": lambda entry, name: str(entry[name]),
    "int": lambda entry, name: int(entry[name]),
    "float": lambda entry, name: float(entry[name]),
    "bool": lambda entry, name: bool(entry.get(name)),
    "str | None": lambda entry, name: None if entry.get(name) is None else str(entry[name]),
    "int | None": lambda entry, name: None if entry.get(name) is None else int(entry[name]),
    "float | None": lambda entry, name: number(entry.get(name)),
}
"""A field's annotation → how it is read; what is not finite is not known."""

Value = TypeVar("Value")


def _read(kind: type[Value], entry: Mapping[str, Any], **given: Any) -> Value:
    read = {
        field.name: READERS[str(field.type)](entry, field.name)
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in given
    }
    return kind(**read, **given)


def _cell(entry: Mapping[str, Any]) -> Cell:
    outcomes = (_read(Outcome, task) for task in entry.get("tasks") or ())
    return _read(Cell, entry, outcomes={outcome.task: outcome for outcome in outcomes})


def _spectrum(entry: Mapping[str, Any]) -> Spectrum:
    values = [number(value) for value in entry["values"]]
    index = entry.get("index") or range(len(values))
    pairs = [(int(i) + 1, value) for i, value in zip(index, values, strict=True) if value is not None]
    return Spectrum(str(entry["address"]), tuple(i for i, _ in pairs), tuple(value for _, value in pairs))
