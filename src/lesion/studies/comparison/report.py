"""The result of a comparison: its rows, how they are drawn, its items, what is claimed; and how one is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from typing_extensions import override

from lesion.core.clustered_intervals import ClusteredTask, copied_questions, note
from lesion.core.lock import locked
from lesion.core.result import StudyResult
from lesion.errors import LesionError
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import Block, Check, Folded, Page, Prose, entries
from lesion.report.checks import baselines
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars
from lesion.report.parts import Part
from lesion.report.rows import Rows, p_text
from lesion.report.values import SHARE, Estimate, Form
from lesion.statistics.critical import POWER
from lesion.statistics.detectable import found_with_power, smallest_drop
from lesion.studies.comparison import items as of_items
from lesion.studies.comparison.items import row_name
from lesion.studies.comparison.reading import Match, digest
from lesion.studies.comparison.result import (
    DIFFERENCE,
    DROP,
    Clustered,
    Compared,
    ComparisonSummary,
    Counts,
    Drop,
    Opened,
    Pair,
    TaskItems,
)
from lesion.studies.comparison.study import ComparisonStudy
from lesion.studies.comparison.summary import gathered, summarise

if TYPE_CHECKING:
    from lesion.core.method import Reading

FLOOR = 0.05
"""An accuracy of no more than this has nothing left to lose."""


def claims(summary: ComparisonSummary) -> list[Claim]:
    """All claims, per pair and task; of one model what its edits do comes before the unedited answers."""
    every: list[Claim] = []
    several = len(summary.pairs) * len(summary.tasks) > 1
    tests = Counter(cell.task for pair in summary.pairs for cell in pair.cells if cell.unedited)
    pairs = list(summary.pairs)
    if len({pair.a for pair in pairs}) == 1:  # what differs comes first
        shown = {cell.task for pair in pairs for cell in pair.cells if cell.unedited and cell.is_shown}
        tasks = sorted(summary.tasks, key=lambda task: task.name not in shown)
        every = [claim for task in tasks for claim in which_models_differ(pairs, task.name)]
    if every:
        pairs.sort(key=_largest, reverse=True)
    for pair, task in product(pairs, summary.tasks):
        if cells := pair.of_task(task.name):
            about = (f"{task.name}: {pair.pair}" if len(summary.pairs) > 1 else task.name) * several
            unedited = which_answers_more(pair, cells, about, tests[task.name], summary.study.level)
            edits = which_edits_differ(pair, cells, about)
            extra = which_edit_takes_more(pair, cells, about)
            ordered = (edits, unedited) if pair.same_model else (unedited, extra, edits)
            every += chain(*ordered)
    return [*every, *copied_questions(_clustered(summary))]


def _largest(pair: Pair) -> float:
    """The largest difference of a pair's unedited models that is shown, without its sign."""
    return max((abs(cell.difference.value or 0.0) for cell in pair.cells if cell.unedited and cell.is_shown), default=0)


@rule
def which_models_differ(pairs: Sequence[Pair], task: str) -> Iterable[Claim]:
    """Several unedited models, each against the first.

    Says: Of N other models K differ from A on T, most M: D points. | Of N other models none is shown to differ from A
    on T; the largest difference is M's: D points (every mean is the same).
    Needs: McNemar's exact test (of log-probabilities Student's, of other scores sign flips), corrected by Holm's method
    over all comparisons of one question on one task, at .05
    """
    others = [pair for pair in pairs if not pair.same_model]
    rows = [(pair, cell) for pair in others for cell in pair.of_task(task) if cell.unedited]
    if len(rows) < 2 or any(cell.difference.value is None for _, cell in rows):
        return
    differing = [(pair, cell) for pair, cell in rows if cell.is_shown]
    pair, most = max(differing or rows, key=lambda row: abs(row[1].difference.value or 0.0))
    number, head = _difference(most, most.difference), f"Of {len(rows)} other models"
    if differing:
        verb = "differ" if len(differing) > 1 else "differs"
        who = f", most {pair.b}: {number}" if len(differing) > 1 else f": {pair.b}, {number}"
        yield Claim((f"{head} {len(differing)} {verb} from {pair.a} on {task}{who}.",), tuple(differing))
        return
    largest = f"the largest difference is {pair.b}'s: {number}" if most.difference.value else "every mean is the same"
    yield Claim((f"{head} none is shown to differ from {pair.a} on {task}; {largest}.",), ((pair, most),))


