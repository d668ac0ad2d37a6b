"""Drift: how far tokens leave their first clusters, layer by layer (Nepal et al. 2025, section 5).

At every layer the vectors of the same tokens are clustered anew; how much the clustering has in common with that of
layer zero is the curve. Cosine and CKA against layer zero stand beside it, which need no clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int, Shaped

from lesion.activations.hidden_states import HiddenStates
from lesion.errors import LesionError, UsageError, nearest
from lesion.progress import Watcher
from lesion.statistics.information import (
    NORMALISATIONS,
    Alignment,
    cosine,
    normalised_mutual_information,
    shuffled,
)
from lesion.statistics.kmeans import Clustering, distinct, kmeans

HIGH = 0.975
"""The quantile over shuffles that a curve must exceed to be told from its floor."""

_CHOICES = {
    "layer_zero": ("embedding", "block"),
    "normalise": ("none", "unit", "standardise"),
    "normalisation": NORMALISATIONS,
    "part": ("prompt", "solution", "both"),
}


@dataclass(frozen=True)
class Settings:
    """What the paper leaves open, with the default that is used here.

    Attributes:
        clusters: k of every layer; 50 is what the paper draws.
        layer_zero: what clusterings are held against: `embedding`, what enters block 0, or `block`, what block 0 gives
            (then layer 0 is left out). Where positions are rotations inside attention, as in Llama and Qwen, what
            enters block 0 is the token's identity and nothing else: all tokens of one id are one point.
        normalise: what is done to vectors before clustering: `none`, `unit` (each to length 1), or `standardise` (each
            dimension to mean 0 and standard deviation 1 over the tokens). Cosine and CKA take them as they are.
        normalisation: of the mutual information.
        starts, iterations: of every k-means.
        seed: of all that is drawn; every layer has draws of its own.
        null: how many times labels are shuffled for the floor; of fewer than 40, the quantile is near the largest.
        part: the tokens that count.

    Raises:
        UsageError: a value that there is none of.
    """

    clusters: int = 50
    layer_zero: str = "embedding"
    normalise: str = "none"
    normalisation: str = "arithmetic"
    starts: int = 10
    iterations: int = 300
    seed: int = 0
    null: int = 100
    part: str = "both"

    def __post_init__(self) -> None:
        for key, choices in _CHOICES.items():
            if (value := getattr(self, key)) not in choices:
                raise UsageError(
                    f"There is no {key.replace('_', ' ')} '{value}'{nearest(str(value), choices)}; there are"
                    f" {', '.join(choices)}."
                )
        for key, least in (("clusters", 2), ("starts", 1), ("iterations", 1), ("null", 1)):
            if (value := getattr(self, key)) < least:
                raise UsageError(f"{value} {key} were asked for; ask for at least {least}.")


@dataclass(frozen=True)
class LayerDrift:
    """One layer against layer zero.

    Attributes:
        layer: 0 for what enters block 0, l for what block l − 1 gives.
        nmi: normalised mutual information of its clusters with those of layer zero.
        null, null_high: the same after this layer's labels were shuffled over the tokens: mean and 97.5 % quantile of
            `Settings.null` times. It is a floor: what clusters of these sizes have in common by chance. A curve on its
            floor says that nothing is left; how high a curve can rise, `Drift.ceiling` says.
        cosine: mean over tokens of the cosine with the token's vector at layer zero.
        cka: linear centred kernel alignment with layer zero; NaN where all vectors of a layer are equal.
        inertia: what k-means brought the summed squared distances to.
        labels: of every labelling that was given, its NMI with this layer's clusters.
    """

    layer: int
    nmi: float
    null: float
    null_high: float
    cosine: float
    cka: float
    inertia: float
    labels: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Drift:
    """The curve and what it is made of.

    Attributes:
        settings: as asked for.
        layers: one entry a layer, from layer zero on.
        tokens: [tokens] which tokens of the hidden states count, in order.
        distinct: how many distinct vectors layer zero has.
        ceiling: NMI of two clusterings of layer zero from different seeds. What it lacks to 1 is the noise of k-means
            itself: a later layer cannot be expected above it.
        assignments: [layers, tokens] the cluster of every token, at every layer of `layers`.
    """

    settings: Settings
    layers: tuple[LayerDrift, ...]
    tokens: Int[np.ndarray, " tokens"]
    distinct: int
    ceiling: float
    assignments: Int[np.ndarray, "layers tokens"]

    def curve(self, what: str = "nmi") -> Float64[np.ndarray, " layers"]:
        """One number of every layer, by its name."""
        return np.array([getattr(layer, what) for layer in self.layers], dtype=np.float64)


def drift(
    states: HiddenStates,
    settings: Settings | None = None,
    *,
    labels: Mapping[str, Shaped[np.ndarray, " tokens"]] | None = None,
    watcher: Watcher | None = None,
) -> Drift:
    """Cluster every layer and hold the clusters against those of layer zero.

    Memory holds one layer's tokens at a time; layer zero is read again from its file, in pieces, for cosine and CKA. No
    layer's k-means sees another's.

    Args:
        states: of all tokens at all layers.
        settings: None for the defaults.
        labels: a label for every token of `states` under a name: its class, its id. Each is compared with the clusters
            of every layer.
        watcher: who is told how it goes, layer by layer.

    Raises:
        UsageError: fewer tokens, or at layer zero fewer distinct vectors, than clusters; labels of another length;
            a part is asked for and `states` do not know where prompts end.
        LesionError: a layer has fewer distinct vectors than clusters.
    """
    settings = settings or Settings()
    given = dict(labels or {})
    for name, values in given.items():
        if len(values) != states.tokens:
            raise UsageError(f"The labels '{name}' are {len(values)}, and there are {states.tokens:,} tokens.")
    where = _where(states, settings)
    given = {name: values[where] for name, values in given.items()}
    first = 0 if settings.layer_zero == "embedding" else 1
    if watcher is not None:
        watcher.begin(states.name, states.layers - first, 0, "layers")
    zero = states.mapped(first) if bool(where.all()) else states.layer(first, where)
    alignment = Alignment(zero)
    count = _distinct(states, _prepared(states.layer(first, where), settings.normalise), settings)
    reference, again = (
        _clustered(_prepared(states.layer(first, where), settings.normalise), settings, first, stream)
        for stream in (0, 1)
    )
    ceiling = normalised_mutual_information(reference.labels, again.labels, settings.normalisation)
    results: list[LayerDrift] = []
    assignments: list[np.ndarray] = []
    for layer in range(first, states.layers):
        vectors = states.layer(layer, where)
        alike, cka = cosine(zero, vectors), alignment.cka(vectors)
        try:
            clustering = (
                reference if layer == first else _clustered(_prepared(vectors, settings.normalise), settings, layer, 0)
            )
        except UsageError as error:
            raise LesionError(f"Layer {layer} of {states.name}: {error}") from error
        del vectors
        floor = shuffled(
            reference.labels, clustering.labels, settings.null, _rng(settings, layer, 2), settings.normalisation
        )
        nmi, *others = (
            normalised_mutual_information(other, clustering.labels, settings.normalisation)
            for other in (reference.labels, *given.values())
        )
        results.append(
            LayerDrift(
                layer,
                nmi,
                float(floor.mean()),
                float(np.quantile(floor, HIGH)),
                alike,
                cka,
                clustering.inertia,
                dict(zip(given, others, strict=True)),
            )
        )
        assignments.append(clustering.labels)
        if watcher is not None:
            watcher.answered(1)
    return Drift(settings, tuple(results), np.flatnonzero(where), count, ceiling, np.stack(assignments))


def _where(states: HiddenStates, settings: Settings) -> Bool[np.ndarray, " tokens"]:
    """The tokens that count; there must be enough of them."""
    if settings.part == "both":
        where = np.ones(states.tokens, dtype=bool)
    elif states.prompt is None:
        raise UsageError(
            f"The tokens of the {settings.part} are asked for, and these hidden states do not know where prompts end;"
            f" give prompt_tokens to hidden_states."
        )
    else:
        where = states.prompt if settings.part == "prompt" else ~states.prompt
    tokens = int(where.sum())
    if tokens < settings.clusters:
        part = "" if settings.part == "both" else f" in the {settings.part}s"
        raise UsageError(
            f"{settings.clusters} clusters were asked for, and there are {tokens:,} tokens{part}; ask for fewer"
            f" (--clusters) or for more items (--items)."
        )
    return where


def _distinct(states: HiddenStates, points: Float32[np.ndarray, "tokens width"], settings: Settings) -> int:
    """How many distinct vectors layer zero has: enough for all clusters."""
    count = distinct(torch.from_numpy(points))
    if count < settings.clusters:
        way = " or take what block 0 gives as layer zero (--layer-zero block)"
        raise UsageError(
            f"{settings.clusters} clusters were asked for, and layer zero of {states.name} has {count:,} distinct"
            f" vectors among {len(points):,} tokens; ask for at most that many (--clusters), for more items (--items)"
            f"{way if settings.layer_zero == 'embedding' else ''}."
        )
    return count


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


def _clustered(points: Float32[np.ndarray, "tokens width"], settings: Settings, layer: int, stream: int) -> Clustering:
    seed = int(_rng(settings, layer, stream).integers(2**62))
    return kmeans(
        torch.from_numpy(points),
        settings.clusters,
        starts=settings.starts,
        seed=seed,
        iterations=settings.iterations,
        overwrite=True,
    )


def _rng(settings: Settings, layer: int, stream: int) -> np.random.Generator:
    """Draws of a layer's own: for its clusters (0), for its second clustering (1), for its floor (2)."""
    return np.random.default_rng([abs(settings.seed), int(settings.seed < 0), layer, stream])
