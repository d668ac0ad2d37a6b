"""Names of tasks of lm-evaluation-harness: `harness:NAME?metric=…&shots=…`, taken apart and put together."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from lesion.bounds import check
from lesion.errors import UsageError
from lesion.files import named
from lesion.tasks.query import options

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
        given = options(name, query, OPTIONS) if mark else {}
        typed, decoding = given.pop("shots", None), given.pop("decoding", None)
        if typed is not None and not (typed.isascii() and typed.isdigit() and len(typed) < 7):
            raise UsageError(f"In '{name}' the number of solved questions is '{typed}'; write a whole number from 0.")
        shots = None if typed is None else int(typed)
        check(shots=shots)
        if decoding not in (None, "study"):
            raise UsageError(f"There is no decoding '{decoding}' in '{name}'; leave it out, or write decoding=study.")
        return cls(task, shots=shots, study_decoding=decoding is not None, **given)

    def __str__(self) -> str:
        decoding = "study" if self.study_decoding else None
        values = (self.metric, self.filter, self.shots, self.path, decoding)
        query = "&".join(f"{key}={value}" for key, value in zip(OPTIONS, values, strict=True) if value is not None)
        return f"{HEAD}:{self.task}" + (f"?{query}" if query else "")

    @property
    def canonical(self) -> str:
        """One text for all the ways to type it: options in one order, the folder's whole path."""
        return str(self if self.path is None else replace(self, path=os.path.realpath(named(self.path))))
