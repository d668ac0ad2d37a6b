"""The tables of a truncation search, for its page and its CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lesion.core.values import Estimate
from lesion.report import wording
from lesion.report.table import Column, Table
from lesion.studies.truncation import numbers
from lesion.studies.truncation.numbers import log_probability, nats, negative
from lesion.studies.truncation.result import (
    SEARCHED,
    Cell,
    Outcome,
    Tested,
    TruncationSummary,
)

CELL_NUMBERS = ("layer", "rank", "of", "saved", "eliminated", "items")
UNEDITED_CAPTION = (
    "Gold: mean log-probability of the gold answers. Most frequent answer: the share of items that it is given to; an"
    " edit that gives one label nearly always has collapsed, whatever its accuracy."
)
TEST_CAPTION = (
    "Gains: edited minus unedited on the same items; p: McNemar's exact test. Gold: change of the mean log-probability"
    " of the gold answers. Most frequent answer: the share of items that get it, unedited → edited."
)
CELLS_CAPTION = (
    "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors instead of the"
    " matrix; below 0 that would be more. All cells, unrounded: cells.csv."
)


def unedited(summary: TruncationSummary) -> Table:
    """A row per task and part: `baseline.csv`."""
    rows = [
        {"task": base.task, "part": base.part, "items": base.items, **_ends("accuracy", base.accuracy)}
        | {"gold": base.gold, "label": base.label, "label_share": base.label_share}
        for base in summary.unedited
    ]
    return Table(
        "baseline",
        pd.DataFrame(rows),
        (
            Column("task", "Task", number=False),
            Column("part", "Part", number=False),
            Column("items", "Items"),
            Column("accuracy", "Accuracy", row=_percent("accuracy")),
            Column("gold", "Gold, nats", log_probability),
            Column("label_share", "Most frequent answer",
                   row=lambda row: f"“{wording.short(row['label'], 18)}” {wording.percent(row['label_share'], 0)}"),
        ),
        title="The unedited model",
        caption=UNEDITED_CAPTION,
    )  # fmt: skip


def cells(summary: TruncationSummary) -> Table:
    """A row per cell and task, and one for a cell that was not evaluated in full: `cells.csv`."""
    rows = []
    for cell in summary.cells:
        own = cell.model_dump(include=set(_CELL))
        for outcome in cell.outcomes or (None,):
            rows.append({name: own[name] for name in _CELL} | _outcome_row(outcome))
    return Table("cells", pd.DataFrame(rows).astype(dict.fromkeys(CELL_NUMBERS, "Int64")))


_CELL = ("edit", "address", "layer", "matrix", "keep", "rank", "of", "side", "saved", "screen", "eliminated", "score")


def _outcome_row(outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        names = ("task", "items", "accuracy", "low", "high", "drop", "drop_low", "drop_high", "gold", "label")
        return dict.fromkeys((*names, "label_share", "collapsed"))
    return (
        {"task": outcome.task, "items": outcome.items, **_ends("accuracy", outcome.accuracy)}
        | _ends("drop", outcome.drop, "drop_")
        | {"gold": outcome.gold, "label": outcome.label, "label_share": outcome.label_share}
        | {"collapsed": outcome.collapsed}
    )


def best_cells(summary: TruncationSummary) -> Table:
    """The page's table: a row per cell, those with a score first and the best of them first, then by the screen."""
    ranked = summary.ranked()
    others = [cell for cell in summary.cells if not cell.complete or cell.score is None]
    least = float("-inf")
    others.sort(key=lambda cell: -(least if cell.screen is None else cell.screen))
    rows, columns = [], [
        Column("address", "Matrix", number=False),
        Column("side", "Side", number=False),
        Column("keep", "Keep", wording.keep),
        Column("rank", "Rank", row=lambda row: f"{row['rank']:,} of {row['of']:,}"),
        Column("state", "State", number=False),
        Column("score", "Score", lambda value: numbers.score(summary, value)),
    ]  # fmt: skip
    if summary.screen:
        columns.append(Column("screen", "Screen, nats", nats))
    for task in summary.tasks:
        of_task = f"{task.name}, "
        columns += [
            Column(f"{of_task}accuracy", f"{of_task}accuracy", row=_percent(f"{of_task}accuracy")),
            Column(f"{of_task}change", "change, points", row=_points(f"{of_task}change")),
            Column(f"{of_task}gold", "gold, nats", nats),
            Column(f"{of_task}label", "one label", lambda value: wording.percent(value, 0)),
        ]
    columns.append(Column("saved", "Parameters saved"))
    for cell in (*ranked, *others):
        own = ("edit", "address", "side", "keep", "rank", "of", "score", "screen", "saved")
        row: dict[str, Any] = {name: getattr(cell, name) for name in own} | {"state": state(summary, cell)}
        for outcome in cell.outcomes:
            of_task = f"{outcome.task}, "
            row |= _ends(f"{of_task}accuracy", outcome.accuracy, f"{of_task}accuracy_")
            row |= _ends(f"{of_task}change", negative(outcome.drop), f"{of_task}change_")
            gold = None if outcome.collapsed else summary.gold_change(outcome)
            row |= {f"{of_task}gold": gold, f"{of_task}label": outcome.label_share}
        rows.append(row)
    return Table(
        "",
        pd.DataFrame(rows),
        tuple(columns),
        title="All cells on the validation items",
        caption=CELLS_CAPTION,
        mark=lambda row: row["edit"] == summary.chosen,
    )


