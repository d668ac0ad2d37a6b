"""The data behind the page's item browser: every verdict, and each text once, as far as a budget goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from lesion.report import wording

BUDGET = 3_000_000
"""Characters of questions and answers that a page carries at most."""
LONGEST = 6_000
"""Characters of one text; of a longer one the beginning and the end are kept, where the answer stands."""
VERDICTS = {True: "1", False: "0", None: "-"}
NOTHING: dict[str, Any] = {"texts": [], "models": [], "tasks": [], "cells": []}
FINISHES = {"stop": "s", "length": "l", "loop": "r", "nonfinite": "n"}


@dataclass
class Texts:
    """Texts by number, each kept once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        """The number of a text, new or known."""
        return self.numbers.setdefault(text, len(self.numbers))


class Said(NamedTuple):
    """One answer."""

    text: str
    tokens: int
    finish: str
    correct: bool
    parsed: str | None


@dataclass(frozen=True)
class Cell:
    """The answers of one model to one task under one edit, by item id."""

    model: str
    task: str
    edit: str
    label: str
    answers: dict[str, Said]


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


def data(
    offered: Sequence[Offered], answers: pd.DataFrame, items: pd.DataFrame, budget: int = BUDGET
) -> dict[str, Any]:
    """What the browser's script reads.

    Items are taken in the order of `items`, one of each task in turn, until their texts under all edits reach
    `budget` characters; an item is shown under every edit or not at all, so that no filter is biased by the
    choice. Verdicts are there for every item.

    Args:
        offered: the edits of every model and task, the unedited ones too, in the order in which they are offered.
        answers: columns model_name, task, edit, item, text, tokens, finish, correct, parsed.
        items: columns task, item, question, gold, group.
        budget: characters of questions and answers at most.

    Returns:
        `texts` (each once), `models`, `tasks` (`name`, `total`, `items` as [id, question, gold, group]) and
        `cells` (`model`, `task`, `edit`, `label`, `verdicts` as a string over all items: 1, 0 or - for no
        answer; and per shown item `texts`, `parsed` (numbers, -1 for none), `finish` (s, l, r, n), `tokens`).
    """
    if answers.empty or items.empty:
        return dict(NOTHING)
    there = said(answers)
    labels = {(each.model, each.task, each.edit): each.label for each in reversed(offered)}
    keys = dict.fromkeys((each.model, each.task, each.edit) for each in offered)
    return bundled(
        [Cell(*key, labels[key], there[key]) for key in keys if key in there],
        list(dict.fromkeys(each.model for each in offered)),
        list(dict.fromkeys(each.task for each in offered)),
        items,
        budget,
    )


def bundled(
    cells: Sequence[Cell], models: list[str], names: list[str], items: pd.DataFrame, budget: int = BUDGET
) -> dict[str, Any]:
    """What the browser's script reads, from cells: see `data`.

    Args:
        cells: in the order in which they are offered; the unedited one has the edit `baseline`.
        models: every model of the cells.
        names: every task of the cells.
        items: columns task, item, question, gold, group.
        budget: characters of questions and answers at most.
    """
    asked = items.drop_duplicates(["task", "item"])
    of_task = {
        name: list(
            asked.loc[asked["task"] == name, ["item", "question", "gold", "group"]]
            .astype({"item": str})
            .fillna("")
            .itertuples(index=False, name=None)
        )
        for name in names
    }
    kept = _fitting(of_task, cells, budget)
    texts = Texts()
    return {
        "tasks": [
            {
                "name": wording.printable(name),
                "total": len(of_task[name]),
                "items": [
                    [
                        wording.printable(str(item)),
                        shortened(str(question)),
                        shortened(str(gold)),
                        wording.printable(str(group)),
                    ]
                    for item, question, gold, group in of_task[name][: kept[name]]
                ],
            }
            for name in names
        ],
        "models": [wording.printable(model) for model in models],
        "cells": [
            _packed(cell, models, names, [row[0] for row in of_task[cell.task]], kept[cell.task], texts)
            for cell in cells
        ],
        "texts": list(texts.numbers),
    }


def said(answers: pd.DataFrame) -> dict[tuple[str, str, str], dict[str, Said]]:
    """(model, task, edit) → item → what was answered first."""
    found: dict[tuple[str, str, str], dict[str, Said]] = {}
    names = ("model_name", "task", "edit", "item", "text", "tokens", "finish", "correct", "parsed")
    for model, task, edit, item, text, tokens, finish, correct, parsed in zip(
        *(answers[name] for name in names), strict=True
    ):
        answer = Said(
            text if isinstance(text, str) else "",
            int(tokens) if pd.notna(tokens) else 0,
            str(finish),
            bool(correct),
            parsed if isinstance(parsed, str) else None,
        )
        found.setdefault((model, task, edit), {}).setdefault(str(item), answer)
    return found


def _fitting(of_task: dict[str, list[Any]], cells: Sequence[Cell], budget: int) -> dict[str, int]:
    """How many items of each task fit the budget, taking one of each task in turn; at least one of each."""
    kept = dict.fromkeys(of_task, 0)
    spent = 0
    for turn in range(max((len(rows) for rows in of_task.values()), default=0)):
        for name, rows in of_task.items():
            if turn >= len(rows):
                continue
            item, question = str(rows[turn][0]), str(rows[turn][1])
            texts = {cell.answers[item].text for cell in cells if cell.task == name and item in cell.answers}
            spent += min(len(question), LONGEST) + sum(min(len(text), LONGEST) for text in texts)
            if spent > budget and turn > 0:
                return kept
            kept[name] = turn + 1
    return kept


def _packed(cell: Cell, models: list[str], names: list[str], ids: list[str], kept: int, texts: Texts) -> dict[str, Any]:
    shown = [cell.answers.get(item) for item in ids[:kept]]
    every = [cell.answers.get(item) for item in ids]
    return {
        "model": models.index(cell.model),
        "task": names.index(cell.task),
        "edit": cell.edit,
        "label": cell.label,
        "verdicts": "".join(VERDICTS[answer.correct if answer else None] for answer in every),
        "texts": [texts.number(shortened(answer.text)) if answer else -1 for answer in shown],
        "parsed": [
            texts.number(shortened(answer.parsed)) if answer and answer.parsed is not None else -1 for answer in shown
        ],
        "finish": "".join(FINISHES.get(answer.finish, "s") if answer else "-" for answer in shown),
        "tokens": [answer.tokens if answer else 0 for answer in shown],
    }


def embedded(value: Any) -> str:
    r"""The value as JSON that can stand inside a script element: no `<`, `>`, `&`, U+2028, U+2029 as such.

    With `<` written as `\u003c` the text can contain neither `</script>` nor `<!--`.

    Raises:
        ValueError: a number is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
