"""The invariance of a layer study as the page that is not made of parts yet takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lesion.report.blocks import Chapter, Section
from lesion.report.finding import Finding
from lesion.studies.ablation.analyses import invariance, other_tasks, training
from lesion.studies.ablation.invariance.result import FamilyResult
from lesion.studies.ablation.material import Material

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary

METHOD = "One block is switched off at a time, on the same items."


def section(summary: AblationSummary) -> Section | None:
    """What the page shows of every family; None where there is none."""
    material = Material(summary)
    parts = [part for each in (invariance, other_tasks, training) if (part := each.part(material)) is not None]
    blocks = tuple(block for part in parts for block in part.section().blocks)
    return Section("Invariance", parts[0].title, blocks) if parts else None


def chapter(summary: AblationSummary) -> Chapter:
    """What a layer study adds to a page over several studies."""
    part = invariance.part(Material(summary))
    families = summary.invariance.families if summary.invariance else ()
    figures = tuple(part.figures()[:1]) if part else ()
    return Chapter("The same blocks in base and children?", METHOD, tuple(map(finding, families)), figures)


def finding(family: FamilyResult) -> Finding:
    """The claim about a family."""
    (claim,) = invariance.same_blocks([family]) or (None,)
    sentences = claim.sentences if claim else ("Nothing has been measured yet.",)
    return Finding(f"{family.family}: {family.verdict.word}", sentences[:1], sentences[1:])
