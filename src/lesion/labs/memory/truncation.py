"""What is left of a memory when only part of its spectrum is kept, beside random parts of the same rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from lesion.labs.memory.model import Codes, probabilities
from lesion.labs.memory.spectrum import Spectrum

TIED = 1e-9
"""Logits nearer to each other than this are equal."""
MEASURES = ("clean_accuracy", "p_correct", "p_noise", "clean_loss")


def measure(logits: Float64[np.ndarray, "outputs inputs"], targets: Int64[np.ndarray, " inputs"]) -> dict[str, float]:
    """Judge logits against the targets f*, without noise; the last output is the common class.

    Returns:
        `clean_accuracy`: the chance that an argmax of the logits is f*(i), equal logits chosen among by lot;
        `p_correct` and `p_noise`: mean probabilities of f*(i) and of the common class; `clean_loss`: mean of
        −log p(f*(i)) in nats.
    """
    columns = np.arange(len(targets))
    highest = logits >= logits.max(axis=0) - TIED
    found = probabilities(logits)
    return {
        "clean_accuracy": float((highest[targets, columns] / highest.sum(axis=0)).mean()),
        "p_correct": float(found[targets, columns].mean()),
        "p_noise": float(found[-1].mean()),
        "clean_loss": float(-np.log(np.maximum(found[targets, columns], 1e-300)).mean()),
    }


def truncations(
    of_codes: Codes, of: Spectrum, targets: Int64[np.ndarray, " inputs"], draws: int, seed: int
) -> list[dict[str, Any]]:
    """Judge W with k of its components kept, for every k, from the top and from the bottom, and with its controls.

    - side `top` keeps the k largest singular values, side `bottom` the k smallest (so it drops the largest);
    - control `random` projects W onto k random directions of W's own range: of the same rank, with no favour for any
      part of the spectrum;
    - control `deletion` keeps nothing.

    A cut through equal singular values keeps a random part of them, since no vectors among them are more right than
    others: such a row is `tied`, and like the random control it is the mean over draws.

    Returns:
        Per row: rank (k), keep (k over W's rank), side, control, tied, draws, the means of `measure`, and `low` and
        `high` with the smallest and the largest over draws.
    """
    random = np.random.default_rng([seed, 1])
    rank = len(of.values)
    # Everything happens within W's range: rank numbers stand for width.
    read, write = of_codes.outputs @ of.left, of.right @ of_codes.inputs

    def kept(chosen: slice, tied: bool) -> Iterator[dict[str, float]]:
        for _ in range(draws if tied else 1):
            turn = _turn(of, random) if tied else np.eye(rank)
            values = of.values[chosen, None]
            yield measure((read @ turn)[:, chosen] @ (values * (turn.T @ write)[chosen]), targets)

    def projected(k: int) -> Iterator[dict[str, float]]:
        for _ in range(draws):
            onto = np.linalg.qr(random.standard_normal((rank, k)))[0]
            yield measure((read @ onto) @ (onto.T @ (of.values[:, None] * write)), targets)

    rows = []
    for k in range(rank + 1):
        for side, chosen, cut in (("top", slice(0, k), k), ("bottom", slice(rank - k, rank), rank - k)):
            tied = any(group.start < cut < group.stop for group in of.groups)
            rows.append(_row(k, rank, side, None, tied, lambda c=chosen, t=tied: kept(c, t)))  # type: ignore[misc]
        if 0 < k < rank:
            rows.append(_row(k, rank, None, "random", False, lambda k=k: projected(k)))  # type: ignore[misc]
    nothing = np.zeros((len(of_codes.outputs), len(targets)))
    rows.append(_row(0, rank, None, "deletion", False, lambda: iter([measure(nothing, targets)])))
    return rows


def _row(
    k: int,
    rank: int,
    side: str | None,
    control: str | None,
    tied: bool,
    judged: Callable[[], Iterator[dict[str, float]]],
) -> dict[str, Any]:
    found = list(judged())
    values = {name: [one[name] for one in found] for name in MEASURES}
    return {
        "rank": k,
        "keep": k / rank if rank else 0.0,
        "side": side,
        "control": control,
        "tied": tied,
        "draws": len(found),
        **{name: float(np.mean(values[name])) for name in MEASURES},
        "low": {name: min(values[name]) for name in MEASURES},
        "high": {name: max(values[name]) for name in MEASURES},
    }


def _turn(of: Spectrum, random: np.random.Generator) -> Float64[np.ndarray, "rank rank"]:
    """A random rotation within every group of equal singular values."""
    found = np.zeros((len(of.values), len(of.values)))
    for group in of.groups:
        size = group.stop - group.start
        found[group, group] = np.linalg.qr(random.standard_normal((size, size)))[0]
    return found
