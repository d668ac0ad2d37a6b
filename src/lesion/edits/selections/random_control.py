"""Drawing: the random control of a selection, with as many weights of every matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.selection import LONGEST_LABEL, Selection, Without
from lesion.reprs import short_repr


@validated
@dataclass(frozen=True, eq=False)
class Random(Selection):
    """As many weights of every matrix as the selection `like` has, drawn at random: the control of that selection.

    The draw depends on the seed and the address alone, on no library's generator: with one seed a smaller selection's
    random control lies within a larger one's. Listed weights that were taken away from `like` are not drawn either.
    """

    like: Selection
    seed: int = 0
    kind: ClassVar[str] = "random"
    RECIPE: ClassVar[Mapping[str, str]] = {"random": "like", "seed": "seed"}

    __repr__ = short_repr

    @property
    def label(self) -> str:
        """`random3-mathneuro-0.05`."""
        return f"random{self.seed}-{self.like.label}"[:LONGEST_LABEL]

    @property
    def parts(self) -> tuple[Selection, ...]:
        """The matched selection."""
        return (self.like,)

    def made_of(self, parts: Sequence[Selection]) -> Random:
        """The same for another selection."""
        return replace(self, like=parts[0])

    def touches(self, address: str) -> bool:
        """Where the matched selection does."""
        return self.like.touches(address)

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """The entries with the smallest of `drawing_keys`, as many as the matched selection has."""
        mask = np.zeros(weight.numel(), dtype=bool)
        count = int(self.like.mask(address, weight).sum()) if self.touches(address) else 0
        if count:
            keys = drawing_keys(self.seed, address, weight.numel())
            if (spared := left_out(self.like)) is not None and spared.touches(address):
                keys[spared.mask(address, weight).cpu().numpy().ravel()] = np.iinfo(keys.dtype).max
            mask = keys <= np.partition(keys, count - 1)[count - 1]  # no two keys are equal
        return torch.from_numpy(mask).view(weight.shape).to(weight.device)


def left_out(selection: Selection) -> Listed | None:
    """The listed weights that were taken away from a selection last; None where there are none."""
    taken = selection.second if isinstance(selection, Without) else None
    return taken if isinstance(taken, Listed) else None


def drawing_keys(seed: int, address: str, size: int) -> np.ndarray:
    """One 64-bit number per entry of a matrix, different for all, uint64: splitmix64 (Steele et al. 2014) from a hashed
    start.
    """
    start = int.from_bytes(hashlib.sha256(f"{seed}:{address}".encode()).digest()[:8], "little")
    with np.errstate(over="ignore"):
        z = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
