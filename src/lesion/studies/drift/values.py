"""A drift study's summary as values: models by family, curves by layer, shapes, and the tokens that left their cluster.

Layer l of a drift is the residual stream behind block l − 1; layer 0 is what enters block 0. Block c thus stands
between the layers c and c + 1. What the summary does not tell, or tells as a number that is not finite, is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from lesion.studies.drift.critical_blocks import Distance, apart, distance, places


@dataclass(frozen=True)
class Value:
    """A mean over runs and the standard deviation between them."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Layer:
    """The measures of one layer by name: `nmi`, `null`, `cosine`, `cka`; those against labels in `labels`."""

    layer: int
    measures: Mapping[str, Value]
    labels: Mapping[str, Value]

    def of(self, measure: str) -> Value | None:
        """One of the measures, or the mutual information with a labelling, by its name."""
        return self.measures.get(measure) or self.labels.get(measure)


@dataclass(frozen=True)
class Departure:
    """A hinge or a step on top of a straight line, where it fits best; numbers that are not known are None.

    Attributes:
        kind: `hinge` or `step`.
        layer: its place, with the interval `low` to `high`; of a step the middle between its two layers.
        size: of a hinge the change of slope per layer, of a step the change of NMI.
        gain: share of what a straight line leaves over that it takes away, 0…1.
        p: of its size being zero, the search over places included.
        detectable: the smallest size that 80 % of such studies would find.
        slopes: per layer, before and after it.
    """

    kind: str
    layer: float
    low: float | None
    high: float | None
    size: float | None
    gain: float | None
    p: float | None
    detectable: float | None
    slopes: tuple[float, float] | None = None

    @property
    def block(self) -> int:
        """The block over which a step lies, or within which a hinge does."""
        return int(self.layer)


@dataclass(frozen=True)
class Shape:
    """Whether a curve is a straight line, and the hinge and the step that fit it best (`lesion.statistics.shape`).

    Attributes:
        chosen: `line`, `hinge`, `step`, `neither` (no line, and neither of the two is found) or `untested`.
        p: of the straight line, allowing layers of one run to vary together.
        f, degrees, f_p: the textbook's lack-of-fit F, which takes layers for independent.
        share: of bootstrap draws that prefer the same of hinge and step.
        first, last: the layers to which all is fitted.
    """

    chosen: str
    p: float | None
    f: float | None
    degrees: tuple[int, int] | None
    f_p: float | None
    hinge: Departure
    step: Departure
    share: float | None
    first: int
    last: int

    @property
    def departure(self) -> Departure | None:
        """The hinge or step that was chosen."""
        return {"hinge": self.hinge, "step": self.step}.get(self.chosen)

    @property
    def straight(self) -> bool | None:
        """Whether a straight line does; None: not tested."""
        return None if self.chosen == "untested" else self.chosen == "line"


@dataclass(frozen=True)
class Curve:
    """A model's layers under one number of clusters, with the shape of its curve."""

    clusters: int | None
    layers: tuple[Layer, ...]
    shape: Shape | None

    @property
    def departure(self) -> Departure | None:
        """The hinge or step of the curve; None where there is none or none was sought."""
        return self.shape.departure if self.shape else None

    def along(self, measure: str) -> list[tuple[int, Value]]:
        """(layer, value) of a measure, where it is known, in the order of layers."""
        return [(one.layer, value) for one in self.layers if (value := one.of(measure)) is not None]


@dataclass(frozen=True)
class Example:
    """A token in its context; texts of a model or a task."""

    before: str
    token: str
    after: str
    item: str


@dataclass(frozen=True)
class Leaving:
    """One token, or with `token` None a class of tokens, between two layers.

    Attributes:
        count: how often it stood there; left: how often its cluster was then not the one matched with its former.
        share: left / count with its interval, in 0…1.
    """

    start: int
    end: int
    token: str | None
    kind: str
    count: int
    left: int
    share: float
    low: float | None
    high: float | None
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Destination:
    """A cluster that tokens went to, by the tokens most common in it; `matched`: the partner of where they were."""

    name: str
    count: int
    share: float
    matched: bool


@dataclass(frozen=True)
class Flow:
    """A cluster of the former layer, by the tokens most common in it, and where its tokens were in the latter.

    Attributes:
        stayed: the share that is in the matched cluster.
        others: how many tokens went to clusters that are not listed.
    """

    start: int
    end: int
    name: str
    count: int
    stayed: float
    into: tuple[Destination, ...]
    others: int


