"""A drift study's summary as values: models by family, curves by layer, elbows, and the tokens that left their cluster.

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

from lesion.studies.drift_critical import Distance, apart, distance

NEAR = 1.0
"""An elbow is near a block when at most so many layers lie between it and the block's place."""


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
class Elbow:
    """Where two straight pieces meet, in layers, with its interval.

    Attributes:
        bend: whether two pieces fit better than one, beyond chance; None: not told.
        p: of that comparison.
        slopes: of the two pieces, per layer, where they are told.
    """

    layer: float
    low: float | None
    high: float | None
    bend: bool | None
    p: float | None
    slopes: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curve:
    """A model's layers under one number of clusters, with the elbow of its curve."""

    clusters: int | None
    layers: tuple[Layer, ...]
    elbow: Elbow | None

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

    def nearest(self, elbow: Elbow) -> Distance | None:
        """How far an elbow is from the nearest critical block, and how many places for it are as near."""
        return distance(elbow.layer, self.critical_blocks, self.blocks)

    def near_by_chance(self) -> float:
        """The share of all places for an elbow, from layer 1 to the last but one, that are near a critical block."""
        at = np.linspace(1, max(1, self.blocks - 1), 2001)
        return float(np.mean([near(float(place), self.critical_blocks) for place in at]))

    @property
    def between(self) -> list[tuple[int, int]]:
        """The pairs of layers between which tokens were followed."""
        pairs = [(one.start, one.end) for one in (*self.classes, *self.tokens)]
        return list(dict.fromkeys([*pairs, *((one.start, one.end) for one in self.flow)]))


def near(layer: float, blocks: Sequence[int]) -> bool:
    """Whether a place on the axis is at most `NEAR` layers from one of the blocks."""
    return any(abs(apart(layer, block)) <= NEAR + 1e-9 for block in blocks)


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
