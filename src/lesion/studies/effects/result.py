"""The result of a study of effects: per model and task the lens by layer, the effects by place, and the screens.

Values that are lines of tables say how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from lesion.core.values import ModelAndTask, RankAgreement, Summary
from lesion.edits.place import Unit
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import NATS, POINTS, SHARE, WHOLE_SHARE, Estimate, Number, Value, decimals
from lesion.statistics.paired import ALPHA
from lesion.studies.effects.study import EffectsStudy

Reference = Literal["mean", "tempting"]
"""What the gold logits are compared with: the mean logit over the vocabulary, or the logit of the tempting token."""
Screen = Literal["influence", "direct", "loss"]
SCREENS: dict[Screen, str] = {
    "influence": "block influence",
    "direct": "direct effect's size",
    "loss": "loss of log-probability",
}
LOGITS, NATS_PER_TOKEN = decimals(2, "logits"), decimals(2, "nats")


def unit_text(unit: str | None) -> str:
    """A kind of place as it is written."""
    return wording.DASH if unit is None else wording.UNIT_NAMES[unit]


class LensLayer(Row):
    """What is read off the stream at a layer: 0 is what enters block 0, l is what block l − 1 gives.

    Attributes:
        log_probability: of the gold tokens, in nats per token.
        rank: of the gold tokens, from 1: the geometric mean.
        top: the share of gold tokens that are the most probable token.
    """

    layer: int = column("Layer", label=True)
    log_probability: Estimate = column("Log-probability", NATS_PER_TOKEN)
    rank: Estimate = column("Rank (geometric mean)", decimals(1))
    top: Estimate = column("Most probable token", SHARE)


class Effect(Row):
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

    unit: Unit = column("Unit", unit_text, label=True)
    layer: int = column("Block", label=True)
    head: int | None = column("Head", default=None, label=True)
    direct: Estimate = column("Direct", LOGITS)
    total: Estimate = column("Total", LOGITS)
    repaired: Estimate = column(p=True)
    by_blocks: Estimate = column("Repaired by blocks", LOGITS, p=True)
    by_norm: Estimate = column("By the norm", LOGITS, p=True)
    loss: Estimate = column("Loss", NATS_PER_TOKEN)
    influence: Estimate | None = column("Influence", decimals(3), default=None)

    @property
    def place(self) -> str:
        """`block 3`, `MLP of block 3`, `head 3.5`."""
        return wording.place(self.unit, self.layer, self.head)

    @property
    def size(self) -> float:
        """The larger of direct and total effect, without its sign."""
        return max(abs(self.direct.value or 0.0), abs(self.total.value or 0.0))

    @derived.column()
    def is_repaired(self) -> bool:
        """Whether it writes towards the gold tokens, and its removal takes less than that, beyond chance."""
        return (self.direct.low or 0) > 0 and _above(self.repaired)

    @derived.column()
    def is_repaired_by_blocks(self) -> bool:
        """Whether it writes towards the gold tokens, and later blocks make up for a part of that, beyond chance."""
        return (self.direct.low or 0) > 0 and _above(self.by_blocks)

    @property
    def is_read(self) -> bool:
        """Whether later blocks turn what it writes into more, beyond chance."""
        return _above(self.by_blocks.negative)


def _above(estimate: Estimate) -> bool:
    return (estimate.value or 0) > 0 and estimate.is_shown


class UnitEffects(Row):
    """All places of one unit.

    Places are chosen on one half of the items and measured on the other, and the other way round, so that the shares
    are not those of places that were chosen for them.

    Attributes:
        slope: of the least-squares line of total on direct over the places.
        repaired: of what the repaired places write, the share that their removal does not take; None where neither half
            shows any.
        by_blocks: of what those that later blocks repair write, the share that these make up for; None likewise.
    """

    unit: Unit = column("Unit", unit_text, label=True)
    slope: Estimate = column("Slope", decimals(2))
    repaired: Estimate | None = column("Repaired", WHOLE_SHARE, default=None)
    by_blocks: Estimate | None = column("Repaired by blocks", WHOLE_SHARE, default=None)


class ScreenAgreement(RankAgreement):
    """How a cheap measure orders the places of one unit, beside the drops of accuracy of a layer study.

    Attributes:
        screen: block influence, |direct effect|, or the loss of log-probability.
        items: of the layer study; tied: by how many its places outnumber its different drops.
        rho: Spearman's, with a bootstrap interval over the items of both studies; p by permutation of the places,
            one-sided.
    """

    screen: Screen = column("Screen", SCREENS.__getitem__, label=True)
    places: int = column("Places")
    items: int = column("Items")


class ClassBaseline(Value):
    """The gold tokens of one class in the unedited model, teacher-forced.

    Attributes:
        items: how many have such tokens; tokens: how many there are.
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

    def lines(self, model: str, task: str) -> Iterator[ClassLine]:
        """Every class at every place; a class without tokens has one line, of no place."""
        unedited = {
            each.name: {"token_class": each.name, "items": each.items, "tokens": each.tokens,
                        "unedited": each.accuracy, "unedited_log_probability": each.log_probability}
            for each in self.classes
        }  # fmt: skip
        named = {"model": model, "task": task, "group": self.group}
        for each in self.classes:
            if not each.tokens:
                yield ClassLine(**named, **unedited[each.name], loses_most=False)
        for place in self.places:
            where = place.model_dump(include={"unit", "layer", "head"})
            for effect in place.effects:
                most = {"loses_most_p_corrected": place.p_corrected} if place.most == effect.name else {}
                numbers = {"accuracy": effect.accuracy, "drop": effect.drop, "loss": effect.loss, **most}
                loses_most = effect == place.shown
                yield ClassLine(**named, **where, **unedited[effect.name], **numbers, loses_most=loses_most)


