"""From the sums of every item to accuracy and loss by class of gold token: pure functions.

Tokens of one item are not independent: a rate is the sum over items of what counts over the sum of tokens, its interval
comes from items drawn again, and its tests flip the signs of whole items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lesion.edits.edit import Scale
from lesion.edits.units import ScaleHead
from lesion.report.values import Estimate
from lesion.statistics.paired import holm, sign_flips, wilson
from lesion.studies.effects.measurement import ClassSums
from lesion.studies.effects.result import ClassBaseline, ClassEffect, ClassTable, PlaceClasses
from lesion.studies.effects.study import EffectsStudy
from lesion.studies.effects.summary import Sample
from lesion.tasks.gold_classes import classes_of
from lesion.tasks.task import Task

Sums = Mapping[str, ClassSums]
"""The sums of one item by class."""


def by_class(
    study: EffectsStudy, task: Task, groups: Sequence[str], sums: Sequence[Sums], edits: Sequence[Scale]
) -> dict[str, Any]:
    """The fields `classes` and `groups` of `TaskEffects`; none of a task with a tempting token.

    Args:
        study: its units, level and seed.
        task: which names the classes.
        groups: of every item.
        sums: of every item.
        edits: every place, switched off.
    """
    if task.kind == "contrast":
        return {}
    there = dict.fromkeys(name for item in sums for name in item)
    names = tuple(dict.fromkeys((*classes_of(task).names, *there)))
    known = sorted(set(groups))
    parts = []
    for group in known if len(known) > 1 else ():
        own = [item for item, its in zip(sums, groups, strict=True) if its == group]
        first = [edit for edit in edits if edit.unit == study.unit[0]]
        parts.append(_table(study, names, own, first, group or "no group", tested=False))
    return {"classes": _table(study, names, sums, edits), "groups": tuple(parts)}


@dataclass(frozen=True)
class _Sums:
    """The sums of one class: a row per item, a column per place.

    Attributes:
        tokens, top, nats: of the unedited model: gold tokens, those that are the most probable, log-probability.
        without, loss: per place, tokens that are the most probable, and by how much the log-probability is lower.
    """

    tokens: Float[np.ndarray, " items"]
    top: Float[np.ndarray, " items"]
    nats: Float[np.ndarray, " items"]
    without: Float[np.ndarray, "items places"]
    loss: Float[np.ndarray, "items places"]

    @classmethod
    def of(cls, sums: Sequence[Sums], name: str, places: Sequence[str]) -> _Sums:
        """The sums of a class; 0 of items that do not have it."""
        empty = ClassSums(
            tokens=0, top=0, log_probability=0, top_without=dict.fromkeys(places, 0), loss=dict.fromkeys(places, 0)
        )
        own = [item.get(name, empty) for item in sums]
        tokens, top, nats = np.array([(each.tokens, each.top, each.log_probability) for each in own], dtype=float).T
        without = np.array([[each.top_without[place] for place in places] for each in own], dtype=np.float64)
        return cls(tokens, top, nats, without, np.array([[each.loss[place] for place in places] for each in own]))

    @property
    def lost(self) -> Float[np.ndarray, "items places"]:
        """Per place, how many tokens fewer are the most probable."""
        return self.top[:, None] - self.without


class _Rates:
    """Rates per token of one class, with intervals over items."""

    def __init__(self, sample: Sample, sums: _Sums) -> None:
        self._sample, self._sums = sample, sums
        self._tokens = sample.drawn(sums.tokens[:, None])[:, 0]
        self._items = int(np.count_nonzero(sums.tokens))

    def rate(self, values: Float[np.ndarray, " items"]) -> Estimate:
        """A sum over the items per token."""
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = self._sample.drawn(values[:, None])[:, 0] / self._tokens
        return self._sample.estimate(float(values.sum() / self._sums.tokens.sum()), drawn)

    def share(self, right: Float[np.ndarray, " items"]) -> Estimate:
        """A share of tokens. Where it is 0 or 1, no draw differs: Wilson's interval, each item counted as one."""
        estimate = self.rate(right)
        if estimate.value not in (0.0, 1.0):
            return estimate
        low, high = wilson(self._items * int(estimate.value), self._items, self._sample.level)
        return Estimate(value=estimate.value, low=low, high=high)

    def baseline(self, name: str) -> ClassBaseline:
        """The class in the unedited model."""
        return ClassBaseline(
            name=name,
            items=self._items,
            tokens=int(self._sums.tokens.sum()),
            accuracy=self.share(self._sums.top),
            log_probability=self.rate(self._sums.nats),
        )

    def effect(self, name: str, place: int) -> ClassEffect:
        """The class without a place, untested."""
        return ClassEffect(
            name=name,
            accuracy=self.share(self._sums.without[:, place]),
            drop=self.rate(self._sums.lost[:, place]),
            loss=self.rate(self._sums.loss[:, place]),
        )


