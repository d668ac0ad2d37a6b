"""Files of data sets in which anything is changed: items of texts, or one error that names the file."""

from __future__ import annotations

import csv
import io
import json
import random

import pytest

from lesion.errors import LesionError
from lesion.tasks.catalogue import find

ROWS = {
    "gsm8k": {"question": "2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"},
    "math500": {
        "problem": "2 + 2?",
        "answer": "4",
        "level": 1,
        "subject": "Algebra",
        "unique_id": "a",
        "solution": "s",
    },
    "triviaqa": {"question": "Who?", "answer": {"value": "me", "aliases": ["I"]}, "question_id": "q"},
    "nq_open": {"question": "who", "answer": ["me", "I"]},
    "mmlu": {"question": "Which?", "subject": "s", "choices": ["a", "b", "c", "d"], "answer": 1},
    "race": {
        "id": "high1.txt",
        "article": "Text.",
        "questions": ["Which?"],
        "options": [["a", "b", "c", "d"]],
        "answers": ["A"],
    },
    "ioi": {"prompt": "When Ann and Bob met, Bob gave a book to", "answer": " Ann", "subject": "Bob", "case_id": 1},
    "facts": {"subject": "Rome", "prompt": "{} lies in", "attribute": "Italy", "relation_id": "P1", "known_id": 3},
    "jsonl": {
        "id": "a",
        "prompt": "p",
        "answer": "b",
        "aliases": ["c"],
        "judge": "exact",
        "solution": "s",
        "group": "g",
    },
}
STRANGE = [
    *(None, True, 0, -1, 10**400, 1.5, float("inf"), "", " ", "\x1b[31m", "\ud800", "#### ", "####", "{}", "a" * 5000),
    *([], [[]], [None], [1], ["a", 2], {}, {"value": None}, {"value": [1]}, {"str": 1}, [{}], [["a"]]),
]


def changed(row: dict, draw: random.Random) -> dict:
    """The row with one value somewhere in it put out of its form, taken away, or put under another name."""
    row = json.loads(json.dumps(row))
    at: dict | list = row
    while True:
        key = draw.choice(list(at)) if isinstance(at, dict) else draw.randrange(len(at))
        if isinstance(at[key], dict | list) and at[key] and draw.random() < 0.6:
            at = at[key]
            continue
        break
    if isinstance(at, dict) and draw.random() < 0.25:
        value = at.pop(key)
        if draw.random() < 0.5:
            at[draw.choice(["id", "answers", "problems", "golden_answers", "requested_rewrite", "x"])] = value
    else:
        at[key] = draw.choice(STRANGE)
    return row


def read(name: str) -> None:
    try:
        items = find(name).load()
    except LesionError:
        return
    for item in items:
        for text in (item.id, item.question, item.gold, item.solution, item.group, *item.aliases, *item.choices):
            assert isinstance(text, str)
            text.encode("utf-8")


@pytest.mark.parametrize("task", ROWS)
def test_a_changed_row_makes_items_or_one_error(task, tmp_path):
    draw = random.Random(task)
    file = tmp_path / ("x.txt" if task == "race" else "x.jsonl")
    for _ in range(80):
        rows = [changed(ROWS[task], draw), *([ROWS[task]] if draw.random() < 0.3 else [])]
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        read(f"{task}:{file}")


@pytest.mark.parametrize("task", ROWS)
def test_damaged_bytes_make_items_or_one_error(task, tmp_path):
    draw = random.Random(task)
    whole = json.dumps(ROWS[task]).encode()
    for ending in ("json", "jsonl", "parquet", "csv"):
        file = tmp_path / f"x.{ending}"
        for _ in range(15):
            data = bytearray(whole)
            for _ in range(draw.randint(1, 4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            file.write_bytes(
                draw.choice([bytes(data), bytes(data[: draw.randrange(len(data))]), b"[" * 5000, b"PAR1" + data])
            )
            read(f"{task}:{file}")


def test_changed_cells_of_mmlu_make_items_or_one_error(tmp_path):
    draw = random.Random("mmlu")
    file = tmp_path / "x_test.csv"
    for _ in range(60):
        cells = ["Which?", "a", "b", "c", "d", "A"]
        cells[draw.randrange(6)] = draw.choice(["", '"', "\x00", "E", "a\nb", "=1", "x" * 200_000])
        text = io.StringIO()
        csv.writer(text, quoting=draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])).writerow(
            cells[: draw.choice([6, 6, 5])]
        )
        file.write_text(text.getvalue(), encoding="utf-8")
        read(f"mmlu:{file}")
