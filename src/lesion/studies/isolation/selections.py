"""Isolation: the selections of a study, method by method, and what two of them have in common.

The published grid (Christ et al. 2024: 8 shares, 5 repeats, 2 control sets) needs one pass over the data; every
selection follows from the stored vectors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lesion.core.values import Estimate
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Count, Selection
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.errors import UsageError, nearest
from lesion.models.load import Model
from lesion.studies.isolation.result import Coverage, Overlap

Make = Callable[[Inputs, Sequence[Inputs], float], Selection]


def _magnitude(skill: Inputs, controls: Sequence[Inputs], keep: float) -> Selection:
    """The largest weights of the matrices that the other methods choose from."""
    seen = [address for address in skill.readers if (sums := skill.of(address)) is not None and sums.tokens]
    return Magnitude(keep, tuple(seen))


# Each is given the vectors that it needs and no others: what a selection holds is kept in its file.
METHODS: Mapping[str, Make] = {
    "mathneuro": lambda skill, controls, keep: MathNeuro(skill.only(), tuple(c.only() for c in controls), keep),
    "wanda": lambda skill, controls, keep: Wanda(skill.only(), keep),
    "wanda-rows": lambda skill, controls, keep: Wanda(skill.only(squares=True), keep, per="row"),
    "lape": lambda skill, controls, keep: LAPE(
        skill.only(active=True), tuple(c.only(active=True) for c in controls), keep
    ),
    "magnitude": _magnitude,
}


@dataclass(frozen=True)
class Made:
    """A selection and how it came about.

    Attributes:
        method: a name of `METHODS`.
        keep: the share that was asked for, of every matrix, row or all neurons.
        samples, repeat: which draw of texts it comes from.
        selection: what is selected.
    """

    method: str
    keep: float
    samples: int
    repeat: int
    selection: Selection

    @property
    def group(self) -> tuple[str, float, int]:
        """What repeats of one selection share."""
        return self.method, self.keep, self.samples


def selections(
    method: str,
    keeps: Iterable[float],
    skill: Mapping[tuple[int, int], Inputs],
    controls: Sequence[Mapping[tuple[int, int], Inputs]],
) -> list[Made]:
    """One selection per share and draw; of magnitude, which sees no data, one per share.

    Args:
        method: a name of `METHODS`.
        keeps: shares in (0, 1].
        skill: inputs by (samples, repeat).
        controls: the same for every control.

    Raises:
        UsageError: there is no such method.
    """
    if method not in METHODS:
        raise UsageError(f"There is no method '{method}'{nearest(method, METHODS)}; there are {', '.join(METHODS)}.")
    draws = list(skill) if method != "magnitude" else list(skill)[:1]
    return [
        Made(method, keep, *draw, METHODS[method](skill[draw], [control[draw] for control in controls], keep))
        for keep in keeps
        for draw in draws
    ]


def mean_overlap(iou: Sequence[float], repeats: int, z: float = 1.959963984540054) -> Estimate:
    """The mean over pairs of repeats, with its interval by the jackknife over repeats, since pairs share repeats.

    Args:
        iou: of the pairs, in the order of `itertools.combinations`.
        repeats: how many; with fewer than three there is no interval.
        z: normal quantile of the interval.
    """
    mean = float(np.mean(iou))
    if repeats < 3:
        return Estimate(value=mean)
    pairs = list(itertools.combinations(range(repeats), 2))
    left = [np.mean([v for v, p in zip(iou, pairs, strict=True) if r not in p]) for r in range(repeats)]
    spread = math.sqrt((repeats - 1) / repeats * float(np.sum((np.array(left) - np.mean(left)) ** 2)))
    return Estimate(value=mean, low=max(0.0, mean - z * spread), high=min(1.0, mean + z * spread))


def survey(made: Sequence[Made], model: Model) -> tuple[list[list[Count]], list[Overlap]]:
    """How much of every matrix each selection holds, and how much repeats of one agree; every mask is made once.

    Returns:
        Counts per selection, in the order of `made`; overlaps of those that have more than one repeat.
    """
    counts: list[list[Count]] = [[] for _ in made]
    groups: dict[tuple[str, float, int], list[int]] = {}
    for place, one in enumerate(made):
        groups.setdefault(one.group, []).append(place)
    both = {group: np.zeros(len(places) * (len(places) - 1) // 2) for group, places in groups.items()}
    union = {group: np.zeros_like(found) for group, found in both.items()}
    expected = {group: np.zeros((2, len(found))) for group, found in both.items()}
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        for group, places in groups.items():
            masks = [made[place].selection.mask(address, weight) for place in places]
            sizes = [int(mask.sum()) for mask in masks]
            for place, size in zip(places, sizes, strict=True):
                counts[place].append(Count.at(address, size, weight.numel()))
            for pair, (a, b) in enumerate(itertools.combinations(range(len(places)), 2)):
                common = int(torch.logical_and(masks[a], masks[b]).sum())
                both[group][pair] += common
                union[group][pair] += sizes[a] + sizes[b] - common
                by_chance = sizes[a] * sizes[b] / weight.numel()
                expected[group][:, pair] += by_chance, sizes[a] + sizes[b] - by_chance
    overlaps = []
    for (method, keep, samples), places in groups.items():
        if len(places) < 2:
            continue
        group = method, keep, samples
        iou = [float(b / u) if u else math.nan for b, u in zip(both[group], union[group], strict=True)]
        overlaps.append(
            Overlap(
                method=method,
                keep=keep,
                samples=samples,
                repeats=len(places),
                iou=tuple(iou),
                mean=mean_overlap(iou, len(places)),
                chance=float(expected[group][0].sum() / max(1.0, expected[group][1].sum())),
            )
        )
    return counts, overlaps


def coverage(model: Model, observed: Inputs) -> list[Coverage]:
    """What was scored, what was not, and why, for every parameter and matrix."""
    entries = []
    for address, matrix in model.anatomy.scored.items():
        sums = observed.of(address)
        if sums is None:
            reason = "its input was not seen: the module that holds it was not called as a linear map"
        elif sums.tokens == 0:
            reason = "no token of the skill came to it"
        else:
            reason = ""
        weights = matrix.shape[0] * matrix.shape[1]
        entries.append(Coverage(name=address, scored=not reason, reason=reason, weights=weights))
    head = None if model.anatomy.head is None else model.anatomy.head.parameter
    for name, reason in model.anatomy.uncovered:
        if name != head:
            weights = model.network.get_parameter(name).numel()
            entries.append(Coverage(name=name, scored=False, reason=reason, weights=weights))
    return entries
