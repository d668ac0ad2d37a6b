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
"""So many rows has `items.csv` at most, which repeats question and answers for every pair."""
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
    """The file `items.csv`; where that would have more than `MOST_ROWS` rows `verdicts.csv`, a row an item."""
    if sum(cell.items for pair in summary.pairs for cell in pair.cells) <= MOST_ROWS:
        return Table("items", items(summary, matches))
    return Table("verdicts", verdicts(summary, matches))


NO_VERDICTS = pd.Series(dtype=float)


def verdicts(summary: ComparisonSummary, matches: Sequence[Match]) -> pd.DataFrame:
    """A row per task and item, a column for each side under each of its edits.

    Returns:
        Columns task, item, group, question, gold, and of every side and edit 1 (right) or 0, of scored tasks the score;
        nothing where there is no answer to the item that the sides share.
    """
    parts = []
    for task in summary.tasks:
        columns: dict[str, pd.Series] = {}
        known: list[pd.DataFrame] = []
        for pair, match, cell in _cells(summary, matches):
            if cell.task != task.name:
                continue
            chosen = match.items[task.name]
            known.append(match.a.items[task.name].loc[chosen])
            for label, source, edit in ((pair.a, match.a, cell.edit_a), (pair.b, match.b, cell.edit_b)):
                rows = source.cells[task.name, edit]
                name = _column(label) if edit == UNEDITED else f"{label} · {edit}"
                column = columns.get(name, NO_VERDICTS)
                ids = answered(chosen, rows.index).difference(column.index, sort=False)
                if len(ids):
                    new = pd.Series(values(rows, ids), ids)
                    columns[name] = pd.concat([column, new]) if len(column) else new
        shared = pd.concat(known)
        shared = shared[~shared.index.duplicated()]
        frame = pd.DataFrame({name: column.reindex(shared.index) for name, column in columns.items()})
        if not task.scored:
            frame = frame.astype("Int64")
        about = shared[["group", "question", "gold"]].rename_axis("item").reset_index()
        about.insert(0, "task", task.name)
        parts.append(pd.concat([about, frame.reset_index(drop=True)], axis=1))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


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
        answers = {_column(label): _said(cell).to_numpy(dtype=object) for label, cell in known.items()}
        parts.append(frame.assign(**answers))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _column(label: str) -> str:
    """The column of a side, also of one that is called as a column of the items is."""
    return f"side {label}" if label in ("task", "item", "group", "question", "gold") else label


def shown(frame: pd.DataFrame) -> Table:
    """Items that all sides get wrong, as the page and the terminal show them."""
    texts = frame.drop(columns=["group"]).fillna("").map(lambda text: wording.short(str(text), 160))
    titles = {"task": "Task", "item": "Item", "question": "Question", "gold": "Right answer"}
    columns = plain_columns(number=False, **{str(key): titles.get(str(key), str(key)) for key in texts})
    return Table("", texts, columns)


def _said(rows: pd.DataFrame) -> pd.Series:
    """What was read of each answer, else the answer itself."""
    return rows["parsed"].where(rows["parsed"].notna(), rows["text"])


def carried(summary: ComparisonSummary, matches: Sequence[Match], budget: int = browser.BUDGET) -> Carried:
    """What the page's item browser reads: the first side stands on the left, the side compared with it on the right."""
    offered, questions = [], []
    answers: dict[tuple[str, str, str], pd.DataFrame] = {}
    asked: dict[str, pd.Index] = {}
    bare = not any(source.answers["text"].any() or source.answers["question"].any() for source in sources_of(matches))
    for pair, match, cell in _cells(summary, matches):
        if cell.counts is None:  # nothing is right or wrong
            continue
        row, chosen = row_name(summary, pair, cell), match.items[cell.task]
        first, second = match.a.cells[cell.task, cell.edit_a], match.b.cells[cell.task, cell.edit_b]
        second = second.loc[answered(chosen, second.index)]
        for rows, edit, side in ((first, UNEDITED, pair.a), (second, browsed(pair), pair.b)):
            offered.append(Offered(row, cell.task, edit, side))
            if not rows["text"].any():  # no answer is there, which is not to say that none could be read
                rows = rows.assign(parsed="")
            known = rows[["task", "text", "parsed", "finish", "tokens", "correct"]]
            answers.setdefault((row, cell.task, edit), known.assign(model_name=row, edit=edit))
        before = asked.get(cell.task, chosen[:0])
        asked[cell.task] = before.union(chosen, sort=False)
        new = first.loc[answered(chosen.difference(before, sort=False), first.index)]
        questions.append(new[["task", "question", "gold", "group"]].reset_index())
    if not offered:
        return browser.NOTHING
    given = pd.concat(answers.values()).reset_index()
    data = browser.data(offered, given, pd.concat(questions, ignore_index=True), budget, bare=bare)
    data["words"] = WORDS
    if summary.leading is not None and summary.leading[1].counts is not None:
        pair, cell = summary.leading
        models, tasks = (list(dict.fromkeys(names)) for names in list(zip(*offered, strict=True))[:2])
        data["opens"] = {
            "model": models.index(row_name(summary, pair, cell)), "task": tasks.index(cell.task), "edit": browsed(pair),
        }  # fmt: skip
    return data


def browsed(pair: Pair) -> str:
    """What the item browser calls the second side of a pair: its label, unless that stands for the first side there."""
    return pair.b if pair.b != UNEDITED else f"side {pair.b}"


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
