"""What a page is made of: sections of claims, figures, tables, facts and notes, as values in reading order.

A study's `report.py` gives a `Page`; `lesion.report.publishing` writes it as one file, its figures as PNG and SVG, and
its tables as CSV. Every text in a value is plain text and is escaped where it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from lesion.plain import visible
from lesion.report import wording
from lesion.report.browser import NOTHING, Carried, shortened
from lesion.report.claims import MOST, Claim
from lesion.report.names import Names
from lesion.report.table import Table

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True)
class Claims:
    """What a part of the page claims, the most important first; what follows the first few sentences stands folded."""

    claims: tuple[Claim, ...]
    kind: str = field(default="claims", init=False)

    @property
    def leading(self) -> int:
        """How many claims stand open: the first, and further ones as long as there are few sentences."""
        counts = accumulate(len(claim.sentences) for claim in self.claims)
        return max(1, sum(count <= MOST for count in counts))


@dataclass(frozen=True)
class Check:
    """A ground to believe the answer of a page, or not to: `good`, `bad` or `open` (not tried, with the command).

    Of the first check with a `command` the terminal makes the line on what to run next: that command on the same models
    and tasks, or the study's own with all its options, and `options` behind it, as they are typed.
    """

    mood: Literal["good", "bad", "open"]
    text: str
    command: str = ""
    options: str = ""


EXAMPLES, OF_EXAMPLE = 3, 80
"""Broken answers that a page shows side by side, and characters of each."""
_CUT = re.compile(r"^\S{0,15}\s")  # what is left of the word in which a text was cut


@dataclass(frozen=True)
class Example:
    """An answer that an edit broke, beside the unedited one."""

    question: str
    gold: str
    before: str
    after: str
    edit: str
    task: str = ""


def examples(broken: pd.DataFrame, edit: str, task: str) -> Iterator[Example]:
    """The first answers that an edit broke; of a long one its end, where that of a chain of thought stands.

    Args:
        broken: columns question, gold, answer_before, answer_after.
        edit, task: as the page names them.
    """
    for row in broken.head(EXAMPLES).to_dict("records"):
        question, gold, *answers = (
            wording.printable(" ".join(str(row[key]).split()))
            for key in ("question", "gold", "answer_before", "answer_after")
        )
        ends = [text if len(text) <= OF_EXAMPLE else f"… {_CUT.sub('', text[-OF_EXAMPLE:])}" for text in answers]
        before, after = map(visible, ends)
        yield Example(visible(shortened(question, 280)), visible(gold), before, after, edit, task)


@dataclass(frozen=True)
class Prose:
    """Paragraphs, or with `items` a list beneath them; `quiet` is an explanation rather than a result."""

    paragraphs: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    title: str = ""
    quiet: bool = True
    kind: str = field(default="prose", init=False)


@dataclass(frozen=True)
class Series:
    """A line of a figure's legend: a name, the number of its colour and of its mark, or a colour by role.

    `area` is the opacity of the areas that it stands for, as the figure draws them; 0 of a line or a mark.
    """

    name: str
    index: int = 0
    colour: str = ""
    dash: tuple[float, ...] = ()
    area: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One part of a figure: charts above one another, whose plots are in line, under a heading."""

    charts: tuple[alt.TopLevelMixin, ...]
    title: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels beside each other with one legend and one caption.

    Attributes:
        name: of its files, `figures/NAME.png` and `.svg`; no file where it is empty.
        small: whether more panels than usual stand beside each other.
        columns: of panels in the file.
        wide: whether a panel may take the whole width of the page.
    """

    name: str
    panels: tuple[Panel, ...]
    caption: str
    legend: tuple[Series, ...] = ()
    small: bool = False
    columns: int = 2
    wide: bool = False
    kind: str = field(default="figure", init=False)


@dataclass(frozen=True)
class Facts:
    """Names and values of a study, for whoever wants to repeat it."""

    facts: tuple[tuple[str, str], ...]
    kind: str = field(default="facts", init=False)


def in_short(block: Block, names: Names) -> Block:
    """A block with short names of models and tasks; within a figure its titles have them."""
    match block:
        case Prose():
            texts, items = names.within(block.paragraphs), names.within(block.items)
            return replace(block, paragraphs=texts, items=items, title=names(block.title))
        case Table():
            return block.in_short(names)
        case Figure():
            return replace(block, panels=tuple(replace(each, title=names(each.title)) for each in block.panels))
        case Folded():
            blocks = tuple(in_short(each, names) for each in block.blocks)
            return replace(block, label=names(block.label), blocks=blocks)
    return block


def entries(values: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """The facts of a study's keys and values."""
    return tuple(
        (key.replace("_", " "), wording.DASH if value is None else visible(wording.entry(value)))
        for key, value in values.items()
    )


