"""LAPE: the feed-forward neurons that fire on one data set and on no other, by the entropy of how often they fire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.selection import Selection, check_keep
from lesion.edits.selections.thresholds import top_count
from lesion.errors import LesionError, UsageError
from lesion.reprs import short_repr

# What ends a feed-forward branch, and what begins it: columns of the one and rows of the others are neurons.
BEGINNINGS = {"down": ("gate", "up"), "out": ("in",)}
# Entropies that are equal in algebra differ in float64 by less.
TIE = 1e-12


@validated
@dataclass(frozen=True, eq=False)
class LAPE(Selection):
    """The weights of the feed-forward neurons that belong to a skill (Tang et al. 2024, section 3: language-specific
    neurons by language activation probability entropy).

    Neuron j fires on data set t with probability p_jt, the share of the tokens that came to its MLP on which its
    activation was above 0 (eq. 3); an expert that saw no token has 0. Over the data sets p_j is normalised to sum to 1
    and its entropy taken (eq. 4 and 5). A neuron is a candidate when p_j,skill is above the quantile `bar` of all p of
    all neurons and data sets, and larger than on every control. Of the candidates, ⌊keep · all neurons⌋, at least 1, of
    lowest entropy are selected over the whole model, with all that tie with the last (to 1e-12); fewer where candidates
    are few.

    The weights of a neuron are its rows of `gate` and `up` (or `in`) and its column of `down` (or `out`), whatever
    their values.

    Args:
        controls: at least one.
        keep: the share of all neurons that is selected at most, in (0, 1].
        bar: the quantile that a candidate's probability on the skill exceeds, in [0, 1).

    Raises:
        UsageError: there is no control, or `keep` or `bar` is out of range.
    """

    skill: Inputs
    controls: tuple[Inputs, ...]
    keep: float
    bar: float = 0.95
    kind: ClassVar[str] = "lape"
    RECIPE: ClassVar[Mapping[str, str]] = {"lape": "skill", "controls": "controls", "keep": "keep", "bar": "bar"}

    __repr__ = short_repr

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_keep(self.keep))
        object.__setattr__(self, "controls", tuple(self.controls))
        if not self.controls:
            raise UsageError("LAPE compares data sets; give at least one control beside the skill.")
        if not 0 <= self.bar < 1:
            raise UsageError(f"bar is a quantile of the firing probabilities, from 0 and below 1, not {self.bar}.")

    @property
    def label(self) -> str:
        """`lape-0.05`, or `lape-0.05-bar0.9` with another bar than 0.95."""
        return f"lape-{self.keep:g}" + ("" if self.bar == 0.95 else f"-bar{self.bar:g}")

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """The skill's and the controls'."""
        return (self.skill, *self.controls)

    @cached_property
    def neurons(self) -> dict[str, Int[Tensor, " selected"]]:
        """The selected neurons of every MLP that has any, rising, by the address of its `down` or `out`.

        Raises:
            LesionError: in no MLP are activations counted, or the data sets were not observed on the same ones.
        """
        probabilities = {address: self._probabilities(address) for address in self._places()}
        table = np.concatenate(list(probabilities.values()), axis=1)
        chosen = _lowest_entropy(table, self.keep, self.bar)
        neurons = {}
        start = 0
        for address, part in probabilities.items():
            places = np.flatnonzero(chosen[start : start + part.shape[1]])
            start += part.shape[1]
            if len(places):
                neurons[address] = torch.from_numpy(places)
        return neurons

    @property
    def quota(self) -> int:
        """The neurons that make up the share; fewer may be candidates."""
        return top_count(self.keep, sum(self._size(address) for address in self._places()))

    def touches(self, address: str) -> bool:
        """Where the matrix belongs to a neuron that is selected."""
        return _ending(address, self.neurons) is not None

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """Whole rows of what begins an MLP, whole columns of what ends it."""
        mask = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        ending = _ending(address, self.neurons)
        if ending is None:
            return mask
        axis = 1 if ending == address else 0
        size = self._size(ending)
        if weight.dim() != 2 or weight.shape[axis] != size:
            raise LesionError(
                f"The selection was made for an MLP of {size:,} neurons at {ending}; {address} is "
                f"{' × '.join(map(str, weight.shape))} (out × in). It belongs to another model."
            )
        mask.index_fill_(axis, self.neurons[ending].to(weight.device), True)
        return mask

    def _places(self) -> list[str]:
        """The addresses of what ends an MLP, where the activations are counted."""
        addresses = []
        for address in self.skill.readers:
            sums = self.skill.of(address)
            if address.rpartition(".")[2] in BEGINNINGS and sums is not None and sums.active is not None:
                addresses.append(address)
        if not addresses:
            raise LesionError(
                "In no MLP of this model could activations above 0 be counted, and LAPE has no other neurons to choose"
                " from; use another method."
            )
        return addresses

    def _probabilities(self, address: str) -> Float[np.ndarray, "sets neurons"]:
        rows = []
        for inputs in self.inputs:
            sums = inputs.of(address)
            if sums is None or sums.active is None or len(sums.active) != self._size(address):
                raise LesionError(
                    f"The data sets were not observed on the same neurons: {address} differs; observe them all on the"
                    f" same model."
                )
            rows.append(sums.active.cpu().double().numpy() / max(1, sums.tokens))
        return np.stack(rows)

    def _size(self, address: str) -> int:
        sums = self.skill.of(address)
        assert sums is not None
        return len(sums.norms)


def _lowest_entropy(table: Float[np.ndarray, "sets neurons"], keep: float, bar: float) -> Bool[np.ndarray, " neurons"]:
    """Which neurons are selected, given how often each fires on each data set, the skill first."""
    above = table[0] > np.quantile(table, bar)
    candidates = above & (table[0] > table[1:].max(axis=0))
    if not candidates.any():
        return candidates
    shares = table[:, candidates] / table[:, candidates].sum(axis=0)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    entropy = np.full(table.shape[1], np.inf)
    entropy[candidates] = -(shares * logarithms).sum(axis=0)
    most = min(int(candidates.sum()), top_count(keep, table.shape[1]))
    last = np.partition(entropy, most - 1)[most - 1]
    return np.asarray(candidates & (entropy <= last + TIE))


def _ending(address: str, known: dict[str, Int[Tensor, " selected"]]) -> str | None:
    stem, _, name = address.rpartition(".")
    for ending, beginnings in BEGINNINGS.items():
        other = f"{stem}.{ending}"
        # A plain MLP may call its matrices up and down.
        if other in known and name in (ending, *beginnings):
            return other
    return None
