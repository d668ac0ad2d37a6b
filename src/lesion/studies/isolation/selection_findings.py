"""What was selected, in sentences: how much, where, how far repeats agree, and what was not scored."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.studies.isolation.distribution import Distribution, distributions
from lesion.studies.isolation.result import Isolation, Overlap


def selected(isolation: Isolation) -> list[str]:
    """How much was selected, how far repeats agree, and what was not scored: counts, which need no interval."""
    sentences = []
    every = distributions(isolation)
    if every:
        total = max(one.whole.total for one in every)
        sentences.append(
            f"{wording.counted(len(every), 'selection')} of {total:,} scored weights, for {isolation.study.skill}"
            f" against {wording.listed(list(isolation.study.controls))}."
        )
    for one in _one_of_each_method(every):
        shares = {block: share for block in one.blocks if (share := one.of_block(block).share) is not None}
        if one.whole.share is None or len(shares) < 2:
            continue
        least, most = min(shares, key=lambda b: shares[b]), max(shares, key=lambda b: shares[b])
        least_share, most_share = (wording.percent(shares[block], 2) for block in (least, most))
        spread = (
            "the same share of every block"
            if least_share == most_share
            else f"between {least_share} of block {least} and {most_share} of block {most}"
        )
        name = one.name[0].upper() + one.name[1:]
        sentences.append(f"{name}: {one.whole.selected:,} weights, {wording.percent(one.whole.share, 2)}; {spread}.")
    sentences += [_agreement(overlap) for overlap in _widest(isolation.agreements)]
    unscored = [entry for entry in isolation.coverage if not entry.scored]
    if unscored:
        weights = sum(entry.weights for entry in unscored)
        sentences.append(
            f"{wording.counted(len(unscored), 'parameter')} with {weights:,} weights "
            f"{'was' if len(unscored) == 1 else 'were'} not scored; the coverage table says why."
        )
    return sentences


def _agreement(overlap: Overlap) -> str:
    pairs, chance = "", ""
    if overlap.repeats == 2:
        pairs = " (one pair, no interval)"
    elif overlap.spread is not None and overlap.spread[0] < overlap.spread[1]:
        pairs = f" ({overlap.spread[0]:.2f} to {overlap.spread[1]:.2f})"
    if overlap.chance is not None:
        chance = f"; random sets of that size would agree to {overlap.chance:.2f}"
    return (
        f"{overlap.label}: sets found from {wording.counted(overlap.samples, 'text')} each agree to an IoU of "
        f"{overlap.mean.value:.2f}{pairs} over {wording.counted(overlap.repeats, 'repeat')}{chance}."
    )


def _one_of_each_method(every: Sequence[Distribution]) -> list[Distribution]:
    """Of every method the selection with the most samples and the largest share kept: the least noisy one."""
    best: dict[str, Distribution] = {}
    for one in every:
        selection = one.selection
        former = best.get(selection.method)
        if former is None or (selection.samples, selection.keep) > (former.selection.samples, former.selection.keep):
            best[selection.method] = one
    return list(best.values())


def _widest(overlaps: Sequence[Overlap]) -> list[Overlap]:
    """Of every method and keep the overlap at the most samples."""
    best: dict[str, Overlap] = {}
    for overlap in overlaps:
        if overlap.label not in best or overlap.samples > best[overlap.label].samples:
            best[overlap.label] = overlap
    return list(best.values())