def state(summary: TruncationSummary, cell: Cell) -> str:
    """What became of a cell, in a few words."""
    if cell.edit == summary.best:
        return "chosen" if summary.chosen else "best, not chosen"
    if cell.eliminated is not None:
        return f"given up after {cell.eliminated:,}"
    if not cell.outcomes:
        return "screened out"
    return "one label" if cell.collapsed else "evaluated in full"


def test(summary: TruncationSummary) -> Table:
    """A row per edit and task: `test.csv`."""
    single = "chosen" if summary.chosen else "best"
    rows = [
        {"what": what, "edit": edit} | _test_row(outcome)
        for what, edit, outcomes in (
            (single, summary.best, summary.best_tests),
            ("composed", summary.composed, summary.composed_tests),
        )
        for outcome in outcomes
    ]

    def label(row: Mapping[str, Any]) -> str:
        before = wording.percent(summary.base(row["task"], "test").label_share, 0)
        return f"{before} → {wording.percent(row['label_share'], 0)}{' collapsed' if row['collapsed'] else ''}"

    roles = {"best": "best, not chosen"}
    return Table(
        "test" if rows else "",
        pd.DataFrame(rows),
        (
            Column("edit", "Edit", number=False,
                   row=lambda row: f"{summary.name(row['edit'])} ({roles.get(row['what'], row['what'])})"),
            Column("task", "Task", number=False),
            Column("items", "Items"),
            Column("accuracy", "Accuracy, unedited → edited",
                   row=lambda row: f"{wording.percent(row['baseline'])} → {_percent('accuracy')(row)}"),
            Column("gain", "Gain, points", row=_points("gain")),
            Column("p", "p", wording.p_value),
            Column("gold_gain", "Gold, nats", row=_nats("gold_gain", "gold_")),
            Column("label_share", "Most frequent answer", row=label),
        ),
        title="Edits on test items",
        caption=TEST_CAPTION,
    )  # fmt: skip


def _test_row(test: Tested) -> dict[str, Any]:
    unknown = Estimate(value=None)
    return (
        {"task": test.task, "items": test.items, "baseline": test.baseline, **_ends("accuracy", test.accuracy)}
        | _ends("gain", test.gain, "gain_")
        | {"p": test.gain.p}
        | _ends("gold_gain", test.gold_gain, "gold_")
        | {"label_share": test.label_share, "collapsed": test.collapsed}
        | _ends("p_right_gain", test.right_gain or unknown, "p_right_gain_")
        | _ends("p_tempting_gain", test.tempting_gain or unknown, "p_tempting_gain_")
    )


