"""What an overlay shows, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import rho
from lesion.statistics.paired import ALPHA
from lesion.studies.overlay.charts import KINDS
from lesion.studies.overlay.result import Correlation, Kind, ModelProfiles, OverlaySummary
from lesion.studies.overlay.summary import needed

MISSING = "What is missing"
"""The subject of what is said once of all models whose studies are of one kind."""
COMMANDS = {"layers": "ablate", "drift": "drift", "isolation": "isolate", "truncation": "truncate"}
PERFECT = 1 - 1e-9
NAMED = 4
"""At most so many of the pairs that agree are named in the headline."""


def findings(summary: OverlaySummary) -> list[Finding]:
    """Per model: which profiles of different studies agree beyond chance, and where each is largest.

    Of models whose ranked profiles are of one kind, what is missing is said once, at the end.
    """
    models = summary.models
    pairs = sum(len(model.tested) for model in models)
    every = []
    alone: dict[Kind, list[str]] = {}
    for model in models:
        kinds = {profile.kind for profile in model.ranked}
        if len(kinds) > 1:
            every.append(Finding(model.model, _headline(model, pairs, bool(summary.pairs)), _sentences(model, pairs)))
            continue
        alone.setdefault(next(iter(kinds), model.profiles[0].kind), []).append(model.model)
        if peaks := _peaks(model):
            every.append(Finding(model.model, (), tuple(peaks)))
    if alone:
        every.append(Finding(MISSING, tuple(_missing(kind, names) for kind, names in alone.items())))
    return every


def _missing(kind: Kind, names: Sequence[str]) -> str:
    others = wording.listed([f"`lesion {command}`" for other, command in COMMANDS.items() if other != kind], "or")
    return (
        f"Of {wording.listed(names)} there is one kind of study ({KINDS[kind][1]}). To compare, add a folder of"
        f" {others} on the same model."
    )


def _headline(model: ModelProfiles, every: int, fixed: bool) -> tuple[str, ...]:
    """Which profiles agree; that it cannot be told where no agreement short of a perfect one passes the correction."""
    tested = model.tested
    if not tested:
        return ("No two profiles of different studies can be ranked over the same blocks.",)
    agreeing = [pair for pair in tested if pair.p_corrected is not None and pair.p_corrected <= ALPHA]
    pairs = f"{wording.counted(len(tested), 'pair')} of different studies{' fixed beforehand' if fixed else ''}"
    if agreeing:
        return (f"Agreement beyond chance in {len(agreeing)} of {pairs}: {_agree(model, agreeing)}.",)
    most = tested[0]
    least = {blocks: needed(blocks, every) for blocks in sorted({pair.blocks for pair in tested}, reverse=True)}
    reached = {blocks: value for blocks, value in least.items() if value is not None and value < PERFECT}
    if not reached:
        passing = [str(blocks) for blocks, value in least.items() if value is not None]
        over = wording.listed(passing or [str(blocks) for blocks in least], "or")
        many = wording.counted(every, "pair")
        return (
            f"Whether the studies point at the same blocks cannot be told: corrected over {many},"
            f" {'only' if passing else 'not even'} perfect agreement over {over} blocks would pass p ≤ {ALPHA:g}.",
            f"The strongest of {pairs} is {most.a} with {most.b} ({_rho_over(model, most)}, p{wording.SPACE}"
            f"{wording.p_value(most.p)} uncorrected).",
        )
    takes = wording.listed([f"{rho(value)} over {blocks} blocks" for blocks, value in reached.items()])
    return (
        f"No agreement is shown in {pairs} (corrected p ≤ {ALPHA:g}, which takes"
        f" |ρ|{wording.SPACE}≥{wording.SPACE}{takes}).",
        f"The strongest is {most.a} with {most.b} ({_rho_over(model, most)}, p{wording.SPACE}{wording.p_value(most.p)},"
        f" corrected p{wording.SPACE}{wording.p_value(most.p_corrected)}).",
    )


def _rho_over(model: ModelProfiles, pair: Correlation) -> str:
    """ρ, with the number of blocks that it is over where the model has more."""
    over = "" if pair.blocks == len(model.blocks) else f" over {wording.counted(pair.blocks, 'block')}"
    return f"ρ{wording.SPACE}{rho(pair.rho)}{over}"


def _agree(model: ModelProfiles, agreeing: Sequence[Correlation]) -> str:
    named = [
        f"{pair.a} {'rises with' if (pair.rho or 0.0) > 0 else 'falls where rises'} {pair.b} ({_rho_over(model, pair)},"
        f" corrected p{wording.SPACE}{wording.p_value(pair.p_corrected)}; beyond depth {rho(pair.beyond_depth)})"
        for pair in agreeing[:NAMED]
    ]
    more = f"; and {len(agreeing) - NAMED} more" if len(agreeing) > NAMED else ""
    return f"{'; '.join(named)}{more}"


def _sentences(model: ModelProfiles, pairs: int) -> tuple[str, ...]:
    """What so few blocks can show at all when p is corrected over all pairs of the page, and where profiles peak."""
    tested = model.tested
    if not tested:
        return tuple(_peaks(model))
    many = wording.counted(pairs, "pair") + (" of all models" if pairs > len(tested) else "")
    least = {blocks: needed(blocks, pairs) for blocks in sorted({pair.blocks for pair in tested}, reverse=True)}
    reached = [
        f"|ρ|{wording.SPACE}{'=' if value >= PERFECT else '≥'}{wording.SPACE}{rho(value)}"
        f" over {wording.counted(blocks, 'block')}"
        for blocks, value in least.items()
        if value is not None
    ]
    never = [str(blocks) for blocks, value in least.items() if value is None]
    needs = f"After correction over {many}, p ≤ {ALPHA:g} "
    parts = [f"takes {wording.listed(reached)}"] if reached else []
    parts += [f"cannot be reached over {wording.listed(never, 'or')} blocks"] if never else []
    text = f"{needs}{', and '.join(parts)}. No evidence of agreement is not evidence of none."
    return (text, *_peaks(model))


def _peaks(model: ModelProfiles) -> list[str]:
    """Where each ranked profile is largest, gathered by block; of drift the first step takes no part (`profiles`)."""
    peaks: dict[int, list[str]] = {}
    for profile in model.ranked:
        largest = max(profile.values)
        blocks = [block for block, value in zip(profile.blocks, profile.values, strict=True) if value == largest]
        if len(blocks) == 1:
            peaks.setdefault(blocks[0], []).append(profile.label)
    shared = {block: labels for block, labels in sorted(peaks.items()) if len(labels) > 1}
    sentences = [
        f"Block{wording.SPACE}{block} is the largest of {wording.listed(labels)}." for block, labels in shared.items()
    ]
    by_chance = f"By chance, about 1 in {len(model.blocks)} pairs of profiles share it."
    return [*sentences, by_chance] if sentences else []
