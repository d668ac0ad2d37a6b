"""From the numbers of every item to estimates over items, of places and of classes of gold tokens: pure functions; and
how well cheap measures of a place foretell the drops of accuracy that a layer study found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.stats import rankdata, ttest_1samp

from lesion.activations.readout import EXACT
from lesion.core.rates import complete, verdicts
from lesion.core.store import Store
from lesion.edits.edit import BASELINE, Scale
from lesion.edits.place import Unit
from lesion.errors import UsageError
from lesion.report.values import Estimate
from lesion.statistics.agreement import DRAWS, permutation_p, profile, rank_correlation
from lesion.statistics.paired import holm, sign_flips, wilson
from lesion.studies.ablation.result import read_finished
from lesion.studies.effects.measurement import ClassSums, Measured
from lesion.studies.effects.result import (
    ClassBaseline,
    ClassEffect,
    ClassTable,
    Effect,
    LensLayer,
    PlaceClasses,
    Reference,
    Screen,
    ScreenAgreement,
    TaskEffects,
    UnitEffects,
)
from lesion.studies.effects.study import EffectsStudy
from lesion.tasks.catalogue import canonical
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
        of_group = [item for item, its in zip(sums, groups, strict=True) if its == group]
        first = [edit for edit in edits if edit.unit == _units(study, edits)[0]]
        parts.append(_table(study, names, of_group, first, group or "no group", tested=False))
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
        of_class = [item.get(name, empty) for item in sums]
        self.name, self._sample = name, sample
        self.tokens, self._top, self._nats = np.array(
            [(each.tokens, each.top, each.log_probability) for each in of_class], dtype=float
        ).T
        self.items = int(np.count_nonzero(self.tokens))
        self._without = np.array([[each.top_without[place] for place in places] for each in of_class], dtype=np.float64)
        self.lost = self._top[:, None] - self._without
        self.loss = np.array([[each.loss[place] for place in places] for each in of_class])
        self._drawn = sample.drawn(self.tokens[:, None])[:, 0]

    def _rate(self, values: Float[np.ndarray, " items"]) -> Estimate:
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

    def effect(self, place: int, drop: Sequence[float], loss: Sequence[float]) -> ClassEffect:
        """The class without a place; `drop`, `loss`: p and corrected p of the two, none where they are not tested."""
        tests = (dict(zip(("p", "p_corrected"), p, strict=False)) for p in (drop, loss))
        estimates = (self._rate(values[:, place]) for values in (self.lost, self.loss))
        tested = [each.model_copy(update=test) for each, test in zip(estimates, tests, strict=True)]
        accuracy = self._share(self._without[:, place])
        return ClassEffect(name=self.name, accuracy=accuracy, drop=tested[0], loss=tested[1])


def _table(
    study: EffectsStudy,
    names: Sequence[str],
    sums: Sequence[Sums],
    edits: Sequence[Scale],
    group: str = "",
    *,
    tested: bool = True,
) -> ClassTable:
    """The classes over some items; with the tests of every class, and of the class that loses most."""
    sample = Sample(len(sums), study.level, study.seed)
    present = [name for name in names if any(name in item for item in sums)]
    known: dict[str, ClassBaseline] = {}
    places: list[PlaceClasses] = []
    for unit in dict.fromkeys(edit.unit for edit in edits):
        own_edits = [edit for edit in edits if edit.unit == unit]
        classes = [_Class(sample, sums, name, [edit.address for edit in own_edits]) for name in present]
        known = {each.name: each.baseline() for each in classes}
        drop = loss = np.zeros((0, len(classes), len(own_edits)))
        winners: list[dict[str, Any]] = [{} for _ in own_edits]
        if tested and classes:
            lost = np.stack([own.lost / own.tokens.mean() for own in classes], axis=1)
            drop = _tested_flips(lost, study.seed)
            loss = _tested_flips(np.stack([own.loss for own in classes], axis=1), study.seed)
            if len(classes) > 1:
                winners = _most(lost, [each.name for each in classes], study.seed)
        for at, edit in enumerate(own_edits):
            effects = [
                each.effect(at, drop[:, n, at].tolist(), loss[:, n, at].tolist()) for n, each in enumerate(classes)
            ]
            places.append(
                PlaceClasses(
                    unit=unit, layer=edit.layer, head=getattr(edit, "head", None), effects=effects, **winners[at]
                )
            )
    baselines = [known.get(name, ClassBaseline(name=name, items=0, tokens=0)) for name in names]
    return ClassTable(group=group, items=len(sums), classes=baselines, places=places)


def _by_sign_flips(values: Float[np.ndarray, "items classes places"], seed: int) -> Float[np.ndarray, "classes places"]:
    return sign_flips(values.reshape(len(values), -1), seed).reshape(values.shape[1:])


def _tested_flips(
    values: Float[np.ndarray, "items classes places"], seed: int
) -> Float[np.ndarray, "p_and_corrected classes places"]:
    """The same, and corrected over classes × places."""
    p = _by_sign_flips(values, seed)
    return np.stack([p, np.reshape(holm(p.ravel()), p.shape)])


def _most(lost: Float[np.ndarray, "items classes places"], names: Sequence[str], seed: int) -> list[dict[str, Any]]:
    """Per place the class that loses most, the p of "another loses as much", and that corrected over the places.

    `lost` is per mean number of tokens of an item, so that a mean over items is a drop of accuracy.
    """
    most = lost.mean(axis=0).argmax(axis=0)
    apart = np.take_along_axis(lost, most[None, None], axis=1) - lost  # 0 of the class itself, whose p is 1
    flips = _by_sign_flips(apart, seed)
    np.put_along_axis(flips, most[None], 0.0, axis=0)
    p = flips.max(axis=0).tolist()
    return [
        {"most": names[at], "p": own, "p_corrected": corrected}
        for at, own, corrected in zip(most.tolist(), p, holm(p), strict=True)
    ]


Items = Float[np.ndarray, "items places"]


class Sample:
    """Numbers of items, and their means under items drawn again with replacement (Efron 1979), the same for all."""

    def __init__(self, items: int, level: float, seed: int) -> None:
        generator = np.random.default_rng([seed, items])
        self.level = level
        self.weights = generator.multinomial(items, np.full(items, 1 / items), size=DRAWS) / items

    def drawn(self, values: Float[np.ndarray, "items some"]) -> Float[np.ndarray, "draws some"]:
        """The means under every draw."""
        return np.asarray(self.weights @ values)

    def estimate(self, value: float, drawn: Float[np.ndarray, " draws"]) -> Estimate:
        """A number with the percentiles of what it is under the draws; without an interval where they are one."""
        finite = drawn[np.isfinite(drawn)]
        if len(finite) < len(drawn) or np.ptp(finite) <= 1e-9 * abs(value):
            return Estimate(value=value)
        low, high = np.percentile(finite, [50 * (1 - self.level), 50 * (1 + self.level)])
        return Estimate(value=value, low=low, high=high)

    def mean(self, values: Float[np.ndarray, " items"]) -> Estimate:
        """The mean over items."""
        return self.estimate(float(values.mean()), self.drawn(values[:, None])[:, 0])


def summarised(
    study: EffectsStudy,
    model: str,
    task: str,
    measured: Sequence[Measured],
    edits: Sequence[Scale],
    drops: Drops | None,
    reference: Reference,
) -> TaskEffects:
    """The effects of one model on one task."""
    sample = Sample(len(measured), study.level, study.seed)

    def means(name: str) -> list[Estimate]:
        values = np.array([getattr(item, name) for item in measured]).reshape(len(measured), -1)
        return [sample.mean(column) for column in values.T]

    columns = zip(means("lens"), means("log_rank"), means("top"), strict=True)
    layers = [
        LensLayer(layer=layer, log_probability=log_probability, rank=_exponential(log_rank), top=top)
        for layer, (log_probability, log_rank, top) in enumerate(columns)
    ]
    effects: list[Effect] = []
    units: list[UnitEffects] = []
    agreements: list[ScreenAgreement] = []
    for unit in _units(study, edits):
        own_edits = [edit for edit in edits if edit.unit == unit]
        direct, total, frozen, loss = (
            np.array([[getattr(item, name)[edit.address] for edit in own_edits] for item in measured])
            for name in ("direct", "total", "frozen", "loss")
        )
        screens: dict[Screen, Items] = {"direct": direct, "loss": loss}
        if unit == "block":
            screens["influence"] = np.array([item.influence for item in measured])
        effects += _effects(sample, own_edits, direct, total, frozen, loss, screens.get("influence"))
        units.append(_unit(sample, unit, direct, total, frozen))
        if drops is not None and (right := drops.right(model, task, own_edits)) is not None:
            for screen, values in screens.items():
                both = values.mean(0), sample.drawn(values)
                if screen == "direct":
                    both = np.abs(both[0]), np.abs(both[1])
                agreements.append(agreement(screen, unit, *both, right, study))
    (logit,), (embedding,), (offset,) = means("logit"), means("embedding"), means("offset")
    return TaskEffects(
        model=model,
        task=task,
        items=len(measured),
        tokens=sum(item.tokens for item in measured),
        reference=reference,
        logit=logit,
        embedding=embedding,
        offset=offset,
        lens=layers,
        effects=effects,
        units=units,
        agreements=agreements,
    )


def _exponential(estimate: Estimate) -> Estimate:
    known = estimate.model_dump(include={"value", "low", "high"}, exclude_none=True)
    return Estimate(**{"value": None, **{name: float(np.exp(end)) for name, end in known.items()}})


def _effects(
    sample: Sample,
    edits: Sequence[Scale],
    direct: Items,
    total: Items,
    frozen: Items,
    loss: Items,
    influence: Items | None,
) -> list[Effect]:
    """Every place of a unit, in the order of its edits; `influence`: of whole blocks alone."""
    gaps = {"repaired": direct - total, "by_blocks": direct - frozen, "by_norm": frozen - total}
    tested = {name: _tested(sample, gap, _least(direct)) for name, gap in gaps.items()}
    means = {"direct": direct, "total": total, "loss": loss}
    effects = []
    for place, edit in enumerate(edits):
        own = {name: sample.mean(values[:, place]) for name, values in means.items()}
        own |= {name: estimates[place] for name, estimates in tested.items()}
        if influence is not None:
            own["influence"] = sample.mean(influence[:, edit.layer])
        effects.append(Effect(unit=edit.unit, layer=edit.layer, head=getattr(edit, "head", None), **own))
    return effects


def _least(direct: Items) -> float:
    """Where nothing follows, direct and frozen are one number but for rounding, of which there is nothing to test."""
    return EXACT * float(np.abs(direct).max())


def _tested(sample: Sample, values: Items, least: float) -> list[Estimate]:
    """The mean of every place with p of "it is 0" by Student's t over items, corrected by Holm over the places.

    Not tested are a single item, items that are all alike, and values that are no larger than `least`.
    """
    p = {
        place: float(ttest_1samp(column, 0.0).pvalue)
        for place, column in enumerate(values.T)
        if len(column) > 1 and np.ptp(column) > 0 and np.abs(column).max() > least
    }
    corrected = dict(zip(p, holm(p.values()), strict=True))
    tests = ({"p": p.get(place), "p_corrected": corrected.get(place)} for place in range(values.shape[1]))
    return [sample.mean(column).model_copy(update=test) for column, test in zip(values.T, tests, strict=True)]


def _unit(sample: Sample, unit: Unit, direct: Items, total: Items, frozen: Items) -> UnitEffects:
    drawn = sample.drawn(direct), sample.drawn(total)
    slope = sample.estimate(float(_slopes(direct.mean(0), total.mean(0))), _slopes(*drawn))

    def share(left: Items) -> Estimate | None:
        chosen = _chosen_by_the_other_half(sample.level, direct, left)
        written, taken = (direct * chosen).sum(1), (left * chosen).sum(1)
        if not chosen.any():
            return None
        both = sample.drawn(np.stack([written, taken], axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):
            return sample.estimate(1 - float(taken.sum() / written.sum()), 1 - both[:, 1] / both[:, 0])

    return UnitEffects(unit=unit, slope=slope, repaired=share(total), by_blocks=share(frozen))


def _chosen_by_the_other_half(level: float, direct: Items, left: Items) -> Bool[np.ndarray, "items places"]:
    """Per item, the places that the half of the items without it shows to be repaired.

    Items at even places of their drawn order are one half. Shown: the direct effect is above 0 by its interval, and
    more than what is lost, by the test of `_tested`.
    """
    chosen = np.zeros(direct.shape, dtype=bool)
    for half in (0, 1):
        own, own_left = direct[half::2], left[half::2]
        if len(own) < 2:
            continue
        sample = Sample(len(own), level, seed=half)
        tested = _tested(sample, own - own_left, _least(own))
        written = [sample.mean(column) for column in own.T]
        chosen[1 - half :: 2] = [
            (each.low or 0.0) > 0 and (gap.value or 0.0) > 0 and gap.is_shown
            for each, gap in zip(written, tested, strict=True)
        ]
    return chosen


def _slopes(
    direct: Float[np.ndarray, "*draws places"], total: Float[np.ndarray, "*draws places"]
) -> Float[np.ndarray, "*draws"]:
    """Slopes of the least-squares lines of total on direct along the last axis; NaN where direct is constant."""
    centred = direct - direct.mean(axis=-1, keepdims=True)
    square = (centred * centred).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(square > 0, (centred * total).sum(axis=-1) / square, np.nan))


@dataclass(frozen=True)
class Drops:
    """The answers of a layer study.

    Attributes:
        fingerprints: of its models, by name.
        items: by model and canonical task, the ids of the items that the baseline answered.
    """

    folder: str
    fingerprints: Mapping[str, str]
    answers: pd.DataFrame
    tasks: Mapping[str, tuple[str, ...]]

    def refuse_another(self, model: str, fingerprint: str) -> None:
        """Refuse drops of other weights under the same name."""
        if self.fingerprints.get(model, fingerprint) != fingerprint:
            raise UsageError(
                f"The layer study in {self.folder} is about other weights that were called {model} too; give a study of"
                " this very model with --study, or leave it out."
            )

    def right(self, model: str, task: str, edits: Sequence[Scale]) -> np.ndarray | None:
        """[edits + 1, items] right answers: unedited, then under each edit; None if not all are there."""
        name = next((own for own in self.tasks.get(model, ()) if canonical(own) == canonical(task)), None)
        own = self.answers[(self.answers["model_name"] == model) & (self.answers["task"] == name)]
        baseline = own[own["edit"] == str(BASELINE)]["item"].tolist()
        frames = complete(own, baseline)
        names = [str(BASELINE), *map(str, edits)]
        if not baseline or any(name not in frames for name in names):
            return None
        return np.stack([verdicts(frames[name]) for name in names])


def _units(study: EffectsStudy, edits: Sequence[Scale]) -> list[Unit]:
    """The units of a study that a model has, in its order."""
    return [unit for unit in study.unit if any(edit.unit == unit for edit in edits)]


def notes_on_gaps(drops: Drops, study: EffectsStudy, model: str, edits: Sequence[Scale]) -> Iterator[str]:
    """For every task and unit that the layer study has not evaluated in full, why its drops are not compared with."""
    for choice in study.tasks:
        for unit in _units(study, edits):
            if drops.right(model, choice.name, [edit for edit in edits if edit.unit == unit]) is None:
                what = f"every {unit}" if unit in ("block", "head") else f"the {unit} of every block"
                yield (
                    f"{model}, {choice.name}: no comparison with the drops of {drops.folder}, which does not have all"
                    f" answers with {what} switched off; run it with --layers all for this task and unit."
                )


def read_drops(study: EffectsStudy) -> Drops:
    """The answers of the layer study that a study of effects names."""
    folder = str(study.study)
    names = [chosen.name for chosen in study.models]
    summary = read_finished(folder, names)
    tasks = {model.model: tuple(task.task for task in model.tasks) for model in summary.models if model.model in names}
    known = {canonical(task) for own in tasks.values() for task in own}
    if not known & {canonical(choice.name) for choice in study.tasks}:
        raise UsageError(
            f"The layer study in {folder} asked {', '.join(sorted(known))}, and none of this study's tasks; name one of"
            " them with --task, or leave --study out."
        )
    with Store.read(folder) as store:
        models = store.models()
        fingerprints = dict(zip(models["name"], models["fingerprint"], strict=True))
        return Drops(folder, fingerprints, store.answers(), tasks)


def agreement(
    screen: Screen,
    unit: Unit,
    values: Float[np.ndarray, " places"],
    drawn: Float[np.ndarray, "draws places"],
    right: np.ndarray,
    study: EffectsStudy,
) -> ScreenAgreement:
    """Spearman's ρ of a screen with the drops of accuracy; p where ρ is known."""
    drops = profile(right, range(len(values)), study.seed)
    rho = Estimate.of(rank_correlation(values, drops.drops, drawn, drops.drawn, study.level))
    if rho.value is not None:
        rho = rho.model_copy(update={"p": permutation_p(rankdata(values), drops.ranks, study.seed)})
    tied = len(values) - len(np.unique(drops.drops))
    return ScreenAgreement(screen=screen, unit=unit, places=len(values), items=right.shape[1], tied=tied, rho=rho)
