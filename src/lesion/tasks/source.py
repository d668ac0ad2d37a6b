"""Rows of a data set, and where they come from: the Hugging Face hub; `question_files` reads those of local files."""

from __future__ import annotations

import hashlib
import logging
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from lesion.errors import LesionError, UsageError
from lesion.plain import short

Fields = Mapping[str, Any]
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class SourceRow:
    """One row of a data set.

    Attributes:
        fields: as the file or the hub has them.
        where: file and row, for messages.
        group: the subset of the hub, or what the name of a file says.
    """

    fields: Fields
    where: str
    group: str = ""

    def __contains__(self, field: str) -> bool:
        return field in self.fields

    def __getitem__(self, field: str) -> Any:
        """The value of a field; it raises `UsageError` where the field is missing or null."""
        if field not in self.fields:
            names = ", ".join(f"'{short(str(name))}'" for name in [*self.fields][:20]) or "none"
            raise self.fault(f"there is no field '{field}'; there are {names}. Is this the file of another data set?")
        if self.fields[field] is None:
            raise self.fault(f"'{field}' is empty (null); fill it in, or leave the row out.")
        return self.fields[field]

    def field(self, *names: str) -> str:
        """The first of several names that the row has a field of; the first name where there is none."""
        return next((name for name in names if name in self.fields), names[0])

    def written(self, field: str) -> str:
        """A text, or a number, as it is written; it raises `UsageError` where it is empty or something else."""
        value = self[field]
        if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
            raise self.fault(f"'{field}' must be a text, not {short(value)}.")
        return str(value)

    def text(self, *names: str) -> str:
        """The text of the first of these fields that is there, white space around it removed."""
        field = self.field(*names)
        value = self[field]
        if not isinstance(value, str):
            raise self.fault(f"'{field}' must be a text.")
        if not value.strip():
            raise self.fault(f"'{field}' is empty.")
        return whole(value.strip(), field, self.where)

    def fault(self, what: str) -> UsageError:
        """The error that something is wrong with this row."""
        return UsageError(f"{self.where}: {what}")


def hub_rows(task: str, repository: str, subset: str | None, split: str) -> list[Fields]:
    """The rows of one split of a data set on the hub, or in the local cache of `datasets`; the task is for advice."""
    import datasets

    datasets.disable_progress_bars()
    for library in ("datasets", "huggingface_hub"):  # they report every retry
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        rows = datasets.load_dataset(repository, subset, split=split)
    except Exception as error:  # the hub fails in many ways, and each has the same two ways out
        reason = str(error).strip().splitlines()
        raise LesionError(
            f"The data set {repository} could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {reason[0] if reason else 'no reason given'}). "
            f"Check the network and HF_HUB_OFFLINE, or pass a local file: {task}:PATH."
        ) from error
    return [dict(row) for row in rows]


def packaged(name: str) -> Fields:
    """The tables of a TOML file that comes with the tasks."""
    return tomllib.loads(resources.files("lesion.tasks").joinpath(name).read_text(encoding="utf-8"))


def whole(text: str, name: str, where: str) -> str:
    """The text; it raises `UsageError` where half of a surrogate pair is in it, which no tokenizer takes."""
    if _HALF.search(text):
        raise UsageError(f"{where}: '{name}' holds half a character (a lone surrogate such as \\ud800); remove it.")
    return str(text)


def identify(question: str, index: int) -> str:
    """An id for a row without one: its place and a digest of its question, `17-3fa9c14e`.

    The digest keeps stored answers from being taken for answers to another question when the file has
    changed, and the same data set has the same ids from the hub and from a file.
    """
    return f"{index}-{hashlib.sha256(question.encode()).hexdigest()[:8]}"
