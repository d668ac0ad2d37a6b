"""The tables of a truncation search, for its page and its CSV files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from lesion.report import wording
from lesion.report.table import Column, Table, plain_columns
from lesion.report.values import Estimate, Value
from lesion.studies.truncation import numbers
from lesion.studies.truncation.numbers import log_probability, nats
from lesion.studies.truncation.result import SEARCHED, Cell, TruncationSummary
from lesion.studies.truncation.rival_findings import rival_name

CELL_NUMBERS = ("layer", "rank", "of", "saved", "eliminated", "items")
UNEDITED_CAPTION = (
    "Gold: mean log-probability of the gold answers. Most frequent answer: the share of items that it is given to; an"
    " edit that gives one label nearly always has collapsed, whatever its accuracy."
)
TEST_CAPTION = (
    "Gains: edited minus unedited on the same items; p: McNemar's exact test. Gold: change of the mean log-probability"
    " of the gold answers. Most frequent answer: the share of items that get it, unedited → edited."
)
RIVALS_CAPTION = (
    "First tokens are forbidden at decoding, those of the unedited model's most frequent wrong answers on validation"
    " items; they and forced choices are measured without the edit and with it. Random subspaces, a deleted branch and"
    " a constant factor (the best on validation items) stand in the place of the edit. Marked: as many tokens as are"
    " best on validation items. p: McNemar's exact test."
)
CELLS_CAPTION = (
    "Intervals hold for one cell each, not for the best of all. Parameters saved: as two thin factors instead of the"
    " matrix; below 0 that would be more. All cells, unrounded: cells.csv."
)


def unedited(summary: TruncationSummary) -> Table:
    """A row per task and part: `baseline.csv`."""
    return Table(
        "baseline",
        _frame([_row(base) for base in summary.unedited], "task part items accuracy low high gold label label_share"),
        (
            *plain_columns(number=False, task="Task", part="Part"),
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
    rows = [
        _row(cell) | ({} if outcome is None else _row(outcome))
        for cell in summary.cells
        for outcome in cell.outcomes or (None,)
    ]
    columns = (
        "edit address layer matrix keep rank of side saved screen eliminated score task items accuracy low high"
        " drop drop_low drop_high gold label label_share collapsed"
    )
    return Table("cells", _frame(rows, columns).astype(dict.fromkeys(CELL_NUMBERS, "Int64")))


def best_cells(summary: TruncationSummary) -> Table:
    """The page's table: a row per cell, those with a score first and the best of them first, then by the screen."""
    ranked = summary.ranked()
    others = [cell for cell in summary.cells if not cell.complete or cell.score is None]
    least = float("-inf")
    others.sort(key=lambda cell: -(least if cell.screen is None else cell.screen))
    rows, columns = [], [
        *plain_columns(number=False, address="Matrix", side="Side"),
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
        row = _row(cell) | {"state": state(summary, cell), "outcomes": None}
        for outcome in cell.outcomes:
            of_task = f"{outcome.task}, "
            row |= _ends(f"{of_task}accuracy", outcome.accuracy) | _ends(f"{of_task}change", outcome.drop.negative)
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
        {"what": what, "edit": edit, "p": outcome.gain.p, **_row(outcome, gold_gain="gold_")}
        | _ends("p_right_gain", outcome.right_gain or Estimate(value=None))
        | _ends("p_tempting_gain", outcome.tempting_gain or Estimate(value=None))
        for what, edit, outcomes in (
            (single, summary.best, summary.best_tests),
            ("composed", summary.composed, summary.composed_tests),
        )
        for outcome in outcomes
    ]
    columns = (
        "what edit task items baseline accuracy low high gain gain_low gain_high p gold_gain gold_low gold_high"
        " label_share collapsed p_right_gain p_right_gain_low p_right_gain_high p_tempting_gain p_tempting_gain_low"
        " p_tempting_gain_high"
    )

    def label(row: Any) -> str:
        before = wording.percent(summary.base(row["task"], "test").label_share, 0)
        return f"{before} → {wording.percent(row['label_share'], 0)}{' collapsed' if row['collapsed'] else ''}"

    roles = {"best": "best, not chosen"}
    return Table(
        "test" if rows else "",
        _frame(rows, columns),
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


def rivals(summary: TruncationSummary) -> Table:
    """A row per task and rival of the edit: `rivals.csv`."""
    rows = [
        {"name": rival_name(rival), "p": None if rival.beyond is None else rival.beyond.p, **_row(rival)}
        | {"forbidden": " ".join(map(repr, rival.forbidden))}
        | {key: value for name in ("gain", "edited", "beyond")
           for key, value in _ends(name, getattr(rival, name) or Estimate(value=None)).items()}
        for rival in summary.rivals
    ]  # fmt: skip
    columns = (
        "task what name rival forbidden fitted validation candidates chance items accuracy low high gain gain_low"
        " gain_high edited edited_low edited_high beyond beyond_low beyond_high p"
    )
    return Table(
        "rivals" if rows else "",
        _frame(rows, columns),
        (
            Column("task", "Task", number=False),
            Column("name", "Rival", number=False),
            Column("items", "Items"),
            Column("accuracy", "Accuracy", row=_percent("accuracy")),
            Column("gain", "Gain over unedited, points", row=_points("gain")),
            Column("edited", "With the edit, or the edit instead", row=_percent("edited")),
            Column("beyond", "The edit adds, points", row=_points("beyond")),
            Column("p", "p", wording.p_value),
        ),
        title="Rivals of the edit, on test items",
        caption=RIVALS_CAPTION,
        mark=lambda row: bool(row["fitted"]),
    )


def composition(summary: TruncationSummary) -> Table:
    """A row per step: `composition.csv`."""
    rows = [
        _row(step) | {"before": summary.score(step.before), "after": summary.score(step.after)} for step in summary.path
    ]

    def score(value: float | None) -> str:
        return numbers.score(summary, value)

    return Table(
        "composition" if rows else "",
        _frame(rows, "step edit added before after accepted reason"),
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
    rows = [_row(tokens) | {"part": "test"} for tokens in summary.tokens]
    columns = (
        "task part edit revision items p_right p_right_low p_right_high p_tempting p_tempting_low p_tempting_high"
        " rank_right rank_tempting margin margin_low margin_high"
    )
    return Table(
        "tokens" if rows else "",
        _frame(rows, columns),
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
    rows = [_row(outcome) for outcome in summary.revisions]
    columns = "revision edit task items accuracy low high gold label label_share collapsed"
    return Table("revisions" if rows else "", _frame(rows, columns))


def spectra(summary: TruncationSummary) -> Table:
    """A row per singular value: `spectra.csv`."""
    rows = [
        {"address": spectrum.address, "index": index, "value": value}
        for spectrum in summary.spectra
        for index, value in zip(spectrum.index, spectrum.values, strict=True)
    ]
    return Table("spectra", pd.DataFrame(rows))


def _frame(rows: Sequence[Mapping[str, object]], columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns.split())


def _row(value: Value, **prefixes: str) -> dict[str, object]:
    """The fields of a value; estimates as `_ends` has them, the ends of an accuracy without a prefix."""
    row: dict[str, object] = {}
    for name, part in value:
        row |= (
            _ends(name, part, ({"accuracy": ""} | prefixes).get(name)) if isinstance(part, Estimate) else {name: part}
        )
    return row


def _ends(name: str, estimate: Estimate, prefix: str | None = None) -> dict[str, object]:
    """The value of an estimate, and behind the prefix, by default its name, `low` and `high`."""
    prefix = f"{name}_" if prefix is None else prefix
    return {name: estimate.value, f"{prefix}low": estimate.low, f"{prefix}high": estimate.high}


def _estimate(row: Any, name: str, prefix: str) -> Estimate:
    return Estimate(value=row.get(name), low=row.get(f"{prefix}low"), high=row.get(f"{prefix}high"))


def _percent(name: str) -> Callable[[Any], str]:
    """What writes an accuracy with its interval."""
    prefix = "" if name == "accuracy" else f"{name}_"
    return lambda row: numbers.percent_estimate(_estimate(row, name, prefix))


def _points(name: str) -> Callable[[Any], str]:
    return lambda row: numbers.points_estimate(_estimate(row, name, f"{name}_"))


def _nats(name: str, prefix: str) -> Callable[[Any], str]:
    return lambda row: numbers.nats_estimate(_estimate(row, name, prefix))


def _probability(name: str) -> Callable[[Any], str]:
    return lambda row: numbers.probability(_estimate(row, name, f"{name}_"))
