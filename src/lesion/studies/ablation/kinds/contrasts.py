"""Contrasts of kinds: whether accuracy differs between two kinds of ablation at the same place, on the same items.

"Critical under zero and not under mean" is not by itself a difference between the two: each is tested against the
unedited model, and one may only just pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from lesion.edits.place import Unit
from lesion.report.values import Estimate
from lesion.statistics.paired import holm, paired_drop, sign_flip_exact
from lesion.studies.ablation.result import KindContrast
from lesion.studies.ablation.sweep import PlaceEdit, kind_of, text_of


def contrasts(
    task: str, frames: Mapping[str, pd.DataFrame], edits: Sequence[PlaceEdit], level: float
) -> list[KindContrast]:
    """Every pair of kinds at every place that has answered both, of units with a replacement and another kind.

    One test a pair: McNemar's exact test of the items that only one of the two has right; where a kind has several
    draws, its generalisation (`sign_flip_exact`) to how many draws have an item right. p is corrected by Holm over
    places × pairs of a unit, those that still miss answers included.

    Args:
        task: whose answers they are.
        frames: answers to all items by the text of the edit, in one order.
        edits: all that the study plans.
        level: of the intervals, which pairs without several draws have.
    """
    places: dict[Unit, dict[str, dict[str, list[PlaceEdit]]]] = {}
    for edit in edits:
        if kind := kind_of(edit.factor):
            address = str(edit).partition("→")[0].partition("×")[0]
            places.setdefault(edit.unit, {}).setdefault(address, {}).setdefault(kind, []).append(edit)
    every = []
    for of_unit in places.values():
        pairs = [(by_kind, first, second) for by_kind in of_unit.values() for first, second in combinations(by_kind, 2)]
        own = [_contrast(task, frames, by_kind, first, second, level) for by_kind, first, second in pairs]
        corrected = holm(1.0 if each is None or each.difference.p is None else each.difference.p for each in own)
        for each, p in zip(own, corrected, strict=True):
            if each is not None:
                difference = each.difference.model_copy(update={"p_corrected": p})
                every.append(each.model_copy(update={"difference": difference}))
    return every


def _contrast(
    task: str,
    frames: Mapping[str, pd.DataFrame],
    by_kind: Mapping[str, Sequence[PlaceEdit]],
    first: str,
    second: str,
    level: float,
) -> KindContrast | None:
    """One pair at one place, without correction; None where an answer is missing."""
    texts = [[text_of(edit, task) for edit in by_kind[kind]] for kind in (first, second)]
    if any(text not in frames for of_kind in texts for text in of_kind):
        return None
    first_right, second_right = (
        np.array([frames[text]["correct"].to_numpy(dtype=bool) for text in of_kind]) for of_kind in texts
    )
    p = sign_flip_exact(
        len(second_right) * first_right.sum(0).astype(int) - len(first_right) * second_right.sum(0).astype(int)
    )
    if len(first_right) == len(second_right) == 1:
        difference = Estimate.of(paired_drop(first_right[0], second_right[0], level), p)
    else:
        difference = Estimate(value=float(first_right.mean() - second_right.mean()), p=p)
    edit = by_kind[first][0]
    return KindContrast(layer=edit.layer, unit=edit.unit, first=first, second=second, difference=difference)