@rule
def which_answers_more(pair: Pair, cells: Sequence[Compared], about: str, tests: int, level: float) -> Iterable[Claim]:
    """The unedited models of two sides on the items that both answered.

    Says: B answers D points more of T than A. | No difference between B and A is shown on T; D points would be found
    on so many items with 80 % power (no difference could be). | Unedited, A and B are the same model with the same
    verdicts on T. | B gives an item of T D nats more log-probability than A. | B scores D higher on T than A. | T was
    not answered by both unedited models.
    Needs: McNemar's exact test (of log-probabilities Student's, of other scores sign flips), corrected by Holm's method
    over all comparisons of one question on one task, at .05; power from the width of the interval
    """
    cell = next((each for each in cells if each.unedited), None)
    if cell is None:
        yield Claim((f"{cells[0].task} was not answered by both unedited models; only edits are compared.",), (), about)
        return
    rows, value = ((pair, cell),), cell.difference.value
    if pair.same_model and not _differs(cell):
        same = f"Unedited, {pair.a} and {pair.b} are the same model with the same verdicts on {cell.task}."
        yield Claim((same,), rows, about)
        return
    if value is None:
        yield Claim((f"{cell.task}: a log-probability is not finite, so that no mean is compared.",), rows, about)
        return
    size, more, task = _form(cell).text(abs(value)), value > 0, "" if about else cell.task
    numbers = f"Difference {_difference(cell, cell.difference)}, on {wording.counted(cell.items, 'item')}."
    if not cell.difference.is_shown:
        first = f"No difference between {pair.b} and {pair.a} is shown{task and f' on {task}'}."
        yield Claim((first, numbers, _would_be_found(cell, tests, level)), rows, about)
        return
    first = {
        "points": f"{pair.b} answers {size} {'more' if more else 'fewer'}{task and f' of {task}'} than {pair.a}.",
        "nats": f"{pair.b} gives an item{task and f' of {task}'} {size} {'more' if more else 'less'} log-probability"
        f" than {pair.a}.",
        "score": f"{pair.b} scores {size} {'higher' if more else 'lower'}{task and f' on {task}'} than {pair.a}.",
    }[cell.unit]
    yield Claim((first, numbers), rows, about)


SO_FEW = "So few items cannot show a difference."
NO_SPREAD = 1e-9


def _would_be_found(cell: Compared, tests: int, level: float) -> str:
    """Which difference as many items would show, as they vary."""
    low, high = cell.difference.low, cell.difference.high
    found = found_with_power((high - low) / 2, level, tests) if low is not None and high is not None else math.inf
    if cell.counts:
        least = smallest_drop(cell.items, tests)
        found = math.inf if least is None else max(least, found)
    if not math.isfinite(found) or (found > 1 and cell.unit == "points"):
        return SO_FEW
    if found < NO_SPREAD:
        return SO_FEW if cell.difference.value else "Every item has the same score from both."
    return f"On so many items a difference of {_form(cell).text(found)} would be found with {100 * POWER:g} % power."


