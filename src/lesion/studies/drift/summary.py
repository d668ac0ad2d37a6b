"""From the cells of a drift study to its numbers: curves over runs, their shapes, critical blocks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from jaxtyping import Int

from lesion.errors import UsageError
from lesion.report.values import Mean
from lesion.report.wording import counted
from lesion.statistics.shape import LEAST_LAYERS, detectable, shape
from lesion.studies.drift.measurement import Measured
from lesion.studies.drift.result import CHECKS, Curve, Departure, Layer, Line, Shape, distance
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import canonical


def curves(
    study: DriftStudy,
    cells: Mapping[int, Sequence[Measured]],
    tokens: Sequence[Int[np.ndarray, " tokens"]],
    seed: int,
    critical: Sequence[int],
) -> list[Curve]:
    """The curves of one model over runs, one for every number of clusters.

    `tokens` are those that were clustered in every run; `seed` is that of the bootstrap of places and of the power.
    """
    results = []
    for clusters in study.clusters or ():
        of_clusters = cells[clusters]
        shape = find_shape(study, of_clusters, seed)
        at = shape and shape.departure
        results.append(
            Curve(
                clusters=clusters,
                layers=_layers(of_clusters, tokens if clusters == study.drawn else (), study.nmi),
                shape=shape,
                ceiling=np.mean([cell.ceiling for cell in of_clusters]),
                nearest=distance(at.layer, critical, shape.possible) if shape and at else None,
            )
        )
    return results


def find_shape(study: DriftStudy, cells: Sequence[Measured], seed: int) -> Shape | None:
    """The shape of the curve of NMI over runs; None where a model has too few layers for one.

    By default the reference layer is left out: its NMI with itself is 1 by definition, and the step to the next layer
    is often the largest of all, so that a fit to all layers would put the departure from a line there.
    """
    first = int(study.elbow == "later")
    values = np.array([cell.along("nmi")[first:] for cell in cells], dtype=np.float64)
    layers = [layer.layer for layer in cells[0].layers][first:]
    if len(layers) < LEAST_LAYERS or not bool(np.isfinite(values).all()):
        return None
    fitted = shape(layers, values, level=study.level, seed=seed)
    sizes = detectable(layers, values, level=study.level, seed=seed)
    return Shape(
        chosen=fitted.chosen,
        first=layers[0],
        last=layers[-1],
        line=Line(**asdict(fitted.line)),
        hinge=Departure(**asdict(fitted.hinge), detectable=sizes["hinge"]),
        step=Departure(**asdict(fitted.step), detectable=sizes["step"]),
        share=fitted.share,
    )


def compared(study: DriftStudy, by_task: Mapping[str, Sequence[int]] | None) -> str | None:
    """The task whose critical blocks are compared: the study's own where the layer study asked it; None: all."""
    return next((name for name in (study.task.name, canonical(study.task.name)) if name in (by_task or {})), None)


def beside_notes(study: DriftStudy, critical: Mapping[str, Mapping[str, Sequence[int]]]) -> list[str]:
    """What a reader should know of the layer study whose critical blocks are shown."""
    notes = [
        f"{chosen.name}: the study in {study.study} has no such model, so no critical blocks are shown beside its"
        " curve."
        for chosen in study.models
        if chosen.name not in critical
    ]
    of_chosen = [critical[chosen.name] for chosen in study.models if chosen.name in critical]
    if any(compared(study, by_task) is None for by_task in of_chosen):
        notes.append(
            f"The study in {study.study} did not ask {canonical(study.task.name)}; distances are those to blocks that"
            " are critical for any of its tasks."
        )
    return notes


def between(study: DriftStudy, blocks: int, departure: Departure | None, name: str) -> tuple[int, int]:
    """The two layers between which tokens are followed: those of the study, else those around the hinge or step.

    Without either they are the reference layer and the last.
    """
    if study.between is not None:
        first, second = study.between
        if min(first, second) < study.reference:
            raise UsageError(
                "With --layer-zero block, layer 0 is not clustered; tokens can be followed from layer 1 on (--between)."
            )
        if max(first, second) > blocks:
            raise UsageError(
                f"There is no layer {max(first, second)} to follow tokens to: {name} has {counted(blocks, 'block')},"
                f" and so the layers 0 to {blocks}; give two of these with --between."
            )
        return first, second
    if departure is None:
        return study.reference, blocks
    return max(study.reference, math.ceil(departure.layer) - 1), min(blocks, math.floor(departure.layer) + 1)


def _layers(cells: Sequence[Measured], tokens: Sequence[Int[np.ndarray, " tokens"]], normalisation: str) -> list[Layer]:
    """Mean and standard deviation over runs at every layer; with `tokens` also by token, cosine and CKA."""
    measures = ["nmi", "null", "null_high"]
    if tokens:
        measures += CHECKS
    columns = {measure: np.array([cell.along(measure) for cell in cells]) for measure in measures}
    if tokens:
        by_token = [cell.by_token(ids, normalisation) for cell, ids in zip(cells, tokens, strict=True)]
        columns["by_token"] = np.array(by_token)
    labels = cells[0].layers[0].labels if tokens else ()
    layers = []
    for place, layer in enumerate(cells[0].layers):
        means = {measure: Mean.of(values[:, place]) for measure, values in columns.items()}
        own = {label: Mean.of([cell.layers[place].labels[label] for cell in cells]) for label in labels}
        layers.append(Layer(layer=layer.layer, **means, labels={label: mean for label, mean in own.items() if mean}))
    return layers
