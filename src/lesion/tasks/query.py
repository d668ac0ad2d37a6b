"""Names of tasks taken apart: what stands behind the `?` (`digits=2&shots=4`), and those of lm-evaluation-harness."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lesion.bounds import check
from lesion.errors import UsageError, nearest
from lesion.files import named
from lesion.plain import short

_NEXT = re.compile(r"&(?=\w*=|\w*$)")  # "R&D" in a value is no second option


@dataclass(frozen=True)
class Option:
    """An option whose values are whole numbers of a range, or words of a list.

    Attributes:
        default: the value where the name has none.
        values: what it may be.
        meaning: what it says, for the documentation.
    """

    default: int | str
    values: range | tuple[str, ...]
    meaning: str

    def read(self, key: str, text: str, name: str) -> int | str:
        """The value of a text."""
        if not isinstance(self.values, range):
            if text in self.values:
                return text
            raise UsageError(
                f"There is no {key} '{short(text)}' in '{short(name)}'{nearest(text, self.values)}; there are"
                f" {', '.join(self.values)}."
            )
        if text.isascii() and text.isdigit() and len(text) < 7 and int(text) in self.values:
            return int(text)
        raise UsageError(
            f"In '{short(name)}', {key} is '{short(text)}'; write a whole number from {self.values[0]} to"
            f" {self.values[-1]}, such as {key}={self.default}."
        )


def options(name: str, query: str, examples: Mapping[str, str]) -> dict[str, str]:
    """The texts of options by their keys, in the order in which they were typed.

    `examples` has a value of every option there is.
    """
    values: dict[str, str] = {}
    for piece in _NEXT.split(query):
        key, _, value = piece.partition("=")
        if key not in examples:
            body = name.partition("?")[0]
            known = "&".join(f"{option}={value}" for option, value in [*examples.items()][:2])
            there = f"there are {', '.join(examples)}, as in '{short(body)}?{known}'" if examples else "it has none"
            raise UsageError(f"There is no option '{short(key)}' in '{short(name)}'{nearest(key, examples)}; {there}.")
        if key in values:
            raise UsageError(f"The option '{key}' stands twice in '{short(name)}'; write it once.")
        if not value:
            raise UsageError(f"The option '{key}' of '{short(name)}' has no value; write {key}={examples[key]}.")
        values[key] = value
    return values


def read(name: str, query: str, known: Mapping[str, Option]) -> dict[str, int | str]:
    """The value of every option there is: the one given, else its default. It raises what `options` and `read` do."""
    texts = options(name, query, {key: str(option.default) for key, option in known.items()}) if query else {}
    return {key: opt.read(key, texts[key], name) if key in texts else opt.default for key, opt in known.items()}


HEAD = "harness"
OPTIONS = {"metric": "acc_norm", "filter": "strict-match", "shots": "5", "path": "FOLDER", "decoding": "study"}
"""What may follow a `?`, each with an example."""


@dataclass(frozen=True)
class HarnessName:
    """The name of a task and how it differs from what the harness has by default.

    Attributes:
        metric: what decides whether an answer is right; None: the first that can.
        filter: what reads the answer; None: the first of the task.
        shots: how many solved questions stand before each; None: as many as the task has by default.
        path: a folder with further tasks (YAML files), which come before those of the same name.
        study_decoding: whether a task that wants its answers sampled may be asked as the study decodes instead.
    """

    task: str
    metric: str | None = None
    filter: str | None = None
    shots: int | None = None
    path: str | None = None
    study_decoding: bool = False

    @classmethod
    def parse(cls, name: str) -> HarnessName:
        """From what was typed, `harness:gsm8k_cot?filter=strict-match&shots=4`."""
        task, mark, query = name.removeprefix(f"{HEAD}:").partition("?")
        if not task:
            raise UsageError(f"Say which task of lm-evaluation-harness: {HEAD}:NAME, for example {HEAD}:gsm8k_cot.")
        settings = options(name, query, OPTIONS) if mark else {}
        typed, decoding = settings.pop("shots", None), settings.pop("decoding", None)
        if typed is not None and not (typed.isascii() and typed.isdigit() and len(typed) < 7):
            raise UsageError(f"In '{name}' the number of solved questions is '{typed}'; write a whole number from 0.")
        shots = None if typed is None else int(typed)
        check(shots=shots)
        if decoding not in (None, "study"):
            raise UsageError(f"There is no decoding '{decoding}' in '{name}'; leave it out, or write decoding=study.")
        return cls(task, shots=shots, study_decoding=decoding is not None, **settings)

    def __str__(self) -> str:
        decoding = "study" if self.study_decoding else None
        values = (self.metric, self.filter, self.shots, self.path, decoding)
        query = "&".join(f"{key}={value}" for key, value in zip(OPTIONS, values, strict=True) if value is not None)
        return f"{HEAD}:{self.task}" + (f"?{query}" if query else "")

    @property
    def canonical(self) -> str:
        """One text for all the ways to type it: options in one order, the folder's whole path."""
        return str(self if self.path is None else replace(self, path=os.path.realpath(named(self.path))))
