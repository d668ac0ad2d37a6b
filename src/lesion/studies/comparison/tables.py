"""The tables of a comparison: every edit of a pair, every drop, every item; and what a terminal shows."""

from __future__ import annotations

from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.forms import decimals
from lesion.report.table import Column, Table, plain_columns
from lesion.report.values import Estimate
from lesion.studies.comparison import findings as prose
from lesion.studies.comparison.result import ComparisonSummary, Pair

MOST = 40
"""The terminal shows so many rows of a table."""
LONGEST = 18
"""Characters of a side's name at the head of a column."""
_ENDS = ("value", "low", "high", "p", "p_corrected")


def comparison(summary: ComparisonSummary) -> Table:
    """A row per pair, task and edit: `comparison.csv`; accuracies as fractions, log-probabilities in nats."""
    return Table("comparison", pd.DataFrame([row for pair in summary.pairs for row in _rows(pair)], columns=_KEYS))


_CLUSTERED = ("low_clustered", "high_clustered", "design_effect", "clusters")
_KEYS = [
    *("a", "b", "task", "edit", "edit_b", "items", "value_a", "low_a", "high_a", "value_b", "low_b", "high_b"),
    *("difference", "low", "high", "p", "p_corrected", "gained", "lost", "both_right", "both_wrong"),
    *("extra_drop", "extra_low", "extra_high", "extra_p", "extra_p_corrected"),
    *_CLUSTERED,
]


def _rows(pair: Pair) -> list[dict[str, Any]]:
    rows = []
    for cell in pair.cells:
        extra = cell.extra_drop or Estimate(value=None)
        counts = cell.counts.model_dump() if cell.counts else dict.fromkeys(_KEYS[17:21])
        row: dict[str, Any] = {"a": pair.a, "b": pair.b, "task": cell.task, "edit": cell.edit_a, "edit_b": cell.edit_b}
        row |= {"items": cell.items}
        for side, estimate in (("a", cell.a), ("b", cell.b)):
            row |= {f"{end}_{side}": getattr(estimate, end) for end in _ENDS[:3]}
        row |= {"difference": cell.difference.value}
        row |= {end: getattr(cell.difference, end) for end in _ENDS[1:]} | counts
        row |= {"extra_drop": extra.value} | {f"extra_{end}": getattr(extra, end) for end in _ENDS[1:]}
        if (over := cell.clustered) is not None:
            row |= dict(zip(_CLUSTERED, (over.low, over.high, over.design, over.clusters), strict=True))
        rows.append(row)
    return rows


def of_pair(pair: Pair, task: str, *, scored: bool, level: float) -> Table:
    """One task of a pair, as people read it."""
    rows = [row for row in _rows(pair) if row["task"] == task]
    frame = pd.DataFrame(rows, columns=_KEYS).assign(shown=[cell.edit for cell in pair.of_task(task)])
    frame["shown"] = frame["shown"].replace("baseline", "unedited")
    number = decimals(3) if scored else wording.points
    between = prose.nats if scored else wording.interval
    plus = decimals(3, signed=True) if scored else wording.signed

    def with_interval(value: str, low: str, high: str) -> Any:
        def written(row: dict[str, Any]) -> str:
            if row[value] is None:
                return wording.DASH
            return f"{plus(row[value])} {between(row[low], row[high])}".strip()

        return written

    a, b = (wording.short(name, LONGEST) for name in (pair.a, pair.b))
    columns = [
        Column("shown", "Edit", number=False),
        Column("items", "Items"),
        Column("value_a", a, number),
        Column("value_b", b, number),
        Column("difference", "Difference", row=with_interval("difference", "low", "high")),
        Column("p_corrected", "p", wording.p_value),
    ]
    if not scored:
        columns += [Column("gained", "Changed", row=_changed), Column("both_wrong", "Both wrong")]
    if frame["extra_drop"].notna().any():
        extra = with_interval("extra_drop", "extra_low", "extra_high")
        columns += [
            Column("extra_drop", "Extra drop", row=extra),
            Column("extra_p_corrected", "p of it", wording.p_value),
        ]
    unit = "Mean log-probability of an item in nats" if scored else "Accuracy in %, differences in points"
    caption = (
        f"{unit}, with {100 * level:g}{wording.SPACE}% intervals of paired differences, {pair.b} minus {pair.a}. p:"
        " corrected over all comparisons of unedited models, or of edits. Changed: items gained and lost. Extra drop:"
        f" what the edit takes from {pair.b} minus what it takes from {pair.a}."
    )
    return Table("", frame, tuple(columns), title=f"{task}: {pair.b} against {pair.a}", caption=caption, mark=_marked)


