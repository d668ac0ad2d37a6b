"""Cells of a layer study: one edit on one task, with its accuracy, its drop and its tests."""

from __future__ import annotations

from pydantic import Field

from lesion.core.sharing import OverClusters
from lesion.core.values import Endings, Estimate, Number, Value
from lesion.edits.place import Part, Unit
from lesion.edits.units import scaling
from lesion.statistics.sequential import Decision
from lesion.studies.ablation.sweep import Factor, Replacement, text_of


class Scores(Endings):
    """Accuracy over items, and how their answers ended."""

    items: int
    accuracy: Estimate


class Place(Value):
    """One block, one branch or one inner unit of it, under a factor or a replacement.

    Attributes:
        factor: what multiplies it, or the kind of what replaces it: `mean`, `position`, `resample`, `resample 1`,
            `optimal`.
        reference: the digest of what a replacement is taken from.
        part: the number of the head, key-value group, neuron or expert, or the name of the matrix; None of a block or
            branch.
    """

    layer: int
    unit: Unit
    factor: Factor
    reference: str = Field(default="", exclude_if=lambda digest: not digest)
    part: Part | None = Field(default=None, exclude_if=lambda part: part is None)

    @property
    def edit(self) -> str:
        """The text form of the edit, under which its answers are stored."""
        if isinstance(self.factor, str):
            place = scaling(self.unit, self.layer, 0.0, self.part).address
            return text_of(Replacement(place, self.factor, (("", self.reference),)), "")
        return str(scaling(self.unit, self.layer, self.factor, self.part))


class Cell(Place, Scores):
    """One edit on one task.

    Attributes:
        drop: baseline accuracy minus that under the edit, on the same items; p of "the edit changes nothing".
        p_critical: of "the edit takes at most half of the accuracy"; `p_critical_corrected`: by Holm over the layers.
        critical: only of a full table.
        p_spared: of "the edit takes at least a quarter of the accuracy"; `p_spared_corrected`: by Holm over the layers.
        spared: that it takes less, by this test; only of a full table.
        margin: of tasks that compare two tokens, how much of the difference of their log-probabilities is lost, in
            nats; p of "nothing", corrected by Holm over the layers.
        clustered: the drop's interval over the clusters that items share; None where there are none.
        decided: where evaluation stopped, whether the drop exceeds the effect.
        baseline: where evaluation stopped, the unedited model on the items of this cell.
    """

    drop: Estimate
    p_critical: Number = None
    p_critical_corrected: Number = None
    critical: bool | None = None
    p_spared: Number = None
    p_spared_corrected: Number = None
    spared: bool | None = None
    margin: Estimate | None = Field(default=None, exclude_if=lambda margin: margin is None)
    clustered: OverClusters | None = Field(default=None, exclude_if=lambda clustered: clustered is None)
    decided: Decision | None = None
    baseline: Scores | None = None

    @property
    def marked(self) -> bool:
        """Whether it is critical; where evaluation stopped, whether its drop exceeds the effect."""
        return bool(self.critical) if self.decided is None else self.decided == "exceeds"
