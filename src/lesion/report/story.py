"""One page over several studies: of each the question, the findings, the main figures and a link to its own page."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report.blocks import Block, Chapter, Findings, Folded, Link, Opening, Page, Prose, Section
from lesion.report.finding import Finding
from lesion.report.parts import Part


def story(title: str, eyebrow: str, version: str, chapters: Sequence[tuple[Chapter, str]]) -> Page:
    """The page; each chapter comes with the address of its study's own page, relative to this one."""
    sections = [_section(number, chapter, page) for number, (chapter, page) in enumerate(chapters, start=1)]
    opening = chapters[0][0].opening if chapters else Opening()
    return Page(title=title, eyebrow=eyebrow, version=version, sections=tuple(sections), opening=opening)


def _section(number: int, chapter: Chapter, page: str) -> Section:
    heads = tuple(Finding(finding.subject, finding.headline) for finding in chapter.findings if finding.headline)
    whole = Link("The whole study, with every number and every answer", page)
    blocks: list[Block] = [Prose((chapter.method,)), Findings(heads), whole]
    grounds = tuple(
        Finding(finding.subject, (), finding.sentences) for finding in chapter.findings if finding.sentences
    )
    if grounds:
        blocks.append(Folded("The evidence", (Findings(grounds),)))
    blocks += chapter.figures
    named = "findings" if number == 1 else f"chapter-{number}"
    return Section(chapter.short or chapter.title, chapter.title, tuple(blocks), named, "evidence")


def chapter(parts: Sequence[Part], method: str, short: str) -> Chapter:
    """What a study adds: its question, its first claim, and its first figure.

    Args:
        parts: of the study.
        method: how the question was put, in a sentence.
        short: the name of the chapter.
    """
    first = parts[0]
    findings = tuple(Finding(claim.subject, claim.sentences) for claim in first.claims[:1])
    return Chapter(first.title, method, findings, tuple(first.figures()[:1]), short=short)