def composition(summary: TruncationSummary) -> Table:
    """A row per step: `composition.csv`."""
    rows = [
        {"step": step.step, "edit": step.edit, "added": step.added}
        | {"before": summary.score(step.before), "after": summary.score(step.after)}
        | {"accepted": step.accepted, "reason": step.reason}
        for step in summary.path
    ]

    def score(value: float | None) -> str:
        return numbers.score(summary, value)

    return Table(
        "composition" if rows else "",
        pd.DataFrame(rows),
        (
            Column("step", "Step"),
            Column("added", "Added", summary.name, number=False),
            Column("before", "Before", score),
            Column("after", "After", score),
            Column("accepted", "Outcome", lambda accepted: "stayed" if accepted else "rolled back", number=False),
            Column("reason", "Why", number=False),
        ),
        title="Steps of the composition",
    )


def tokens(summary: TruncationSummary) -> Table:
    """A row per task, edit and revision: `tokens.csv`."""
    rows = [
        dict[str, Any](task=row.task, part="test", edit=row.edit, revision=row.revision, items=row.items)
        | _ends("p_right", row.p_right, "p_right_")
        | _ends("p_tempting", row.p_tempting, "p_tempting_")
        | {"rank_right": row.rank_right, "rank_tempting": row.rank_tempting}
        | _ends("margin", row.margin, "margin_")
        for row in summary.tokens
    ]
    return Table(
        "tokens" if rows else "",
        pd.DataFrame(rows),
        (
            Column("task", "Task", number=False),
            Column("edit", "Edit", summary.role, number=False),
            Column("revision", "Revision", lambda revision: revision or SEARCHED, number=False),
            Column("items", "Items"),
            Column("p_right", "p right", row=_probability("p_right")),
            Column("p_tempting", "p tempting", row=_probability("p_tempting")),
            Column("rank_right", "Rank right", numbers.rank),
            Column("rank_tempting", "Rank tempting", numbers.rank),
            Column("margin", "Margin, nats", row=_nats("margin", "margin_")),
        ),
        title="The two tokens",
        caption="Ranks are medians, 1 is the likeliest token.",
    )


def revisions(summary: TruncationSummary) -> Table:
    """A row per revision, edit and task: `revisions.csv`."""
    rows = [
        {"revision": row.revision, "edit": row.edit, "task": row.task, "items": row.items}
        | _ends("accuracy", row.accuracy)
        | {"gold": row.gold, "label": row.label, "label_share": row.label_share, "collapsed": row.collapsed}
        for row in summary.revisions
    ]
    return Table("revisions" if rows else "", pd.DataFrame(rows))


def spectra(summary: TruncationSummary) -> Table:
    """A row per singular value: `spectra.csv`."""
    rows = [
        {"address": spectrum.address, "index": index, "value": value}
        for spectrum in summary.spectra
        for index, value in zip(spectrum.index, spectrum.values, strict=True)
    ]
    return Table("spectra", pd.DataFrame(rows))


def _ends(name: str, estimate: Estimate, prefix: str = "") -> dict[str, float | None]:
    return {name: estimate.value, f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def _estimate(row: Mapping[str, Any], name: str, prefix: str) -> Estimate:
    return Estimate(value=row.get(name), low=row.get(f"{prefix}low"), high=row.get(f"{prefix}high"))


def _percent(name: str) -> Any:
    """What writes an accuracy with its interval; the ends are `low` and `high` where it has no prefix of its own."""
    prefix = "" if name == "accuracy" else f"{name}_"
    return lambda row: numbers.percent_estimate(_estimate(row, name, prefix))


def _points(name: str) -> Any:
    return lambda row: numbers.points_estimate(_estimate(row, name, f"{name}_"))


def _nats(name: str, prefix: str) -> Any:
    return lambda row: numbers.nats_estimate(_estimate(row, name, prefix))


def _probability(name: str) -> Any:
    def write(row: Mapping[str, Any]) -> str:
        estimate = _estimate(row, name, f"{name}_")
        return numbers.percent_estimate(estimate, numbers.probability_digits(estimate.value))

    return write
