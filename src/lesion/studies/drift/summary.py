"""From the cells of a drift study to its numbers: curves over runs, their shapes, critical blocks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from lesion.core.values import Mean
from lesion.errors import UsageError
from lesion.statistics.shape import LEAST_LAYERS, detectable, shape
from lesion.statistics.shape import Departure as FittedDeparture
from lesion.studies.drift.cells import Measured
from lesion.studies.drift.critical_blocks import Critical, distance
from lesion.studies.drift.result import MEASURES, Curve, Departure, Layer, Line, Shape
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import canonical


def curves(
    study: DriftStudy, cells: Mapping[int, Sequence[Measured]], seed: int, critical: Sequence[int]
) -> list[Curve]:
    """The curves of one model over runs, one for every number of clusters.

    Args:
        study: says which number of clusters is drawn, and from which layer on the shape of the curve is tested.
        cells: by number of clusters, the cell of every run.
        seed: of the bootstrap of places and of the simulated studies behind the power.
        critical: blocks that the hinge or step is compared with.
    """
    results = []
    for clusters in study.clusters:
        own = cells[clusters]
        shape = find_shape(study, own, seed)
        at = None if shape is None else shape.departure
        results.append(
            Curve(
                clusters=clusters,
                layers=_layers(own, plain=clusters == study.drawn),
                shape=shape,
                ceiling=float(np.mean([cell.ceiling for cell in own])),
                nearest=None if shape is None or at is None else distance(at.layer, critical, shape.possible),
            )
        )
    return results


def find_shape(study: DriftStudy, cells: Sequence[Measured], seed: int) -> Shape | None:
    """The shape of the curve of NMI over runs; None where a model has too few layers for one.

    The reference layer's NMI with itself is 1 by definition, and the step from there to the next layer is often the
    largest of all, so that a fit to all layers puts the departure from a line there. By default that layer is left out.
    """
    first = 0 if study.elbow == "all" else 1
    values = np.array([cell.along("nmi")[first:] for cell in cells], dtype=np.float64)
    layers = [layer.layer for layer in cells[0].layers][first:]
    if len(layers) < LEAST_LAYERS or not bool(np.isfinite(values).all()):
        return None
    fitted = shape(layers, values, level=study.level, seed=seed)
    line, sizes = fitted.line, detectable(layers, values, level=study.level, seed=seed)
    return Shape(
        chosen=fitted.chosen,
        first=layers[0],
        last=layers[-1],
        line=Line(p=line.p, f=line.f, degrees=tuple(line.degrees), f_p=line.f_p),
        hinge=_departure("hinge", fitted.hinge, sizes["hinge"]),
        step=_departure("step", fitted.step, sizes["step"]),
        share=fitted.share,
    )


def _departure(kind: Literal["hinge", "step"], fitted: FittedDeparture, size: float) -> Departure:
    names = ("layer", "low", "high", "size", "gain", "p")
    return Departure(
        kind=kind, detectable=size, slopes=tuple(fitted.slopes), **{name: getattr(fitted, name) for name in names}
    )


def compared(study: DriftStudy, by_task: Mapping[str, Sequence[int]] | None) -> str | None:
    """The task whose critical blocks are compared: the study's own where the layer study asked it; None: all."""
    return next((name for name in (study.task.name, canonical(study.task.name)) if name in (by_task or {})), None)


def beside_notes(study: DriftStudy, names: Sequence[str], critical: Critical | None) -> list[str]:
    """What a reader should know of the layer study whose critical blocks are shown."""
    if critical is None:
        return []
    notes = [
        f"{name}: the study in {critical.folder} has no such model, so no critical blocks are shown beside its curve."
        for name in names
        if name not in critical.blocks
    ]
    without = [n for n in names if n in critical.blocks and critical.of(n, study.task.name) is None]
    if without:
        notes.append(
            f"The study in {critical.folder} did not ask {canonical(study.task.name)}; distances are those"
            f" to blocks that are critical for any of its tasks."
        )
    return notes


def between(study: DriftStudy, blocks: int, layer: float | None, name: str) -> tuple[int, int]:
    """The two layers between which tokens are followed: those asked for, else those before and after a hinge or step.

    Where there is none, those that all of the drift lies between: the reference layer and the last.

    Raises:
        UsageError: the model has no such layer.
    """
    reference = 0 if study.layer_zero == "embedding" else 1
    if study.between is not None:
        first, second = study.between
        if min(first, second) < reference:
            raise UsageError(
                "With --layer-zero block, layer 0 is not clustered; tokens can be followed from layer 1 on (--between)."
            )
        if max(first, second) > blocks:
            raise UsageError(
                f"There is no layer {max(first, second)} to follow tokens to: {name} has {blocks} blocks, and so the"
                f" layers 0 to {blocks}; give two of these with --between."
            )
        return first, second
    if layer is None:
        return reference, blocks
    return max(reference, math.ceil(layer) - 1), min(blocks, math.floor(layer) + 1)


def _layers(cells: Sequence[Measured], *, plain: bool) -> list[Layer]:
    """Mean and standard deviation over runs at every layer; with `plain` also of what knows of no clusters."""
    columns = {
        measure: np.array([cell.along(measure) for cell in cells], dtype=np.float64)
        for measure in (MEASURES if plain else ("nmi", "null", "null_high"))
    }
    labels = {
        label: np.array([cell.against(label) for cell in cells], dtype=np.float64)
        for label in (cells[0].layers[0].labels if plain else ())
    }
    return [
        Layer(
            layer=layer.layer,
            **{measure: Mean.of(values[:, place]) for measure, values in columns.items()},
            labels={name: mean for name, values in labels.items() if (mean := Mean.of(values[:, place])) is not None},
        )
        for place, layer in enumerate(cells[0].layers)
    ]
