"""The result of a study of effects: per model and task the lens by layer, the effects by place, and the screens."""

from __future__ import annotations

from typing import Literal

from lesion.core.values import Summary
from lesion.edits.place import Unit
from lesion.report.values import Estimate, Number, Value
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
    """One place: a block, its attention or MLP, or one of its query heads. Means over items of means over gold tokens.

    Attributes:
        direct: what it adds to the gold logit through the frozen final norm.
        total: by how much the gold logit is lower when the place is switched off.
        repaired: direct − total (McGrath et al. 2023): the sum of the next two; p of "it is 0" by a t-test over items,
            `p_corrected` by Holm over the places of one unit.
        by_blocks: what later blocks make up for, the scale of the final norm left as it is in the whole model; tested
            likewise.
        by_norm: what the final norm makes up for by scaling what is left (Rushing and Nanda 2024); tested likewise.
        loss: by how much the log-probability of the gold tokens is lower, in nats per token.
        influence: of a whole block, 1 − cosine of its input and output; None of a branch.
    """

    unit: Unit
    layer: int
    head: int | None = None
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
    def is_repaired_by_norm(self) -> bool:
        """Whether it writes towards the gold tokens, and the norm makes up for a part of that, beyond chance."""
        return (self.direct.low or 0) > 0 and _above(self.by_norm)

    @property
    def is_read(self) -> bool:
        """Whether later blocks turn what it writes into more, beyond chance."""
        return _above(self.by_blocks.negative)


def _above(estimate: Estimate) -> bool:
    return (estimate.value or 0) > 0 and estimate.p_corrected is not None and estimate.p_corrected <= ALPHA


class UnitEffects(Value):
    """All places of one unit.

    Places are chosen on one half of the items and measured on the other, and the other way round, so that the shares
    are not those of places that were chosen for them.

    Attributes:
        slope: of the least-squares line of total on direct over the places.
        repaired: of what the repaired places write, the share that their removal does not take; None where neither half
            shows any.
        by_blocks: of what those that later blocks repair write, the share that these make up for; None likewise.
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


class ClassBaseline(Value):
    """The gold tokens of one class in the unedited model, teacher-forced.

    Attributes:
        name: of the class.
        items: how many have such tokens; tokens: how many there are; 0 and 0 where there are none.
        accuracy: the share of these tokens that are the most probable one; None without tokens.
        log_probability: of these tokens, in nats per token; None without tokens.
    """

    name: str
    items: int
    tokens: int
    accuracy: Estimate | None = None
    log_probability: Estimate | None = None


class ClassEffect(Value):
    """What is lost of the gold tokens of one class when a place is switched off.

    Intervals are over items, p by sign flips over items, `p_corrected` by Holm over the places of one unit × classes.

    Attributes:
        name: of the class.
        accuracy: the share of its tokens that are still the most probable one.
        drop: by how much that share is lower than in the unedited model.
        loss: by how much the log-probability is lower, in nats per token.
    """

    name: str
    accuracy: Estimate
    drop: Estimate
    loss: Estimate

    @property
    def is_lost(self) -> bool:
        """Whether accuracy is lost, beyond chance."""
        return _above(self.drop)


class PlaceClasses(Value):
    """What the removal of one place takes of each class.

    Attributes:
        effects: of every class that has tokens.
        most: the class with the largest drop of accuracy; None with fewer than two classes.
        p: of "another class loses as much", the largest over the other classes (Hung and Fithian 2019: the winner needs
            no correction for having been chosen); `p_corrected` by Holm over the places of one unit.
    """

    unit: Unit
    layer: int
    head: int | None = None
    effects: tuple[ClassEffect, ...]
    most: str | None = None
    p: Number = None
    p_corrected: Number = None

    def of(self, name: str) -> ClassEffect:
        """The effect on a class that has tokens."""
        return next(effect for effect in self.effects if effect.name == name)

    @property
    def shown(self) -> ClassEffect | None:
        """The class that loses most, if it loses and every other class loses less, both beyond chance."""
        if self.most is None or self.p_corrected is None or self.p_corrected > ALPHA:
            return None
        effect = self.of(self.most)
        return effect if effect.is_lost else None


class ClassTable(Value):
    """Gold tokens by class, over the items of a task or of one of its groups.

    Attributes:
        group: of the items; "" for all of them.
        items: how many there are.
        classes: all that the task names, those without tokens too.
        places: of every unit; of a group those of the first unit, without tests.
    """

    group: str = ""
    items: int
    classes: tuple[ClassBaseline, ...]
    places: tuple[PlaceClasses, ...]

    def of(self, unit: Unit) -> tuple[PlaceClasses, ...]:
        """The places of a unit by layer."""
        return tuple(place for place in self.places if place.unit == unit)

    @property
    def present(self) -> tuple[ClassBaseline, ...]:
        """The classes that have tokens."""
        return tuple(each for each in self.classes if each.tokens)


class TaskEffects(Value):
    """One model on one task.

    Attributes:
        items: how many were measured; tokens: gold tokens of all of them.
        reference: what the gold logits are compared with.
        logit: of the whole model; embedding, offset: its parts that no block adds.
        agreements: with a layer study; none where there is none.
        classes: the gold tokens by class; None of a task with a tempting token, whose gold is one token.
        groups: the same for every group of items, where there are several.
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
    classes: ClassTable | None = None
    groups: tuple[ClassTable, ...] = ()

    def of(self, unit: Unit) -> tuple[Effect, ...]:
        """The places of a unit by layer."""
        return tuple(effect for effect in self.effects if effect.unit == unit)


class EffectsSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["effects"] = "effects"
    study: EffectsStudy
    tasks: tuple[TaskEffects, ...]
