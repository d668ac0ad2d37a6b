"""What is left of a memory when only part of its spectrum is kept, beside random parts of the same rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class Cutter:
    """Judges what is left of one memory's W when only part of it is kept.

    Args:
        codes: the memory's codes.
        spectrum: of its W.
        targets: f*.
        draws: of everything that is left to chance.
        random: makes the draws.
    """

    codes: Codes
    spectrum: Spectrum
    targets: Int64[np.ndarray, " inputs"]
    draws: int
    random: np.random.Generator

    @property
    def rank(self) -> int:
        """How many singular values W has."""
        return len(self.spectrum.values)

    @cached_property
    def _reading(self) -> Float64[np.ndarray, "outputs rank"]:
        return self.codes.outputs @ self.spectrum.left

    @cached_property
    def _written(self) -> Float64[np.ndarray, "rank inputs"]:
        return self.spectrum.values[:, None] * (self.spectrum.right @ self.codes.inputs)

    def side(self, side: str, k: int) -> dict[str, Any]:
        """Keep the k largest (side `top`) or the k smallest (side `bottom`) singular values.

        A cut through equal singular values keeps a random part of them, since no vectors among them are more right
        than others: such a row is `tied`, and its measures are means over draws.
        """
        chosen = slice(0, k) if side == "top" else slice(self.rank - k, self.rank)
        cut = k if side == "top" else self.rank - k
        tied = any(group.start < cut < group.stop for group in self.spectrum.groups)
        # Equal values commute with a turn among their vectors.
        turns = (_turn(self.spectrum, self.random) for _ in range(self.draws)) if tied else [np.eye(self.rank)]
        found = [self._judged(turn[:, chosen]) for turn in turns]
        return self._row(k, found) | {"side": side, "tied": tied}

    def projected(self, k: int) -> dict[str, Any]:
        """Project W onto k random directions of its own range: of the same rank, no part of the spectrum favoured."""
        found = [self._judged(np.linalg.qr(self.random.standard_normal((self.rank, k)))[0]) for _ in range(self.draws)]
        return self._row(k, found) | {"control": "random"}

    def deleted(self) -> dict[str, Any]:
        """Keep nothing."""
        return self._row(0, [self._judged(np.zeros((self.rank, 0)))]) | {"control": "deletion"}

    def _judged(self, onto: Float64[np.ndarray, "rank k"]) -> dict[str, float]:
        """Measure W projected onto directions of its range, given by the left singular vectors."""
        return measure((self._reading @ onto) @ (onto.T @ self._written), self.targets)

    def _row(self, k: int, found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        values = {name: [one[name] for one in found] for name in MEASURES}
        return {
            "rank": k,
            "keep": k / self.rank if self.rank else 0.0,
            "side": None,
            "control": None,
            "tied": False,
            "draws": len(found),
            **{name: float(np.mean(values[name])) for name in MEASURES},
            "low": {name: min(values[name]) for name in MEASURES},
            "high": {name: max(values[name]) for name in MEASURES},
        }


def truncations(
    of_codes: Codes, of: Spectrum, targets: Int64[np.ndarray, " inputs"], draws: int, seed: int
) -> list[dict[str, Any]]:
    """Judge W with k of its components kept, for every k, from the top and from the bottom, and with its controls.

    Returns:
        Per row: rank (k), keep (k over W's rank), side (`top`, `bottom`, or None for a control), control (`random`,
        `deletion` or None), tied, draws, the means of `measure`, and `low` and `high` with the smallest and the largest
        over draws.
    """
    cutter = Cutter(of_codes, of, targets, draws, np.random.default_rng([seed, 1]))
    rows = []
    for k in range(cutter.rank + 1):
        rows += [cutter.side("top", k), cutter.side("bottom", k)]
        if 0 < k < cutter.rank:
            rows.append(cutter.projected(k))
    return [*rows, cutter.deleted()]


def _turn(of: Spectrum, random: np.random.Generator) -> Float64[np.ndarray, "rank rank"]:
    """A random rotation within every group of equal singular values."""
    found = np.zeros((len(of.values), len(of.values)))
    for group in of.groups:
        size = group.stop - group.start
        found[group, group] = np.linalg.qr(random.standard_normal((size, size)))[0]
    return found
