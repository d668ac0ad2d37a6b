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

from lesion.errors import LesionError
from lesion.report.trials import number
from lesion.studies.drift_critical import Distance, apart, distance
from lesion.studies.statistics import wilson

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
    """

    layer: float
    low: float | None
    high: float | None
    bend: bool | None
    p: float | None


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
    ceiling: float | None
    overall: float | None
    tokens: tuple[Leaving, ...]
    classes: tuple[Leaving, ...]
    flow: tuple[Flow, ...]
    items: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def critical_blocks(self) -> list[int]:
        """Critical for any task, in order."""
        return sorted({block for blocks in (self.critical or {}).values() for block in blocks})

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
        rows = [*self.classes, *self.tokens, *self.flow]
        return list(dict.fromkeys((row.start, row.end) for row in rows))


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


def found(summary: Mapping[str, Any]) -> Drifts:
    """The summary as values.

    Raises:
        LesionError: it does not have the form that a drift study writes.
    """
    try:
        study = dict(summary.get("study") or {})
        level = float(study.get("level") or 0.95)
        return Drifts(
            study=study,
            models=tuple(_model(entry, level) for entry in summary.get("models") or ()),
            notes=tuple(str(note) for note in summary.get("notes") or ()),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LesionError(
            f"The summary is not one that a drift study wrote ({type(error).__name__}: {error}). "
            "Run the study again on the same folder: what was measured is kept."
        ) from error


def steps(curve: Curve, measure: str) -> list[tuple[int, float]]:
    """(block, how much a measure changes from the layer before the block to that behind it)."""
    return [(a, later.mean - former.mean) for (a, former), (b, later) in pairwise(curve.along(measure)) if b == a + 1]


def slopes(curve: Curve, elbow: Elbow) -> tuple[float, float] | None:
    """The slopes, per layer, of the two pieces that meet at the elbow, by least squares; None with too few layers."""
    places = curve.along("nmi")
    x = np.array([layer for layer, _ in places], dtype=float)
    y = np.array([value.mean for _, value in places])
    if len(x) < 4 or not x[0] < elbow.layer < x[-1]:
        return None
    design = np.stack([np.ones_like(x), x, np.maximum(0.0, x - elbow.layer)], 1)
    _, before, more = np.linalg.lstsq(design, y, rcond=None)[0]
    return float(before), float(before + more)


def _model(entry: Mapping[str, Any], level: float) -> Followed:
    name = str(entry["model"])
    tokens = [_leaving(row, level) for row in entry.get("tokens") or ()]
    classes = [_leaving(row, level) for row in entry.get("classes") or ()]
    layers = tuple(_layer(row) for row in entry.get("layers") or ())
    runs = list(entry.get("runs") or ())
    clusters = _whole(entry.get("clusters"))
    others = [
        Curve(_whole(row.get("clusters")), tuple(_layer(one) for one in row.get("layers") or ()), _elbow(row))
        for row in entry.get("by_clusters") or ()
    ]
    blocks = _whole(entry.get("blocks"))
    return Followed(
        name=name,
        family=str(entry.get("family") or ""),
        variant=str(entry.get("variant") or ""),
        blocks=max((layer.layer for layer in layers), default=1) if blocks is None else blocks,
        curve=Curve(clusters, layers, _elbow(entry)),
        others=tuple(one for one in others if one.clusters != clusters and one.layers),
        critical=_critical(entry.get("critical")),
        ceiling=number(entry.get("ceiling")),
        overall=number(entry.get("overall")),
        tokens=tuple(row for row in tokens if row.token is not None),
        classes=tuple([*classes, *(row for row in tokens if row.token is None)]),
        flow=tuple(_flow(row) for row in entry.get("flow") or ()),
        items=tuple(int(run["items"]) for run in runs if run.get("items") is not None),
        positions=tuple(int(run["tokens"]) for run in runs if run.get("tokens") is not None),
    )


def _layer(row: Mapping[str, Any]) -> Layer:
    measures = {name: _value(row, name) for name in ("nmi", "null", "cosine", "cka")}
    labels = {
        str(name): _value({"nmi": one.get("nmi"), "nmi_std": one.get("std")}, "nmi")
        for name, one in (row.get("labels") or {}).items()
    }
    return Layer(
        int(row["layer"]),
        {name: value for name, value in measures.items() if value is not None},
        {name: value for name, value in labels.items() if value is not None},
    )


def _value(row: Mapping[str, Any], name: str) -> Value | None:
    mean = number(row.get(name))
    return None if mean is None else Value(mean, number(row.get(f"{name}_std")))


def _elbow(entry: Mapping[str, Any]) -> Elbow | None:
    row = entry.get("elbow") or {}
    layer = number(row.get("layer"))
    if layer is None:
        return None
    bend = row.get("bend")
    ends = (number(row.get("low")), number(row.get("high")))
    return Elbow(layer, *ends, None if bend is None else bool(bend), number(row.get("p")))


def _critical(told: Any) -> Mapping[str, tuple[int, ...]] | None:
    if told is None:
        return None
    of_task = told if isinstance(told, Mapping) else {"": told}
    return {str(task): tuple(sorted({int(block) for block in blocks})) for task, blocks in of_task.items()}


def _leaving(row: Mapping[str, Any], level: float) -> Leaving:
    count, left = int(row["count"]), int(row["left"])
    low, high = number(row.get("low")), number(row.get("high"))
    if low is None or high is None:
        low, high = wilson(left, count, level) if count else (None, None)
    token = row.get("token")
    share = number(row.get("share"))
    return Leaving(
        start=int(row["from"]),
        end=int(row["to"]),
        token=None if token is None else str(token),
        kind=str(row.get("class") or ""),
        count=count,
        left=left,
        share=(left / count if count else 0.0) if share is None else share,
        low=low,
        high=high,
        examples=tuple(
            Example(*(str(one.get(name) or "") for name in ("before", "token", "after")), item=_text(one.get("item")))
            for one in row.get("examples") or ()
        ),
    )


def _flow(row: Mapping[str, Any]) -> Flow:
    into = [(one, int(one["count"])) for one in row.get("into") or ()]
    told = _whole(row.get("count"))
    count = (sum(many for _, many in into) if told is None else told) or 1
    left = _whole(row.get("left"))
    stayed = sum(many for one, many in into if one.get("matched")) if left is None else count - left
    return Flow(
        start=int(row["from"]),
        end=int(row["to"]),
        name=_text(row.get("cluster")),
        count=count,
        stayed=stayed / count,
        into=tuple(
            Destination(_text(one.get("cluster")), many, many / count, bool(one.get("matched"))) for one, many in into
        ),
        others=_whole(row.get("others")) or 0,
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)
