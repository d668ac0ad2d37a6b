"""Cells of a layer study, one edit on one task with its drop and tests, and curves: cells of one unit and factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.core.clustered_intervals import OverClusters
from lesion.core.values import ModelAndTask
from lesion.edits.edit import BASELINE
from lesion.edits.place import UNITS, Part, Unit
from lesion.edits.units import scaling
from lesion.report import wording
from lesion.report.rows import Endings, Record, Row, column, derived
from lesion.report.values import POINTS, SHARE, Estimate, Number, Value, decimals, omitted
from lesion.statistics.detectable import near_guessing
from lesion.statistics.sequential_families import Decision
from lesion.statistics.spared import Outcome, outcome
from lesion.studies.ablation.drops import Forced
from lesion.studies.ablation.sweep import Factor, Replacement, is_inner

if TYPE_CHECKING:
    from lesion.studies.ablation.result import ModelResult, Sensitivity, TaskResult

DECIDED = {None: "", "exceeds": "● exceeds", "not": "○ does not", "open": "? open"}
"""What was decided of a cell whose evaluation stopped, as a table has it."""


def verdict_text(outcome: Outcome | None) -> str:
    """`● critical`, `○ spared`, `cannot be told`; empty where evaluation stopped."""
    return {"critical": "● critical", "spared": "○ spared"}.get(outcome or "", outcome or "")


class Labels(ModelAndTask):
    """Which model and task a line of a layer study is about; `blocks` of the model, where it matters."""

    blocks: int | None = None


class Swept(Labels):
    """Which unit and factor of them, too."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)


class AtBlock(Labels):
    """Which unit of which block of the model, under several edits."""

    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    layer: int = column("Block", label=True)


class AcrossTasks(Row):
    """A model under the edits of one unit and factor, on several tasks."""

    model: str = column("Model", label=True)
    unit: Unit = column("Unit", wording.UNIT_NAMES.__getitem__, label=True)
    factor: Factor = column("Factor", wording.factor_name, label=True)


class Under(Swept):
    """A model on a task without an edit (`cut` is *unedited*), or under one."""

    cut: str = column("Block", label=True)
    edit: str = column()


SWEPT = ("model", "task", "unit", "factor")
"""What has a panel of its own in a figure over blocks."""


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
    reference: str = omitted("")
    part: Part | None = column("Part", default=None, label=True, omitted=True)

    @property
    def place(self) -> str:
        """`block 3`, `MLP of block 3`, `head 3.5`."""
        return wording.place(self.unit, self.layer, self.part)

    @property
    def drawable(self) -> bool:
        """Whether it is one of so many parts of a block that they can be drawn as a map."""
        return self.part is not None and self.unit != "neuron"

    @property
    def edit(self) -> str:
        """The text form of the edit, under which its answers are stored."""
        if isinstance(self.factor, str):
            edit = Replacement(self.layer, self.unit, self.part, self.factor)
            return f"{edit}@{self.reference}".removesuffix("@")
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
    lost: int | None = omitted()
    won: int | None = omitted()
    stated: int | None = column("Right, cut off", default=None, omitted=True)
    p_critical: Number = column(default=None)
    p_critical_corrected: Number = column("p critical", wording.p_value, default=None)
    critical: bool | None = column(default=None)
    p_spared: Number = column(default=None)
    p_spared_corrected: Number = column(default=None)
    spared: bool | None = column(default=None)
    apart: tuple[Apart, ...] = omitted(())
    margin: Estimate | None = column("Margin lost", decimals(2, "nats"), default=None, p=True, omitted=True)
    word_margin: Estimate | None = column(default=None, p=True, omitted=True)
    forced: Forced | None = omitted()
    clustered: OverClusters | None = omitted()
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
    def falls(self) -> bool:
        """Whether accuracy is lower under the edit, by its corrected test."""
        return self.drop.is_shown and self.size > 0

    @property
    def gained(self) -> bool:
        """Whether accuracy is higher under the edit, by its corrected test."""
        return self.drop.is_shown and self.size < 0


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


