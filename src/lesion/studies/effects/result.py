"""The result of a study of effects: per model and task the lens by layer, the effects by place, and the screens."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Estimate, Summary, Value
from lesion.edits.edit import Unit
from lesion.statistics.paired import ALPHA
from lesion.studies.effects.study import EffectsStudy

Reference = Literal["mean", "tempting"]
"""What the gold logits are compared with: the mean logit over the vocabulary, or the logit of the tempting token."""
Screen = Literal["influence", "direct", "loss"]


class LensLayer(Value):
    """What is read off the stream at a layer: 0 is what enters block 0, l is what block l − 1 gives.

    Attributes:
        log_probability: of the gold tokens, in nats per token.
        rank: of the gold tokens, from 1: the geometric mean.
        top: the share of gold tokens that are the most probable token.
    """

    layer: int
    log_probability: Estimate
    rank: Estimate
    top: Estimate


class Effect(Value):
    """One place: a block, or its attention or MLP. Means over items of means over gold tokens.

    Attributes:
        direct: what it adds to the gold logit through the frozen final norm.
        total: by how much the gold logit is lower when the place is switched off.
        repaired: direct − total (McGrath et al. 2023): the sum of the next two; p of "it is 0" by a t-test over items,
            `p_corrected` by Holm over the places of one unit.
        by_blocks: what later blocks make up for, the scale of the final norm left as it is in the whole model; tested
            likewise.
        by_norm: what the final norm makes up for by scaling what is left (Rushing and Nanda 2024).
        loss: by how much the log-probability of the gold tokens is lower, in nats per token.
        influence: of a whole block, 1 − cosine of its input and output; None of a branch.
    """

    unit: Unit
    layer: int
    direct: Estimate
    total: Estimate
    repaired: Estimate
    by_blocks: Estimate
    by_norm: Estimate
    loss: Estimate
    influence: Estimate | None = None

    @property
    def is_repaired(self) -> bool:
        """Whether it writes towards the gold tokens, and its removal takes less than that, beyond chance."""
        return (self.direct.low or 0) > 0 and _above(self.repaired)

    @property
    def is_repaired_by_blocks(self) -> bool:
        """Whether it writes towards the gold tokens, and later blocks make up for a part of that, beyond chance."""
        return (self.direct.low or 0) > 0 and _above(self.by_blocks)

    @property
    def is_read(self) -> bool:
        """Whether later blocks turn what it writes into more, beyond chance."""
        return _above(self.by_blocks.negative)


def _above(estimate: Estimate) -> bool:
    return (estimate.value or 0) > 0 and estimate.p_corrected is not None and estimate.p_corrected <= ALPHA


class UnitEffects(Value):
    """All places of one unit.

    Attributes:
        slope: of the least-squares line of total on direct over the places.
        repaired: of what the repaired places write, the share that their removal does not take; None without any.
        by_blocks: of what those that later blocks repair write, the share that these make up for; None without any.
    """

    unit: Unit
    slope: Estimate
    repaired: Estimate | None = None
    by_blocks: Estimate | None = None


class ScreenAgreement(Value):
    """How a cheap measure orders the places of one unit, beside the drops of accuracy of a layer study.

    Attributes:
        screen: block influence, |direct effect|, or the loss of log-probability.
        items: of the layer study; tied: how many of its drops are equal to another.
        rho: Spearman's, with a bootstrap interval over the items of both studies; p by permutation of the places,
            one-sided.
    """

    screen: Screen
    unit: Unit
    places: int
    items: int
    tied: int
    rho: Estimate


class TaskEffects(Value):
    """One model on one task.

    Attributes:
        items: how many were measured; tokens: gold tokens of all of them.
        reference: what the gold logits are compared with.
        logit: of the whole model; embedding, offset: its parts that no block adds.
        agreements: with a layer study; none where there is none.
    """

    model: str
    task: str
    items: int
    tokens: int
    reference: Reference
    logit: Estimate
    embedding: Estimate
    offset: Estimate
    lens: tuple[LensLayer, ...]
    effects: tuple[Effect, ...]
    units: tuple[UnitEffects, ...]
    agreements: tuple[ScreenAgreement, ...] = ()

    def of(self, unit: Unit) -> tuple[Effect, ...]:
        """The places of a unit by layer."""
        return tuple(effect for effect in self.effects if effect.unit == unit)


class EffectsSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["effects"] = "effects"
    study: EffectsStudy
    tasks: tuple[TaskEffects, ...]
