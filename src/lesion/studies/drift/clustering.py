"""Drift: how far tokens leave their first clusters, layer by layer (Nepal et al. 2025, section 5).

At every layer the vectors of the same tokens are clustered anew; the curve is how much the clustering has in common
with that of layer zero. Cosine and CKA with layer zero, which need no clusters, stand beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, Shaped
from pydantic import Field

from lesion.activations.hidden_states import HiddenStates
from lesion.errors import LesionError, UsageError
from lesion.progress import Watcher
from lesion.report.values import Number, Value
from lesion.statistics.information import Alignment, cosine, normalised_mutual_information, shuffled
from lesion.statistics.kmeans import Clustering, kmeans

HIGH = 0.975
"""The quantile over shuffles above which a curve is told from its null."""


class Settings(Value):
    """What the paper leaves open; `DriftStudy` says what each choice means.

    Where positions are rotations inside attention, as in Llama and Qwen, all tokens of one id are one point as they
    enter block 0. Cosine and CKA take vectors without `normalise`. `normalisation` is that of the mutual information;
    labels are shuffled `null` times.
    """

    clusters: int = Field(default=50, ge=2)
    layer_zero: Literal["embedding", "block"] = "embedding"
    normalise: Literal["none", "unit", "standardise"] = "none"
    normalisation: Literal["arithmetic", "geometric", "min", "max"] = "arithmetic"
    starts: int = Field(default=10, ge=1)
    iterations: int = Field(default=300, ge=1)
    seed: int = 0
    null: int = Field(default=100, ge=1)
    part: Literal["prompt", "solution", "both"] = "both"


class MeasuredLayer(Value):
    """One layer against the reference layer, in one run.

    Attributes:
        nmi: of its clusters with those of the reference layer; null, null_high: after its labels were shuffled over the
            tokens, mean and `HIGH` quantile.
        cosine: mean over tokens; cka: linear, centred; None where all vectors of a layer are equal.
        inertia: the summed squared distances that k-means reached.
        labels: NMI of its clusters with each labelling that was given.
    """

    layer: int
    nmi: Number
    null: Number
    null_high: Number
    cosine: Number
    cka: Number
    inertia: Number
    labels: dict[str, float]


class Measured(Value):
    """One run of one model under one number of clusters.

    Attributes:
        layers: from the reference layer on.
        ceiling: NMI of two clusterings of the reference layer; no later layer can be expected above it.
        assignments: [layers][tokens] the cluster of every token that counts, at every layer of `layers`.
    """

    clusters: int
    layers: tuple[MeasuredLayer, ...]
    ceiling: float
    assignments: tuple[tuple[int, ...], ...]

    def at(self, layer: int) -> Int[np.ndarray, " tokens"]:
        """[tokens] the clusters at a layer, by its own number, which is not always its place."""
        place = [measured.layer for measured in self.layers].index(layer)
        return np.asarray(self.assignments[place], dtype=np.int64)

    def by_token(self, tokens: Int[np.ndarray, " tokens"], normalisation: str) -> list[float]:
        """At every layer, NMI of the reference clusters with those of the layer, every occurrence of a token in the
        cluster that most occurrences of it are in (the lowest number of several)."""
        kinds = np.unique(tokens, return_inverse=True)[1]
        reference = np.asarray(self.assignments[0], dtype=np.int64)
        usual = []
        for assignment in self.assignments:
            counts = np.zeros((kinds.max() + 1, self.clusters), dtype=np.int64)
            np.add.at(counts, (kinds, np.asarray(assignment, dtype=np.int64)), 1)
            usual.append(counts.argmax(axis=1)[kinds])
        return [normalised_mutual_information(reference, each, normalisation) for each in usual]

    def along(self, measure: str) -> list[float]:
        """A measure at every layer, NaN where it is unknown."""
        values = [getattr(layer, measure) for layer in self.layers]
        return [np.nan if value is None else value for value in values]


def drift(
    states: HiddenStates,
    settings: Settings,
    *,
    labels: Mapping[str, Shaped[np.ndarray, " tokens"]] | None = None,
    watcher: Watcher | None = None,
) -> Measured:
    """Cluster every layer and compare the clusters with those of layer zero.

    Memory holds one layer's tokens at a time; layer zero is read again from its file, in pieces, for cosine and CKA.
    `labels` has by name a label for every token of `states`; the watcher is told of every layer that is done.

    Raises:
        UsageError: fewer distinct vectors at layer zero than clusters; labels of another length; a part is asked for
            and `states` do not know where prompts end.
        LesionError: a later layer has fewer distinct vectors than clusters.
    """
    where = np.ones(states.tokens, dtype=bool)
    if settings.part != "both":
        assert states.prompt is not None
        where = states.prompt if settings.part == "prompt" else ~states.prompt
    labellings = {name: values[where] for name, values in (labels or {}).items()}
    first = 0 if settings.layer_zero == "embedding" else 1
    zero = states.mapped(first) if bool(where.all()) else states.layer(first, where)
    alignment = Alignment(zero)
    reference, again = (_clustered(states, where, settings, first, stream) for stream in (0, 1))
    layers, assignments = [], []
    for layer in range(first, states.layers):
        vectors = states.layer(layer, where)
        alike, cka = cosine(zero, vectors), alignment.cka(vectors)
        del vectors
        clustering = reference if layer == first else _clustered(states, where, settings, layer, 0)
        null = shuffled(
            reference.labels, clustering.labels, settings.null, _rng(settings, layer, 2), settings.normalisation
        )
        nmi, *others = (
            normalised_mutual_information(other, clustering.labels, settings.normalisation)
            for other in (reference.labels, *labellings.values())
        )
        layers.append(
            MeasuredLayer(
                layer=layer,
                nmi=nmi,
                null=null.mean(),
                null_high=np.quantile(null, HIGH),
                cosine=alike,
                cka=cka,
                inertia=clustering.inertia,
                labels=dict(zip(labellings, others, strict=True)),
            )
        )
        assignments.append(clustering.labels.tolist())
        if watcher is not None:
            watcher.answered(1)
    return Measured(
        clusters=settings.clusters,
        layers=layers,
        ceiling=normalised_mutual_information(reference.labels, again.labels, settings.normalisation),
        assignments=assignments,
    )


def _prepared(vectors: Float32[np.ndarray, "tokens width"], normalise: str) -> Float32[np.ndarray, "tokens width"]:
    """The vectors as they are clustered; changed in place."""
    if normalise == "unit":
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        np.divide(vectors, norms, out=vectors, where=norms > 0)
    elif normalise == "standardise":
        mean = vectors.mean(axis=0, dtype=np.float64)
        vectors -= mean.astype(np.float32)
        # Of what is left, whose mean is 0 but for rounding; a dimension that does not vary stays 0.
        deviation = np.sqrt(np.einsum("ij,ij->j", vectors, vectors, dtype=np.float64) / len(vectors))
        varies = deviation > 1e-6 * np.abs(mean)
        vectors[:, ~varies] = 0
        vectors[:, varies] /= deviation[varies].astype(np.float32)
    return vectors


def _clustered(
    states: HiddenStates, where: Bool[np.ndarray, " tokens"], settings: Settings, layer: int, stream: int
) -> Clustering:
    try:
        return kmeans(
            torch.from_numpy(_prepared(states.layer(layer, where), settings.normalise)),
            settings.clusters,
            starts=settings.starts,
            seed=int(_rng(settings, layer, stream).integers(2**62)),
            iterations=settings.iterations,
            overwrite=True,
        )
    except UsageError as error:
        raise LesionError(f"Layer {layer} of {states.name}: {error}") from error


def _rng(settings: Settings, layer: int, stream: int) -> np.random.Generator:
    """Draws of a layer's own: for its clusters (0), for its second clustering (1), for its shuffles (2)."""
    return np.random.default_rng([abs(settings.seed), int(settings.seed < 0), layer, stream])
