"""What an overlay shows, in sentences written from its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.statistics.paired import ALPHA
from lesion.studies.overlay import charts as overlay_charts
from lesion.studies.overlay.profiles import Kind
from lesion.studies.overlay.summary import Correlation, Of, needed

MISSING = "What is missing"
"""The subject of what is said once of all models whose studies are of one kind."""
COMMANDS = {"layers": "ablate", "drift": "drift", "isolation": "isolate", "truncation": "truncate"}


def findings(models: Sequence[Of]) -> list[Finding]:
    """Per model: which profiles of different studies agree beyond chance, and where each is largest.

    Of models whose ranked profiles are of one kind, what is missing is said once, at the end.
    """
    pairs = sum(len(tested(of)) for of in models)
    told = []
    alone: dict[Kind, list[str]] = {}
    for of in models:
        kinds = {profile.kind for profile in of.profiles if profile.ranked}
        if len(kinds) < 2:
            alone.setdefault(next(iter(kinds), of.profiles[0].kind), []).append(of.model)
            if peaks := _peaks(of):
                told.append(Finding(of.model, (), tuple(peaks)))
        else:
            told.append(Finding(of.model, _headline(of), _sentences(of, pairs)))
    if alone:
        told.append(Finding(MISSING, tuple(_missing(kind, names) for kind, names in alone.items())))
    return told


def _missing(kind: Kind, names: Sequence[str]) -> str:
    others = wording.listed([f"`lesion {command}`" for of, command in COMMANDS.items() if of != kind], "or")
    return (
        f"All that is told of {wording.listed(names)} comes from one kind of study ({overlay_charts.KINDS[kind][1]}), "
        f"so that nothing is compared between studies: add the folder of {others} on the same model."
    )


def tested(of: Of) -> list[Correlation]:
    """The pairs of different kinds of study, the surest first: by corrected p, then p, then |ρ|.

    Not by |ρ| alone: over fewer blocks a larger ρ may say less.
    """

    def doubt(one: Correlation) -> tuple[float, float, float]:
        p = 1.0 if one.p is None else one.p
        return (1.0 if one.p_corrected is None else one.p_corrected, p, -abs(one.rho))

    return sorted((one for one in of.correlations if one.p is not None), key=doubt)


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
        return (f"No two profiles of different studies of {of.model} can be ranked over the same blocks.",)
    sure = [one for one in every if one.p_corrected is not None and one.p_corrected <= ALPHA]
    pairs = wording.counted(len(every), "pair")
    if not sure:
        most = every[0]
        return (
            f"No two studies of {of.model} agree beyond chance about its blocks: of {pairs} none has a corrected p"
            f" of at most {ALPHA:g}.",
            f"The strongest is {most.a} with {most.b} ({_rho_over(of, most)}, p{wording.SPACE}"
            f"{wording.p_value(most.p)}, corrected p{wording.SPACE}{wording.p_value(most.p_corrected)}).",
        )
    return (f"Of {pairs} of profiles from different studies of {of.model}, {_agree(of, sure)}.",)


def _rho_over(of: Of, one: Correlation) -> str:
    """ρ, with the number of blocks that it is over where the model has more."""
    over = "" if one.blocks == len(of.blocks) else f" over {wording.counted(one.blocks, 'block')}"
    return f"ρ{wording.SPACE}{rho(one.rho)}{over}"


def _agree(of: Of, sure: Sequence[Correlation]) -> str:
    told = [
        f"{one.a} {'rises with' if one.rho > 0 else 'falls where rises'} {one.b} ({_rho_over(of, one)},"
        f" corrected p{wording.SPACE}{wording.p_value(one.p_corrected)};"
        f" beyond depth {rho(one.beyond_depth)})"
        for one in sure[:4]
    ]
    more = f"; and {len(sure) - 4} more" if len(sure) > 4 else ""
    return f"{len(sure)} agree{'s' if len(sure) == 1 else ''} beyond chance: {'; '.join(told)}{more}"


def _sentences(of: Of, pairs: int) -> tuple[str, ...]:
    """What so few blocks can show at all when p is corrected over all pairs of the page, and where profiles peak."""
    every = tested(of)
    if not every:
        return tuple(_peaks(of))
    many = wording.counted(pairs, "pair") + (" of all models" if pairs > len(every) else "")
    least = {blocks: needed(blocks, pairs) for blocks in sorted({one.blocks for one in every}, reverse=True)}
    reached = [
        f"{rho(value)} over {wording.counted(blocks, 'block')}" for blocks, value in least.items() if value is not None
    ]
    never = [str(blocks) for blocks, value in least.items() if value is None]
    text = "Few blocks make p coarse: "
    if reached:
        text += f"the strongest of {many} must reach |ρ|{wording.SPACE}{wording.listed(reached)} to stay at most "
        text += f"{ALPHA:g} after correction"
    if never:
        text += f"{'; ' if reached else ''}with {many} even a perfect agreement over {wording.listed(never, 'or')} "
        text += f"blocks stays above {ALPHA:g}"
    text += ". That nothing is told does not mean that nothing is there."
    return (text, *_peaks(of))


def _peaks(of: Of) -> list[str]:
    """Where each ranked profile is largest, gathered by block; of drift the first step takes no part (`profiles`)."""
    peaks: dict[int, list[str]] = {}
    for profile in of.profiles:
        if profile.ranked:
            largest = max(profile.values)
            first = [block for block, value in zip(profile.blocks, profile.values, strict=True) if value == largest]
            if len(first) == 1:
                peaks.setdefault(first[0], []).append(profile.label)
    shared = {block: labels for block, labels in sorted(peaks.items()) if len(labels) > 1}
    told = [
        f"Block{wording.SPACE}{block} is the largest of {wording.listed(labels)}." for block, labels in shared.items()
    ]
    if told:
        told.append(f"By chance, about 1 in {len(of.blocks)} pairs of unrelated profiles share their largest block.")
    return told
