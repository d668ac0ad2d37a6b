"""The result of a drift study: curves by layer, their shapes, critical blocks beside them, tokens that left.

Layer l of a drift is the residual stream after block l − 1; layer 0 is what enters block 0. Block c thus stands between
the layers c and c + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field

from lesion.core.values import Summary
from lesion.report.values import Estimate, Mean, Number, Value
from lesion.report.wording import counted
from lesion.studies.drift.critical_blocks import Distance, apart, places
from lesion.studies.drift.study import DriftStudy

CHECKS = {"cosine": "cosine", "cka": "CKA"}
"""The measures that need no clusters, and what they are called in tables, charts and findings."""
BY_TOKEN = "by_token"
MEASURES = ("nmi", "null", "null_high", BY_TOKEN, *CHECKS)


class Layer(Value):
    """The measures of one layer over runs (`clustering.MeasuredLayer`); None where unknown.

    `by_token` is NMI with the reference layer once every occurrence is put into the most common cluster of its token
    at this layer: what is left of the fall of `nmi` when occurrences of one token do not spread.
    """

    layer: int
    nmi: Mean | None = None
    null: Mean | None = None
    null_high: Mean | None = None
    by_token: Mean | None = None
    cosine: Mean | None = None
    cka: Mean | None = None
    labels: dict[str, Mean] = Field(default_factory=dict)

    def of(self, measure: str) -> Mean | None:
        """One of the measures, or NMI with a labelling, by its name."""
        value: Mean | None = getattr(self, measure) if measure in MEASURES else None
        return self.labels.get(measure, value)


class Departure(Value):
    """A hinge or a step where it fits best (`lesion.statistics.shape.Departure`).

    `detectable` is the smallest size that 80 % of such studies would find.
    """

    kind: Literal["hinge", "step"]
    layer: float
    low: Number
    high: Number
    size: Number
    gain: Number
    p: Number
    detectable: Number
    slopes: tuple[Number, Number]

    @property
    def block(self) -> int:
        """The block over which a step lies, or within which a hinge does."""
        return int(self.layer)


class Line(Value):
    """The test of a straight line (`lesion.statistics.shape.Line`)."""

    p: Number
    f: Number
    degrees: tuple[int, int]
    f_p: Number


class Shape(Value):
    """Whether a curve is a straight line, and the hinge and the step that fit it best (`lesion.statistics.shape`).

    Attributes:
        chosen: `neither`: the line is rejected, and neither of the two is found.
        share: of bootstrap draws that prefer the same of hinge and step.
        first, last: the layers to which all is fitted.
    """

    chosen: Literal["line", "hinge", "step", "neither", "untested"]
    first: int
    last: int
    line: Line
    hinge: Departure
    step: Departure
    share: Number

    @property
    def departure(self) -> Departure | None:
        """The hinge or step that was chosen."""
        return {"hinge": self.hinge, "step": self.step}.get(self.chosen)

    @property
    def possible(self) -> list[float]:
        """Where a hinge or step of the chosen kind could have been."""
        return places(self.chosen, self.first, self.last)


class Curve(Value):
    """A model's layers under one number of clusters.

    Attributes:
        shape: of NMI over layers; None: too few layers.
        ceiling: NMI between two clusterings of the reference layer from different starts.
        nearest: the critical block nearest to the hinge or step.
    """

    clusters: int
    layers: tuple[Layer, ...]
    shape: Shape | None
    ceiling: Number
    nearest: Distance | None = None

    @property
    def departure(self) -> Departure | None:
        """The hinge or step of the curve; None where there is none or none was sought."""
        return self.shape.departure if self.shape else None

    def along(self, measure: str) -> list[tuple[int, Mean]]:
        """(layer, value) of a measure where it is known, in the order of layers."""
        return [(layer.layer, value) for layer in self.layers if (value := layer.of(measure)) is not None]

    def steps(self, measure: str) -> dict[int, float]:
        """By block, how much a measure changes from the layer before the block to the layer after it."""
        return {a: later.mean - former.mean for (a, former), (b, later) in pairwise(self.along(measure)) if b == a + 1}


class Example(Value):
    """A token in its context; texts of a model or a task."""

    before: str
    token: str
    after: str
    item: str
    run: int
    cluster: int
    into: int


class Leaving(Value):
    """One token type, or with `token` None a class of tokens, between the two layers that were followed.

    Attributes:
        left: how many of `count` occurrences left the cluster matched with their former one.
        home: how many are in the earlier cluster that has most of them; None for classes.
        share: left / count, with Wilson's interval, which takes occurrences for independent.
    """

    token: str | None
    id: int | None = None
    kind: str
    count: int
    left: int
    home: int | None = None
    share: Estimate
    examples: tuple[Example, ...] = ()


class Destination(Value):
    """A cluster that tokens went to, by its most common tokens; `matched`: the partner of their former cluster."""

    number: int
    name: str
    count: int
    matched: bool


class Flow(Value):
    """A cluster of the earlier layer, by its most common tokens, and where these are at the later one.

    `left` are not in the matched cluster, `others` in clusters that are not listed.
    """

    number: int
    name: str
    count: int
    left: int
    into: tuple[Destination, ...]
    others: int


class Tokens(Value):
    """What became of the tokens between the layers `start` and `end`.

    Attributes:
        overall: of all tokens.
        types: token types that most surely left; classes: every class of tokens, the most common first.
        flow: of the first run, every cluster of the earlier layer.
    """

    start: int
    end: int
    overall: Leaving
    types: tuple[Leaving, ...]
    classes: tuple[Leaving, ...]
    flow: tuple[Flow, ...]

    @property
    def surest_classes(self) -> list[Leaving]:
        """The classes in the order of the token types: those that most surely left come first."""
        return sorted(self.classes, key=lambda leaving: -(leaving.share.low or 0.0))


class Run(Value):
    """How much a run read; `right` and `truncated` of the model's own solutions."""

    run: int
    items: int
    tokens: int
    prompt_tokens: int
    solution_tokens: int
    right: int | None = None
    truncated: int | None = None


