"""What was selected, in sentences: how much, where, how far repeats agree, and what was not scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lesion.report import wording
from lesion.studies.isolation import curves, distribution


def selected(isolation: Mapping[str, Any]) -> list[str]:
    """How much was selected, how far repeats agree, and what was not scored: counts, which need no interval."""
    told = []
    found = distribution.distributions(isolation)
    if found:
        total = max(one.whole.total for one in found)
        told.append(
            f"{wording.counted(len(found), 'selection')} of {total:,} scored weights, for "
            f"{isolation.get('skill') or 'the skill'}"
            + (f" against {wording.listed(list(controls))}" if (controls := isolation.get("controls")) else "")
            + "."
        )
    for one in _one_of_each_method(found):
        shares = {block: share for block in one.blocks if (share := one.of_block(block).share) is not None}
        if one.whole.share is None or len(shares) < 2:
            continue
        least, most = min(shares, key=lambda b: shares[b]), max(shares, key=lambda b: shares[b])
        least_share, most_share = (wording.percent(shares[block], 2) for block in (least, most))
        spread = (
            "of every block the same share"
            if least_share == most_share
            else f"between {least_share} of block {least} and {most_share} of block {most}"
        )
        name = one.label[0].upper() + one.label[1:]
        told.append(f"{name}: {one.whole.selected:,} weights, {wording.percent(one.whole.share, 2)}; {spread}.")
    for overlap in _widest(curves.overlaps(isolation)):
        several = overlap.low is not None and overlap.high is not None and overlap.low < overlap.high
        pairs = f" ({overlap.low:.2f} to {overlap.high:.2f})" if several else ""
        if overlap.repeats == 2:
            pairs = " (one pair, no interval)"
        chance = (
            "" if overlap.chance is None else f"; sets of that size drawn at random would agree to {overlap.chance:.2f}"
        )
        told.append(
            f"{overlap.label}: sets found from {wording.counted(overlap.samples, 'text')} each agree to an IoU of "
            f"{overlap.mean:.2f}{pairs} over {wording.counted(overlap.repeats, 'repeat')}{chance}."
        )
    unscored = [entry for entry in isolation.get("coverage") or () if not entry.get("scored")]
    if unscored:
        weights = sum(int(entry.get("weights") or 0) for entry in unscored)
        told.append(
            f"{wording.counted(len(unscored), 'parameter')} with {weights:,} weights "
            f"{'was' if len(unscored) == 1 else 'were'} not scored; the coverage table says why."
        )
    return told


def _one_of_each_method(found: Sequence[distribution.Distribution]) -> list[distribution.Distribution]:
    """Of every method the selection with the most samples and the largest share kept: the least noisy one."""
    best: dict[str, distribution.Distribution] = {}
    for one in found:
        former = best.get(one.method)
        if former is None or (one.samples or 0, one.keep or 0) > (former.samples or 0, former.keep or 0):
            best[one.method] = one
    return list(best.values())


def _widest(found: Sequence[curves.Overlap]) -> list[curves.Overlap]:
    """Of every method and keep the overlap at the most samples."""
    best: dict[str, curves.Overlap] = {}
    for one in found:
        if one.label not in best or one.samples > best[one.label].samples:
            best[one.label] = one
    return list(best.values())
