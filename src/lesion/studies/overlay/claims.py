"""What an overlay claims: whether different studies rank a model's blocks alike."""

from __future__ import annotations

from collections.abc import Iterable

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.rows import subject
from lesion.report.wording import rho
from lesion.statistics.paired import ALPHA
from lesion.studies.overlay.result import KINDS, Correlation, Kind, ModelProfiles, OverlaySummary
from lesion.studies.overlay.summary import needed

COMMANDS: dict[Kind, str] = {"layers": "ablate", "drift": "drift", "isolation": "isolate", "truncation": "truncate"}
PERFECT = 1 - 1e-9


@rule(
    "P rises with Q over the blocks (ρ R).",
    "P falls where Q rises (ρ R).",
    "No two studies are shown to rank the blocks alike.",
    "Whether the studies rank the blocks alike cannot be told: only perfect agreement over N blocks would pass.",
    "No two profiles of different studies can be ranked over the same blocks.",
    needs="a permutation test of Spearman's ρ over blocks, corrected by Holm's method over all pairs of different"
    f" studies (or those fixed beforehand) of all models, at {ALPHA:g}; told only where a ρ below 1 would pass",
)
def do_studies_agree(summary: OverlaySummary) -> Iterable[Claim]:
    """Per model with several kinds of study, the surest pair of profiles; the model with most kinds first."""
    several = [model for model in by_kinds(summary) if len(kinds(model)) > 1]
    every = sum(len(model.tested) for model in summary.models)
    for model in several:
        about = subject(model, summary.models)
        tested = model.tested
        if not tested:
            yield Claim(("No two profiles of different studies can be ranked over the same blocks.",), (model,), about)
            continue
        first, agreeing = tested[0], [pair for pair in tested if pair.agrees]
        rows = tuple((model, pair) for pair in agreeing or tested[:1])
        fixed = " that were fixed beforehand" if summary.pairs else ""
        pairs = f"{wording.counted(len(tested), 'pair')} of different studies{fixed}"
        if agreeing:
            how = "rises with" if (first.rho or 0.0) > 0 else "falls where"
            rises = "" if (first.rho or 0.0) > 0 else " rises"
            said = f"{wording.capital(first.a)} {how} {first.b}{rises} over the blocks ({_rho(model, first)})."
            beyond = f"Corrected p {wording.p_value(first.p_corrected)}; beyond depth ρ is {rho(first.beyond_depth)}."
            more = f"{len(agreeing)} of {pairs} agree beyond chance."
            yield Claim((said, beyond, more), rows, about)
            continue
        strongest = (
            f"The strongest of {pairs} is {first.a} with {first.b} ({_rho(model, first)}, p"
            f" {wording.p_value(first.p)}, corrected p {wording.p_value(first.p_corrected)})."
        )
        least = {pair.blocks: needed(pair.blocks, every) for pair in tested}
        if any(value is not None and value < PERFECT for value in least.values()):
            said = "No two studies are shown to rank the blocks alike."
        else:
            passing = [str(blocks) for blocks, value in least.items() if value is not None]
            over = wording.listed(passing or list(map(str, least)), "or")
            only = "only" if passing else "not even"
            said = (
                "Whether the studies rank the blocks alike cannot be told:"
                f" {only} perfect agreement over {over} blocks would pass."
            )
        yield Claim((said, strongest), rows, about)


@rule(
    "M has one kind of study (layer ablation), so nothing is compared.",
    needs="profiles of one kind alone; those of one study share its answers and are not tested against each other",
)
def what_is_missing(summary: OverlaySummary) -> Iterable[Claim]:
    """Models whose profiles are of one kind, together by kind, and what to add."""
    alone: dict[Kind, list[ModelProfiles]] = {}
    for model in summary.models:
        if len(kinds(model)) < 2:
            alone.setdefault(next(iter(kinds(model)), model.profiles[0].kind), []).append(model)
    for kind, models in alone.items():
        commands = wording.listed([f"`lesion {command}`" for other, command in COMMANDS.items() if other != kind], "or")
        has = "has" if len(models) == 1 else "have"
        named = wording.listed([model.model for model in models])
        said = f"{named} {has} one kind of study ({KINDS[kind]}), so nothing is compared."
        yield Claim((said, f"Add a folder of {commands} on the same model."), tuple(models))


def kinds(model: ModelProfiles) -> set[Kind]:
    """The kinds of study whose ranks can be compared."""
    return {profile.kind for profile in model.ranked}


def by_kinds(summary: OverlaySummary) -> list[ModelProfiles]:
    """The models, those with most kinds of study first."""
    return sorted(summary.models, key=lambda model: -len(kinds(model)))


def _rho(model: ModelProfiles, pair: Correlation) -> str:
    """ρ, with the number of blocks that it is over where the model has more."""
    over = "" if pair.blocks == len(model.blocks) else f" over {wording.counted(pair.blocks, 'block')}"
    return f"ρ{wording.SPACE}{rho(pair.rho)}{over}"
