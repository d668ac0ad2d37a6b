"""What a comparison claims: which side answers more, which edits they differ under, which edit takes more of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import SHARE, Form
from lesion.report.rows import p_text
from lesion.report.values import Estimate
from lesion.studies.comparison.result import DIFFERENCE, DROP, Compared, ComparisonSummary, Pair, shown

FLOOR = 0.05
"""An accuracy of no more than this has nothing left to lose."""
TEST = (
    "McNemar's exact test (of scored tasks Student's), corrected by Holm's method over all comparisons of one question"
    " on one task, at .05"
)


def claims(summary: ComparisonSummary) -> list[Claim]:
    """All claims, per pair and task; of one model what its edits do comes before the unedited answers."""
    every: list[Claim] = []
    for pair in summary.pairs:
        for task in summary.tasks:
            cells = pair.of_task(task.name)
            if not cells:
                continue
            several = len(summary.pairs) * len(summary.tasks) > 1
            about = (f"{task.name}: {pair.pair}" if len(summary.pairs) > 1 else task.name) if several else ""
            unedited = which_answers_more(pair, cells, about)
            edits = which_edits_differ(pair, cells, about)
            extra = which_edit_takes_more(pair, cells, about)
            ordered = (edits, unedited) if pair.same_model else (unedited, extra, edits)
            every += chain(*ordered, over_clusters(cells, about))
    return [*every, *wrong_in_all(summary)]


@rule(
    "B answers D points more of T than A.",
    "No difference between B and A is shown on T.",
    "Unedited, A and B are the same model with the same verdicts on T.",
    "B gives an item of T D nats more log-probability than A.",
    "T was not answered by both unedited models.",
    needs=TEST,
)
def which_answers_more(pair: Pair, cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """The unedited models of two sides on the items that both answered."""
    cell = next((each for each in cells if each.unedited), None)
    if cell is None:
        yield Claim((f"{cells[0].task} was not answered by both unedited models; only edits are compared.",), (), about)
        return
    rows = ((pair, cell),)
    if pair.same_model and not _differs(cell):
        same = f"Unedited, {pair.a} and {pair.b} are the same model with the same verdicts on {cell.task}."
        yield Claim((same, *_wrong(cell)), rows, about)
        return
    value = cell.difference.value
    if value is None:
        yield Claim((f"{cell.task}: a log-probability is not finite, so that no mean is compared.",), rows, about)
        return
    size = _form(cell).text(abs(value))
    side = "more" if value > 0 else "fewer" if cell.counts else "less"
    if not shown(cell.difference):
        first = f"No difference between {pair.b} and {pair.a} is shown on {cell.task}."
    elif cell.counts:
        first = f"{pair.b} answers {size} {side} of {cell.task} than {pair.a}."
    else:
        first = f"{pair.b} gives an item of {cell.task} {size} {side} log-probability than {pair.a}."
    numbers = f"Difference {_difference(cell, cell.difference)}, on {wording.counted(cell.items, 'item')}."
    yield Claim((first, numbers, *_wrong(cell)), rows, about)


def _wrong(cell: Compared) -> tuple[str, ...]:
    if cell.counts is None:
        return ()
    number = cell.counts.both_wrong
    return (f"{number:,} {'item is' if number == 1 else 'items are'} wrong in both.",)


@rule(
    "Under N of M edits B and A differ, most under E: D points.",
    "Under none of M edits is a difference shown; the largest is E: D points.",
    "Under all M edits both answer equally many items.",
    "No item is judged differently under any of M edits in common.",
    needs=TEST,
)
def which_edits_differ(pair: Pair, cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """The edits in common, and of one model also those that only one side has, at the same blocks."""
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
        most = _strongest(differing or edits, lambda cell: cell.difference)[0]
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


@rule(
    "E takes D points more from B than from A.",
    "No edit is shown to take more from one than from the other.",
    "Every edit takes as much from one as from the other.",
    "Caution: A had only x % to lose, so that the larger loss restates the difference of the unedited models.",
    needs="the exact sign-flip test of the difference of two drops on the same items, corrected by Holm's method over"
    f" all edits of the task, at .05; the caution where the side that loses less has at most {FLOOR:.0%} left",
)
def which_edit_takes_more(pair: Pair, cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """The edit whose drop differs most between the two sides; not of one model."""
    known = [cell for cell in cells if cell.extra_drop is not None and cell.extra_drop.value is not None]
    if not known or pair.same_model:
        return
    taking = [cell for cell in known if shown(_extra(cell))]
    most = _strongest(taking or known, _extra)[0]
    extra = _extra(most)
    rows = tuple((pair, cell) for cell in taking or [most])
    if not extra.value:
        yield Claim(("Every edit takes as much from one as from the other.",), rows, about)
        return
    more, less = (pair.b, pair.a) if extra.value > 0 else (pair.a, pair.b)
    size = _form(most).text(extra if extra.value > 0 else extra.negative)
    told = f"{most.edit} takes {size} more from {more} than from {less} ({p_text(extra)})"
    if not taking:
        none = "No edit is shown to take more from one than from the other."
        yield Claim((none, f"The largest difference: {told}."), rows, about)
        return
    others = f"So do {len(taking) - 1} more of {len(known)} edits, one way or the other." if taking[1:] else ""
    caution = _floored(taking, next((cell for cell in cells if cell.unedited), None), pair)
    yield Claim(tuple(filter(None, (f"{told}.", others, caution))), rows, about)


def _floored(cells: Sequence[Compared], unedited: Compared | None, pair: Pair) -> str:
    """A warning where the side that loses less has lost all that it had; empty where there is none."""
    if unedited is None or unedited.counts is None or unedited.a.value == unedited.b.value:
        return ""
    a, b = unedited.a.value or 0.0, unedited.b.value or 0.0
    weaker, had, sign = (pair.a, a, 1) if a < b else (pair.b, b, -1)
    floored = [
        cell.edit
        for cell in cells
        if sign * (_extra(cell).value or 0.0) > 0 and ((cell.a if a < b else cell.b).value or 0.0) <= FLOOR
    ]
    if not floored:
        return ""
    many = "it" if len(cells) == 1 else wording.listed(floored) if len(floored) < 4 else f"{len(floored)} of them"
    return (
        f"Caution: {weaker} had only {SHARE.text(had)} to lose and lost nearly all of it under {many}: there the larger"
        " loss restates the difference of the unedited models."
    )


@rule(
    "Over the clusters that items share intervals are up to F times as wide; no verdict (these verdicts) would change.",
    needs="items with a template, relation or subject in common, and intervals that are wider by a tenth at least",
)
def over_clusters(cells: Sequence[Compared], about: str) -> Iterable[Claim]:
    """How much wider intervals are where items share a template, a relation or a subject."""
    first = next((each for each in cells if each.unedited), cells[0])
    over = [(cell.edit_name, cell.difference, cell.clustered) for cell in cells if cell.clustered is not None]
    text = clustered_intervals.changes(first.task, first.items, first.shared, over)
    if text is not None:
        yield Claim((text,), (first,), about)


@rule(
    "N of M items of T are wrong in all K unedited models, R right in all.",
    needs="at least three sides that answered the task unedited",
)
def wrong_in_all(summary: ComparisonSummary) -> Iterable[Claim]:
    """Items that every unedited model gets wrong, of each task."""
    for task in summary.tasks:
        if task.wrong is not None and task.sides > 2:
            of = f"{task.wrong:,} of {wording.counted(task.answered, 'item')} of {task.name}"
            text = f"{of} are wrong in all {task.sides} unedited models, {task.right:,} right in all."
            yield Claim((text,), (task,))


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


def _strongest(cells: Sequence[Compared], of: Callable[[Compared], Estimate]) -> list[Compared]:
    return sorted(cells, key=lambda cell: -abs(of(cell).value or 0.0))
