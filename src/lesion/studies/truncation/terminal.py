"""What `lesion truncate` prints below the verdict: short tables within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.plain import plain
from lesion.report import wording
from lesion.report.table import terminal_table
from lesion.report.values import Estimate
from lesion.studies.truncation import tables
from lesion.studies.truncation.numbers import (
    log_probability,
    nats,
    nats_interval,
    points_estimate,
    probability_digits,
    rank,
    score,
)
from lesion.studies.truncation.result import SEARCHED, Cell, Outcome, Tested, TruncationSummary
from lesion.studies.truncation.rival_findings import rival_name

BEST = 10
"""So many of the best cells are shown."""


def text_tables(summary: TruncationSummary) -> RenderableType:
    """The unedited model, the best cells, the test, the composition's steps, the two tokens and the revisions."""
    parts: list[RenderableType] = [tables.unedited(summary).terminal()]
    if best := summary.ranked()[:BEST]:
        parts.append(_best(summary, best))
    parts += _tests(summary)
    parts += _rivals(summary)
    if summary.path:
        parts.append(tables.composition(summary).terminal())
    if summary.tokens:
        parts.append(_tokens(summary))
    if summary.revisions:
        parts.append(_revisions(summary))
    caption = (
        "Accuracy in %, changes in points, gold (mean log-probability of the gold answers) in nats, each with its"
        f" {100 * summary.study.level:g} % interval. Cells: on validation items; of the best of many some is luck."
    )
    if summary.approximate:
        caption += f" Approximate: {summary.approximate}"
    return Group(*parts, Text(plain(caption), style="dim"))


def _best(summary: TruncationSummary, best: Sequence[Cell]) -> Table:
    tasks = [task.name for task in summary.tasks]
    title = f"The best {len(best)} of {wording.counted(len(summary.cells), 'cell')}, on validation items"
    table = _table(title, ("edit",), ("rank", "score", *tasks))
    for cell in best:
        edit = _text(cell.edit, style="bold" if cell.edit == summary.chosen else "")
        outcomes = (_outcome(summary, outcome) for outcome in cell.outcomes)
        table.add_row(edit, f"{cell.rank}/{cell.of}", score(summary, cell.score), *outcomes)
    return table


def _outcome(summary: TruncationSummary, outcome: Outcome) -> Text:
    text = _accuracy(outcome.accuracy)
    if outcome.drop.value is not None:
        text.append(f"\n{wording.signed(-outcome.drop.value)} points")
    gold = summary.gold_change(outcome)
    if gold is not None:
        text.append(f"\n{nats(gold)} nats")
    if outcome.collapsed:
        text.append(f"\none label {wording.percent(outcome.label_share, 0)}", style="bold red")
    return text


def _tests(summary: TruncationSummary) -> list[Table]:
    """A table per edit: the names of composed ones are long."""
    of_edits = []
    for edit, tests in summary.tests:
        title = f"On test items · {summary.role(edit)}: {edit}"
        table = _table(title, ("task",), ("unedited", "edited", "gain", "p", "gold"), whole=True)
        for test in tests:
            table.add_row(_task(test.task, test.items), *_test(test))
        of_edits.append(table)
    return of_edits


def _test(test: Tested) -> list[Text]:
    edited = Text(f"{wording.points(test.accuracy.value)}\n")
    edited.append(wording.interval(test.accuracy.low, test.accuracy.high, 0), style="dim")
    if test.collapsed:
        edited.append("\none label", style="bold red")
    gain = Text(wording.DASH if test.gain.value is None else f"{wording.signed(test.gain.value)}\n")
    return [
        Text(wording.points(test.baseline)),
        edited,
        gain.append(wording.interval(test.gain.low, test.gain.high), style="dim"),
        Text(wording.p_value(test.gain.p)),
        _nats(test.gold_gain),
    ]


def _rivals(summary: TruncationSummary) -> list[Table]:
    """A table per task."""
    of_tasks = []
    for name in dict.fromkeys(rival.task for rival in summary.rivals):
        table = _table(f"Rivals on {name}, test items", ("rival",), ("rival", "edited", "edit adds", "p"), whole=True)
        for rival in summary.rivals:
            if rival.task == name:
                table.add_row(
                    _text(rival_name(rival), style="bold" if rival.fitted else ""),
                    _accuracy(rival.accuracy),
                    _accuracy(rival.edited) if rival.edited else wording.DASH,
                    points_estimate(rival.beyond) if rival.beyond else wording.DASH,
                    wording.p_value(None if rival.beyond is None else rival.beyond.p),
                )
        of_tasks.append(table)
    return of_tasks


def _tokens(summary: TruncationSummary) -> Table:
    title = "The right and the tempting token, on test items (ranks: right above tempting)"
    table = _table(title, ("task", "edit"), ("p right", "p tempting", "ranks", "margin"), whole=True)
    for tokens in summary.tokens:
        edit = _text(summary.role(tokens.edit))
        if summary.followed:
            edit.append(f"\n{plain(tokens.revision or SEARCHED)}", style="dim")
        table.add_row(
            _task(tokens.task, tokens.items),
            edit,
            _probability(tokens.p_right),
            _probability(tokens.p_tempting),
            # Below each other: large ranks would leave no room for the intervals.
            Text(f"{rank(tokens.rank_right)}\n{rank(tokens.rank_tempting)}"),
            _nats(tokens.margin),
        )
    return table


def _revisions(summary: TruncationSummary) -> Table:
    table = _table("Along the revisions, on test items", ("revision", "task", "edit"), ("items", "accuracy", "gold"))
    for row in summary.revisions:
        names = (_text(name) for name in (row.revision, row.task, summary.role(row.edit)))
        table.add_row(*names, f"{row.items:,}", _accuracy(row.accuracy), log_probability(row.gold))
    return table


def _text(text: str, style: str = "") -> Text:
    """A text of a model, task or edit: nothing in it acts on the terminal."""
    return Text(plain(text), style=style)


def _task(task: str, items: int) -> Text:
    return _text(task).append(f"\nn = {items:,}", style="dim")


def _accuracy(accuracy: Estimate) -> Text:
    interval = wording.interval(accuracy.low, accuracy.high, 0)
    return Text(f"{wording.points(accuracy.value)} ").append(interval, style="dim")


def _nats(estimate: Estimate) -> Text:
    return Text(f"{nats(estimate.value)}\n").append(nats_interval(estimate.low, estimate.high), style="dim")


def _probability(estimate: Estimate) -> Text:
    value, digits = estimate.value, probability_digits(estimate.value)
    ends = wording.interval(estimate.low, estimate.high, 2 if value is not None and value < 0.01 else digits - 1)
    return Text(f"{wording.points(value, digits)}\n").append(ends, style="dim")


def _table(title: str, left: Sequence[str], right: Sequence[str], *, whole: bool = False) -> Table:
    """An empty table with texts to the left and numbers to the right; with `whole` no number is broken off a line."""
    table = terminal_table(title, [*((name, False) for name in left), *((name, True) for name in right)])
    if whole:
        for column in table.columns[: len(left)]:
            column.min_width = 8
        for column in table.columns[len(left) :]:
            column.no_wrap = True
    return table
