"""The data behind the page's item browser: every verdict, and each text once, as far as a budget goes."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
never closed, `finish` as s, l, r or n, and `tokens`).
"""
NOTHING: Carried = {"texts": [], "models": [], "tasks": [], "cells": []}
FINISHES = {"stop": "s", "length": "l", "loop": "r", "nonfinite": "n"}


class BrowserAnswer(NamedTuple):
    """One answer."""

    text: str
    tokens: int
    finish: str
    correct: bool
    parsed: str | None


Answers = dict[str, BrowserAnswer]
"""The answers of one model to one task under one edit, by item."""


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


def data(offered: Sequence[Offered], answers: pd.DataFrame, items: pd.DataFrame, budget: int = BUDGET) -> Carried:
    """What the browser's script reads, from a table of answers.

    Items are taken in the order of `items`, one of each task in turn, until their texts under all edits reach
    `budget` characters; an item is shown under every edit or not at all, so that no filter is biased by the
    choice. Verdicts are there for every item.

    Args:
        offered: the edits of every model and task, the unedited ones too, in the order in which they are offered.
        answers: columns model_name, task, edit, item, text, tokens, finish, correct, parsed.
        items: columns task, item, question, gold, group.
    """
    if answers.empty or items.empty or not (items["question"].any() or answers["text"].any()):  # shared without texts
        return dict(NOTHING)
    by_place = _by_place(answers)
    first = {each[:3]: each for each in reversed(offered)}
    cells = {
        first[place]: by_place[place] for place in dict.fromkeys(each[:3] for each in offered) if place in by_place
    }
    models, names = (list(dict.fromkeys(getattr(each, name) for each in offered)) for name in ("model", "task"))
    columns = items.drop_duplicates(["task", "item"])[["task", "item", "question", "gold", "group"]]
    of_task: dict[str, list[list[str]]] = {name: [] for name in names}
    for task, *values in columns.itertuples(index=False):
        if task in of_task:
            of_task[task].append(["" if pd.isna(value) else str(value) for value in values])
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
            | _packed([answered.get(row[0]) for row in of_task[cell.task]], kept[cell.task], numbers)
            for cell, answered in cells.items()
        ],
        "texts": list(numbers),
    }


def _by_place(answers: pd.DataFrame) -> dict[tuple[str, str, str], Answers]:
    """(model, task, edit) → item → what was answered first."""
    by_place: dict[tuple[str, str, str], Answers] = {}
    names = ["model_name", "task", "edit", "item", "text", "tokens", "finish", "correct", "parsed"]
    for model, task, edit, item, text, tokens, finish, correct, parsed in answers[names].itertuples(index=False):
        answer = BrowserAnswer(
            text if isinstance(text, str) else "",
            int(tokens) if pd.notna(tokens) else 0,
            str(finish),
            bool(correct),
            parsed if isinstance(parsed, str) else None,
        )
        by_place.setdefault((model, task, edit), {}).setdefault(str(item), answer)
    return by_place


def _fitting(of_task: dict[str, list[list[str]]], cells: Mapping[Offered, Answers], budget: int) -> dict[str, int]:
    """How many items of each task fit the budget, taking one of each task in turn; at least one of each."""
    kept = dict.fromkeys(of_task, 0)
    spent = 0
    for turn in range(max(map(len, of_task.values()), default=0)):
        for name, rows in of_task.items():
            if turn >= len(rows):
                continue
            item, question = rows[turn][:2]
            texts = {own[item].text for cell, own in cells.items() if cell.task == name and item in own}
            spent += sum(min(len(text), LONGEST) for text in (question, *texts))
            if spent > budget and turn > 0:
                return kept
            kept[name] = turn + 1
    return kept


def _packed(every: list[BrowserAnswer | None], kept: int, numbers: dict[str, int]) -> dict[str, str | list[int]]:
    """A cell's answers, the texts of the first `kept` by number; a new text gets the next number."""

    def number(text: str | None) -> int:
        return -1 if text is None else numbers.setdefault(shortened(text), len(numbers))

    shown = every[:kept]
    return {
        "verdicts": "".join("-" if answer is None else str(int(answer.correct)) for answer in every),
        "texts": [number(answer.text if answer else None) for answer in shown],
        "parsed": [-2 if answer and unclosed(answer.text) else number(answer and answer.parsed) for answer in shown],
        "finish": "".join(FINISHES.get(answer.finish, "s") if answer else "-" for answer in shown),
        "tokens": [answer.tokens if answer else 0 for answer in shown],
    }


def compressed(value: object) -> str:
    """A text, or a value as JSON, as zlib in base64: what the page's script inflates."""
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8"), 9)).decode("ascii")