@dataclass(frozen=True)
class Link:
    """A link to a page beside this one."""

    text: str
    page: str
    kind: str = field(default="link", init=False)


@dataclass(frozen=True)
class Opening:
    """The first screen of a page.

    Attributes:
        verdict: in a sentence.
        figure: the one that shows it.
        basis: on what the verdict rests, in a line: items, chance, the smallest loss that would have been seen.
    """

    verdict: str = ""
    figure: Figure | None = None
    basis: str = ""


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader opens."""

    label: str
    blocks: tuple[Block, ...]
    kind: str = field(default="folded", init=False)


Block = Claims | Prose | Figure | Table | Facts | Link | Folded
PARTS = ("evidence", "charts", "tables", "method")
"""The parts of every page, in this order; the answers stand before the method."""


@dataclass(frozen=True)
class Section:
    """Blocks under a heading.

    Attributes:
        short: its name in the contents.
        named: what a link to it ends in.
        within: the part of the page where it stands, one of `PARTS`; by default as its blocks say.
        wide: whether it takes the whole width of the page, and not half of it.
    """

    short: str
    title: str
    blocks: tuple[Block, ...]
    named: str = ""
    within: str = ""
    wide: bool = False

    @property
    def part(self) -> str:
        """`evidence` where there are claims, `method` where there are facts; charts stand before tables."""
        if self.within:
            return self.within
        kinds = {block.kind for block in flat(self.blocks)}
        of_kind = {"claims": "evidence", "facts": "method", "figure": "charts", "table": "tables"}
        return next((part for kind, part in of_kind.items() if kind in kinds), "evidence")

    @property
    def anchor(self) -> str:
        """What a link to the section ends in."""
        return self.named or self.short.lower().replace(" ", "-")


def study_section(facts: Iterable[tuple[str, str]], notes: Sequence[str], reading: Iterable[str]) -> Section:
    """What whoever repeats a study needs: its entries that have a value, its notes, and how to read the page."""
    blocks: list[Block] = [Facts(tuple((name, visible(value)) for name, value in facts if value))]
    if notes:
        blocks.append(Prose(items=tuple(notes), title="Notes", quiet=False))
    blocks.append(Prose(items=tuple(reading), title="How to read this", quiet=False))
    return Section("Study", "The study", tuple(blocks))


@dataclass(frozen=True)
class Page:
    """A report: a title and sections in reading order.

    Attributes:
        eyebrow: the kind of study, above the title.
        approximate: what makes its numbers approximate, as sentences.
        carried: what the item browser reads.
        tables: those that are written as CSV beside the page without being shown on it.
        opening: its first screen.
        back: a link to the page over several studies that this one belongs to.
        checks: whether the answer can be believed.
        examples: answers that broke.
    """

    title: str
    eyebrow: str
    sections: tuple[Section, ...]
    version: str = ""
    approximate: str = ""
    carried: Carried = field(default_factory=lambda: NOTHING)
    tables: tuple[Table, ...] = ()
    opening: Opening = Opening()
    back: Link | None = None
    checks: tuple[Check, ...] = ()
    examples: tuple[Example, ...] = ()

    def parted(self, part: str) -> list[Section]:
        """The sections of a part of the page, without the figure that stands in the first screen."""
        kept = (
            replace(section, blocks=tuple(block for block in section.blocks if block is not self.opening.figure))
            for section in self.sections
            if section.part == part
        )
        return [section for section in kept if section.blocks]

    def blocks(self) -> Iterator[Block]:
        """Every block of the page, also the folded ones."""
        if self.opening.figure is not None and all(block is not self.opening.figure for block in self._shown()):
            yield self.opening.figure
        yield from self._shown()

    def _shown(self) -> Iterator[Block]:
        for part in PARTS:
            for section in self.sections:
                if section.part == part:
                    yield from flat(section.blocks)


def flat(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks and those within them."""
    for block in blocks:
        yield block
        if isinstance(block, Folded):
            yield from flat(block.blocks)