class DriftOfModel(Value):
    """One model of the study.

    Attributes:
        clusters: the number of clusters that is drawn.
        curves: under every number of clusters; only the drawn one has cosine, CKA and labels.
        critical: blocks that a layer study found critical, by task; None: no study was given.
        compared: the task of them that is compared with; None: that study did not ask this one's, so that all are.
    """

    name: str
    family: str
    variant: str | None
    fingerprint: str
    blocks: int
    clusters: int
    curves: tuple[Curve, ...]
    critical: dict[str, tuple[int, ...]] | None
    compared: str | None
    runs: tuple[Run, ...]
    tokens: Tokens

    @property
    def curve(self) -> Curve:
        """The curve that is drawn."""
        return next(curve for curve in self.curves if curve.clusters == self.clusters)

    def under(self, clusters: int) -> Curve | None:
        """The curve under a number of clusters."""
        return next((curve for curve in self.curves if curve.clusters == clusters), None)

    @property
    def critical_blocks(self) -> list[int]:
        """Critical for the task of this study, or where that was not asked, for any; in order."""
        by_task = self.critical or {}
        chosen = by_task.values() if self.compared is None else [by_task[self.compared]]
        return sorted({block for blocks in chosen for block in blocks})

    def within_by_chance(self) -> float:
        """The share of all places for the hinge or step of the drawn curve that are within a critical block."""
        assert self.curve.shape is not None
        return float(np.mean([within(place, self.critical_blocks) for place in self.curve.shape.possible]))


def within(layer: float, blocks: Sequence[int]) -> bool:
    """Whether a place on the axis lies within one of the blocks."""
    return any(abs(apart(layer, block)) <= 1e-9 for block in blocks)


class Family(Value):
    """Models that are drawn together: of one family and depth."""

    name: str
    models: tuple[DriftOfModel, ...]

    @property
    def blocks(self) -> int:
        """The depth of its models."""
        return self.models[0].blocks

    @property
    def labels(self) -> list[str]:
        """What the models are called in a chart: by variant where that is unique, else by name."""
        variants = [model.variant for model in self.models if model.variant]
        unique = len(variants) == len(self.models) == len(set(variants))
        return variants if unique else [model.name for model in self.models]


class DriftSummary(Summary):
    """All numbers of a drift study: what `summary.json` holds."""

    kind: Literal["drift"] = "drift"
    identity: str
    approximate: str | None = None
    study: DriftStudy
    models: tuple[DriftOfModel, ...]

    @property
    def reference(self) -> int:
        """The layer that all others are compared with: 0 for what enters block 0, 1 for what leaves it."""
        return 1 if self.study.layer_zero == "block" else 0

    @cached_property
    def families(self) -> list[Family]:
        """The models in the order of the summary, those of one family and depth together."""
        groups: dict[tuple[str, int], list[DriftOfModel]] = {}
        for model in self.models:
            groups.setdefault((model.family, model.blocks), []).append(model)
        families = []
        for (family, blocks), models in groups.items():
            depth = counted(blocks, "block")
            name = family or (models[0].name if len(models) == 1 else f"models of {depth}")
            if family and sum(other == family for other, _ in groups) > 1:
                name = f"{family}, {depth}"
            families.append(Family(name=name, models=tuple(models)))
        return families

    @property
    def labellings(self) -> list[str]:
        """What clusters are compared with besides the reference: `token class`, `token`."""
        every = (name for model in self.models for layer in model.curve.layers for name in layer.labels)
        return list(dict.fromkeys(every))
