"""The data behind the page's item browser: every verdict, and each text once, as far as a budget goes."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lesion.report import wording
from lesion.report.names import Names
from lesion.tasks.style import unclosed

BUDGET = 3_000_000
"""Characters of questions and answers that a page carries at most."""
LONGEST = 6_000
"""Characters of one text; of a longer one the beginning and the end are kept, where the answer stands."""
Carried = dict[str, Any]
"""What the browser's script reads:

`texts`, each once; `models`; `tasks` (`name`, `total`, and `items` as [id, question, gold, group]); and `cells`
(`model`, `task`, `edit`, `label`, `verdicts` as a string over all items: 1, 0, or - for no answer; and per shown item
the numbers of its `texts` and `parsed`, -1 for none and -2 for thinking that was
never closed, `finish` as s, l, r, n, or - where it is not known, and `tokens`). A study may add `words`, what the
browser calls its choices, and `opens`, which cell it shows first (`model` and `task` by number, and `edit`).
"""
NOTHING: Carried = {"texts": [], "models": [], "tasks": [], "cells": []}
FINISHES = {"stop": "s", "length": "l", "loop": "r", "nonfinite": "n"}
BESIDE = 12
"""Characters that an answer takes in a page besides its texts: its verdict, their numbers, its tokens."""


class Offered(NamedTuple):
    """An edit of one model on one task, with the name under which the page offers it; `baseline` is the unedited."""

    model: str
    task: str
    edit: str
    label: str


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text when it is at most `longest` characters, else its first third and its end."""
    clean = wording.printable(text)
    if len(clean) <= longest:
        return clean
    head = longest // 3
    tail = longest - head
    return f"{clean[:head]}\n[… {len(clean) - longest:,} characters left out of this page …]\n{clean[-tail:]}"


def in_short(carried: Carried, names: Names) -> Carried:
    """The same with short names of models and tasks."""
    tasks = [task | {"name": names(task["name"])} for task in carried["tasks"]]
    return carried | {"models": names.within(carried["models"]), "tasks": tasks}


def data(
    offered: Sequence[Offered], answers: pd.DataFrame, items: pd.DataFrame, budget: int = BUDGET, *, bare: bool = False
) -> Carried:
    """What the browser's script reads, from a table of answers.

    Items are taken in the order of `items`, one of each task in turn, until what they take under all edits reaches
    `budget` characters; an item is shown under every edit or not at all, so that no filter is biased by the
    choice. Verdicts are there for every item.

    Args:
        offered: the edits of every model and task, the unedited ones too, in the order in which they are offered.
        answers: columns model_name, task, edit, item, text, tokens, finish, correct, parsed.
        items: columns task, item, question, gold, group.
        bare: whether verdicts are carried where nothing has a text.
    """
    if answers.empty or items.empty or not (bare or items["question"].any() or answers["text"].any()):
        return dict(NOTHING)
    columns = items.drop_duplicates(["task", "item"])[["task", "item", "question", "gold", "group"]]
    of_task: dict[str, list[list[str]]] = {each.task: [] for each in offered}
    for task, *values in columns.itertuples(index=False):
        if task in of_task:
            of_task[task].append(["" if pd.isna(value) else str(value) for value in values])
    ids = {task: pd.Index([row[0] for row in rows]) for task, rows in of_task.items()}
    places = dict(iter(answers.groupby(["model_name", "task", "edit"], sort=False)))
    first: dict[tuple[str, str, str], Offered] = {}
    for each in offered:
        first.setdefault(each[:3], each)
    cells = {each: _by_item(places[place], ids[each.task]) for place, each in first.items() if place in places}
    models, names = list(dict.fromkeys(each.model for each in offered)), list(of_task)
    kept = _fitting(of_task, cells, budget)
    numbers: dict[str, int] = {}
    return {
        "tasks": [
            {
                "name": wording.printable(name),
                "total": len(of_task[name]),
                "items": [
                    [wording.printable(item), shortened(question), shortened(gold), wording.printable(group)]
                    for item, question, gold, group in of_task[name][: kept[name]]
                ],
            }
            for name in names
        ],
        "models": [wording.printable(model) for model in models],
        "cells": [
            {"model": models.index(cell.model), "task": names.index(cell.task), "edit": cell.edit, "label": cell.label}
            | _packed(answered, kept[cell.task], numbers)
            for cell, answered in cells.items()
        ],
        "texts": list(numbers),
    }


def _by_item(answers: pd.DataFrame, ids: pd.Index) -> pd.DataFrame:
    """What was answered first to each item; a row without a verdict for those without an answer."""
    named = answers.assign(item=answers["item"].astype(str))
    return named.drop_duplicates("item").set_index("item").reindex(ids)


def _fitting(
    of_task: Mapping[str, list[list[str]]], cells: Mapping[Offered, pd.DataFrame], budget: int
) -> dict[str, int]:
    """How many items of each task fit the budget, taking one of each task in turn; at least one of each."""
    kept = dict.fromkeys(of_task, 0)
    texts = {name: [rows["text"].to_list() for cell, rows in cells.items() if cell.task == name] for name in of_task}
    spent = 0
    for turn in range(max(map(len, of_task.values()), default=0)):
        for name, items in of_task.items():
            if turn >= len(items):
                continue
            item, question = items[turn][:2]
            every = {own[turn] for own in texts[name] if isinstance(own[turn], str)}
            spent += len(item) + BESIDE * len(texts[name]) + sum(min(len(text), LONGEST) for text in (question, *every))
            if spent > budget and turn > 0:
                return kept
            kept[name] = turn + 1
    return kept


def _packed(answers: pd.DataFrame, kept: int, numbers: dict[str, int]) -> dict[str, str | list[int]]:
    """A cell's answers by item, the texts of the first `kept` by number; a new text gets the next number."""

    def number(text: str) -> int:
        return numbers.setdefault(shortened(text), len(numbers))

    given = answers["correct"].notna()
    verdicts = np.where(given, np.where(answers["correct"].eq(True), "1", "0"), "-")
    shown = answers[["text", "parsed", "finish", "tokens"]].head(kept).where(given.head(kept))
    (of_text, texts), (of_parsed, parsed) = (pd.factorize(shown[column]) for column in ("text", "parsed"))
    endless = np.array([*map(unclosed, texts), False])[of_text]
    return {
        "verdicts": "".join(verdicts),
        "texts": np.array([*map(number, texts), -1])[of_text].tolist(),
        "parsed": np.where(endless, -2, np.array([*map(number, parsed), -1])[of_parsed]).tolist(),
        "finish": "".join(shown["finish"].map(FINISHES).fillna("-")),
        "tokens": shown["tokens"].fillna(0).astype(int).to_list(),
    }


def compressed(value: object) -> str:
    """A text, or a value as JSON, as zlib in base64: what the page's script inflates."""
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8"))).decode("ascii")
