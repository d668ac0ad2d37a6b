"""Where rows of a data set come from: a local JSON Lines, JSON or Parquet file, or the Hugging Face hub."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lesion import files
from lesion.errors import LesionError, UsageError
from lesion.files import existing as existing
from lesion.plain import short
from lesion.tasks.task import Item

Row = dict[str, Any]
Items = tuple[Item, ...]


def local_rows(path: str | Path) -> list[Row]:
    """The rows of a local file, read as its ending says: `.parquet`, `.json` (one list) or JSON Lines.

    Raises:
        UsageError: there is no such file, it is empty, or a row of it is not an object; with the line where
            it has one.
    """
    path = existing(path)
    if path.suffix == ".parquet":
        return _parquet(path)
    text = read_text(path)
    if path.suffix == ".json" and text.lstrip().startswith("["):
        rows = _parse(text, path, first_line=1)
        numbered = [(f"row {index}", row) for index, row in enumerate(rows)]
    else:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        numbered = [(f"line {number}", _parse(line, path, first_line=number)) for number, line in lines]
    if not numbered:
        raise UsageError(f"{path} is empty; a task needs at least one item.")
    for place, row in numbered:
        if not isinstance(row, dict):
            raise UsageError(
                f"{path}, {place}: this is {files.kind(row)}, not a JSON object {{…}} with the item's fields."
            )
    return [row for _, row in numbered]


def hub_rows(task: str, repository: str, subset: str | None, split: str) -> list[Row]:
    """The rows of one split of a data set on the hub, or in the local cache of `datasets`.

    Args:
        task: name of the task, for the error's advice.
        repository: id of the data set, `openai/gsm8k`.
        subset: name of the configuration, or None when there is only one.
        split: `test`, `validation`, …

    Raises:
        LesionError: the hub cannot be reached and the data set is not in the cache.
    """
    import datasets

    datasets.disable_progress_bars()
    for library in ("datasets", "huggingface_hub"):  # they tell of every retry
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        rows = datasets.load_dataset(repository, subset, split=split)
    except Exception as error:  # the hub fails in many ways, and each has the same two ways out
        reason = str(error).strip().splitlines()
        raise LesionError(
            f"The data set {repository} could not be had from the Hugging Face hub "
            f"({type(error).__name__}: {reason[0] if reason else 'no reason given'}). "
            f"Check the network and HF_HUB_OFFLINE, or pass a local file: {task}:PATH."
        ) from error
    return [dict(row) for row in rows]


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, a byte order mark removed.

    Raises:
        UsageError: it is not UTF-8 (with the line), too large or cannot be read.
    """
    return files.read_text(path, fault=UsageError)


def rows_of(read: Callable[[Any], Items]) -> Callable[[Any], Items]:
    """The method of a task that makes items of rows: a row of any other form is wrong use, whatever it holds.

    Raises:
        UsageError: something in the file does not fit.
    """

    @functools.wraps(read)
    def made(task: Any) -> Items:
        try:
            items = read(task)
            for index, item in enumerate(items):
                for name in ("id", "question", "gold", "solution", "group"):
                    whole(getattr(item, name), name, f"Row {index} of {task.name}")
                for alias in item.aliases:
                    whole(alias, "answer", f"Row {index} of {task.name}")
            return items
        except LesionError:
            raise
        except files.UNFIT as error:
            raise UsageError(
                f"The rows of {short(task.name, 300)} do not have the form of this task ({files.reason(error)})."
                " Is this the file of another data set?"
            ) from error

    return made


def fields_of(row: Row) -> str:
    """The names of the fields that a row has, for a message."""
    return ", ".join(f"'{short(str(name))}'" for name in [*row][:20]) or "none"


def need(row: Row, field: str, task: str, index: int) -> Any:
    """A field that a row must have.

    Raises:
        UsageError: it is missing, with the fields that are there.
    """
    if field not in row:
        raise UsageError(
            f"Row {index} of {task} has no field '{field}'; it has {fields_of(row)}. "
            f"Is this the file of another data set?"
        )
    return row[field]


def words(row: Row, field: str, task: str, index: int) -> str:
    """A field that a row must have and that holds a text, or a number, as it is written.

    Raises:
        UsageError: it is missing, empty, or something else.
    """
    value = need(row, field, task, index)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise UsageError(f"Row {index} of {task}: '{field}' must be a text, not {short(value)}.")
    return str(value)


def filled(row: Row, field: str, where: str) -> Any:
    """A field that is there.

    Raises:
        UsageError: it holds nothing: null.
    """
    if row[field] is None:
        raise UsageError(f"{where}: '{field}' is empty (null); fill it in, or leave the row out.")
    return row[field]


def whole(text: str, name: str, where: str) -> str:
    """The text, if it is one: half of a surrogate pair is no character, and no tokenizer takes it.

    Raises:
        UsageError: it holds half a character.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{where}: '{name}' holds half a character (a lone surrogate such as \\ud800); remove it.")
    return str(text)


def identify(question: str, index: int) -> str:
    """An id for a row without one: its place and a digest of its question, `17-3fa9c14e`.

    The digest keeps stored answers from being taken for answers to another question when the file has
    changed, and the same data set has the same ids from the hub and from a file.
    """
    return f"{index}-{hashlib.sha256(question.encode()).hexdigest()[:8]}"


def _parquet(path: Path) -> list[Row]:
    import pandas

    try:
        # JSON turns numpy arrays in the cells into lists
        rows = json.loads(pandas.read_parquet(path).to_json(orient="records", force_ascii=False))
    except Exception as error:  # pyarrow has many ways to say that a file is damaged
        raise UsageError(f"{path} cannot be read as Parquet: {files.reason(error)}.") from error
    if not rows:
        raise UsageError(f"{path} is empty; a task needs at least one item.")
    return list(rows)


def _parse(text: str, path: Path, first_line: int) -> Any:
    return files.parse_json(text, str(path), fault=UsageError, line=first_line, halves=True)
