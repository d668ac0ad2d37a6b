"""The items of a comparison: question, gold answer and both answers side by side, as a table and on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from lesion.report import browser, wording
from lesion.report.browser import Carried, Offered
from lesion.report.table import Table, plain_columns
from lesion.studies.comparison.reading import Match, sources_of
from lesion.studies.comparison.result import UNEDITED, Compared, ComparisonSummary, Pair
from lesion.studies.comparison.summary import answered, common_items, unedited_verdicts, values

MOST_ROWS = 50_000
"""A file of items has at most so many rows; of a larger comparison those of the unedited models."""
CHANGES = {(False, True): "gained", (True, False): "lost", (True, True): "both right", (False, False): "both wrong"}
WORDS = {
    "model": "Edit",
    "edit": "Compared with",
    "filters": {
        "all": "all",
        "repaired": "gained",
        "broken": "lost",
        "wrong": "wrong in both",
        "right": "right in both",
    },
}
"""What the item browser of the page calls its choices."""


def items(summary: ComparisonSummary, matches: Sequence[Match]) -> pd.DataFrame:
    """A row per pair, task, edit and item.

    Returns:
        Columns a, b, task, edit, edit_b, item, group, question, gold, answer_a, answer_b, read_a, read_b (the answer
        that the judge read), correct_a, correct_b and change (gained, lost, both right, both wrong); of scored tasks
        score_a and score_b, such as log-probabilities in nats.
    """
    parts = [_rows(pair, match, cell) for pair, match, cell in _cells(summary, matches)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def table(summary: ComparisonSummary, matches: Sequence[Match]) -> Table:
    """The file `items.csv`."""
    rows = sum(cell.items for pair in summary.pairs for cell in pair.cells)
    if rows > MOST_ROWS:
        unedited = [tuple(cell for cell in pair.cells if cell.unedited) for pair in summary.pairs]
        cut = zip(summary.pairs, unedited, strict=True)
        pairs = tuple(pair.model_copy(update={"cells": cells}) for pair, cells in cut)
        summary = summary.model_copy(update={"pairs": pairs})
    return Table("items", items(summary, matches))


def wrong_in_all(summary: ComparisonSummary, matches: Sequence[Match]) -> pd.DataFrame:
    """The items that every side, unedited, gets wrong.

    Returns:
        Columns task, item, group, question, gold, and for every side what was read of its answer, under its label.
    """
    sources, parts = sources_of(matches), []
    for task in summary.tasks:
        verdicts = unedited_verdicts(task.name, sources, common_items(task.name, matches))
        if task.scored or verdicts.empty:
            continue
        chosen = verdicts.index[~verdicts.any(axis=1)]
        cells = {source.side.label: source.cells.get((task.name, UNEDITED)) for source in sources}
        known = {label: cell.loc[chosen] for label, cell in cells.items() if cell is not None}
        frame = next(iter(known.values()))[["group", "question", "gold"]].reset_index()
        frame.insert(0, "task", task.name)
        answers = {label: _said(cell).to_numpy(dtype=object) for label, cell in known.items()}
        parts.append(frame.assign(**answers))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def shown(frame: pd.DataFrame) -> Table:
    """Items that all sides get wrong, as the page and the terminal show them."""
    texts = frame.drop(columns=["group"]).map(lambda text: wording.short(str(text), 160))
    titles = {"task": "Task", "item": "Item", "question": "Question", "gold": "Right answer"}
    columns = plain_columns(number=False, **{str(key): titles.get(str(key), str(key)) for key in texts})
    return Table("", texts, columns)


def _said(rows: pd.DataFrame) -> pd.Series:
    """What was read of each answer, else the answer itself."""
    return rows["parsed"].where(rows["parsed"].notna(), rows["text"])


def carried(summary: ComparisonSummary, matches: Sequence[Match], budget: int = browser.BUDGET) -> Carried:
    """What the page's item browser reads: the first side stands on the left, the side compared with it on the right."""
    offered, answers, questions = [], [], []
    if not any(source.answers["text"].any() or source.answers["question"].any() for source in sources_of(matches)):
        return browser.NOTHING
    for pair, match, cell in _cells(summary, matches):
        row, chosen = row_name(summary, pair, cell), match.items[cell.task]
        for source, edit, name in ((match.a, cell.edit_a, UNEDITED), (match.b, cell.edit_b, pair.b)):
            rows = source.cells[cell.task, edit]
            rows = rows.loc[answered(chosen, rows.index)].reset_index()
            questions.append(rows[["task", "item", "question", "gold", "group"]])
            answers.append(rows.assign(model_name=row, edit=name))
        offered.append(Offered(row, cell.task, UNEDITED, pair.a))
        offered.append(Offered(row, cell.task, pair.b, pair.b))
    data = browser.data(offered, pd.concat(answers), pd.concat(questions, ignore_index=True), budget)
    return data | {"words": WORDS}


def row_name(summary: ComparisonSummary, pair: Pair, cell: Compared) -> str:
    """What the item browser calls an edit; with the first side where the pairs have several of those."""
    edit = "unedited" if cell.unedited else cell.edit
    return edit if len({each.a for each in summary.pairs}) == 1 else f"{edit} · {pair.a}"


def _cells(summary: ComparisonSummary, matches: Sequence[Match]) -> Iterator[tuple[Pair, Match, Compared]]:
    for pair, match in zip(summary.pairs, matches, strict=True):
        for cell in pair.cells:
            yield pair, match, cell


def _rows(pair: Pair, match: Match, cell: Compared) -> pd.DataFrame:
    first, second = match.a.cells[cell.task, cell.edit_a], match.b.cells[cell.task, cell.edit_b]
    chosen = answered(match.items[cell.task], first.index, second.index)
    first, second = first.loc[chosen], second.loc[chosen]
    known = {"a": pair.a, "b": pair.b, "task": cell.task, "edit": cell.edit_a, "edit_b": cell.edit_b, "item": chosen}
    frame = pd.DataFrame(known)
    for name in ("group", "question", "gold"):
        frame[name] = first[name].to_numpy(dtype=object)
    if cell.counts is None:
        for side, rows in (("a", first), ("b", second)):
            frame[f"score_{side}"] = values(rows, chosen)
        return frame
    for name, column in (("answer", "text"), ("read", "parsed"), ("correct", "correct")):
        for side, rows in (("a", first), ("b", second)):
            frame[f"{name}_{side}"] = rows[column].to_numpy(dtype=bool if name == "correct" else object)
    frame["change"] = [CHANGES[bool(a), bool(b)] for a, b in zip(frame["correct_a"], frame["correct_b"], strict=True)]
    return frame
