"""The report of an overlay, in reading order: per model, profiles over one axis of blocks, and their agreement."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import (
    Block,
    Chapter,
    Facts,
    Figure,
    Findings,
    Folded,
    Opening,
    Page,
    Panel,
    Prose,
    Section,
)
from lesion.report.finding import Finding
from lesion.studies.overlay import charts, tables
from lesion.studies.overlay import findings as prose
from lesion.studies.overlay.result import ModelProfiles, OverlaySummary

METHOD = (
    "Each study gives every block a number. Whether two studies point at the same blocks is tested by Spearman's rank"
    " correlation over blocks; p is the share of orders of the blocks that agree as well, corrected by Holm's method"
    " over all pairs of different studies of all models on this page."
)
READING = (
    "Drop: accuracy of the unedited model minus accuracy without the block, in points, on the same items.",
    "Drift: the curve is NMI with the clusters of the first layer after the block; what is lost in the block is NMI"
    " before it minus NMI after it. Only the loss is ranked: the curve adds losses up, and its ranks are those of the"
    " depth. The loss in the first block after the reference layer is left out: that layer agrees with itself at 1, so"
    " that this step is large by construction.",
    "Density: the share of the block's weights that a method selects. A method that takes as much of every matrix has"
    " no profile.",
    "Truncation: the best change in accuracy among the cells of the block that were evaluated on all items, on the very"
    " items on which they are chosen. It will be smaller on other items; only ranks between blocks are read from it.",
    "Blocks are few, and neighbours are alike. A permutation takes them for exchangeable, so its p is too small where"
    " both profiles are smooth. Beyond depth: the rank correlation left once both follow the number of the block.",
)


@dataclass(frozen=True)
class OverlayResult(StudyResult[OverlaySummary]):
    """Several studies compared, model by model. `table` has one row per model, profile and block, as `overlay.csv`."""

    SUMMARY, TABLE, TEXT = OverlaySummary, tables.blocks, tables.text_tables

    @property
    def correlations(self) -> pd.DataFrame:
        """One row per model and pair of profiles, as `correlations.csv`."""
        return tables.pairs(self.summary).frame

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def page(self) -> Page:
        summary = self.summary
        names = [model.model for model in summary.models]
        which = wording.listed(names) if len(names) < 4 else f"{len(names)} models"
        findings = Section("Findings", "Findings", (Findings(tuple(prose.findings(summary))), Prose((METHOD,))))
        models = (_model(model, number) for number, model in enumerate(summary.models))
        return Page(
            title=visible(f"Blocks of {which}: several studies compared"),
            eyebrow="overlay of studies",
            sections=(findings, *models, _studies(summary)),
            version=summary.version,
            tables=(tables.blocks(summary), tables.pairs(summary)),
            opening=_opening(summary),
        )

    @override
    def chapter(self) -> Chapter:
        summary = self.summary
        most = max(summary.models, key=lambda model: len({profile.kind for profile in model.profiles}))
        return Chapter(
            "Do the methods point at the same blocks?",
            "Every study gives each block a number; here they stand over one axis, and ranks are compared over blocks.",
            tuple(finding for finding in prose.findings(summary) if finding.subject == most.model),
            (_profiles(most, 0),),
            short="Overlay",
        )


def _opening(summary: OverlaySummary) -> Opening:
    """The correlations of the model with most kinds of study."""
    most = max(summary.models, key=lambda model: len({profile.kind for profile in model.ranked}), default=None)
    if most is None or len(most.ranked) < 2:
        return Opening()
    figure = _correlations(most)
    found = (finding for finding in prose.findings(summary) if finding.subject == most.model)
    verdict = next((finding.headline[:2] for finding in found), ())
    lead = (f"{most.model}: {verdict[0]}", *verdict[1:]) if verdict else ()
    return Opening(lead, replace(figure, name=""))


def _correlations(model: ModelProfiles, after: str = "") -> Figure:
    return Figure(
        name=f"correlations{after}",
        panels=(Panel((charts.matrix_chart(model),)),),
        caption=f"Spearman's ρ between profiles of {model.model}; below it the corrected p, for pairs of different"
        " studies. Boxed: at most .05. Profiles of one study share its answers and are not tested.",
    )


def _profiles(model: ModelProfiles, number: int) -> Figure:
    last = model.profiles[-1]
    stack = tuple(charts.profile_chart(model, profile, last=profile is last) for profile in model.profiles)
    return Figure(
        name=f"overlay-{number}" if number else "overlay",
        panels=(Panel(stack),),
        caption=f"Every profile of {model.model} over its blocks. Upright lines: 95 % intervals where the study has"
        " them; of drift one standard deviation over runs; of densities the lowest and highest repeat. – : not measured"
        " or left out. Shaded: blocks that a layer study calls critical, darker for every further task.",
        legend=charts.legend(model),
    )


def _model(model: ModelProfiles, number: int) -> Section:
    after = f"-{number}" if number else ""
    blocks: list[Block] = [_profiles(model, number)]
    if len(model.ranked) > 1:
        blocks.append(_correlations(model, after))
    if model.tested:
        label = f"{wording.counted(len(model.tested), 'pair')} of different studies as a table"
        blocks.append(Folded(label, (tables.tested(model),)))
    return Section(visible(model.model), visible(model.model), tuple(blocks))


def _studies(summary: OverlaySummary) -> Section:
    fixed = (("pairs fixed beforehand", "\n".join(map(visible, summary.pairs))),) if summary.pairs else ()
    blocks: list[Block] = [Facts((("folders", "\n".join(map(visible, summary.folders))), *fixed))]
    if summary.notes:
        blocks.append(Prose(items=summary.notes, title="Notes", quiet=False))
    blocks.append(Prose(items=READING, title="How to read this", quiet=False))
    return Section("Studies", "The studies", tuple(blocks))
