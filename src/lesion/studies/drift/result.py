"""The result of a drift study: curves by layer, their shapes, critical blocks beside them, tokens that left.

Layer l of a drift is the residual stream after block l − 1; layer 0 is what enters block 0. Block c thus stands between
the layers c and c + 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from lesion.core.values import Summary
from lesion.plain import visible
from lesion.report import wording
from lesion.report.rows import Row, column, derived
from lesion.report.values import WHOLE_SHARE, Estimate, Mean, Number, Value, decimals
from lesion.studies.ablation.result import TaskResult, read_finished
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import canonical

CHECKS = ("cosine", "cka")
"""The measures that need no clusters."""
SEEN = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥"})
CLASS, TOKEN = "token class", "token"
"""What clusters are compared with besides those of the reference layer."""
THREE = decimals(3)


def token_text(token: str | None) -> str:
    """A token with its white space made visible: `␣the`, `⏎`; a dash for a class of tokens."""
    if token is None:
        return wording.DASH
    return visible(token.translate(SEEN))


def block_text(layer: float | None) -> str:
    """The block that a step at this layer is over."""
    return wording.DASH if layer is None else str(int(layer))


class Layer(Row):
    """The measures of one layer over runs (`measurement.MeasuredLayer`); None where unknown.

    `by_token` is NMI with the reference layer once every occurrence is put into the most common cluster of its token
    at this layer: what is left of the fall of `nmi` when occurrences of one token do not spread.
    """

    layer: int = column("Layer", label=True)
    nmi: Mean | None = column("With first clusters", THREE, default=None)
    null: Mean | None = column("Shuffled tokens", THREE, default=None)
    null_high: Mean | None = None
    by_token: Mean | None = column("With first clusters, tokens whole", THREE, default=None)
    cosine: Mean | None = column("Cosine", THREE, default=None)
    cka: Mean | None = column("CKA", THREE, default=None)
    labels: dict[str, Mean] = Field(default_factory=dict)

    @derived.column("With token class", THREE, key="nmi with token class")
    def with_class(self) -> Mean | None:
        """NMI with the classes of tokens."""
        return self.labels.get(CLASS)

    @derived.column("With token identity", THREE, key="nmi with token")
    def with_token(self) -> Mean | None:
        """NMI with the tokens themselves."""
        return self.labels.get(TOKEN)


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
    def is_either(self) -> bool:
        """Whether hinge and step are the same curve: only the outermost layer departs from the line."""
        return abs((self.hinge.gain or 0.0) - (self.step.gain or 0.0)) <= 1e-9

    @property
    def possible(self) -> list[float]:
        """Where a hinge or step of the chosen kind could have been."""
        return places(self.chosen, self.first, self.last)


class CurveShape(Row):
    """A `Shape` as a line of `shapes.csv`, with the best hinge and step whichever was chosen, and its `Distance`."""

    clusters: int = column("Clusters", label=True)
    line_p: Number = column("Line, p", wording.p_value)
    shape: str = column("Shape")
    share: Number = column()
    f: Number = column()
    f_p: Number = column()
    hinge: Estimate = column(
        "Hinge, layer", decimals(1), key="hinge_layer", ends=("hinge_low", "hinge_high"), p="hinge_p", corrected=False
    )
    hinge_size: Number = column("Change of slope", THREE)
    hinge_gain: Number = column()
    hinge_detectable: Number = column("80 % power from", THREE)
    step: Estimate = column(
        "Step, block", block_text, key="step_layer", ends=("step_low", "step_high"), p="step_p", corrected=False
    )
    step_size: Number = column("Size of the step", THREE)
    step_gain: Number = column()
    step_detectable: Number = column("80 % power from", THREE)
    nearest: int | None = column("Critical block")
    distance: Number = column("Apart, layers", decimals(1, signed=True))
    chance: Number = column("As near by chance", WHOLE_SHARE)


class Curve(Row):
    """A model's layers under one number of clusters.

    Attributes:
        shape: of NMI over layers; None: too few layers.
        ceiling: NMI between two clusterings of the reference layer from different starts.
        nearest: the critical block nearest to the hinge or step.
    """

    clusters: int = column("Clusters", label=True)
    layers: tuple[Layer, ...]
    shape: Shape | None
    ceiling: Number
    nearest: Distance | None = None

    @property
    def departure(self) -> Departure | None:
        """The hinge or step of the curve; None where there is none or none was sought."""
        return self.shape.departure if self.shape else None

    @property
    def line(self) -> CurveShape | None:
        """Its shape as a line of a table; None where it has none."""
        if (shape := self.shape) is None:
            return None
        near = self.nearest
        fits = {
            key: value
            for at in (shape.hinge, shape.step)
            for key, value in {
                at.kind: Estimate(value=at.layer, low=at.low, high=at.high, p=at.p),
                **{f"{at.kind}_{name}": getattr(at, name) for name in ("size", "gain", "detectable")},
            }.items()
        }
        return CurveShape(
            clusters=self.clusters,
            shape=shape.chosen,
            share=shape.share,
            line_p=shape.line.p,
            f=shape.line.f,
            f_p=shape.line.f_p,
            nearest=near and near.block,
            distance=near and near.distance,
            chance=near and near.chance,
            **fits,
        )


class Example(Value):
    """A token in its context; texts of a model or a task."""

    before: str
    token: str
    after: str
    item: str
    run: int
    cluster: int
    into: int


class Leaving(Row):
    """One token type, or with `token` None a class of tokens, between the two layers that were followed.

    Attributes:
        left: how many of `count` occurrences left the cluster matched with their former one.
        home: how many are in the earlier cluster that has most of them; None for classes.
        share: left / count, with Wilson's interval, which takes occurrences for independent.
    """

    token: str | None = column("Token", token_text)
    id: int | None = None
    kind: str = column("Class", key="class")
    count: int = column("Occurrences")
    left: int = column("Left")
    home: int | None = None
    share: Estimate = column("Share that left", WHOLE_SHARE, ends=("low", "high"))
    examples: tuple[Example, ...] = ()

    @derived.column("One that left, in context", visible)
    def context(self) -> str:
        """The first occurrence that left: what stands before it, the token between quotes, what follows."""
        first = next(iter(self.examples), None)
        return "" if first is None else f"{first.before} “{token_text(first.token)}” {first.after}".strip()


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


class Went(Row):
    """How many tokens went from one cluster into another in the first run."""

    cluster: str = column("Cluster")
    into: str = column("Went into")
    count: int = column("Tokens")
    share: float = column("Share", WHOLE_SHARE)
    matched: bool = column("Its own")


class Tokens(Row):
    """What became of the tokens between the layers `start` and `end`.

    Attributes:
        types: token types that most surely left; classes: every class of tokens, the most common first.
        flow: of the first run, every cluster of the earlier layer.
    """

    start: int = column(key="from")
    end: int = column(key="to")
    overall: Leaving
    types: tuple[Leaving, ...]
    classes: tuple[Leaving, ...]
    flow: tuple[Flow, ...]

    @property
    def surest_classes(self) -> list[Leaving]:
        """The classes in the order of the token types: those that most surely left come first."""
        return sorted(self.classes, key=lambda leaving: -(leaving.share.low or 0.0))

    @property
    def went(self) -> list[Went]:
        """Every pair of clusters of the flow."""
        return [
            Went(cluster=flow.name, into=to.name, count=to.count, share=to.count / flow.count, matched=to.matched)
            for flow in self.flow
            for to in flow.into
        ]


class Run(Value):
    """How much a run read; `right` and `truncated` of own solutions."""

    run: int
    items: int
    tokens: int
    prompt_tokens: int
    solution_tokens: int
    right: int | None = None
    truncated: int | None = None


class OfModel(Row):
    """What tells the lines of a drift study apart."""

    name: str = column("Model", key="model", label=True)


class DriftOfModel(OfModel):
    """One model of the study.

    Attributes:
        clusters: the number of clusters that is drawn.
        curves: under every number of clusters; only the drawn one has cosine, CKA and labels.
        critical: blocks that a layer study found critical, by task; None: no study was given.
        compared: the task of them that is compared with; None: all, since none is this one's.
    """

    family: str = column()
    variant: str | None = column()
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

    @property
    def critical_blocks(self) -> list[int]:
        """Critical for the task of this study, or where that was not asked, for any; in order."""
        return critical_blocks(self.critical, self.compared)

    def within_by_chance(self) -> float:
        """The share of all places for the hinge or step of the drawn curve that are within a critical block."""
        assert self.curve.shape is not None
        return float(np.mean([within(place, self.critical_blocks) for place in self.curve.shape.possible]))


def critical_blocks(by_task: Mapping[str, Sequence[int]] | None, task: str | None) -> list[int]:
    """The blocks that are critical for a task, or without one for any; in order."""
    return sorted({block for name, blocks in (by_task or {}).items() if task in (None, name) for block in blocks})


class DriftSummary(Summary):
    """All numbers of a drift study: what `summary.json` holds."""

    kind: Literal["drift"] = "drift"
    identity: str
    approximate: str | None = None
    study: DriftStudy
    models: tuple[DriftOfModel, ...]


PLACES = 2001
"""Places of a hinge at which chance is computed."""


def read_critical(folder: str | Path, models: Sequence[str]) -> dict[str, dict[str, tuple[int, ...]]]:
    """The critical blocks of a layer study by model and canonical task: blocks switched off whole, nothing else."""
    return {
        model.model: {canonical(result.task): _critical(result) for result in model.tasks}
        for model in read_finished(folder, models).models
    }


def _critical(result: TaskResult) -> tuple[int, ...]:
    """The blocks whose ablation as a whole is critical for a task under some factor; replacements do not count."""
    scaled = (cell for cell in result.cells if cell.unit == "block" and not isinstance(cell.factor, str))
    return tuple(sorted({cell.layer for cell in scaled if cell.critical}))


class Distance(Value):
    """How far a place is from the nearest critical block, in layers (`apart`); of two equally near the first.

    Attributes:
        chance: the share of all possible places that are as near to a critical block or nearer.
    """

    block: int
    distance: float
    chance: float


def apart(layer: float, block: int) -> float:
    """The layers between a place and a block: 0 within the block, negative before it, positive after it.

    Layer l of a drift is the output of block l − 1, so that block c stands between the layers c and c + 1.
    """
    return layer - block if layer < block else max(0.0, layer - (block + 1))


def within(layer: float, blocks: Sequence[int]) -> bool:
    """Whether a place on the axis lies within one of the blocks."""
    return any(abs(apart(layer, block)) <= 1e-9 for block in blocks)


def places(kind: str, first: int, last: int) -> list[float]:
    """All places at which a fit to the layers `first` to `last` can put a hinge or a step, evenly spread.

    A hinge lies between the second and the last but one layer, a step over one of the blocks between two layers.
    """
    if kind == "step":
        return [layer + 0.5 for layer in range(first, last)]
    return [float(layer) for layer in np.linspace(first + 1, last - 1, PLACES)]


def distance(layer: float, critical: Sequence[int], places: Sequence[float]) -> Distance | None:
    """The distance from a place on the layer axis, NaN where there is none, to the nearest critical block.

    `places` are where it could have been; `chance` is the share of them that are as near. None without critical blocks
    or without a place.
    """
    if not critical or not math.isfinite(layer):
        return None
    block = min(critical, key=lambda block: (abs(apart(layer, block)), block))
    away = apart(layer, block)
    near = [min(abs(apart(place, block)) for block in critical) <= abs(away) + 1e-9 for place in places]
    return Distance(block=block, distance=away, chance=float(np.mean(near)))
