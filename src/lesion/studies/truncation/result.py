"""The result of a truncation search: its cells, the edit chosen on validation items, and what the test items say.

Accuracies, shares and probabilities are in 0…1, log-probabilities in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from lesion.core.values import Summary
from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import (
    CHANGE,
    FIGURES,
    NATS,
    SHARE,
    WHOLE_SHARE,
    ByUnit,
    Estimate,
    Number,
    Value,
    decimals,
)
from lesion.studies.truncation.study import TruncationStudy

if TYPE_CHECKING:  # pages are made without torch
    from lesion.models.load import Model

BEST = "best.edit"
"""The file of the edit that a search chose."""
ItemsPart = Literal["validation", "test"]
Unit = Literal["points", "nats"]
"""Of a gain: points of accuracy, or log-probability of a token of running text."""
GAIN = ByUnit({"points": CHANGE, "nats": decimals(3, "nats", signed=True)})
FORCED = ("relation", "pair")
"""Rivals that are another form of the question: a forced choice, which is asked with the edit and without."""


def forbidding(tokens: Sequence[str]) -> str:
    """First tokens that are forbidden, in words: `3 wrong first tokens forbidden (“ the”, “ a”, “ is”)`."""
    texts = ", ".join(f"“{wording.short(text, 12)}”" for text in tokens)
    return f"{wording.counted(len(tokens), 'wrong first token')} forbidden ({texts})"


class SearchedModel(Value):
    """The model that was searched."""

    name: str
    fingerprint: str
    blocks: int
    family: str
    dtype: str

    @classmethod
    def of(cls, name: str, model: Model) -> SearchedModel:
        """A model under the name that the study gives it."""
        about = {"fingerprint": model.fingerprint, "family": model.anatomy.family, "dtype": model.dtype_name}
        return cls(name=name, blocks=len(model.anatomy.blocks), **about)


class SearchedTask(Value):
    """A task and how its items were split; `kind` is `generate`, `choose` or `contrast`."""

    name: str
    kind: str
    validation_items: int
    test_items: int


class Answered(Row):
    """The answers to some items of a task.

    Attributes:
        gold: mean log-probability of the gold answers.
        label: the most frequent answer; `label_share`: the share of items that it is given to.
    """

    task: str = column("Task", label=True)
    items: int = column("Items")
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))
    gold: Number = column("Gold", decimals(3, "nats"))
    label: str = column("Most frequent answer")
    label_share: float = column("Its share", WHOLE_SHARE)


class Unedited(Answered):
    """The unedited model on one part of a task."""

    part: ItemsPart = column("Items of")


class Edited(Answered):
    """Answers under an edit; `collapsed`: nearly all items get one answer that they do not get without the edit."""

    collapsed: bool = column("Collapsed")


class Outcome(Edited):
    """One cell on the validation items of one task; `drop`: unedited minus edited accuracy on the same items."""

    drop: Estimate = column()

    @derived.column("Gain", CHANGE)
    def gain(self) -> Estimate:
        """Of accuracy, edited minus unedited."""
        return self.drop.negative


class CellState(Row):
    """What became of a cell; `gold_gain` is unknown where answers are all the same."""

    gold_gain: Number = column("Gold", NATS, default=None)
    chosen: bool = column()
    state: str = column("State")


class TruncatedMatrix(Row):
    """One matrix with a part of its spectrum kept.

    Attributes:
        rank, of: how many singular values are kept, and how many there are.
        saved: parameters fewer as two thin factors; negative where they are more.
        screen: mean log-probability of the gold answers on the screened items, minus the unedited model's.
        eliminated: after how many items the cell was given up.
        score: mean over tasks of what the search maximises.
        outcomes: one per task; none where the cell was not evaluated in full.
    """

    edit: str = column()
    address: str = column("Matrix", label=True)
    layer: int = column()
    matrix: str = column()
    keep: float = column("Keep", wording.keep, label=True)
    side: Literal["top", "bottom"] = column("Side", label=True)
    rank: int = column("Rank")
    of: int = column()
    saved: int = column("Parameters saved")
    screen: Number = column("Screen", NATS, default=None)
    eliminated: int | None = column(default=None)
    score: Number = column(default=None)
    outcomes: tuple[Outcome, ...] = ()

    @property
    def name(self) -> str:
        """`the top 1 % of 3.mlp.up`."""
        kept = f"the {self.side} {wording.keep(self.keep)}" if self.rank else "nothing"
        return f"{kept} of {self.address}"


class EditOf(Row):
    """Which edit a line is about: what it is to the search, and its text form."""

    what: str = column("Edit", label=True)
    edit: str = column()


class Tested(Edited):
    """An edit on the test items of one task; gains are edited minus unedited on the same items.

    Attributes:
        baseline: accuracy of the unedited model.
        gain: of accuracy, with the p of McNemar's exact test; gold_gain: of the log-probability of the gold answers.
        right_gain, tempting_gain: of the probabilities of the two tokens of a contrast; None for other tasks.
    """

    baseline: float = column("Unedited", SHARE)
    gain: Estimate = column("Gain", CHANGE, p="p")
    gold_gain: Estimate = column("Gold gain", NATS, ends=("gold_low", "gold_high"))
    right_gain: Estimate | None = column("Right token", CHANGE, default=None, key="p_right_gain")
    tempting_gain: Estimate | None = column("Tempting token", CHANGE, default=None, key="p_tempting_gain")


class Gained(Row):
    """What was chosen, or what it is compared with: a bar of the first figure, coloured by `what` it is."""

    task: str = column("Task", label=True)
    name: str = column("Edit", label=True)
    what: str
    gain: Estimate = column("Gain", GAIN)
    unit: Unit = column(default="points", omitted=True)


class Compared(Gained):
    """The edit, or a rival of it, on the test items of one task; `beyond`: what the cut has more."""

    accuracy: Estimate = column("Accuracy", SHARE)
    beyond: Estimate | None = column("The cut adds", CHANGE, default=None, p="p")


class Rival(Row):
    """What the edit is compared with on the test items of one task.

    Attributes:
        what: `forbidden` (at decoding, the most frequent wrong first tokens of the unedited model), `relation` and
            `pair` (a forced choice: among the right texts of the item's relation, against its own rivals), both without
            an edit and with it; in the place of the edit `subspace` (a random one of the same rank), `branch` (deleted)
            and `factor` (the matrix multiplied by the best constant).
        rival: the edit that stands in the place of the chosen one, as text; `baseline` where none does.
        draw: of a random subspace; forbidden: the texts of the tokens.
        fitted: of `forbidden`, whether so many are best on validation items, and better there than none.
        validation: accuracy on validation items, of what was fitted there; of `factor` the mean over tasks.
        candidates, chance: of a forced choice, how many texts there are and the share that guessing has right, means.
        accuracy: of the rival; gain: that minus the unedited model's, with the p of McNemar's exact test.
        edited: accuracy of the edit, together with the rival or in its place; beyond: that minus the rival's.
    """

    task: str = column("Task", label=True)
    what: Literal["forbidden", "relation", "pair", "subspace", "branch", "factor"] = column()
    rival: str = column()
    draw: int | None = None
    items: int = column("Items")
    forbidden: tuple[str, ...] = ()
    fitted: bool = column(default=False)
    validation: Number = column(default=None)
    candidates: Number = column(default=None)
    chance: Number = column("Guessing", SHARE, default=None)
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))
    gain: Estimate | None = column("Gain over unedited", CHANGE, default=None)
    edited: Estimate | None = column("With the cut, or the cut instead", SHARE, default=None)
    beyond: Estimate | None = column("The cut adds", CHANGE, default=None, p="p")

    @derived.column("Rival", label=True)
    def name(self) -> str:
        """In words."""
        if self.what == "forbidden":
            return forbidding(self.forbidden)
        names = {
            "pair": f"forced choice among {self.candidates or 0:.0f} texts of the item",
            "relation": f"forced choice among {self.candidates or 0:.0f} answers of its relation",
            "subspace": f"random subspace of that rank, draw {self.draw}",
            "branch": f"{self.rival.replace('×0 + ', ', ').removesuffix('×0')} deleted",
        }
        return names.get(self.what, self.rival)

    @derived.column(key="forbidden")
    def forbidden_texts(self) -> str:
        """The texts of the forbidden tokens, quoted."""
        return " ".join(map(repr, self.forbidden))

    @property
    def beaten(self) -> bool:
        """Whether the edit is shown to be better."""
        return self.beyond is not None and self.beyond.shown == 1


class Score(Row):
    """Means over tasks of their means over validation items."""

    accuracy: Number = column("Accuracy", SHARE)
    gold: Number = column("Gold", decimals(3, "nats"))


class Step(Row):
    """One step of the greedy composition: an edit added to those accepted before, and the scores before and after."""

    step: int = column("Step")
    added: str = column("Added", label=True)
    edit: str = column()
    before: Score
    after: Score
    accepted: bool = column("Stayed")
    reason: str = column("Why")


class Tokens(Row):
    """The right and the tempting token of a contrast on test items, under one edit.

    Attributes:
        p_right, p_tempting: mean probabilities; rank_right, rank_tempting: median ranks, 1 is the likeliest token.
        margin: mean of log p right − log p tempting.
    """

    task: str = column("Task", label=True)
    edit: str = column()
    revision: str | None = column("Revision", lambda revision: revision or "searched", label=True)
    items: int = column("Items")
    p_right: Estimate = column("Right token", SHARE)
    p_tempting: Estimate = column("Tempting token", SHARE)
    rank_right: Number = column("Rank, right", FIGURES)
    rank_tempting: Number = column("Rank, tempting", FIGURES)
    margin: Estimate = column("Margin", NATS)

    @derived.column()
    def part(self) -> str:
        """Of which items."""
        return "test"


class RevisionOutcome(Edited):
    """Another revision of the model on the test items of one task, under one edit."""

    revision: str = column("Revision", label=True)
    edit: str = column()


class Spectrum(Value):
    """Singular values of a matrix in falling order; of a long spectrum some, `index` counts from 0."""

    address: str
    index: tuple[int, ...]
    values: tuple[Number, ...]


class SingularValue(Row):
    """One singular value."""

    address: str = column("Matrix", label=True)
    index: int = column()
    value: Number = column("Singular value", FIGURES)

    @property
    def number(self) -> int:
        """Counted from 1."""
        return self.index + 1

    @property
    def matrix(self) -> str:
        """Its kind: `mlp.up`."""
        return self.address.partition(".")[2] or self.address

    @property
    def block(self) -> str:
        """Its block: `block 3`."""
        return f"block {self.address.partition('.')[0]}"


class ScreenOutcome(Value):
    """The screen that chose which cells were evaluated in full.

    Attributes:
        items: of each task that it looked at.
        best, random: how many of the best cells, and of the others drawn by the seed, were evaluated.
        evaluated: cells that have a score as well.
        rank_correlation: of the screen with the scores, over these; the interval is that of resampling them.
    """

    items: int | Literal["all"]
    best: int
    random: int
    evaluated: int
    rank_correlation: Estimate


class Elimination(Value):
    """Cells given up early; `error` bounds the chance that any of them is as good as the unedited model."""

    error: float
    looks: int
    eliminated: int
    answers_saved: int


class TruncationSummary(Summary):
    """All numbers of a truncation search: what `summary.json` holds.

    Attributes:
        merged: keeps that leave the same components as another, and so are no cells.
        unedited_score: what the search maximises, of the unedited model on validation items.
        best: the best edit on validation items; nothing: why it was not chosen.
        composed: the composed edit, or the chosen one where no step was added to it.
        best_tests, composed_tests: these edits on test items; rivals: of the composed one, else of the best.
    """

    kind: Literal["truncation"] = "truncation"
    approximate: str | None = None
    study: TruncationStudy
    model: SearchedModel
    tasks: tuple[SearchedTask, ...]
    merged: int
    screen: ScreenOutcome | None
    elimination: Elimination | None
    unedited: tuple[Unedited, ...]
    unedited_score: Number
    cells: tuple[TruncatedMatrix, ...]
    best: str | None
    nothing: str | None
    best_tests: tuple[Tested, ...] = ()
    path: tuple[Step, ...] = ()
    composed: str | None = None
    composed_tests: tuple[Tested, ...] = ()
    rivals: tuple[Rival, ...] = ()
    spectra: tuple[Spectrum, ...]
    tokens: tuple[Tokens, ...] = ()
    revisions: tuple[RevisionOutcome, ...] = ()

    @property
    def by_gold(self) -> bool:
        """Whether the search maximises the log-probability of the gold answers; else accuracy."""
        return self.study.objective == "gold"

    @property
    def chosen(self) -> str | None:
        """The edit that was chosen: the best one, if it is better than the unedited model on validation items."""
        return self.best if self.nothing is None else None

    @property
    def kept(self) -> str | None:
        """The edit that the search leaves behind."""
        return self.composed or self.chosen

    @cached_property
    def by_edit(self) -> dict[str, TruncatedMatrix]:
        """Text form → cell."""
        return {cell.edit: cell for cell in self.cells}

    @property
    def complete(self) -> int:
        """How many cells were evaluated in full."""
        return sum(cell.eliminated is None and bool(cell.outcomes) for cell in self.cells)

    @property
    def kept_tests(self) -> tuple[Tested, ...]:
        """The test items under the edit that the search leaves behind."""
        return () if self.chosen is None else self.composed_tests or self.best_tests

    def name(self, edit: str) -> str:
        """An edit in words: `unedited`, `the top 1 % of 3.mlp.up`."""
        names = {str(BASELINE): "unedited"} | {text: cell.name for text, cell in self.by_edit.items()}
        return wording.listed([names.get(part, part) for part in edit.split(" + ")])

    def role(self, edit: str) -> str:
        """What an edit is to the search: `unedited`, `chosen`, `best`, `composed`, or its name."""
        roles = {str(BASELINE): "unedited", self.composed: "composed", self.best: "best", self.chosen: "chosen"}
        return roles.get(edit) or self.name(edit)