class ClassLine(ModelAndTask):
    """One class of gold tokens at one place, with the class in the unedited model: a line of `classes.csv`."""

    group: str = column("Items", label=True)
    unit: Unit | None = column("Unit", unit_text, default=None, label=True)
    layer: int | None = column("Block", default=None, label=True)
    head: int | None = column("Head", default=None, label=True)
    token_class: str = column("Class", label=True)
    items: int = column("Items with it")
    tokens: int = column("Tokens")
    unedited: Estimate | None = column("Unedited", SHARE, default=None)
    unedited_log_probability: Estimate | None = column(default=None)
    accuracy: Estimate | None = column("Without the place", SHARE, default=None)
    drop: Estimate | None = column("Drop", POINTS, default=None, p=True)
    loss: Estimate | None = column("Loss", NATS, default=None, p=True)
    loses_most: bool = column()
    loses_most_p_corrected: Number = column(default=None)

    @property
    def is_lost(self) -> bool:
        """Whether accuracy is lost, beyond chance."""
        return self.drop is not None and _above(self.drop)

    @property
    def gold_tokens(self) -> str:
        """The class with its share in the unedited model."""
        return f"{self.token_class} ({WHOLE_SHARE.text(self.unedited, interval=False)} unedited)"


class TaskEffects(ModelAndTask):
    """One model on one task.

    Attributes:
        items: how many were measured; tokens: gold tokens of all of them.
        reference: what the gold logits are compared with.
        logit: of the whole model; embedding, offset: its parts that no block adds.
        agreements: with a layer study; none where there is none.
        classes: the gold tokens by class; None of a task with a tempting token, whose gold is one token.
        groups: the same for every group of items, where there are several.
    """

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

    @property
    def aim(self) -> str:
        """What a direct effect is towards."""
        return {"mean": "the right token", "tempting": "the right over the tempting token"}[self.reference]

    def of(self, unit: Unit) -> tuple[Effect, ...]:
        """The places of a unit by layer."""
        return tuple(effect for effect in self.effects if effect.unit == unit)


class EffectsSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["effects"] = "effects"
    study: EffectsStudy
    tasks: tuple[TaskEffects, ...]
