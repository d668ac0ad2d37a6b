"""From the sums of every item to accuracy and loss by class of gold token: pure functions.

Tokens of one item are not independent: a rate is the sum over items of what counts over the sum of tokens, its interval
comes from items drawn again, and its tests flip the signs of whole items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The fields `classes` and `groups` of `TaskEffects`; none of a task with a tempting token."""
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


class _Class:
    """One class of gold tokens in the items: its sums, a row per item, and rates per token with intervals over items.

    Attributes:
        items: how many have such tokens; tokens: [items] how many they have.
        lost, loss: [items, places] by how many tokens fewer are the most probable without each place, and by how much
            the log-probability is lower.
    """

    def __init__(self, sample: Sample, sums: Sequence[Sums], name: str, places: Sequence[str]) -> None:
        none = dict.fromkeys(places, 0)
        empty = ClassSums(tokens=0, top=0, log_probability=0, top_without=none, loss=none)
        own = [item.get(name, empty) for item in sums]
        self.name, self._sample = name, sample
        self.tokens, self._top, self._nats = np.array(
            [(each.tokens, each.top, each.log_probability) for each in own], dtype=float
        ).T
        self.items = int(np.count_nonzero(self.tokens))
        self._without = np.array([[each.top_without[place] for place in places] for each in own], dtype=np.float64)
        self.lost = self._top[:, None] - self._without
        self.loss = np.array([[each.loss[place] for place in places] for each in own])
        self._drawn = sample.drawn(self.tokens[:, None])[:, 0]

    def _rate(self, values: Float[np.ndarray, " items"]) -> Estimate:
        """A sum over the items per token."""
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = self._sample.drawn(values[:, None])[:, 0] / self._drawn
        return self._sample.estimate(float(values.sum() / self.tokens.sum()), drawn)

    def _share(self, right: Float[np.ndarray, " items"]) -> Estimate:
        """A share of tokens. Where it is 0 or 1, no draw differs: Wilson's interval, each item counted as one."""
        estimate = self._rate(right)
        if estimate.value not in (0.0, 1.0):
            return estimate
        low, high = wilson(self.items * int(estimate.value), self.items, self._sample.level)
        return Estimate(value=estimate.value, low=low, high=high)

    def baseline(self) -> ClassBaseline:
        """The class in the unedited model."""
        accuracy, nats = self._share(self._top), self._rate(self._nats)
        tokens = int(self.tokens.sum())
        return ClassBaseline(name=self.name, items=self.items, tokens=tokens, accuracy=accuracy, log_probability=nats)

    def effect(self, place: int) -> ClassEffect:
        """The class without a place, untested."""
        return ClassEffect(
            name=self.name,
            accuracy=self._share(self._without[:, place]),
            drop=self._rate(self.lost[:, place]),
            loss=self._rate(self.loss[:, place]),
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
    known: dict[str, ClassBaseline] = {}
    places: list[PlaceClasses] = []
    for unit in dict.fromkeys(edit.unit for edit in edits):
        own_edits = [edit for edit in edits if edit.unit == unit]
        classes = [_Class(sample, sums, name, [edit.address for edit in own_edits]) for name in present]
        known = {each.name: each.baseline() for each in classes}
        effects = [[each.effect(place) for each in classes] for place in range(len(own_edits))]
        of_unit = [
            PlaceClasses(
                unit=edit.unit,
                layer=edit.layer,
                head=edit.head if isinstance(edit, ScaleHead) else None,
                effects=of_place,
            )
            for edit, of_place in zip(own_edits, effects, strict=True)
        ]
        places += _tested(of_unit, classes, study.seed) if tested and classes else of_unit
    baselines = [known.get(name, ClassBaseline(name=name, items=0, tokens=0)) for name in names]
    return ClassTable(group=group, items=len(sums), classes=baselines, places=places)


def _tested(places: Sequence[PlaceClasses], classes: Sequence[_Class], seed: int) -> list[PlaceClasses]:
    """The places of a unit with the tests of every class, and of the class that loses most."""
    lost = np.stack([own.lost / own.tokens.mean() for own in classes], axis=1)
    loss = np.stack([own.loss for own in classes], axis=1)
    tests = {}
    for name, values in (("drop", lost), ("loss", loss)):
        p = _by_sign_flips(values, seed)
        tests[name] = p, np.reshape(holm(p.ravel()), p.shape)
    most, p_most = _most(lost, seed)
    corrected = holm(p_most)
    tested = []
    for index, place in enumerate(places):
        effects = []
        for row, effect in enumerate(place.effects):
            update = {
                name: getattr(effect, name).model_copy(
                    update={"p": float(p[row, index]), "p_corrected": float(p_corrected[row, index])}
                )
                for name, (p, p_corrected) in tests.items()
            }
            effects.append(effect.model_copy(update=update))
        winner = {"most": classes[most[index]].name, "p": float(p_most[index]), "p_corrected": float(corrected[index])}
        tested.append(place.model_copy(update={"effects": tuple(effects), **(winner if len(classes) > 1 else {})}))
    return tested


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