def _table(
    study: EffectsStudy,
    names: Sequence[str],
    sums: Sequence[Sums],
    edits: Sequence[Scale],
    group: str = "",
    *,
    tested: bool = True,
) -> ClassTable:
    """The classes over some items."""
    sample = Sample(len(sums), study.level, study.seed)
    present = [name for name in names if any(name in item for item in sums)]
    baselines: dict[str, ClassBaseline] = {}
    places: list[PlaceClasses] = []
    for unit in dict.fromkeys(edit.unit for edit in edits):
        own_edits = [edit for edit in edits if edit.unit == unit]
        addresses = [edit.address for edit in own_edits]
        arrays = {name: _Sums.of(sums, name, addresses) for name in present}
        rates = {name: _Rates(sample, own) for name, own in arrays.items()}
        baselines = {name: own.baseline(name) for name, own in rates.items()}
        effects = [[own.effect(name, place) for name, own in rates.items()] for place in range(len(addresses))]
        places += _tested(own_edits, effects, arrays, study.seed) if tested else _untested(own_edits, effects)
    classes = [baselines.get(name, ClassBaseline(name=name, items=0, tokens=0)) for name in names]
    return ClassTable(group=group, items=len(sums), classes=classes, places=places)


def _untested(edits: Sequence[Scale], effects: Sequence[Sequence[ClassEffect]]) -> list[PlaceClasses]:
    return [PlaceClasses(**_place(edit), effects=own) for edit, own in zip(edits, effects, strict=True)]


def _place(edit: Scale) -> dict[str, Any]:
    head = edit.head if isinstance(edit, ScaleHead) else None
    return {"unit": edit.unit, "layer": edit.layer, "head": head}


def _tested(
    edits: Sequence[Scale], effects: Sequence[Sequence[ClassEffect]], arrays: Mapping[str, _Sums], seed: int
) -> list[PlaceClasses]:
    """The places of a unit with the tests of every class, and of the class that loses most."""
    if not arrays:
        return _untested(edits, effects)
    lost = np.stack([own.lost / own.tokens.mean() for own in arrays.values()], axis=1)
    p_drop, p_loss = (
        _by_sign_flips(values, seed) for values in (lost, np.stack([own.loss for own in arrays.values()], axis=1))
    )
    corrected_drop, corrected_loss = (np.reshape(holm(p.ravel()), p.shape) for p in (p_drop, p_loss))
    most, p_most = _most(lost, seed)
    corrected_most = holm(p_most)
    places = []
    for index, (edit, own) in enumerate(zip(edits, effects, strict=True)):
        tested = [
            effect.model_copy(
                update={
                    "drop": _with(effect.drop, p_drop[row, index], corrected_drop[row, index]),
                    "loss": _with(effect.loss, p_loss[row, index], corrected_loss[row, index]),
                }
            )
            for row, effect in enumerate(own)
        ]
        winner = {"most": own[most[index]].name, "p": p_most[index], "p_corrected": corrected_most[index]}
        places.append(PlaceClasses(**_place(edit), effects=tested, **(winner if len(own) > 1 else {})))
    return places


def _by_sign_flips(values: Float[np.ndarray, "items classes places"], seed: int) -> Float[np.ndarray, "classes places"]:
    """p of "nothing is lost" of every class and place."""
    return sign_flips(values.reshape(len(values), -1), seed).reshape(values.shape[1:])


def _most(
    lost: Float[np.ndarray, "items classes places"], seed: int
) -> tuple[Int[np.ndarray, " places"], Float[np.ndarray, " places"]]:
    """Per place the class that loses most, and the p of "another loses as much".

    `lost` is per mean number of tokens of an item, so that a mean over items is a drop of accuracy.
    """
    most = lost.mean(axis=0).argmax(axis=0)
    apart = np.take_along_axis(lost, most[None, None], axis=1) - lost  # 0 of the class itself, whose p is 1
    p = _by_sign_flips(apart, seed)
    np.put_along_axis(p, most[None], 0.0, axis=0)
    return most, p.max(axis=0)


def _with(estimate: Estimate, p: float, p_corrected: float) -> Estimate:
    return estimate.model_copy(update={"p": float(p), "p_corrected": float(p_corrected)})
