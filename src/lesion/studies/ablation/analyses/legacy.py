"""Analyses that are not made of rows yet."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lesion.report.blocks import Findings, Section
from lesion.report.browser import Offered
from lesion.report.claims import Claim
from lesion.report.finding import Finding
from lesion.report.parts import Part
from lesion.studies.ablation import parts_report
from lesion.studies.ablation import perplexity_report as perplexity_of
from lesion.studies.ablation.invariance import report as invariance_of
from lesion.studies.ablation.material import Material
from lesion.studies.ablation.plan import report as plan_of
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screen import report as screen_of


def _part(section: Section | None, findings: Sequence[Finding]) -> Part | None:
    if section is None:
        return None
    sentences = [text for finding in findings for text in (*finding.headline, *finding.sentences)]
    told = tuple(Claim((text,)) for text in sentences)
    own = tuple(block for block in section.blocks if not isinstance(block, Findings))
    return Part(section.title, None, (), told, short=section.short, own=own, wide=True)


def plan(material: Material) -> Part | None:
    """The plan beside what came out."""
    return _part(plan_of.section(material.summary.planned), plan_of.findings(material.summary.planned))


def units(material: Material) -> Part | None:
    """Heads, neurons, experts and matrices."""
    return _part(parts_report.section(material.summary), parts_report.findings(material.summary))


def invariance(material: Material) -> Part | None:
    """Families."""
    families = material.summary.invariance.families if material.summary.invariance else ()
    return _part(invariance_of.section(material.summary), [invariance_of.finding(each) for each in families])


def perplexity(material: Material) -> Part | None:
    """Running text."""
    return _part(perplexity_of.section(material.summary), perplexity_of.findings(material.summary))


def screen(material: Material) -> Part | None:
    """The screen."""
    if not screen_of.screens(material.summary):
        return None
    told = tuple(Claim((text,)) for text in screen_of.sentences(material.summary, material.seconds))
    return Part("What the screen foretold", None, (), told, short="Screen")


def perplexity_frame(summary: AblationSummary) -> pd.DataFrame:
    """The table of running text."""
    return perplexity_of.frame(summary)


def units_frame(summary: AblationSummary) -> pd.DataFrame:
    """The table of inner units."""
    return parts_report.frame(summary)


def offered(summary: AblationSummary) -> list[Offered]:
    """Inner units in the browser of answers."""
    return list(parts_report.offered(summary))
