"""The result of a study: its folder and numbers, its page, its tables for a terminal."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from rich.console import RenderableType
from typing_extensions import TypeVar

from lesion.arguments import validated
from lesion.core.values import Summary, read_summary, summary_kind
from lesion.errors import LesionError, UsageError, nearest
from lesion.outputs import LOCK, kind_of, refuse_another_kind
from lesion.plain import plain, short
from lesion.report import wording
from lesion.reprs import described

if TYPE_CHECKING:
    import pandas as pd

    from lesion.core.proofs import Proofs
    from lesion.report.blocks import Check, Page
    from lesion.report.claims import Claim
    from lesion.report.figures import Drawing
    from lesion.report.names import Names
    from lesion.report.parts import Chapter, Part
    from lesion.report.table import Table

S = TypeVar("S", bound=Summary, default=Any)
R = TypeVar("R", bound="StudyResult[Any]")


@dataclass(frozen=True)
class StudyResult(Generic[S]):
    """What every study leaves. Of its `parts` its page, its text for a terminal and its table are made.

    Attributes:
        SUMMARY: the class of the summary.
        EYEBROW: the kind of study, above the title of its page.
        READING: how to read the page, a subject a sentence or two.
        FIRST: columns of `table` that stand before all others, whatever they hold.
        TESTED: how its claims are tested, and what p are corrected over; `{level}` is that of its intervals.
        TEXTLESS: whether its summary and tables hold no text that a model read or wrote, but for its stored answers.
        COUNTED: what is said of the work of a run: what was done, and with what.
        CHAPTER: what it adds to a page over several studies (`Chapter.of`): its method, its name, by default not its
            title; empty: nothing.
        folder: where everything lies; a temporary one, removed when Python ends, unless it was named.
        summary: all numbers: what `summary.json` holds.
        evaluated: answers computed in this run, without those stored before.
        planned: answers that the study consists of; 0 where it was not run now.
    """

    SUMMARY: ClassVar[type[Summary]]
    EYEBROW: ClassVar[str] = ""
    READING: ClassVar[tuple[str, ...]] = ()
    FIRST: ClassVar[tuple[str, ...]] = ()
    TESTED: ClassVar[str] = ""
    TEXTLESS: ClassVar[bool] = False
    COUNTED: ClassVar[tuple[str, str]] = ("evaluated", "answers")
    CHAPTER: ClassVar[tuple[str, ...]] = ()

    folder: Path
    summary: S
    evaluated: int = 0
    planned: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in vars(cls):  # else `dataclass` makes one that shows every number
            cls.__repr__ = StudyResult.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        return described(self, f"{str(self.folder)!r}: {self.verdict}")

    @classmethod
    def recall(cls: type[R], folder: Path) -> R | None:
        """The result of a folder as far as it has got; None where the folder holds none of this kind.

        Raises:
            LesionError: what lies there is damaged, or has no result yet.
        """
        return cls.as_written(folder)

    @classmethod
    def as_written(cls: type[R], folder: Path) -> R | None:
        """The result of a folder with the numbers of its `summary.json`, whatever answers lie beside it; else None."""
        summary = _recalled(cls.SUMMARY, folder)
        return None if summary is None else cls(folder, summary)

    def __fspath__(self) -> str:
        """The folder: a result may be given where the folder of a study is."""
        return str(self.folder)

    def parts(self) -> Sequence[Part]:
        """What the study shows, in reading order; the first part is the answer to its question."""
        return ()

    @cached_property
    def shown_parts(self) -> tuple[Part, ...]:
        """Its `parts`, made once, with short names of models and tasks; no claim rests on an edit without a proof."""
        return tuple(part.in_short(self.names) for part in self._with_proof(self.parts()))

    @cached_property
    def _proofs(self) -> Proofs | None:
        from lesion.core.proofs import Proofs

        return Proofs.of(Path(self.folder))

    @property
    def proved(self) -> str:
        """How many edits are shown to act while decoding; empty where nothing was decoded under an edit."""
        return "" if self._proofs is None else self._proofs.text

    def _with_proof(self, parts: Sequence[Part]) -> Iterator[Part]:
        from lesion.core.proofs import about_unproved

        proofs = self._proofs
        for place, part in enumerate(parts):
            if proofs is None or not proofs.unproved():
                yield part
                continue
            claims = tuple(claim for claim in part.claims if proofs.hold(claim))
            yield replace(part, claims=claims if place else (*claims, *about_unproved(proofs)))

    @cached_property
    def names(self) -> Names:
        """The models and tasks of the study, and how they are called in short."""
        from lesion.report.names import Names, names_in

        return Names(tuple(dict.fromkeys(names_in(self.summary))))

    @property
    def question(self) -> str:
        """The title of the page: what the study asks, in short names."""
        first = next(iter(self.shown_parts), None)
        study = getattr(self.summary, "study", None)
        return getattr(study, "title", None) or (first.title if first else wording.capital(self.EYEBROW))

    @property
    def basis(self) -> str:
        """On what the answer rests, in a line: items, chance, the smallest loss that would have been seen."""
        return ""

    @property
    def level(self) -> str:
        """That of its intervals, in per cent."""
        return f"{100 * getattr(getattr(self.summary, 'study', None), 'level', 0.95):g}{wording.SPACE}%"

    @property
    def tested(self) -> str:
        """How its claims are tested, as sentences for a paper."""
        return self.TESTED.format(level=self.level)

    @property
    def for_paper(self) -> Sequence[Claim]:
        """The claims that a paper's paragraph has: those of the first part, or else the first of all."""
        first = next(iter(self.shown_parts), None)
        return (first.claims if first else ()) or self.claims[:1]

    @property
    def approximate(self) -> str:
        """What makes the numbers approximate, as sentences; empty where nothing does."""
        return getattr(self.summary, "approximate", None) or ""

    def checks(self) -> Sequence[Check]:
        """Whether the answer can be believed, in at most four lines."""
        return ()

    @property
    def facts(self) -> Sequence[tuple[str, str]]:
        """What whoever repeats the study needs, by name; empty: the entries of the study file."""
        return ()

    def page(self) -> Page:
        """What the report holds, in reading order."""
        from lesion.report import parts

        return parts.page(
            self.question,
            self.EYEBROW,
            self.shown_parts,
            version=self.summary.version,
            study=getattr(self.summary, "study", None),
            facts=self.facts,
            proved=self.proved,
            basis=self.basis,
            checks=self.checks(),
            notes=self.summary.notes,
            reading=self.READING,
            approximate=self.approximate,
        )

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim with the rows that it rests on, the most important first."""
        return tuple(claim for part in self.shown_parts for claim in part.claims)

    @property
    def findings(self) -> list[str]:
        """The claims as text, the most important first; each begins with its subject where it has one."""
        return [plain(claim.text.replace("\N{NO-BREAK SPACE}", " ")) for claim in self.claims]

    @property
    def verdict(self) -> str:
        """The first sentence of the findings: what the study shows, as its page and the terminal begin."""
        from lesion.report.parts import answer_of, answer_text

        if answer := answer_of(self.shown_parts):
            return plain(answer_text(answer).replace("\N{NO-BREAK SPACE}", " "))
        return "Nothing has been measured yet."

    @property
    def table(self) -> pd.DataFrame:
        """The main table with the columns that people need, twelve at most."""
        return self.shown().essential(self.FIRST)

    @property
    def table_full(self) -> pd.DataFrame:
        """The main table with all columns, as its CSV has them."""
        return self.shown().frame

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table with all columns, by the name of its CSV file: `result.tables["lens"]`."""
        from lesion.report.blocks import flat
        from lesion.report.table import Table

        tables = [Table.of(part.rows) for part in self.shown_parts if part.rows is not None and part.table]
        tables += [block for part in self.shown_parts for block in flat(part.own) if isinstance(block, Table)]
        return {table.name: table.frame for table in tables if table.name}

    @property
    def answers(self) -> pd.DataFrame:
        """Every stored answer with its item, verdict and how it ended: the columns of `Store.answers`.

        Raises:
            UsageError: a study of this kind keeps no answers.
            LesionError: the folder is gone or damaged.
        """
        from lesion.core.database import FILE
        from lesion.core.store import Store

        if self.folder.is_dir() and not (self.folder / FILE).exists():
            raise UsageError(
                f"Studies of the kind {self.summary.kind} keep no answers; the numbers are in result.table."
            )
        with Store.read(self.folder) as store:
            return store.answers()

    @validated
    def broken(self, edit: Any, *, task: str | None = None, model: str | None = None) -> pd.DataFrame:
        """The items that the unedited model answers rightly, and the model under an edit wrongly.

        Args:
            edit: one that the study has: a value, its text form such as `"3×0"` or `"3x0"`, the number of a block (3
                is that block at 0), the label of a selection (`"mathneuro-0.05"`), or the path of an `.edit` file.
            task: only this task.
            model: only this model, by its name.

        Returns:
            One row per item: model, task, item, question, gold, answer_before, answer_after.

        Raises:
            UsageError: the study has no such edit, task or model, or keeps no answers.
            LesionError: the folder is gone or damaged.
        """
        from lesion.core.changes import changed

        return changed(self.answers, edit, right=False, task=task, model=model)

    @validated
    def repaired(self, edit: Any, *, task: str | None = None, model: str | None = None) -> pd.DataFrame:
        """The items that the unedited model answers wrongly, and the model under an edit rightly; as `broken`."""
        from lesion.core.changes import changed

        return changed(self.answers, edit, right=True, task=task, model=model)

    def shown(self) -> Table:
        """The main table with the columns that people see."""
        from lesion.report.rows import Rows
        from lesion.report.table import Table

        return Table.of(next((part.rows for part in self.shown_parts if part.rows is not None), Rows("", (), ())))

    def _repr_html_(self) -> str:
        from lesion.report import notebook
        from lesion.report.blocks import Figure

        figure, title = None, ""
        with suppress(LesionError):  # the folder of a finished study may be gone; its numbers are here
            page = self.page()
            title = f"{page.eyebrow}: {page.title}"
            figure = next((block for block in page.blocks() if isinstance(block, Figure) and block.name), None)
        more = f"Every number and answer: result.report(); folder {self.folder}"
        return notebook.result(title, self.findings, self.shown(), figure, more, self.notes)

    def text(self, *, every: bool = False) -> RenderableType:
        """What a terminal shows beneath the verdict; no text of a model or file in it acts on the terminal.

        Args:
            every: all claims and all rows of all tables, in place of the most important.
        """
        from lesion.report import parts

        return parts.terminal(self.shown_parts, every=every, approximate=self.approximate)

    @validated
    def report(self, path: str | Path | None = None) -> Path:
        """Write the report: `report.html`, `summary.json`, figures as PNG and SVG, tables as CSV.

        Args:
            path: the folder; the study's own by default.

        Returns:
            The path of `report.html`.

        Raises:
            UsageError: another study was run into the folder.
            LesionError: the folder cannot be written.
        """
        folder = self.folder if path is None else Path(path)
        if os.path.realpath(folder) != os.path.realpath(self.folder):
            refuse_another_kind(folder, self.summary.kind)
            if os.path.lexists(folder / LOCK):  # of every study that ran there
                raise UsageError(f"A study was run into {folder}; give another folder for the report.")
        return write_report(folder, self.summary, self.page())

    @validated
    def plot(self, name: str | None = None) -> Drawing:
        """A figure of the report: shown interactively by a notebook, or saved as PNG or SVG.

        Args:
            name: of the figure, as of its files in `figures`; the first of the page by default.

        Raises:
            UsageError: the page has no such figure.
        """
        from lesion.report.blocks import Figure
        from lesion.report.figures import Drawing

        figures = {block.name: block for block in self.page().blocks() if isinstance(block, Figure) and block.name}
        chosen = next(iter(figures), None) if name is None else name
        if chosen not in figures:
            if not figures:
                raise UsageError("The report has no figure.")
            known = f"it has {', '.join(figures)}"
            raise UsageError(f"The report has no figure '{short(str(name))}'{nearest(str(name), figures)}: {known}.")
        return Drawing.of(figures[chosen])

    @validated
    def export(self, out: str | Path) -> list[Path]:
        """Write what a paper takes of the result: figures at 85 and 178 mm, a table, a paragraph, BibTeX.

        Args:
            out: a folder, made when absent.

        Returns:
            The files.

        Raises:
            LesionError: the folder cannot be written.
        """
        from lesion.core import paper

        return paper.export(self, Path(out))

    def chapter(self) -> Chapter | None:
        """What the study adds to a page over several studies; None: nothing."""
        from lesion.report.parts import Chapter

        return Chapter.of(self.shown_parts, *self.CHAPTER) if self.CHAPTER else None

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know of the numbers."""
        return self.summary.notes

    def done(self) -> list[str]:
        """Lines on what this run did and left; none for a result that was read from its folder."""
        done, what = self.COUNTED
        return [progress_line(done, self.evaluated, self.planned, f" {what}")] if self.planned else []


def write_report(folder: Path, summary: Summary, page: Page) -> Path:
    """Write a page and the summary that it is about (`StudyResult.report`); the path of `report.html`."""
    from lesion.report.blocks import Link
    from lesion.report.publishing import publish

    if kind_of(folder.parent) == "demo":
        page = replace(page, back=Link("all studies of the demo", "../report.html"))
    written = publish(folder, summary.kind, page)
    summary.write(folder)
    return written


def progress_line(verb: str, done: int, planned: int, what: str = "", already: str = "stored already") -> str:
    """`evaluated 11 of 12 answers; 1 were stored already`."""
    before = planned - done
    rest = f"; {before:,} were {already}" if before > 0 else ""
    return f"{verb} {done:,} of {planned:,}{what}{rest}"


T = TypeVar("T", bound=Summary)


def _recalled(summary_class: type[T], folder: Path) -> T | None:
    kind = summary_class.model_fields["kind"].default
    if (kind_of(folder) or summary_kind(folder)) != kind:
        return None
    summary = read_summary(summary_class, folder, "run the same command again")
    if summary is None:
        refuse_unfinished(folder, kind)
    return summary


def refuse_unfinished(folder: Path, kind: str) -> None:
    """Refuse to read a study of this kind that has begun and has no result."""
    # Commands import this module, and `lesion --help` need not wait for pandas.
    from lesion.core.store import Store
    from lesion.edits.edit import BASELINE

    kinds, stored, further = {kind_of(folder)}, "it has begun", ""
    try:
        with Store.read(folder) as store:
            entries = tomllib.loads(store.study[1])
            kinds.add(entries.get("kind"))
            stored, further = f"{len(store):,} answers are stored", "; it goes on from there"
            if not entries.get("anyway") and {*store.answers()["edit"]} == {str(BASELINE)}:
                further += ". If it stopped because too few answers were right, add --anyway"
    except (LesionError, tomllib.TOMLDecodeError):
        pass
    if kind in kinds:
        raise LesionError(
            f"The {kind} study in {folder} is not finished: {stored}, and there is no result yet. Run the same command"
            f" with --out {folder} again{further}."
        )
