"""One page over several studies: of each the question, the first claim, the first figure and a link to its own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lesion.report.blocks import Block, Claims, Figure, Link, Opening, Page, Prose, Section
from lesion.report.claims import Claim
from lesion.report.parts import Part, excerpt


@dataclass(frozen=True)
class Chapter:
    """What a study adds to a page over several studies.

    Attributes:
        title: its question.
        method: how the question was put, in a sentence or two.
        short: its name in the contents.
        claims, figures: its first one, where it has any.
    """

    title: str
    method: str
    short: str
    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...]

    @classmethod
    def of(cls, parts: Sequence[Part], method: str, short: str, title: str = "") -> Chapter:
        """The chapter of a study, by default with the title of its first part."""
        first = parts[0]
        figures = tuple(excerpt(figure, wide=False) for figure in first.figures()[:1])
        return cls(title or first.title, method, short, first.claims[:1], figures)


def story(title: str, eyebrow: str, version: str, chapters: Sequence[tuple[Chapter, str]]) -> Page:
    """The page; each chapter comes with the address of its study's own page, relative to this one."""
    sections = [_section(number, chapter, page) for number, (chapter, page) in enumerate(chapters, start=1)]
    first = [(claim.text, chapter.figures) for chapter, _ in chapters[:1] for claim in chapter.claims]
    opening = Opening(first[0][0], next(iter(first[0][1]), None)) if first else Opening()
    return Page(title=title, eyebrow=eyebrow, version=version, sections=tuple(sections), opening=opening)


def _section(number: int, chapter: Chapter, page: str) -> Section:
    whole = Link("The whole study, with every number and every answer", page)
    claims: list[Block] = [] if number == 1 else [Claims(chapter.claims)]  # the first claim stands at the top
    blocks: list[Block] = [Prose((chapter.method,)), *claims, whole, *chapter.figures]
    named = "findings" if number == 1 else f"chapter-{number}"
    return Section(chapter.short, chapter.title, tuple(blocks), named, "evidence")
