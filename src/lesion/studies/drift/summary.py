"""From the cells of a drift study to its numbers: curves over runs, their shapes, critical blocks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Float64

from lesion.core.rates import loops
from lesion.errors import UsageError
from lesion.statistics.shape import LEAST_LAYERS, Departure, detectable, shape
from lesion.studies.drift.cells import Measured
from lesion.studies.drift.critical_blocks import Critical, distance, places
from lesion.studies.drift.study import DriftStudy
from lesion.tasks.catalogue import canonical

MEASURES = ("nmi", "null", "null_high", "cosine", "cka")


def told_of(study: DriftStudy, identity: str) -> dict[str, Any]:
    """What the summary says of the study itself."""
    return {
        "name": study.name,
        "title": study.title,
        "seed": study.seed,
        "level": study.level,
        "version": version("lesion"),
        "task": study.task.name,
        "clusters": list(study.clusters),
        "drawn": study.drawn,
        "runs": study.runs,
        "items": study.items,
        "layer_zero": study.layer_zero,
        "normalise": study.normalise,
        "nmi": study.nmi,
        "starts": study.starts,
        "part": study.part,
        "solution": study.solution,
        "elbow": study.elbow,
        "prompt_style": study.prompt_style,
        "max_new_tokens": study.max_new_tokens,
        **loops(study.stop_loops),
        "dtype": study.dtype,
        "study": study.study,
        "layers": "layer 0 is what enters block 0; layer l is the output of block l - 1",
        "identity": identity,
    }


def curves(study: DriftStudy, cells: Mapping[int, Sequence[Measured]], seed: int) -> dict[str, Any]:
    """The curves of one model, over runs.

    Args:
        study: says which number of clusters is drawn, and from which layer on the shape of the curve is tested.
        cells: by number of clusters, the cell of every run.
        seed: of the bootstrap of places and of the simulated studies behind the power.

    Returns:
        `clusters`, `layers`, `shape` and `ceiling` under the number of clusters that is drawn, and `by_clusters`, the
        same in short under every one.
    """
    drawn = cells[study.drawn]
    return {
        "clusters": study.drawn,
        "layers": _layers(drawn, MEASURES, labels=True),
        "shape": find_shape(study, drawn, seed),
        "ceiling": _mean([one.ceiling for one in drawn]),
        "by_clusters": [
            {
                "clusters": clusters,
                "layers": _layers(cells[clusters], ("nmi", "null", "null_high")),
                "shape": find_shape(study, cells[clusters], seed),
                "ceiling": _mean([one.ceiling for one in cells[clusters]]),
            }
            for clusters in study.clusters
        ],
    }


def find_shape(study: DriftStudy, cells: Sequence[Measured], seed: int) -> dict[str, Any] | None:
    """The shape of the curve of NMI over runs; None where a model has too few layers for one.

    The reference layer's NMI with itself is 1 by definition, and the step from there to the next layer is often the
    largest of all, so that a fit to all layers puts the departure from a line there. By default that layer is left out.
    """
    first = 0 if study.elbow == "all" else 1
    values = np.array([one.along("nmi")[first:] for one in cells], dtype=np.float64)
    layers = [int(one["layer"]) for one in cells[0].layers][first:]
    if len(layers) < LEAST_LAYERS or not bool(np.isfinite(values).all()):
        return None
    found = shape(layers, values, level=study.level, seed=seed)
    line, sizes = found.line, detectable(layers, values, level=study.level, seed=seed)
    return {
        "chosen": found.chosen,
        "first": layers[0],
        "last": layers[-1],
        "line": {"p": _finite(line.p), "f": _finite(line.f), "degrees": list(line.degrees), "f_p": _finite(line.f_p)},
        "hinge": _departure(found.hinge, sizes["hinge"]),
        "step": _departure(found.step, sizes["step"]),
        "share": _finite(found.share),
    }


def _departure(found: Departure, size: float) -> dict[str, Any]:
    return {
        "layer": _finite(found.layer),
        "low": _finite(found.low),
        "high": _finite(found.high),
        "size": _finite(found.size),
        "gain": _finite(found.gain),
        "slopes": [_finite(slope) for slope in found.slopes],
        "p": _finite(found.p),
        "detectable": _finite(size),
    }


def place(told: Mapping[str, Any] | None) -> float | None:
    """The layer of the hinge or step that was chosen; None where neither was."""
    if told is None or told["chosen"] not in ("hinge", "step"):
        return None
    layer: float = told[told["chosen"]]["layer"]
    return layer


def beside(study: DriftStudy, name: str, told: Mapping[str, Any] | None, critical: Critical | None) -> dict[str, Any]:
    """The critical blocks of a model, by task, and how far the chosen hinge or step is from them.

    `told` is what `find_shape` gives. `critical` is None where no layer study was given or it does not have the model.
    `distance`, `nearest` and `chance` are about the blocks that are critical for the study's own task where that study
    asked it, else for any task.
    """
    nothing: dict[str, Any] = {"critical": None, "distance": None, "nearest": None, "chance": None}
    if critical is None or name not in critical.blocks:
        return nothing
    by_task = critical.blocks[name]
    entry: dict[str, Any] = {**nothing, "critical": {task: list(found) for task, found in by_task.items()}}
    layer = place(told)
    if told is None or layer is None:
        return entry
    own = critical.of(name, study.task.name)
    chosen = own if own is not None else sorted({block for found in by_task.values() for block in found})
    away = distance(layer, chosen, places(told["chosen"], told["first"], told["last"]))
    if away is not None:
        entry |= {"distance": away.distance, "nearest": away.block, "chance": away.chance}
    return entry


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


def _layers(cells: Sequence[Measured], measures: Sequence[str], *, labels: bool = False) -> list[dict[str, Any]]:
    """Mean and standard deviation over runs at every layer."""
    found: list[dict[str, Any]] = [{"layer": int(one["layer"])} for one in cells[0].layers]
    for measure in measures:
        values = np.array([one.along(measure) for one in cells], dtype=np.float64)
        for place, told in enumerate(found):
            told |= {measure: _finite(_mean(values[:, place])), f"{measure}_std": _finite(_std(values[:, place]))}
    for place, told in enumerate(found if labels else ()):
        told["labels"] = {}
        for label in cells[0].layers[place]["labels"]:
            column = np.array([one.layers[place]["labels"][label] for one in cells], dtype=np.float64)
            told["labels"][label] = {"nmi": _finite(_mean(column)), "std": _finite(_std(column))}
    return found


def _mean(values: Sequence[float] | Float64[np.ndarray, " runs"]) -> float:
    return float(np.mean(values))


def _std(values: Float64[np.ndarray, " runs"]) -> float:
    """Between runs, with one degree of freedom less; of a single run nothing is known."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
