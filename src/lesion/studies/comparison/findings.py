"""What a comparison shows, in sentences written from its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.forms import decimals
from lesion.report.values import Estimate
from lesion.report.wording import SPACE
from lesion.studies.comparison.result import Compared, ComparisonSummary, Counts, Pair

NAMED = 3
"""At most so many edits are named in a sentence."""
FLOOR = 0.05
"""An accuracy of no more than this has nothing left to lose."""
FEW = 30
"""Below so many items it is said what they can show."""


def findings(summary: ComparisonSummary) -> list[Finding]:
    """Per pair and task: the unedited models, then the edits, then what limits the verdict."""
    every = []
    for pair in summary.pairs:
        for task in summary.tasks:
            cells = pair.of_task(task.name)
            if not cells:
                continue
            subject = task.name if len(summary.pairs) == 1 else f"{task.name}: {pair.b} against {pair.a}"
            edits, limits = _edits(pair, cells), _limits(summary, pair, cells)
            lead = 1 if pair.same_model else 0  # of one model the question is what its edits do
            headline = (verdict(pair, cells), *edits[:lead])
            if not pair.same_model and any(cell.extra_drop and shown(cell.extra_drop) for cell in cells):
                headline = (*headline, edits.pop())
            every.append(Finding(subject, headline, (*edits[lead:], *limits)))
    if any(task.wrong is not None and task.sides > 2 for task in summary.tasks):
        every.insert(1, _all(summary))
    return every


def verdict(pair: Pair, cells: Sequence[Compared]) -> str:
    """What the unedited models show of one task."""
    cell = next((each for each in cells if each.unedited), None)
    if cell is None:
        return f"{cells[0].task} was not answered by both unedited models; only edits are compared."
    if pair.same_model and not _differs(cell):
        wrong = "" if cell.counts is None else f": {_wrong(cell, cell.counts)}"
        return f"Unedited, {pair.a} and {pair.b} are the same model with the same verdicts on {cell.task}{wrong}."
    if cell.counts is None:
        return _scored(pair, cell)
    value = cell.difference.value or 0.0
    lead = "" if shown(cell.difference) else "Unedited: no difference is shown; "
    if value == 0:
        what = f"{pair.b} and {pair.a} answer equally many items of {cell.task} {_interval(cell.difference)}"
    else:
        what = (
            f"{pair.b} answers {wording.points(abs(value))} points {'more' if value > 0 else 'fewer'} of {cell.task}"
            f" than {pair.a} {_interval(cell.difference)}"
        )
    return f"{lead}{what}, {_p(cell.difference)}; {_wrong(cell, cell.counts)}."


def _differs(cell: Compared) -> bool:
    """Whether a verdict differs, also where as many are gained as lost; of a scored task whether the mean does."""
    return bool(cell.counts.changed if cell.counts else cell.difference.value)


def _wrong(cell: Compared, counts: Counts) -> str:
    verb = "is" if counts.both_wrong == 1 else "are"
    return f"{counts.both_wrong:,} of {wording.counted(cell.items, 'item')} {verb} wrong in both"


def _scored(pair: Pair, cell: Compared) -> str:
    value = cell.difference.value
    if value is None:
        return f"{cell.task}: a log-probability is not finite, so that no mean is compared."
    lead = "" if shown(cell.difference) else "Unedited: no difference is shown; "
    return (
        f"{lead}{pair.b} gives an item of {cell.task} on average {decimals(3)(abs(value))} nats"
        f" {'more' if value >= 0 else 'less'} log-probability than {pair.a} {_interval(cell.difference, scored=True)},"
        f" {_p(cell.difference)}."
    )


def shown(estimate: Estimate) -> bool:
    """Whether a difference stands after correction."""
    return estimate.p_corrected is not None and estimate.p_corrected <= wording.ALPHA


def _interval(estimate: Estimate, *, scored: bool = False) -> str:
    """The interval of a number in the direction in which the sentence tells it."""
    low, high = estimate.low, estimate.high
    if low is None or high is None:
        return "(no interval)"
    if (estimate.value or 0.0) < 0:
        low, high = 0.0 - high, 0.0 - low
    return nats(low, high) if scored else wording.interval(low, high)


def nats(low: float | None, high: float | None) -> str:
    """`[−0.321, 2.454]`; empty when unknown."""
    if low is None or high is None:
        return ""
    return f"[{decimals(3)(low)},{SPACE}{decimals(3)(high)}]"


def _p(estimate: Estimate) -> str:
    p, adjusted = estimate.p, estimate.p_corrected
    own = f"p{SPACE}{wording.p_value(p)}"
    return own if p == adjusted else f"{own}, corrected {wording.p_value(adjusted)}"


def _edits(pair: Pair, cells: Sequence[Compared]) -> list[str]:
    """What the edits in common, and those at the same blocks, show."""
    common = [cell for cell in cells if not cell.unedited and cell.edit_a == cell.edit_b]
    other = [cell for cell in cells if cell.edit_a != cell.edit_b]
    sentences = []
    if common and not (pair.same_model and not any(_differs(cell) for cell in common)):
        sentences.append(_differing(common, "edits in common", pair))
    elif common:
        sentences.append(f"Under all {wording.counted(len(common), 'edit')} in common the verdicts are the same too.")
    if other:
        sentences.append(_differing(other, "pairs of edits at the same blocks", pair))
    extra = [cell for cell in common if cell.extra_drop is not None and cell.extra_drop.value is not None]
    if extra and not pair.same_model:
        unedited = next((cell for cell in cells if cell.unedited), None)
        sentences.append(f"{_extra(extra, pair)}{_floored(extra, unedited, pair)}")
    return sentences


def _differing(cells: Sequence[Compared], what: str, pair: Pair) -> str:
    found = _strongest([cell for cell in cells if shown(cell.difference)], lambda cell: cell.difference)
    scored = cells[0].counts is None
    if found:
        named = [f"{_edit(cell)} {_signed(cell.difference, scored=scored)}" for cell in found[:NAMED]]
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        return (
            f"Under {len(found)} of {len(cells)} {what} {pair.b} and {pair.a} differ (corrected p ≤{SPACE}.05):"
            f" {'; '.join(named)}{more}."
        )
    most = _strongest(cells, lambda cell: cell.difference)[0]
    if not most.difference.value:
        changed = sum(cell.counts.changed for cell in cells if cell.counts)
        differ = f"; {wording.counted(changed, 'verdict')} differ" if changed else ""
        return f"Under all {len(cells)} {what} both answer equally many items{differ}."
    return (
        f"Under none of {len(cells)} {what} is a difference shown; the largest is {_edit(most)}"
        f" {_signed(most.difference, scored=scored)}, {_p(most.difference)}."
    )


def _extra(cells: Sequence[Compared], pair: Pair) -> str:
    found = _strongest([cell for cell in cells if cell.extra_drop and shown(cell.extra_drop)], _extra_of)
    scored = cells[0].counts is None

    def told(cell: Compared) -> str:
        extra = _extra_of(cell)
        more, less = (pair.b, pair.a) if (extra.value or 0.0) >= 0 else (pair.a, pair.b)
        size = decimals(3)(abs(extra.value or 0.0)) if scored else wording.points(abs(extra.value or 0.0))
        unit = "nats" if scored else "points"
        return f"{_edit(cell)} takes {size} {unit} more from {more} than from {less} {_interval(extra, scored=scored)}"

    if found:
        more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
        each = (f"{told(cell)}, {_p(_extra_of(cell))}" for cell in found[:NAMED])
        return f"{wording.capital('; '.join(each))}{more}."
    most = _strongest(cells, _extra_of)[0]
    if not _extra_of(most).value:
        return "Every edit takes as much from one as from the other."
    return (
        f"No edit is shown to take more from one than from the other; the largest difference: {told(most)},"
        f" {_p(_extra_of(most))}."
    )


def _floored(cells: Sequence[Compared], unedited: Compared | None, pair: Pair) -> str:
    """A warning where the side that loses less has lost all that it had; empty where there is none."""
    if unedited is None or unedited.counts is None:
        return ""
    a, b = unedited.a.value or 0.0, unedited.b.value or 0.0
    weaker, had = (pair.a, a) if a < b else (pair.b, b)
    floored = []
    for cell in cells:
        extra, left = _extra_of(cell), cell.a if a < b else cell.b
        loses_less = (extra.value or 0.0) > 0 if a < b else (extra.value or 0.0) < 0
        if a != b and shown(extra) and loses_less and (left.value or 0.0) <= FLOOR:
            floored.append(_edit(cell))
    if not floored:
        return ""
    return (
        f" Caution: {weaker} had only {wording.percent(had)} to lose, and lost nearly all of it under"
        f" {wording.listed(floored[:NAMED])}{f' and {len(floored) - NAMED} more' if len(floored) > NAMED else ''}:"
        " there the larger loss restates the difference of the unedited models."
    )


def _extra_of(cell: Compared) -> Estimate:
    assert cell.extra_drop is not None
    return cell.extra_drop


def _strongest(cells: Sequence[Compared], of: Callable[[Compared], Estimate]) -> list[Compared]:
    return sorted(cells, key=lambda cell: -abs(of(cell).value or 0.0))


def _edit(cell: Compared) -> str:
    return cell.edit


def _signed(estimate: Estimate, *, scored: bool) -> str:
    value = estimate.value or 0.0
    if scored:
        return f"{decimals(3, signed=True)(value)} nats {nats(estimate.low, estimate.high)}".strip()
    return f"{wording.signed(value)} points {wording.interval(estimate.low, estimate.high)}".strip()


def _limits(summary: ComparisonSummary, pair: Pair, cells: Sequence[Compared]) -> list[str]:
    """Baselines at 0 or 100 %, and what so few items can show."""
    cell = next((each for each in cells if each.unedited), cells[0])
    if cell.counts is None:
        return []
    sentences = []
    if cell.unedited:
        for label, estimate in ((pair.a, cell.a), (pair.b, cell.b)):
            if estimate.value == 0:
                sentences.append(f"{label} answers no item of {cell.task}, so that no edit can take anything from it.")
            if estimate.value == 1:
                sentences.append(f"{label} answers every item of {cell.task}: harder items may tell the two apart.")
    if cell.items < FEW:
        family = [each for other in summary.pairs for each in other.of_task(cell.task)]
        tests = sum(each.unedited == cell.unedited for each in family)
        least = math.ceil(math.log2(2 * max(1, tests) / wording.ALPHA))
        after = f" after correction over {tests} comparisons" if tests > 1 else ""
        few = f"There are only {wording.counted(cell.items, 'item')}"
        if least > cell.items:
            sentences.append(f"{few}: no difference can be significant{after}.")
        else:
            sentences.append(f"{few}: a difference is significant{after} only if at least {least} of them change.")
    over = [(_edit(each), each.difference, each.clustered) for each in cells if each.clustered is not None]
    text = clustered_intervals.changes(cell.task, cell.items, cell.shared, over)
    return sentences if text is None else [*sentences, text]


def _all(summary: ComparisonSummary) -> Finding:
    """The items that every side gets wrong, of each task."""
    words = [
        f"{task.wrong:,} of {wording.counted(task.answered, 'item')} of {task.name} are wrong in all"
        f" {task.sides}, {task.right:,} right in all."
        for task in summary.tasks
        if task.wrong is not None and task.sides > 2
    ]
    return Finding("All unedited models", tuple(words))