def overview(summary: ComparisonSummary) -> Table:
    """Every edit of every pair, the difference first: what a notebook shows."""
    scored = {(pair.a, pair.b, cell.task): cell.counts is None for pair in summary.pairs for cell in pair.cells}
    frame = pd.DataFrame([row for pair in summary.pairs for row in _rows(pair)], columns=_KEYS)
    frame["shown"] = [cell.edit for pair in summary.pairs for cell in pair.cells]
    frame["shown"] = frame["shown"].replace("baseline", "unedited")

    def in_nats(row: dict[str, Any]) -> bool:
        return scored[row["a"], row["b"], row["task"]]

    def side(key: str) -> Any:
        return lambda row: decimals(3)(row[key]) if in_nats(row) else wording.points(row[key])

    def with_interval(value: str, low: str, high: str) -> Any:
        def written(row: dict[str, Any]) -> str:
            if pd.isna(row[value]):
                return wording.DASH
            plus, between = (
                (decimals(3, signed=True), prose.nats) if in_nats(row) else (wording.signed, wording.interval)
            )
            return f"{plus(row[value])} {between(row[low], row[high])}".strip()

        return written

    pairs = list(dict.fromkeys((pair.a, pair.b) for pair in summary.pairs))
    a, b = (wording.short(name, LONGEST) for name in pairs[0]) if len(pairs) == 1 else ("a", "b")
    columns = [
        *([Column("b", "Pair", number=False, row=lambda row: f"{row['b']} − {row['a']}")] if len(pairs) > 1 else []),
        *([Column("task", "Task", number=False)] if frame["task"].nunique() > 1 else []),
        Column("shown", "Edit", number=False),
        Column("difference", f"Difference, {b} − {a}", row=with_interval("difference", "low", "high")),
        Column("p_corrected", "p", wording.p_value),
    ]
    if frame["extra_drop"].notna().any():
        extra = with_interval("extra_drop", "extra_low", "extra_high")
        columns += [
            Column("extra_drop", "Extra drop", row=extra),
            Column("extra_p_corrected", "p of it", wording.p_value),
        ]
    columns += [
        Column("value_a", a, row=side("value_a")),
        Column("value_b", b, row=side("value_b")),
        Column("items", "Items"),
    ]
    return Table("", frame, tuple(columns), mark=_marked)


def _changed(row: dict[str, Any]) -> str:
    return f"+{row['gained']} {wording.MINUS}{row['lost']}"


def _marked(row: dict[str, Any]) -> bool:
    p = row["p_corrected"]
    return p is not None and p <= wording.ALPHA


def drops(summary: ComparisonSummary) -> Table:
    """Every edit of every side against its own unedited model: `drops.csv`."""
    rows = []
    for each in summary.drops:
        row = {"side": each.side, "task": each.task, "edit": each.edit, "items": each.items, "value": each.value.value}
        rows.append(row | {"drop": each.drop.value, "low": each.drop.low, "high": each.drop.high})
    scored = {task.name for task in summary.tasks if task.scored}
    frame = pd.DataFrame(rows, columns=["side", "task", "edit", "items", "value", "drop", "low", "high"])

    def value(row: dict[str, Any]) -> str:
        return decimals(3)(row["value"]) if row["task"] in scored else wording.points(row["value"])

    def drop(row: dict[str, Any]) -> str:
        if row["task"] in scored:
            return f"{decimals(3)(row['drop'])} {prose.nats(row['low'], row['high'])}".strip()
        return f"{wording.points(row['drop'])} {wording.interval(row['low'], row['high'])}".strip()

    columns = (
        *plain_columns(number=False, side="Side", task="Task", edit="Edit"),
        *plain_columns(items="Items"),
        Column("value", "Under the edit", row=value),
        Column("drop", "Drop", row=drop),
    )
    caption = "Drop: unedited minus edited, on the items that are compared; in points, of scored tasks in nats."
    return Table("drops", frame, columns, title="Every edit against its own unedited model", caption=caption)


def text(summary: ComparisonSummary) -> RenderableType:
    """What the verdicts rest on, then a table per pair and task, for a terminal; the verdicts stand above."""
    parts: list[RenderableType] = []
    for finding in prose.findings(summary):
        parts += map(_line, finding.sentences)
    parts.append(Text())
    wanted = ["shown", "value_a", "value_b", "difference", "p_corrected", "gained", "both_wrong"]
    for pair in summary.pairs:
        for task in summary.tasks:
            cells = pair.of_task(task.name)
            if cells:
                table = of_pair(pair, task.name, scored=task.scored, level=summary.study.level)
                varying = ["items"] if table.frame["items"].nunique() > 1 else []
                parts.append(table.terminal([*wanted, *varying], MOST))
            if len(cells) > MOST:
                parts.append(_line(f"… and {len(cells) - MOST:,} more rows, in comparison.csv."))
    if summary.pairs:
        parts.append(_line(_legend(summary)))
    return Group(*parts)


def _legend(summary: ComparisonSummary) -> str:
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    some = any(task.scored for task in summary.tasks)
    scored = " Of scored tasks: the mean log-probability of an item, in nats." if some else ""
    return (
        f"Accuracy in %; difference in points with its paired {level} interval; p corrected over all comparisons of"
        f" unedited models, or of edits; a difference is shown where that is at most .05. Intervals are not corrected."
        f" Changed: +{wording.SPACE}only the second is right,"
        f" {wording.MINUS}{wording.SPACE}only the first.{scored}"
    )


def _line(text_: str) -> Text:
    return Text(visible(text_.replace(wording.SPACE, " ")))
