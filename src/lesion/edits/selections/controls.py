"""Matched random controls of any edit: the same changes, as large, at places drawn at random.

Of a selection as many weights of every matrix are drawn, or as many of every size or importance.

Large weights hurt more than small ones wherever they are, and most methods select large weights. So the weights of a
matrix are put into bins of equal numbers by |W|, or by their importance |W| · a to other texts, and of every bin as
many are drawn as the selection has in it, none of them its own. What is left of a gap between an edit and this control
is not the size of the weights, or not what they are worth to those texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.edit import Edit, MatchedIn, Scale, ScaleParameters, Single, Truncate, composed, parts
from lesion.edits.replace import Replace
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.listed import Listed
from lesion.edits.selections.selection import LONGEST_LABEL, Selection, Without
from lesion.edits.table import refuse_unknown_places
from lesion.edits.units import NumberedEdit, how_many, part_of, scaling
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.reprs import short_repr


@dataclass(frozen=True, eq=False)
class Control(Selection):
    """A selection that matches another one, drawn by a seed."""

    like: Selection
    seed: int = 0

    @property
    def parts(self) -> tuple[Selection, ...]:
        """The matched selection."""
        return (self.like,)

    def made_of(self, parts: Sequence[Selection]) -> Control:
        """The same for another selection."""
        return replace(self, like=parts[0])

    def touches(self, address: str) -> bool:
        """Where the matched selection does."""
        return self.like.touches(address)


@validated
@dataclass(frozen=True, eq=False)
class Random(Control):
    """As many weights of every matrix as the selection `like` has, drawn at random: the control of that selection.

    The draw depends on the seed and the address alone, on no library's generator: with one seed a smaller selection's
    random control lies within a larger one's. Listed weights that were taken away from `like` are not drawn either.
    """

    kind: ClassVar[str] = "random"
    RECIPE: ClassVar[Mapping[str, str]] = {"random": "like", "seed": "seed"}

    __repr__ = short_repr

    @property
    def label(self) -> str:
        """`random3-mathneuro-0.05`."""
        return f"random{self.seed}-{self.like.label}"[:LONGEST_LABEL]

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


BINS = 100
"""Of the scores of a matrix. Scores that are equal to 8 significant bits are in one bin."""


@validated
@dataclass(frozen=True, eq=False)
class Matched(Control):
    """Weights outside the selection `like`, of every matrix and bin of scores as many as it has.

    Where a bin has too few others, as where all of the largest are selected, what is missing comes from the next bins
    below, then from those above. The draw depends on seed and address alone, as that of `Random`.

    Args:
        like: the selection.
        seed: of the draw.
        texts: what was observed on other texts; scores are |W| · a with the sum of their norms a. None: scores are |W|.
    """

    texts: tuple[Inputs, ...] = ()
    kind: ClassVar[str] = "matched"
    RECIPE: ClassVar[Mapping[str, str]] = {"matched": "like", "seed": "seed", "texts": "texts"}

    __repr__ = short_repr

    @property
    def label(self) -> str:
        """`magnitude3-mathneuro-0.05`, `importance3-mathneuro-0.05`."""
        return f"{'importance' if self.texts else 'magnitude'}{self.seed}-{self.like.label}"[:LONGEST_LABEL]

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Those of the selection and of the texts."""
        return tuple({inputs.digest: inputs for inputs in (*self.like.inputs, *self.texts)}.values())

    def mask(self, address: str, weight: Float[Tensor, "out in"]) -> Bool[Tensor, "out in"]:
        """As many of every bin as the matched selection has, those with the smallest of `drawing_keys`."""
        selected = np.zeros(weight.numel(), dtype=bool)
        if self.touches(address):
            selected = self.like.mask(address, weight).cpu().numpy().ravel()
        if not selected.any():
            return torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
        others = ~selected
        if (spared := left_out(self.like)) is not None and spared.touches(address):
            others &= ~spared.mask(address, weight).cpu().numpy().ravel()
        if int(others.sum()) < int(selected.sum()):
            raise LesionError(
                f"{self.like.label} has {int(selected.sum()):,} of {selected.size:,} weights of {address}, so that too"
                " few others are left to match them; select less, or match in count alone."
            )
        bins = score_bins(self._scores(address, weight))
        keys = drawing_keys(self.seed, address, weight.numel())
        drawn = _drawn(bins, keys, others, _wanted(bins, selected, others))
        return torch.from_numpy(drawn).view(weight.shape).to(weight.device)

    def _scores(self, address: str, weight: Float[Tensor, "out in"]) -> Float[np.ndarray, " size"]:
        scores = weight.detach().abs().float().cpu()
        if self.texts:
            observed = [sums.norms.double().cpu() for each in self.texts if (sums := each.of(address)) is not None]
            scores = scores * sum(observed, torch.zeros(weight.shape[1], dtype=torch.float64)).float()
        return np.asarray(scores.numpy().ravel())