@dataclass(frozen=True)
class Curve:
    """One model on one task under one unit and factor: of blocks and branches by layer, of parts by layer and part.

    Attributes:
        missing: layers that the study will have, or another task of the model has, and this curve has not.
    """

    model: str
    result: TaskResult
    unit: Unit
    factor: Factor
    cells: tuple[Cell, ...]
    missing: tuple[int, ...] = ()

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.result.task

    @property
    def labels(self) -> Labels:
        """Its model and task."""
        return Labels(model=self.model, task=self.task)

    @property
    def edits(self) -> list[Under]:
        """The unedited model, then every edit."""
        about = {**dict(self.labels), "unit": self.unit, "factor": self.factor}
        cuts = {"unedited": str(BASELINE), **{str(cell.layer): cell.edit for cell in self.cells}}
        return [Under(**about, cut=cut, edit=edit) for cut, edit in cuts.items()]

    def record(self, cell: Cell) -> Record:
        """A line about one of its cells."""
        return self.labels, cell

    @property
    def items(self) -> int:
        """Items of the baseline; where evaluation stopped, the most that any cell has."""
        return self.result.items

    @property
    def stopped(self) -> bool:
        """Whether its cells were evaluated only until they were decided."""
        return self.result.stopping is not None

    @property
    def finished(self) -> bool:
        """Whether nothing more is evaluated, because all is decided or no item is left."""
        return self.result.stopping is None or self.result.stopping.finished

    @property
    def reach(self) -> Sensitivity | None:
        """What the rule can find; None where evaluation stopped."""
        kind = self.unit, self.factor
        return next((reach for reach in self.result.sensitivity if (reach.unit, reach.factor) == kind), None)

    @property
    def tests(self) -> int:
        """How many places the study plans, which the correction counts; where evaluation stopped, those that it has."""
        return self.reach.tests if self.reach else len(self.cells)

    @property
    def untold(self) -> str:
        """Why it cannot be told whether its cells are critical, `3 of 20 right, 9 are needed`; empty where it can."""
        if self.marked:
            return ""
        right = f"{self.result.right:,} of {self.items:,} right"
        if self.reach and self.reach.right < self.reach.fewest_right:
            return f"{right}, {self.reach.fewest_right:,} are needed"
        if not self.stopped and near_guessing(self.result.right, self.items, self.result.guessing):
            return f"{right}, near guessing"  # a loss of the skill can hardly show
        return ""

    @property
    def marked(self) -> list[Cell]:
        """Its marked cells, the largest drop first."""
        return sorted((cell for cell in self.cells if cell.marked), key=lambda cell: (-cell.size, cell.layer))

    @property
    def layers(self) -> set[int]:
        """The layers that it has or will have."""
        return {*self.missing, *(cell.layer for cell in self.cells)}

    def at(self, layer: int, part: Part | None = None) -> Cell | None:
        """The cell of a layer, or of one of its parts, where there is one."""
        return next((cell for cell in self.cells if (cell.layer, cell.part) == (layer, part)), None)

    def columns(self, cell: Cell) -> tuple[Row | None, ...]:
        """A cell beside the unedited model on its items, as files have it."""
        scores, forced = self.baseline_of(cell), self.result.forced
        unedited = Unedited(
            baseline_items=scores.items,
            baseline_accuracy=scores.accuracy,
            baseline_forced_accuracy=forced and forced.accuracy.value,
            chance=self.result.guessing or None,
            **{f"baseline_{name}": getattr(scores, name) for name in ("truncated", "looped", "unclosed", "unparsed")},
        )
        return unedited, cell.forced, cell.clustered, cell

    def baseline_of(self, cell: Cell) -> Scores:
        """The unedited model on the items of a cell."""
        return cell.baseline or self.result.baseline


def curves(models: Sequence[ModelResult], *, inner: bool = False) -> tuple[Curve, ...]:
    """Every model on every task under one unit and factor, in the order of the summary.

    Args:
        inner: those of heads, matrices, experts and neurons, in place of those of blocks and branches.
    """
    every = []
    for model in models:
        planned = set() if inner else {layer for result in model.tasks for layer in result.planned}
        layers: dict[tuple[Unit, Factor], set[int]] = {}
        for cell in (cell for result in model.tasks for cell in result.cells if is_inner(cell.unit) == inner):
            layers.setdefault((cell.unit, cell.factor), set(planned)).add(cell.layer)
        for result in model.tasks:
            for (unit, factor), expected in layers.items():
                cells = result.of(unit, factor)
                missing = tuple(sorted(expected - {cell.layer for cell in cells}))
                if cells or not inner:
                    every.append(Curve(model.model, result, unit, factor, cells, missing))
    return tuple(every)


def manner(factor: Factor) -> str:
    """` scaled by 0.5`, ` replaced by the mean`; empty for a place that is switched off, which goes without saying."""
    return f" {wording.changed(factor)}" if factor != 0 else ""


def under(place: str, factor: Factor) -> str:
    """`without block 2`, `with the MLP of block 3 scaled by 0.5`."""
    return f"with {place}{manner(factor)}" if factor != 0 else f"without {place}"


def plural(unit: Unit, count: int) -> bool:
    """Whether a verb about so many places stands in the plural: `the MLP of blocks 2 and 5` is one subject."""
    return count > 1 and unit not in UNITS[1:]


def places(unit: Unit, layers: Sequence[int]) -> str:
    """`block 3`, `blocks 0–2 and 5`, `the MLP of block 3`, or an empty string."""
    prefix = f"the {wording.UNIT_NAMES[unit]} of " * (unit != "block")
    return f"{prefix}{wording.numbered('block', layers)}" * bool(layers)


def critical_and_spared(unit: Unit, layers: Sequence[int], factor: Factor, skill: str, other: str) -> str:
    """`blocks 2 and 5 are critical for sums and spare facts`."""
    several = plural(unit, len(layers))
    called = wording.called(False, 1 + several)
    return f"{places(unit, layers)}{manner(factor)} {called} for {skill} and spare{'s' * (not several)} {other}"


def named(cells: Sequence[Cell], most: int | None = None) -> str:
    """`blocks 0–2 and 5`; of parts `head 9.6`, `heads 9.6, 9.9 and 10.0`, and how many more than `most` there are."""
    unit = cells[0].unit
    if not is_inner(unit):
        return places(unit, [cell.layer for cell in cells])
    if len(cells) == 1:
        return cells[0].place
    listed = wording.listed([f"{cell.layer}.{cell.part}" for cell in cells[:most]])
    more = f" and {len(cells) - most:,} more" if most and len(cells) > most else ""
    return f"{wording.plural(wording.UNIT_NAMES[unit])}{wording.SPACE}{listed}{more}"
