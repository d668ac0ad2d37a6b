"""The tables of a truncation search: rows for CSV files, and short ones for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.report import wording
from lesion.report.wording import signed
from lesion.studies.truncation import findings as truncation_prose
from lesion.studies.truncation.cells import Cell, Outcome, Search, Tested, Tokens, found
from lesion.studies.truncation.curves import SEARCHED, score
from lesion.studies.truncation.maps import level, nats, nats_interval

CELL = ("edit", "address", "layer", "matrix", "keep", "rank", "of", "side", "saved", "screen", "eliminated", "score")
OUTCOME = (
    *("task", "items", "accuracy", "low", "high", "drop", "drop_low", "drop_high"),
    *("gold", "label", "label_share", "collapsed"),
)
BASELINE = ("task", "part", "items", "accuracy", "low", "high", "gold", "label", "label_share")
TEST = (
    *("task", "items", "baseline", "accuracy", "low", "high", "gain", "gain_low", "gain_high", "p"),
    *("gold_gain", "gold_low", "gold_high", "label_share", "collapsed"),
    *("p_right_gain", "p_right_gain_low", "p_right_gain_high"),
    *("p_tempting_gain", "p_tempting_gain_low", "p_tempting_gain_high"),
)
STEP = ("step", "edit", "added", "before", "after", "accepted", "reason")
TOKENS = (
    *("task", "part", "edit", "revision", "items", "p_right", "p_right_low", "p_right_high"),
    *("p_tempting", "p_tempting_low", "p_tempting_high", "rank_right", "rank_tempting"),
    *("margin", "margin_low", "margin_high"),
)
ALONG = ("revision", "edit", "task", "items", "accuracy", "low", "high", "gold", "label", "label_share", "collapsed")
BEST = 10
"""The terminal shows so many of the best cells."""


def csv(summary: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """File name → table, of those that have rows; a missing number is empty.

    `cells.csv` has a row per cell and task (and one for a cell without any), `test.csv` one per edit and task.
    """
    chosen, composition = summary.get("chosen") or {}, summary.get("composition") or {}
    best = chosen or summary.get("best") or {}
    cells = [
        {name: cell.get(name) for name in CELL} | {name: task.get(name) for name in OUTCOME}
        for cell in summary.get("cells") or ()
        for task in cell.get("tasks") or ({"task": None},)
    ]
    tests = [
        {"what": what, "edit": entry["edit"]} | {name: test.get(name) for name in TEST}
        for what, entry in (("chosen" if chosen else "best", best), ("composed", composition))
        for test in entry.get("tasks") or ()
    ]
    spectra = [
        {"address": one["address"], "index": index, "value": value}
        for one in summary.get("spectra") or ()
        for index, value in zip(one.get("index") or range(len(one["values"])), one["values"], strict=True)
    ]
    whole = {
        "layer": "Int64",
        "rank": "Int64",
        "of": "Int64",
        "saved": "Int64",
        "eliminated": "Int64",
        "items": "Int64",
    }
    tables = {
        "baseline.csv": _frame(summary.get("baseline") or (), BASELINE),
        "cells.csv": pd.DataFrame(cells, columns=[*CELL, *OUTCOME]).astype(whole),
        "test.csv": pd.DataFrame(tests, columns=["what", "edit", *TEST]),
        "composition.csv": _frame(composition.get("path") or (), STEP),
        "spectra.csv": pd.DataFrame(spectra, columns=["address", "index", "value"]),
        "tokens.csv": _frame(summary.get("tokens") or (), TOKENS),
        "revisions.csv": _frame(summary.get("revisions") or (), ALONG),
    }
    return {name: table for name, table in tables.items() if len(table)}


def text_tables(summary: Mapping[str, Any]) -> RenderableType:
    """The terminal's tables: the unedited model, the best cells, the test, the composition's path, the revisions.

    Raises:
        LesionError: the summary does not have the form that a truncation search writes.
    """
    search = found(summary)
    parts: list[RenderableType] = []
    if search.unedited:
        parts.append(_unedited(search))
    if best := search.ranked()[:BEST]:
        parts.append(_best(search, best))
    if search.best_tests or search.composed_tests:
        parts += _tests(search)
    if search.path:
        parts.append(_path(search))
    if search.tokens:
        parts.append(_tokens(search))
    if search.revisions:
        parts.append(_revisions(search))
    if not parts:
        return Text("Nothing has been searched yet.")
    caption = (
        f"Accuracy in %, changes in points, gold (mean log-probability of the gold answers) in nats, each with its "
        f"{100 * search.level:g} % interval. Cells are told on validation items; of the best of many some is luck."
    )
    if label := wording.approximate(search.study):
        caption += f" Approximate: {label}"
    return Group(*parts, Text(caption, style="dim"), Text(f"\n{truncation_prose.verdict(search)}", style="bold"))


def _unedited(search: Search) -> Table:
    table = _table(
        f"{search.model.get('name') or 'model'} · unedited", ("task", "part"), ("items", "accuracy", "gold", "label")
    )
    for one in search.unedited:
        said = "" if one.label is None else f"{wording.short(one.label, 14)} {wording.percent(one.label_share, 0)}"
        accuracy = _accuracy(one.accuracy, one.low, one.high)
        table.add_row(Text(one.task), one.part, f"{one.items:,}", accuracy, level(one.gold), Text(said))
    return table


def _best(search: Search, best: Sequence[Cell]) -> Table:
    tasks = [task.name for task in search.tasks]
    title = f"The best {len(best)} of {wording.counted(len(search.cells), 'cell')}, on validation items"
    table = _table(title, ("edit",), ("rank", "score", *tasks))
    for cell in best:
        edit = Text(cell.edit, style="bold" if cell.edit == search.chosen else "")
        outcomes = (_outcome(search, cell.outcomes.get(task)) for task in tasks)
        table.add_row(edit, f"{cell.rank}/{cell.of}", score(search, cell.score), *outcomes)
    return table


def _outcome(search: Search, outcome: Outcome | None) -> Text:
    if outcome is None:
        return Text("not asked", style="dim")
    told = _accuracy(outcome.accuracy, outcome.low, outcome.high)
    base = search.base(outcome.task)
    change = [] if outcome.drop is None else [f"{signed(-outcome.drop)} points"]
    if outcome.gold is not None and base is not None and base.gold is not None:
        change.append(f"{nats(outcome.gold - base.gold)} nats")
    for line in change:
        told.append(f"\n{line}")
    if outcome.collapsed:
        told.append(f"\none label {wording.percent(outcome.label_share, 0)}", style="bold red")
    return told


def _tests(search: Search) -> list[Table]:
    """A table per edit: the names of composed ones are long."""
    found = []
    for edit, tests in search.tests:
        title = f"On test items · {search.role(edit)}: {edit}"
        table = _table(title, ("task",), ("unedited", "edited", "gain", "p", "gold"), whole=True)
        for test in tests:
            table.add_row(_asked(test.task, test.items), *_test(test))
        found.append(table)
    return found


def _test(test: Tested) -> list[Text]:
    gain = Text(wording.DASH if test.gain is None else f"{signed(test.gain)}\n")
    gold = Text(f"{nats(test.gold_gain)}\n")
    edited = Text(f"{wording.points(test.accuracy)}\n").append(wording.interval(test.low, test.high, 0), style="dim")
    if test.collapsed:
        edited.append("\none label", style="bold red")
    return [
        Text(wording.points(test.baseline)),
        edited,
        gain.append(wording.interval(test.gain_low, test.gain_high), style="dim"),
        Text(wording.p_value(test.p)),
        gold.append(nats_interval(test.gold_low, test.gold_high), style="dim"),
    ]


def _path(search: Search) -> Table:
    table = _table(
        "Composed over layers, on validation items", ("step", "added", "", "why"), ("before", "after"), whole=True
    )
    for step in search.path:
        stayed = Text("stayed", style="green") if step.accepted else Text("rolled back", style="dim")
        table.add_row(
            str(step.step), Text(step.added or step.edit), stayed, Text(step.reason or "", style="dim"),
            score(search, step.before), score(search, step.after),
        )  # fmt: skip
    return table


def _tokens(search: Search) -> Table:
    title = "The right and the tempting token, on test items (ranks: right above tempting)"
    headings = ("p right", "p tempting", "ranks", "margin")
    table = _table(title, ("task", "edit"), headings, whole=True)
    for one in search.tokens:
        edit = Text(search.role(one.edit))
        if search.followed:
            edit.append(f"\n{one.revision or SEARCHED}", style="dim")
        table.add_row(_asked(one.task, one.items), edit, *_token(one))
    return table


def _asked(task: str, items: int) -> Text:
    return Text(task).append(f"\nn = {items:,}", style="dim")


def _revisions(search: Search) -> Table:
    table = _table("Along the revisions, on test items", ("revision", "task", "edit"), ("items", "accuracy", "gold"))
    for one in search.revisions:
        accuracy = _accuracy(one.accuracy, one.low, one.high)
        table.add_row(
            Text(one.revision), Text(one.task), Text(search.role(one.edit)), f"{one.items:,}", accuracy, level(one.gold)
        )
    return table


def _token(one: Tokens) -> list[Text]:
    margin = Text(f"{nats(one.margin)}\n")
    ranks = [wording.DASH if rank is None else f"{rank:,g}" for rank in (one.rank_right, one.rank_tempting)]
    return [
        _probability(one.p_right, one.p_right_low, one.p_right_high),
        _probability(one.p_tempting, one.p_tempting_low, one.p_tempting_high),
        Text("\n".join(ranks)),  # below each other: large ones would leave no room for the intervals
        margin.append(nats_interval(one.margin_low, one.margin_high), style="dim"),
    ]


def _accuracy(value: float | None, low: float | None, high: float | None) -> Text:
    return Text(f"{wording.points(value)} ").append(wording.interval(low, high, 0), style="dim")


def _probability(value: float | None, low: float | None, high: float | None) -> Text:
    digits = 1 if value is None or value >= 0.1 else 2
    ends = wording.interval(low, high, 2 if value is not None and value < 0.01 else digits - 1)
    return Text(f"{wording.points(value, digits)}\n").append(ends, style="dim")


def _frame(entries: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame([{name: entry.get(name) for name in columns} for entry in entries], columns=list(columns))


def _table(title: str, left: Sequence[str], right: Sequence[str], *, whole: bool = False) -> Table:
    """An empty table with texts to the left and numbers to the right; with `whole` no number is broken off a line."""
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in left:
        table.add_column(Text(name), overflow="fold", min_width=8 if whole else None)
    for name in right:
        table.add_column(Text(name), justify="right", overflow="fold", no_wrap=whole)
    return table