def score_bins(scores: Float[np.ndarray, " size"]) -> Int[np.ndarray, " size"]:
    """The bin, 0 … `BINS` − 1 by rising score, of every score from 0 on.

    By the first 16 bits of the float32 number, which rise with it: no sort of a whole matrix is needed.
    """
    codes = np.ascontiguousarray(scores, dtype=np.float32).view(np.uint32) >> np.uint32(16)
    counts = np.bincount(codes, minlength=1 << 15)
    below = np.cumsum(counts) - counts
    return (below * BINS // scores.size).astype(np.int64)[codes]


def _wanted(
    bins: Int[np.ndarray, " size"], selected: Bool[np.ndarray, " size"], others: Bool[np.ndarray, " size"]
) -> Int[np.ndarray, " bins"]:
    """How many are drawn of every bin: as many as are selected, what is missing from bins below, then from above."""
    chosen_counts, free_counts = (np.bincount(bins[which], minlength=BINS) for which in (selected, others))
    wanted = np.minimum(chosen_counts, free_counts)
    missing = 0
    for place in (*range(BINS - 1, -1, -1), *range(BINS)):
        missing += max(0, int(chosen_counts[place] - free_counts[place]))
        chosen_counts[place] = min(chosen_counts[place], free_counts[place])  # what is missing counts once
        taken = min(missing, int(free_counts[place] - wanted[place]))
        wanted[place] += taken
        missing -= taken
    return wanted


def _drawn(
    bins: Int[np.ndarray, " size"],
    keys: NDArray[np.uint64],
    others: Bool[np.ndarray, " size"],
    wanted: Int[np.ndarray, " bins"],
) -> Bool[np.ndarray, " size"]:
    """Of the others of every bin, the wanted number with the smallest keys."""
    free_counts = np.bincount(bins[others], minlength=BINS)
    share = wanted / np.maximum(free_counts, 1)
    # Few have keys as small as these; only they are sorted. Six standard deviations, and all where that is no fewer.
    enough = np.minimum(1.0, share + 6 * np.sqrt(share / np.maximum(free_counts, 1)) + 8 / np.maximum(free_counts, 1))
    near = others & (keys <= (enough * np.float64(2**64 - 2**12)).astype(np.uint64)[bins])
    short = np.bincount(bins[near], minlength=BINS) < wanted
    if short.any():
        near |= others & short[bins]
    places = np.flatnonzero(near)
    places = places[np.lexsort((keys[places], bins[places]))]
    bins_selected = bins[places]
    rank = np.arange(places.size) - np.searchsorted(bins_selected, bins_selected, side="left")
    mask = np.zeros(bins.size, dtype=bool)
    mask[places[rank < wanted[bins_selected]]] = True
    return mask


_DRAWS = 50
"""Draws for every control that is asked for, before it is said that there are no more different ones."""


def matched_controls(
    edit: Edit, model: Model, number: int, matched_in: MatchedIn = "count", texts: tuple[Inputs, ...] = ()
) -> list[Edit]:
    """Random controls of an edit, all different.

    Of a selection of weights, as many weights of every matrix are drawn (`Random`); in magnitude, as many of every size
    too, and in importance, as many of every importance to other texts (`Matched`). Scaled or replaced blocks and
    branches, and truncated matrices, move to as many other blocks, in the same order: to blocks that the edit leaves
    alone where there are enough of these, else to any. Factors, branches and shares of the spectrum stay; heads,
    groups, neurons and experts move to ones drawn at random.

    Returns:
        Fewer than `number` where there are no more; none of the baseline, of an edit of the output head's spectrum,
        which has no second, and in magnitude or importance of an edit that does not only select weights.
    """
    if matched_in != "count" and not all(isinstance(part, ScaleParameters) for part in parts(edit)):
        return []
    if all(isinstance(part, Truncate) and _layer(part) is None for part in parts(edit)):
        return []
    refuse_unknown_places(edit, model.anatomy)
    different: dict[str, Edit] = {str(edit): edit}
    for seed in range(_DRAWS * number):
        if len(different) > number:
            break
        control = _drawn_like(edit, model, seed, matched_in, texts)
        if control is not None:
            different.setdefault(str(control), control)
    return list(different.values())[1:]


def _drawn_like(edit: Edit, model: Model, seed: int, matched_in: MatchedIn, texts: tuple[Inputs, ...]) -> Edit | None:
    """One control; None where the drawn blocks lack a place of the edit."""
    if matched_in != "count":
        of_texts = texts if matched_in == "importance" else ()
        selections = [part for part in parts(edit) if isinstance(part, ScaleParameters)]
        return composed([replace(part, selection=Matched(part.selection, seed, of_texts)) for part in selections])
    blocks = [block.index for block in model.anatomy.blocks]
    touched = sorted({layer for part in parts(edit) if (layer := _layer(part)) is not None})
    keys = drawing_keys(seed, "blocks", len(blocks))
    order = [blocks[place] for place in keys.argsort()]
    others = [block for block in order if block not in touched]
    drawn = (others if len(others) >= len(touched) else order)[: len(touched)]
    to = dict(zip(touched, sorted(drawn), strict=False))
    try:
        moved = composed([_moved(part, to, seed, model) for part in parts(edit)])
        refuse_unknown_places(moved, model.anatomy)
    except UsageError:
        return None
    return moved


def _moved(part: Single, to: Mapping[int, int], seed: int, model: Model) -> Single:
    if isinstance(part, ScaleParameters):
        return replace(part, selection=Random(part.selection, seed))
    layer = _layer(part)
    if layer is None:
        return part
    if isinstance(part, NumberedEdit):
        count, number = how_many(part.unit, to[layer], model.anatomy), int(part_of(part) or 0)
        # By a permutation of the block's units: those that are cut together stay as many.
        order = drawing_keys(seed, f"{to[layer]} {part.unit}", count).argsort()
        if number >= count:
            raise UsageError(f"Block {to[layer]} has no {part.unit} {number}.")
        return scaling(part.unit, to[layer], part.factor, int(order[number]))
    if isinstance(part, Scale):
        return replace(part, layer=to[layer])
    _, dot, inner = part.address.partition(".")
    return replace(part, address=f"{to[layer]}{dot}{inner}")


def _layer(part: Single) -> int | None:
    """The block of a scaled or replaced place or truncated matrix; None for the output head and for selections."""
    if isinstance(part, Scale | Replace):
        return part.layer
    if isinstance(part, Truncate) and part.address.partition(".")[0].isdecimal():
        return int(part.address.partition(".")[0])
    return None
