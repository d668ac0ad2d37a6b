"""The result of an overlay: its rows, how they are drawn, what is claimed of them; and how one is run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import RenderableType
from typing_extensions import override

from lesion.core.lock import locked
from lesion.core.result import StudyResult
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Folded
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map, Mark, Profile
from lesion.report.parts import Part, terminal
from lesion.report.rows import Rows, subject
from lesion.report.wording import rho
from lesion.studies.overlay import result
from lesion.studies.overlay.result import (
    KINDS,
    Correlation,
    Kind,
    ModelProfiles,
    OverlaySummary,
    PairNumbers,
    ProfileBlock,
)
from lesion.studies.overlay.study import OverlayStudy
from lesion.studies.overlay.summary import needed, summarise

if TYPE_CHECKING:
    from lesion.core.method import Reading

COMMANDS: dict[Kind, str] = {"layers": "ablate", "drift": "drift", "isolation": "isolate", "truncation": "truncate"}
PERFECT = 1 - 1e-9


@rule
def do_studies_agree(summary: OverlaySummary) -> Iterable[Claim]:
    """Per model with several kinds of study, the surest pair of profiles; the model with most kinds first.

    Says: P rises with Q over the blocks (ρ R). | P falls where Q rises (ρ R). | No two studies are shown to rank the
    blocks alike. | Whether the studies rank the blocks alike cannot be told: only perfect agreement over N blocks would
    pass. | No two profiles of different studies can be ranked over the same blocks.
    Needs: a permutation test of Spearman's ρ over blocks, corrected by Holm's method over all pairs of different
    studies (or those fixed beforehand) of all models, at 0.05; told only where a ρ below 1 would pass
    """
    every = sum(len(model.tested) for model in summary.models)
    for model in by_kinds(summary):
        about, tested = subject(model, summary.models), model.tested
        if len(kinds(model)) < 2:
            continue
        if not tested:
            yield Claim(("No two profiles of different studies can be ranked over the same blocks.",), (model,), about)
            continue
        first, agreeing = tested[0], [pair for pair in tested if pair.agrees]
        pairs = f"{wording.counted(len(tested), 'pair')} of different studies"
        pairs += " that were fixed beforehand" * bool(summary.pairs)
        p = f"corrected p {wording.p_value(first.p_corrected)}"
        if agreeing:
            falls = f"{first.a} falls where {first.b} rises"
            agrees = f"{first.a} rises with {first.b}" if (first.rho or 0.0) > 0 else falls
            sentences = [
                f"{wording.capital(agrees)} over the blocks ({_rho(model, first)}).",
                f"{wording.capital(p)}; beyond depth ρ is {rho(first.beyond_depth)}.",
                f"{len(agreeing)} of {pairs} agree beyond chance.",
            ]
        else:
            numbers = f"{_rho(model, first)}, p {wording.p_value(first.p)}, {p}"
            strongest = f"The strongest of {pairs} is {first.a} with {first.b} ({numbers})."
            sentences = [_not_shown(tested, every), strongest]
        yield Claim(tuple(sentences), tuple((model, pair) for pair in agreeing or tested[:1]), about)


def _not_shown(tested: Sequence[Correlation], every: int) -> str:
    """That nothing is shown; that it cannot be told where only a perfect correlation would have been seen."""
    least = {pair.blocks: needed(pair.blocks, every) for pair in tested}
    if any(value is not None and value < PERFECT for value in least.values()):
        return "No two studies are shown to rank the blocks alike."
    passing = [str(blocks) for blocks, value in least.items() if value is not None]
    even, over = {True: "only", False: "not even"}[bool(passing)], passing or list(map(str, least))
    return (
        f"Whether the studies rank the blocks alike cannot be told: {even} perfect agreement over"
        f" {wording.listed(over, 'or')} blocks would pass."
    )


@rule
def what_is_missing(summary: OverlaySummary) -> Iterable[Claim]:
    """Models whose profiles are of one kind, together by kind, and what to add.

    Says: M has one kind of study (layer ablation), so nothing is compared.
    Needs: profiles of one kind alone; those of one study share its answers and are not tested against each other
    """
    alone: dict[Kind, list[ModelProfiles]] = {}
    for model in summary.models:
        if len(kinds(model)) < 2:
            alone.setdefault(next(iter(kinds(model)), model.profiles[0].kind), []).append(model)
    for kind, models in alone.items():
        commands = wording.listed([f"`lesion {command}`" for other, command in COMMANDS.items() if other != kind], "or")
        named = f"{wording.listed([model.model for model in models])} {'has' if len(models) == 1 else 'have'}"
        first = f"{named} one kind of study ({KINDS[kind]}), so nothing is compared."
        yield Claim((first, f"Add a folder of {commands} on the same model."), tuple(models))


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


METHOD = "Every study gives each block a number; here they stand over one axis, and ranks are compared over blocks."
READING = (
    "Blocks are few, and neighbours are alike. A permutation takes them for exchangeable, so its p is too small where"
    " both profiles are smooth. Beyond depth: the rank correlation left once both follow the number of the block.",
    "Density: the share of the block's weights that a method selects. Of drift what is lost in a block is ranked, but"
    " not in the first, whose layer agrees with itself. Of truncations the best of a block on the items that choose.",
)


@dataclass(frozen=True)
class OverlayResult(StudyResult[OverlaySummary]):
    """Several studies compared, model by model. `table` has one row per model, profile and block, as `overlay.csv`."""

    SUMMARY = OverlaySummary
    EYEBROW = "overlay of studies"
    CHAPTER = (METHOD, "Overlay")
    READING = READING
    TESTED = (
        "Agreement is Spearman's ρ over blocks, tested by permutation, with p corrected by Holm's method over all pairs"
        " of different studies."
    )

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        names = [model.model for model in summary.models]
        which = wording.listed(names) if len(names) < 4 else f"{len(names)} models"
        most, *others = (model.model for model in by_kinds(summary))
        lines = [line for model in summary.models for line in model.lines]
        pairs = Rows(
            "correlations", [pair for model in summary.models for pair in model.pairs],
            (ModelProfiles, Correlation, PairNumbers), "Pairs of profiles",
            "Profiles of one study are not tested against each other.", order="doubt",
        )  # fmt: skip
        blocks = Rows(
            "overlay", lines, (result.Profile, ProfileBlock), "Profiles",
            "The number that each study gives a block, with 95 % intervals; of drift one standard deviation over runs,"
            " of densities the lowest and highest repeat.",
        )  # fmt: skip
        rest = _stack(*others).figure(lines, "overlay-others") if others else None
        own = (Folded("Profiles of the other models", (rest,)),) if rest is not None else ()
        agreement = Map(
            "rho", "profile", "with_profile", "agrees", 1.25, "share", only={"model": most},
            also=("p_corrected", "beyond_depth", "blocks"),
            caption=f"Spearman's ρ between the profiles of {most} that the first figure numbers. Boxed: corrected"
            f" p{wording.SPACE}≤{wording.SPACE}.05, of pairs of different studies.",
        )  # fmt: skip
        own_claims = (*do_studies_agree(summary), *what_is_missing(summary))
        title = f"Do the studies point at the same blocks of {visible(which)}?"
        return (
            Part(title, blocks, (_stack(most),), own_claims, own=own, wide=True),
            Part("How far do two studies agree?", pairs, (agreement,), short="Agreement"),
        )

    @override
    def text(self, *, every: bool = False) -> RenderableType:
        parts = self.shown_parts  # names of profiles are too long for a table of ten rows
        return terminal(parts if every else [replace(part, rows=None) for part in parts], every=every)

    @property
    @override
    def basis(self) -> str:
        summary = self.summary
        first = by_kinds(summary)[0]
        profiles = f"{wording.counted(len(first.blocks), 'block')}, {len(first.profiles)} profiles"
        least = next((model.needed for model in summary.models if model.needed is not None), None)
        if least is None:
            return f"{profiles}."
        pairs = f"{wording.counted(least.pairs, 'pair')} of different studies, corrected together"
        short = least.rho is None or least.rho >= PERFECT
        seen = "no correlation short of a perfect one" if short else f"ρ beyond ±{rho(least.rho)}"
        return f"{profiles}; {pairs}: over {wording.counted(least.blocks, 'block')} {seen} would be seen."

    @property
    @override
    def facts(self) -> tuple[tuple[str, str], ...]:
        fixed = (("pairs fixed beforehand", "\n".join(map(visible, self.summary.pairs))),) if self.summary.pairs else ()
        return ("folders", "\n".join(map(visible, self.summary.folders))), *fixed


def _stack(*models: str) -> Mark:
    return Profile(
        "value", "block", filled="critical_for_a_task", panel="model", each="heading", wide=True,
        only={"model": models},
        caption="Every profile over the same blocks; ranks of those with a number are compared. Full colour: blocks"
        " that a layer study calls critical for a task.",
    )  # fmt: skip


def run_overlay(study: OverlayStudy, run: Reading) -> OverlayResult:
    """Compare the studies that are named; raises as `summarise`, and where the folder cannot be written."""
    summary = summarise(study.folders, study.seed, study.pairs)
    with locked(run.folder, "overlay"):
        summary.write(run.folder)
    return OverlayResult(run.folder, summary)