@dataclass(frozen=True)
class Followed:
    """One model of the study.

    Attributes:
        curve: under the number of clusters that is drawn; others: under the other numbers.
        critical: blocks that a layer study found critical, by task; None: no study was given.
        task: the task of them that is compared with; None: that study did not ask this one's, so that all are.
        ceiling: NMI between two clusterings of the reference layer from different starts, or None.
        overall: the share of all tokens that left between the two layers of `tokens`, or None.
        items, positions: the numbers of items and tokens of every run.
    """

    name: str
    family: str
    variant: str
    blocks: int
    curve: Curve
    others: tuple[Curve, ...]
    critical: Mapping[str, tuple[int, ...]] | None
    task: str | None
    ceiling: float | None
    overall: float | None
    tokens: tuple[Leaving, ...]
    classes: tuple[Leaving, ...]
    flow: tuple[Flow, ...]
    items: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def critical_blocks(self) -> list[int]:
        """Critical for the task of this study, or where that was not asked, for any; in order."""
        told = self.critical or {}
        chosen = told.values() if self.task is None else [told[self.task]]
        return sorted({block for blocks in chosen for block in blocks})

    def nearest(self, curve: Curve) -> Distance | None:
        """How far the hinge or step of a curve is from the nearest critical block, and how often by chance."""
        if curve.shape is None or curve.departure is None:
            return None
        return distance(curve.departure.layer, self.critical_blocks, possible(curve.shape))

    def within_by_chance(self) -> float:
        """The share of all places for the hinge or step of the drawn curve that are within a critical block."""
        assert self.curve.shape is not None
        return float(np.mean([within(place, self.critical_blocks) for place in possible(self.curve.shape)]))

    @property
    def between(self) -> list[tuple[int, int]]:
        """The pairs of layers between which tokens were followed."""
        pairs = [(one.start, one.end) for one in (*self.classes, *self.tokens)]
        return list(dict.fromkeys([*pairs, *((one.start, one.end) for one in self.flow)]))


def possible(shape: Shape) -> list[float]:
    """Where a hinge or step of the chosen kind could have been."""
    return places(shape.chosen, shape.first, shape.last)


def within(layer: float, blocks: Sequence[int]) -> bool:
    """Whether a place on the axis lies within one of the blocks."""
    return any(abs(apart(layer, block)) <= 1e-9 for block in blocks)


@dataclass(frozen=True)
class Family:
    """Models that are drawn together: of one family and depth."""

    name: str
    models: tuple[Followed, ...]

    @property
    def blocks(self) -> int:
        """The depth of its models."""
        return self.models[0].blocks

    @cached_property
    def labels(self) -> list[str]:
        """What the models are called in a chart: by variant where that tells them apart, else by name."""
        variants = [model.variant for model in self.models]
        told = all(variants) and len(set(variants)) == len(variants)
        return variants if told else [model.name for model in self.models]


@dataclass(frozen=True)
class Drifts:
    """The whole summary; `reference` is the layer that all others are compared with."""

    study: Mapping[str, Any]
    models: tuple[Followed, ...]
    notes: tuple[str, ...]

    @property
    def level(self) -> float:
        """Of all intervals, in 0…1."""
        return float(self.study.get("level") or 0.95)

    @property
    def reference(self) -> int:
        """0 for what enters block 0, 1 for what leaves it."""
        return 1 if self.study.get("layer_zero") == "block" else 0

    @property
    def clusters(self) -> int | None:
        """The number of clusters that is drawn large."""
        return next((model.curve.clusters for model in self.models), None)

    @cached_property
    def families(self) -> list[Family]:
        """The models in the order of the summary, those of one family and depth together."""
        groups: dict[tuple[str, int], list[Followed]] = {}
        for model in self.models:
            groups.setdefault((model.family, model.blocks), []).append(model)
        depths: dict[str, set[int]] = {}
        for family, blocks in groups:
            depths.setdefault(family, set()).add(blocks)
        found = []
        for (family, blocks), models in groups.items():
            depth = f"{blocks} blocks"
            name = family or (models[0].name if len(models) == 1 else f"models of {depth}")
            if family and len(depths[family]) > 1:
                name = f"{family}, {depth}"
            found.append(Family(name, tuple(models)))
        return found

    @property
    def labellings(self) -> list[str]:
        """What clusters are compared with besides the reference: `token class`, `token`."""
        every = (name for model in self.models for layer in model.curve.layers for name in layer.labels)
        return list(dict.fromkeys(every))

    @property
    def numbers_of_clusters(self) -> list[int]:
        """The other numbers of clusters, in order."""
        return sorted({curve.clusters for model in self.models for curve in model.others if curve.clusters is not None})


def steps(curve: Curve, measure: str) -> list[tuple[int, float]]:
    """(block, how much a measure changes from the layer before the block to that behind it)."""
    return [(a, later.mean - former.mean) for (a, former), (b, later) in pairwise(curve.along(measure)) if b == a + 1]
