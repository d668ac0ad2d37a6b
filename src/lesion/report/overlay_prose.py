"""What an overlay shows, in sentences written from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lesion.report import overlay_charts, wording
from lesion.report.prose import Finding
from lesion.studies.overlay import Correlation, Of, needed
from lesion.studies.statistics import ALPHA


def findings(models: Sequence[Of]) -> list[Finding]:
    """Per model: which profiles of different studies agree beyond chance, and where each is largest."""
    return [Finding(of.model, _headline(of), _sentences(of)) for of in models]


def tested(of: Of) -> list[Correlation]:
    """The pairs of different kinds of study, the strongest first."""
    return sorted((one for one in of.correlations if one.p is not None), key=lambda one: -abs(one.rho))


def rho(value: float) -> str:
    """A rank correlation with two decimals: `.80`, `−.31`, `1`."""
    if not math.isfinite(value):
        return wording.DASH
    text = f"{abs(value):.2f}"
    text = "1" if text == "1.00" else text.removeprefix("0")
    return f"{wording.MINUS}{text}" if value < 0 and text != ".00" else text


def _headline(of: Of) -> tuple[str, ...]:
    every = tested(of)
    if not every:
        kinds = {profile.kind for profile in of.profiles if profile.ranked}
        if len(kinds) < 2:
            only = overlay_charts.KINDS[next(iter(kinds), of.profiles[0].kind)][1]
            return (
                f"All profiles of {of.model} are of one kind of study ({only}): nothing is tested between studies.",
            )
        return (f"No two profiles of different studies of {of.model} can be ranked over the same blocks.",)
    sure = [one for one in every if one.p_corrected is not None and one.p_corrected <= ALPHA]
    pairs = wording.counted(len(every), "pair")
    if not sure:
        most = every[0]
        return (
            f"No two studies of {of.model} agree beyond chance about its blocks: of {pairs} none has a corrected p"
            f" of at most {ALPHA:g}.",
            f"The strongest is {most.a} with {most.b} (ρ{wording.SPACE}{rho(most.rho)}, corrected"
            f" p{wording.SPACE}{wording.p_value(most.p_corrected)}).",
        )
    return (f"Of {pairs} of profiles from different studies of {of.model}, {_agree(sure)}.",)


def _agree(sure: Sequence[Correlation]) -> str:
    told = [
        f"{one.a} {'rises with' if one.rho > 0 else 'falls where rises'} {one.b} (ρ{wording.SPACE}{rho(one.rho)},"
        f" corrected p{wording.SPACE}{wording.p_value(one.p_corrected)};"
        f" beyond depth {rho(one.beyond_depth)})"
        for one in sure[:4]
    ]
    more = f"; and {len(sure) - 4} more" if len(sure) > 4 else ""
    return f"{len(sure)} agree{'s' if len(sure) == 1 else ''} beyond chance: {'; '.join(told)}{more}"


def _sentences(of: Of) -> tuple[str, ...]:
    told = []
    every = tested(of)
    if every:
        blocks = max(one.blocks for one in every)
        least = needed(blocks, len(every))
        text = f"{wording.counted(blocks, 'block')} make p coarse: "
        if least is None:
            text += f"with {wording.counted(len(every), 'pair')} even a perfect agreement stays above {ALPHA:g}."
        else:
            text += (
                f"the strongest of {wording.counted(len(every), 'pair')} must reach |ρ|{wording.SPACE}{rho(least)} to"
                f" stay at most {ALPHA:g} after correction. That nothing is told does not mean that nothing is there."
            )
        told.append(text)
    return (*told, *_peaks(of))


def _peaks(of: Of) -> list[str]:
    """Where each profile is largest, gathered by block."""
    peaks: dict[int, list[str]] = {}
    for profile in of.profiles:
        if profile.ranked:
            largest = max(profile.values)
            first = [block for block, value in zip(profile.blocks, profile.values, strict=True) if value == largest]
            if len(first) == 1:
                peaks.setdefault(first[0], []).append(profile.label)
    shared = {block: labels for block, labels in sorted(peaks.items()) if len(labels) > 1}
    return [
        f"Block{wording.SPACE}{block} is the largest of {wording.listed(labels)}." for block, labels in shared.items()
    ]