@rule
def which_edits_differ(pair: Pair, cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """The edits in common, and of one model also those that only one side has, at the same blocks.

    Says: Under N of M edits B and A differ, most under E: D points. | Under none of M edits is a difference shown; the
    largest is E: D points. | Under all M edits both answer equally many items. | No item is judged differently under
    any of M edits in common.
    Needs: McNemar's exact test (of scored tasks Student's), corrected by Holm's method over all comparisons of one
    question on one task, at .05
    """
    common = [cell for cell in cells if not cell.unedited and cell.edit_a == cell.edit_b]
    other = [cell for cell in cells if cell.edit_a != cell.edit_b]
    for edits, what in ((common, "edits in common"), (other, "pairs of edits at the same blocks")):
        if not edits:
            continue
        if pair.same_model and not any(map(_differs, edits)):
            same = f"No item is judged differently under any of {wording.counted(len(edits), 'edit')} in common."
            yield Claim((same,), tuple((pair, cell) for cell in edits), about)
            continue
        differing = [cell for cell in edits if cell.is_shown]
        most = max(differing or edits, key=lambda cell: abs(cell.difference.value or 0.0))
        number = f"{most.edit}: {_difference(most, most.difference)}"
        if differing:
            text = f"Under {len(differing)} of {len(edits)} {what} {pair.b} and {pair.a} differ, most under {number}."
        elif most.difference.value:
            text = f"Under none of {len(edits)} {what} is a difference shown; the largest is {number}."
        else:
            changed = sum(cell.counts.changed for cell in edits if cell.counts)
            verdicts = f"; {wording.counted(changed, 'verdict')} differ" if changed else ""
            text = f"Under all {len(edits)} {what} both answer equally many items{verdicts}."
        yield Claim((text,), tuple((pair, cell) for cell in differing or [most]), about)


@rule
def which_edit_takes_more(pair: Pair, cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """The edit whose drop differs most between the two sides; not of one model.

    Says: E takes D points more from B than from A. | No edit is shown to take more from one than from the other. |
    Every edit takes as much from one as from the other. | Caution: A had only x % to lose, so that the larger loss
    restates the difference of the unedited models.
    Needs: the exact sign-flip test of the difference of two drops on the same items, corrected by Holm's method over
    all edits of the task, at .05; the caution where the side that loses less has at most 5% left
    """
    known = [cell for cell in cells if cell.extra_drop is not None and cell.extra_drop.value is not None]
    if not known or pair.same_model:
        return
    taking = [cell for cell in known if _extra(cell).is_shown]
    most = max(taking or known, key=lambda cell: abs(_extra(cell).value or 0.0))
    extra, rows = _extra(most), tuple((pair, cell) for cell in taking or [most])
    if not extra.value:
        yield Claim(("Every edit takes as much from one as from the other.",), rows, about)
        return
    more, less = (pair.b, pair.a) if extra.value > 0 else (pair.a, pair.b)
    size = _form(most).text(extra.size)
    takes = f"{most.edit} takes {size} more from {more} than from {less} ({p_text(extra)})."
    none = "No edit is shown to take more from one than from the other."
    others = f"So do {len(taking) - 1} more of {len(known)} edits, one way or the other." * bool(taking[1:])
    caution = _floored(taking, next((cell for cell in cells if cell.unedited), None), pair)
    sentences = (takes, others, caution) if taking else (none, f"The largest difference: {takes}")
    yield Claim(tuple(filter(None, sentences)), rows, about)


def _floored(cells: Sequence[Compared], unedited: Compared | None, pair: Pair) -> str:
    """A warning where the side that loses less has lost all that it had; empty where there is none."""
    if unedited is None or unedited.counts is None or unedited.a.value == unedited.b.value:
        return ""
    a, b = unedited.a.value or 0.0, unedited.b.value or 0.0
    weaker, side, sign = (pair.a, "a", 1) if a < b else (pair.b, "b", -1)
    losing = [cell for cell in cells if sign * (_extra(cell).value or 0.0) > 0]
    floored = [cell.edit for cell in losing if (getattr(cell, side).value or 0.0) <= FLOOR]
    if not floored:
        return ""
    many = "it" if len(cells) == 1 else wording.listed(floored) if len(floored) < 4 else f"{len(floored)} of them"
    return (
        f"Caution: {weaker} had only {SHARE.text(min(a, b))} to lose and lost nearly all of it under {many}: there the"
        " larger loss restates the difference of the unedited models."
    )


def _clustered(summary: ComparisonSummary) -> list[ClusteredTask]:
    every = [(task, [cell for pair in summary.pairs for cell in pair.of_task(task.name)]) for task in summary.tasks]
    return [
        (task.name, task.items, cells[0].shared, [cell.clustered for cell in cells]) for task, cells in every if cells
    ]


def _differs(cell: Compared) -> bool:
    """Whether a verdict differs, also where as many are gained as lost; of a scored task whether the mean does."""
    return bool(cell.counts.changed if cell.counts else cell.difference.value)


def _form(cell: Compared) -> Form:
    return DROP.forms[cell.unit]


def _difference(cell: Compared, estimate: Estimate) -> str:
    return f"{DIFFERENCE.forms[cell.unit].text(estimate)} ({p_text(estimate)})"


def _extra(cell: Compared) -> Estimate:
    assert cell.extra_drop is not None
    return cell.extra_drop


READING = (
    "Both sides answered the same items (the same id, question and right answer), so that every difference is paired:"
    " its interval is Tango's for paired proportions. Scored tasks have Student's interval and test; scores of logs"
    " are tested by sign flips.",
)
FEW = 30
"""Below so many items it is said what they can show."""
GONE = "The answers are not on this page: {why} Run the comparison again to have them."


@dataclass(frozen=True)
class ComparisonResult(StudyResult[ComparisonSummary]):
    """Several studies compared item by item. `table` has one row per pair, task and edit, as `comparison.csv`.

    Attributes:
        matches: the answers behind the numbers; None where the folders are gone or have changed since.
        why: why there are none, as a sentence.
    """

    SUMMARY = ComparisonSummary
    EYEBROW = "comparison of studies"
    READING = READING
    TESTED = (
        "Differences are tested by McNemar's exact test (scores of logs by sign flips), extra drops by the exact"
        " sign-flip test, with p corrected by Holm's method over all comparisons of one question on one task. Brackets"
        " and bars: {level} intervals."
    )

    matches: tuple[Match, ...] | None = field(default=None, repr=False, compare=False)
    why: str = field(default="the folders were not read.", repr=False, compare=False)

    @classmethod
    @override
    def recall(cls, folder: Path) -> ComparisonResult | None:
        recalled = super().recall(folder)
        if recalled is None:
            return None
        summary = recalled.summary
        places = dict.fromkeys(folder / side.place for side in summary.sides)
        if len(places) != len(summary.study.folders):  # of some folder no model was compared
            places = dict.fromkeys(map(Path, summary.study.folders))
        try:
            read = gathered(summary.study.model_copy(update={"folders": tuple(map(str, places))}), folder)
        except LesionError as error:
            return cls(folder, summary, why=str(error))
        if digest(read.sources) != summary.digest:
            return cls(folder, summary, why="the folders have changed since.")
        return cls(folder, summary, matches=tuple(read.matches))

    @property
    def items(self) -> pd.DataFrame:
        """Question, gold answer, both answers and verdicts: one row per pair, task, edit and item, as `items.csv`.

        Raises:
            LesionError: the folders are gone or have changed since.
        """
        return of_items.items(self.summary, self._matches())

    @property
    def wrong_in_all(self) -> pd.DataFrame:
        """The items that every unedited model gets wrong.

        Raises:
            LesionError: the folders are gone or have changed since.
        """
        return of_items.wrong_in_all(self.summary, self._matches())

    def _matches(self) -> tuple[Match, ...]:
        if self.matches is None:
            raise LesionError(f"The answers cannot be read: {self.why} Run the comparison again.")
        return self.matches

    @override
    def parts(self) -> tuple[Part, ...]:
        summary = self.summary
        records = [
            (
                pair,
                cell,
                cell.counts,
                cell.clustered,
                Opened(model=row_name(summary, pair, cell), edit=of_items.browsed(pair)),
            )
            for pair in summary.pairs
            for cell in pair.cells
        ]
        rows = Rows(
            "comparison", records, (Pair, Compared, Counts, Clustered, Opened), "Differences",
            "Accuracy in %, differences in points (log-probabilities in nats, other scores as they are). Changed: items"
            " gained and lost. Extra drop: what the edit takes from the second side, minus what from the first."
            f" {note(_clustered(summary))}".rstrip(),
            marked="is_shown", most="size",
            brief=(*("b",) * (len(summary.pairs) > 1), "task", "compared", "difference", "value_a", "value_b"),
        )  # fmt: skip
        unedited = all(cell.unedited for pair in summary.pairs for cell in pair.cells)
        panel, up = ("task", "pair") if unedited else (("pair", "task"), "edit_name")
        figures = (
            Bars(
                "difference", up, by="outcome", panel=panel, also=("a", "b", "items"), name="difference",
                caption="Second side minus first, on the same items.", wide=True,
            ),
            Bars(
                "extra_drop", "edit_name", by="extra_outcome", panel=panel, also=("items",), name="extra-drop",
                caption="How much more an edit takes from the second side than from the first.", wide=True,
            ),
        )  # fmt: skip
        one_model = all(pair.same_model for pair in summary.pairs)
        names = [visible(side.label) for side in summary.sides]
        title = (
            f"What changes from {names[0]} to {names[1]}?"
            if len(names) == 2
            else f"How do {wording.listed(names)} differ?"
        )
        tasks = {task.name: task for task in summary.tasks}
        drops = Rows(
            "drops", [(tasks[drop.task], drop) for drop in summary.drops], (TaskItems, Drop), "Drops",
        )  # fmt: skip
        return (
            Part(title, rows, figures[: 1 if one_model else 2], tuple(claims(summary)), own=self._items(), wide=True),
            Part("Every edit against its own unedited model", drops, short="Drops"),
        )

    def _items(self) -> tuple[Block, ...]:
        if self.matches is None:
            return (Prose((GONE.format(why=self.why),), quiet=False),)
        frame = self.wrong_in_all
        label = f"{wording.counted(len(frame), 'item')} that no unedited model gets right"
        return (Folded(label, (of_items.shown(frame),)),) if len(frame) else ()

    @property
    @override
    def basis(self) -> str:
        tasks = []
        for task in self.summary.tasks:
            counts = sorted({cell.items for pair in self.summary.pairs for cell in pair.of_task(task.name)})
            least = f"{counts[0]:,} to " if len(counts) > 1 else ""
            tasks.append(f"{task.name}: {least}{wording.counted(counts[-1] if counts else 0, 'item')}")
        return f"The same items, compared one by one ({', '.join(tasks)})."

    @override
    def checks(self) -> list[Check]:
        summary = self.summary
        unedited = [(pair, cell) for pair in summary.pairs for cell in pair.cells if cell.unedited]
        checks = list(
            baselines(
                (name, *known)
                for name, known in {
                    f"{cell.task} ({label})": (estimate.value, 0.0, cell.items)
                    for pair, cell in unedited
                    if cell.counts is not None
                    for label, estimate in ((pair.a, cell.a), (pair.b, cell.b))
                }.items()
            )
        )
        few: dict[str, list[str]] = {}
        for task in summary.tasks:
            counts = [cell.items for _, cell in unedited if cell.task == task.name]
            tests, items = len(counts), min(counts, default=0)
            if not task.scored and items < FEW and tests:
                least = math.ceil(math.log2(2 * tests / wording.ALPHA))
                change = f"a difference is significant only if {least} of them change"
                if least > items:
                    change = "no difference of unedited models can be significant"
                few.setdefault(f"On {wording.counted(items, 'item')} {change}", []).append(task.name)
        return [*checks, *(Check("bad", f"{text}: {wording.listed(names)}.") for text, names in few.items())]

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary = self.summary
        sides = [(s.label, f"{s.model} (fingerprint {s.fingerprint}), {', '.join(s.engines)}") for s in summary.sides]
        named = [("folders", ", ".join(summary.study.folders)), *sides]
        return [(visible(name), value) for name, value in [*named, *entries({"level": summary.study.level})]]

    @override
    def page(self) -> Page:
        page = super().page()
        if self.matches is None:
            return page
        items = of_items.table(self.summary, self.matches)
        carried = browser.in_short(of_items.carried(self.summary, self.matches), self.names)
        return replace(page, carried=carried, tables=(*page.tables, items))


def run_comparison(study: ComparisonStudy, run: Reading) -> ComparisonResult:
    """Compare the studies that are named; raises as `gathered`, and where the folder cannot be written."""
    read = gathered(study, run.folder)
    summary = summarise(study, read)
    with locked(run.folder, "comparison"):
        summary.write(run.folder)
    return ComparisonResult(run.folder, summary, matches=tuple(read.matches))
