"""Oddities: what shows in a single answer that a question was put badly, or that a right answer was judged wrong."""

from __future__ import annotations

import re
from typing import Literal, get_args

from lesion.core.row import StoredAnswer
from lesion.tasks.judges import judge
from lesion.tasks.task import Item

Oddity = Literal["empty", "echoes the question", "goes on", "cut off", "unread", "right within a sentence"]
ODDITIES: tuple[Oddity, ...] = get_args(Oddity)
SAID = {
    "empty": "empty",
    "echoes the question": "the question over again",
    "goes on": "followed by a next question",
    "cut off": "cut off at the token limit",
    "unread": "without an answer that could be read",
    "right within a sentence": "judged wrong though the gold answer stands in them",
}
"""What answers with an oddity are, behind `3 of 10 answers are …`."""
ECHO = 24
"""Characters at the end of a question that an answer that echoes it says again; of a shorter question all."""


def oddities(item: Item, answer: StoredAnswer, *, generated: bool) -> tuple[Oddity, ...]:
    """What is odd about an answer.

    `generated`: whether the model wrote it; a choice can only be unread.
    """
    present: dict[Oddity, bool] = {"unread": answer.parsed is None and bool(answer.text.strip())}
    if generated:
        text, question = _plain(answer.text), _plain(item.question)
        present |= {
            "empty": not answer.text.strip(),
            "echoes the question": bool(question) and question[-ECHO:] in text,
            "goes on": goes_on(item.question, answer.text),
            "cut off": answer.finish == "length",
            "right within a sentence": _right_within(item, answer),
        }
    return tuple(oddity for oddity in ODDITIES if present.get(oddity))


def goes_on(question: str, answer: str) -> bool:
    """Whether behind an answer a line begins as the question does, with a next one: `Q: 3 + 4`, `Question: …`."""
    head = re.match(r"\s*(\w+\s*[:=?+*/-]|\w+\s+\w+)", question)
    if head is None:
        return False
    first = _plain(head[1])
    label = re.match(r"\s*(\w+)\s*:", question)
    lines = [_plain(line) for line in answer.strip().splitlines()[1:]]
    starts = (first, _plain(f"{label[1]}:")) if label else (first,)
    return any(line.startswith(starts) for line in lines if line)


def _right_within(item: Item, answer: StoredAnswer) -> bool:
    """Whether whole words of an answer, judged exactly, are the gold answer or an alias."""
    if answer.correct or item.metadata.get("judge") != "exact":
        return False
    return judge.contains(answer.text, item.gold, item.aliases).correct and judge.stands(
        answer.text, item.gold, item.aliases
    )


def _plain(text: str) -> str:
    """A text in lower case, its runs of spaces one."""
    return " ".join(text.lower().split())
