"""Cells of a layer study: one edit on one task, with its accuracy, its drop and its tests."""

from __future__ import annotations

from pydantic import Field

from lesion.core.clustered_intervals import OverClusters
from lesion.edits.place import Part, Unit
from lesion.edits.units import scaling
from lesion.report import wording
from lesion.report.forms import POINTS, SHARE, decimals
from lesion.report.rows import Endings, Row, column, derived
from lesion.report.values import Estimate, Number, Value
from lesion.statistics.outcome import Outcome, outcome
from lesion.statistics.paired import ALPHA
from lesion.statistics.sequential import Decision
from lesion.studies.ablation.drops import Forced
from lesion.studies.ablation.sweep import Factor, Replacement, text_of

DECIDED = {None: "", "exceeds": "● exceeds the effect", "not": "○ does not", "open": "? open"}
"""What was decided of a cell whose evaluation stopped, as a table has it."""


def verdict_text(outcome: Outcome | None) -> str:
    """`● critical`, `○ spared`, `cannot be told`; empty where evaluation stopped."""
    return {"critical": "● critical", "spared": "○ spared"}.get(outcome or "", outcome or "")


class Labels(Row):
    """Which model and task a line of a layer study is about; `blocks` of the model, where it matters."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)
    blocks: int | None = None


class Scores(Endings):
    """Accuracy over items, and how their answers ended."""

    items: int = column("Items")
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))


class Place(Row):
    """One block, one branch or one inner unit of it, under a factor or a replacement.

    Attributes:
        factor: what multiplies it, or the kind of what replaces it: `mean`, `position`, `resample`, `resample 1`,
            `optimal`.
        reference: the digest of what a replacement is taken from.
        part: the number of the head, key-value group, neuron or expert, or the name of the matrix; None of a block or
            branch.
    """

    layer: int = column("Block", label=True)
    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)
    reference: str = Field(default="", exclude_if=lambda digest: not digest)
    part: Part | None = column("Part", default=None, label=True, omitted=True)

    @property
    def drawable(self) -> bool:
        """Whether it is one of so many parts of a block that they can be drawn as a map."""
        return self.part is not None and self.unit != "neuron"

    @property
    def edit(self) -> str:
        """The text form of the edit, under which its answers are stored."""
        if isinstance(self.factor, str):
            place = scaling(self.unit, self.layer, 0.0, self.part).address
            return text_of(Replacement(place, self.factor, (("", self.reference),)), "")
        return str(scaling(self.unit, self.layer, self.factor, self.part))


class Apart(Value):
    """Another task, of which the same edit takes a smaller share.

    Attributes:
        task: its name.
        difference: the relative loss of the cell's task minus that of the other, each of the baseline above chance; p
            of "it is no larger", corrected by Holm over the layers and the other tasks.
    """

    task: str
    difference: Estimate


class Cell(Place, Scores):
    """One edit on one task.

    Attributes:
        drop: baseline accuracy minus that under the edit, on the same items; p of "the edit changes nothing".
        lost, won: items that the baseline alone, or the edited model alone has right; None where evaluation stopped.
        stated: of the lost items those whose answer states the gold answer and was cut off; None where there are none.
        p_critical: of "the edit takes at most half of the accuracy above chance", where the stated ones count as right;
            `p_critical_corrected`: by Holm over the layers.
        critical: only of a full table.
        p_spared: of "the edit takes at least a quarter of the accuracy above chance"; `p_spared_corrected`: likewise.
        spared: that it takes less, by this test; only of a full table.
        apart: of a critical cell, other tasks that are neither critical nor spared and lose less, by a test of the
            difference.
        margin: of tasks that compare tokens, how much of log p(right) − log p(rival) is lost, in nats (without rivals,
            of the difference from " the"); p of "nothing", corrected by Holm over the layers.
        word_margin: beside a rival, the same against " the".
        forced: the forced answers, of tasks with rivals; of full tables only.
        clustered: the drop's interval over the clusters that items share; None where there are none.
        decided: where evaluation stopped, whether the drop exceeds the effect.
        baseline: where evaluation stopped, the unedited model on the items of this cell.
    """

    drop: Estimate = column("Drop", POINTS, p="p")
    lost: int | None = Field(default=None, exclude_if=lambda lost: lost is None)
    won: int | None = Field(default=None, exclude_if=lambda won: won is None)
    stated: int | None = column("Right, but cut off", default=None, omitted=True)
    p_critical: Number = column(default=None)
    p_critical_corrected: Number = column("p critical", wording.p_value, default=None)
    critical: bool | None = column(default=None)
    p_spared: Number = column(default=None)
    p_spared_corrected: Number = column(default=None)
    spared: bool | None = column(default=None)
    apart: tuple[Apart, ...] = Field(default=(), exclude_if=lambda apart: not apart)
    margin: Estimate | None = column("Margin lost", decimals(2, "nats"), default=None, p=True, omitted=True)
    word_margin: Estimate | None = column(default=None, p=True, omitted=True)
    forced: Forced | None = Field(default=None, exclude_if=lambda forced: forced is None)
    clustered: OverClusters | None = Field(default=None, exclude_if=lambda clustered: clustered is None)
    decided: Decision | None = column("Decided", DECIDED.__getitem__, default=None)
    baseline: Scores | None = None

    @derived.column()
    def marked(self) -> bool:
        """Whether it is critical; where evaluation stopped, whether its drop exceeds the effect."""
        return bool(self.critical) if self.decided is None else self.decided == "exceeds"

    @derived.column("Verdict", verdict_text)
    def outcome(self) -> Outcome | None:
        """Critical, spared or cannot be told; None where evaluation stopped."""
        return None if self.critical is None else outcome(critical=self.critical, spared=bool(self.spared))

    @property
    def spares(self) -> bool:
        """Whether it is spared; where evaluation stopped, whether its drop does not exceed the effect."""
        return self.outcome == "spared" or self.decided == "not"

    @property
    def size(self) -> float:
        """The drop, by which the terminal chooses what it shows."""
        return self.drop.value or 0.0

    @property
    def gained(self) -> bool:
        """Whether accuracy is higher under the edit, by its corrected test."""
        drop = self.drop
        return drop.p_corrected is not None and drop.p_corrected <= ALPHA and (drop.value or 0.0) < 0


class Unedited(Row):
    """The unedited model beside a cell, on the items of that cell.

    Attributes:
        chance: the accuracy of guessing; None where it is not known.
    """

    baseline_items: int = column()
    baseline_accuracy: Estimate = column("Unedited", SHARE, ends=("baseline_low", "baseline_high"))
    baseline_truncated: float = column()
    baseline_looped: float = column()
    baseline_unclosed: float = column()
    baseline_unparsed: float = column()
    baseline_forced_accuracy: Number = column(default=None)
    chance: Number = column("", SHARE, default=None)

    @classmethod
    def of(cls, scores: Scores, forced: Forced | None, guessing: float) -> Unedited:
        """The unedited model as columns."""
        ended = {f"baseline_{name}": getattr(scores, name) for name in ("truncated", "looped", "unclosed", "unparsed")}
        return cls(
            baseline_items=scores.items,
            baseline_accuracy=scores.accuracy,
            baseline_forced_accuracy=None if forced is None else forced.accuracy.value,
            chance=guessing or None,
            **ended,
        )
