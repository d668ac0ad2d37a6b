"""Parts: what a study shows, each a kind of rows with the marks that draw them and the claims about them.

A page, a notebook's cell, the terminal's text and the figures are made from the list of parts. The first part is the
answer to the study's question: its first claim stands above its first figure, at the top of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import plain, visible
from lesion.report import browser, wording
from lesion.report.blocks import (
    Block,
    Check,
    Claims,
    Example,
    Figure,
    Folded,
    Link,
    Opening,
    Page,
    Prose,
    Section,
    entries,
    in_short,
    study_section,
)
from lesion.report.browser import NOTHING, Carried
from lesion.report.claims import Claim
from lesion.report.marks import Mark
from lesion.report.names import NO_NAMES, Names
from lesion.report.rows import Rows
from lesion.report.table import Table, Wide

TERMINAL_ROWS = 4
"""Rows of the main table in a terminal, without `--all`."""
COLUMNS, SMALL_COLUMNS = 2, 3
"""Of panels side by side where a figure takes the whole width of a page."""
IN_DETAIL = "In detail"
"""The heading of what the first part has beneath the answer."""
ALL = "--all for the rest"
MOST_CHECKS = 4
"""Whether the answer can be believed is said in so many lines."""
MOST_OPEN = 3
"""Parts of a page that stand open; the further ones stand folded, under their titles."""
TERMINAL_CLAIMS = 3
"""In a terminal, without `--all`: the rest of the first claim, and the answers for the other subjects."""


@dataclass(frozen=True)
class Part:
    """One subject of a page.

    Attributes:
        title: what it shows, as a heading.
        rows: its numbers; None for a part that is claims alone.
        marks: how they are drawn, the most telling first.
        claims: what is said of them, the most important first.
        about: what was measured, in a sentence, where the title does not say it.
        short: its name in the contents of the page; by default the title.
        own: blocks that only this part has, beneath the claims.
        wide: whether it takes the whole width of the page.
        table: whether the rows have a table; not where another part has the same.
        names: of models and tasks, which people read in short.
    """

    title: str
    rows: Rows | None = None
    marks: tuple[Mark, ...] = ()
    claims: tuple[Claim, ...] = ()
    about: str = ""
    short: str = ""
    own: tuple[Block, ...] = ()
    wide: bool = False
    table: bool = True
    names: Names = NO_NAMES

    def in_short(self, names: Names) -> Part:
        """The same with short names, and nothing claimed twice; files keep the full names."""
        by_text: dict[str, Claim] = {}
        for claim in self.claims:
            short = replace(claim, sentences=names.within(claim.sentences), subject=names(claim.subject))
            before = by_text.get(short.text)
            by_text[short.text] = short if before is None else replace(before, rows=(*before.rows, *short.rows))
        claims = tuple(by_text.values())
        return replace(
            self,
            title=names(self.title),
            about=names(self.about),
            claims=claims,
            own=tuple(in_short(block, names) for block in self.own),
            names=names,
        )

    @property
    def name(self) -> str:
        """What its files begin with."""
        title = (self.rows.name if self.rows and self.table else "") or self.short or self.title
        return title.lower().replace(" ", "-")

    def figures(self) -> list[Figure]:
        """Its figures, each with a name of its own."""
        return list(self._figures)

    @cached_property
    def _figures(self) -> tuple[Figure, ...]:
        records = self.rows.records if self.rows else ()
        named = (
            mark.figure(records, f"{self.name}-{number}" if number > 1 else self.name, self.names)
            for number, mark in enumerate(self.marks, 1)
        )
        return tuple(figure for figure in named if figure is not None)

    def section(self, answer: Claim | None = None, *, first: bool = False) -> Section:
        """The part as a section.

        Args:
            answer: the claim whose first sentence is the answer of the page; it goes on where that ended.
            first: whether the first figure stands at the top of the page already, and the title is the page's.
        """
        claims = tuple(
            replace(claim, sentences=claim.sentences[1:], subject="") if claim is answer else claim
            for claim in self.claims
            if claim is not answer or len(claim.sentences) > 1
        )
        shown = [excerpt(figure, wide=self.wide or first) for figure in self.figures()[:1]]
        blocks: list[Block] = [] if first else [*shown]
        if claims:
            blocks.append(Claims(claims))
        if self.about:
            blocks.append(Prose((self.about,)))
        blocks += self.own
        if more := [figure for figure in self.figures() if all(figure is not each for each in shown)]:
            blocks.append(Folded("More charts", tuple(more)))
        if self.table and self.rows is not None and self.rows.records and self.rows.visible:
            table = Table.of(self.rows).in_short(self.names)
            blocks.append(Folded(f"{wording.counted(len(table.frame), 'row')} of numbers", (table,)))
        # What says nothing of its numbers stands behind everything that is said.
        alone = not claims and all(isinstance(block, Folded) for block in self.own)
        title = IN_DETAIL if first else self.title
        short = title if first else self.short or title
        return Section(short, title, tuple(blocks), within="tables" if alone else "evidence", wide=self.wide)


def excerpt(figure: Figure, *, wide: bool) -> Figure:
    """The figure, or of one with many panels the first two rows; the whole one, which follows, is in the files."""
    most = 2 * ((SMALL_COLUMNS if figure.small else COLUMNS) if wide else 1)
    return figure if len(figure.panels) <= most else replace(figure, panels=figure.panels[:most])


def answer_of(parts: Sequence[Part]) -> Claim | None:
    """The first claim of the first part that makes one."""
    return next((claim for part in parts for claim in part.claims), None)


def page(
    title: str,
    eyebrow: str,
    parts: Sequence[Part],
    *,
    version: str,
    study: Any = None,
    facts: Sequence[tuple[str, str]] = (),
    proved: str = "",
    basis: str = "",
    checks: Sequence[Check] = (),
    examples: Sequence[Example] = (),
    notes: Sequence[str] = (),
    reading: Sequence[str] = (),
    approximate: str = "",
    carried: Carried = NOTHING,
) -> Page:
    """The page of a study.

    Args:
        title: the question, in short names.
        study: the study, whose entries stand at the end; or `facts` in its place.
        proved: how many edits are shown to act while decoding; empty where nothing was decoded.
        basis: on what the answer rests, in a line: items, chance, the smallest loss that would have been seen.
        notes, reading: what a reader should know of the numbers, and how to read them; folded.
        carried: what the browser of answers reads.
    """
    answer = answer_of(parts)
    first = next(iter(parts), None)
    names = first.names if first else NO_NAMES
    figure = next(iter(first.figures()), None) if first else None
    sections = [part.section(answer, first=part is first) for part in parts]
    open_parts = [section for section in sections if section.blocks and section.part == "evidence"]
    late = {id(section) for section in open_parts[MOST_OPEN:]}
    sections = [replace(section, within="tables") if id(section) in late else section for section in sections]
    own = facts or entries(study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"}))
    known = [f"Short names: {names.note}."] if names.note else []
    ending = study_section(
        [*own, ("edits that act while decoding", proved)], [*map(names, notes), *known], map(names, reading)
    )
    unseen = (part.rows for part in parts if part.table and part.rows is not None and not part.rows.records)
    files = tuple(map(Table.of, unseen))
    return Page(
        title=visible(names(title)),
        eyebrow=eyebrow,
        sections=(*(section for section in sections if section.blocks), ending),
        version=version,
        approximate=approximate,
        carried=browser.in_short(carried, names),
        tables=files,
        opening=Opening(answer_text(answer) if answer else "", figure and excerpt(figure, wide=True), names(basis)),
        checks=tuple(replace(check, text=names(check.text)) for check in checks[:MOST_CHECKS]),
        examples=tuple(
            replace(each, edit=names(each.edit), task=names(each.task)) for each in examples if each.question
        ),
    )


def answer_text(claim: Claim) -> str:
    """The first sentence of a claim, begun with its subject where there is one."""
    return f"{claim.subject}: {claim.sentences[0]}" if claim.subject else claim.sentences[0]


def terminal(parts: Sequence[Part], *, every: bool = False, approximate: str = "") -> RenderableType:
    """The claims behind the first, which stands above them already, and the rows of the first part.

    Args:
        every: all claims, and all rows of all parts.
    """
    claims = [claim for part in parts for claim in part.claims]
    rest = [" ".join(claim.sentences[1:]) for claim in claims[:1] if claim.sentences[1:]]
    if every:
        texts = [*rest, *(claim.text for claim in claims[1:])]
    else:
        answers: dict[str, str] = {}
        for claim in parts[0].claims if claims else ():
            answers.setdefault(claim.subject, answer_text(claim))
        texts = [*rest, *[*answers.values()][1:]][:TERMINAL_CLAIMS]
    shown: list[RenderableType] = [Text(plain(text.replace(wording.SPACE, " "))) for text in texts]
    for part in parts if every else parts[:1]:
        if part.rows is None or not part.rows.records or not part.table:
            continue
        rows = part.rows if every else _strongest(part.rows, part.claims)
        shown += [Text(), Wide(Table.of(rows).in_short(part.names).terminal(), "" if every else ALL)]
    if approximate:
        shown.append(Text(f"Approximate: {plain(approximate)}"))
    return Group(*shown)


def _strongest(rows: Rows, claims: Sequence[Claim]) -> Rows:
    """The rows to show: those that the first claim is about before others."""
    if len(rows.records) <= TERMINAL_ROWS:
        return replace(rows, whole=rows.records)
    title = f"{rows.title or wording.capital(rows.name)}: {TERMINAL_ROWS} of {len(rows.records):,} rows ({ALL})"
    return replace(
        rows, records=rows.first(TERMINAL_ROWS, claims[0].rows if claims else ()), whole=rows.records, title=title
    )


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
    first = [(answer_text(claim), chapter.figures) for chapter, _ in chapters[:1] for claim in chapter.claims]
    opening = Opening(first[0][0], next(iter(first[0][1]), None)) if first else Opening()
    return Page(title=title, eyebrow=eyebrow, version=version, sections=tuple(sections), opening=opening)


def _section(number: int, chapter: Chapter, page: str) -> Section:
    claims = chapter.claims
    if number == 1:  # the first sentence and its figure stand at the top
        claims = tuple(replace(claim, sentences=claim.sentences[1:], subject="") for claim in claims)
    blocks: list[Block] = [Prose((chapter.method,))]
    if claims := tuple(claim for claim in claims if claim.sentences):
        blocks.append(Claims(claims))
    blocks += [Link(f"{chapter.short}: the whole study", page), *(chapter.figures if number > 1 else ())]
    named = "findings" if number == 1 else f"chapter-{number}"
    return Section(chapter.short, chapter.title, tuple(blocks), named, "evidence")
