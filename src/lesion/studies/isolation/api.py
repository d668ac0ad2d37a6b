"""Isolation from Python: what `lesion isolate` and `lesion evaluate` do, as values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from typing_extensions import Unpack

from lesion.arguments import validated
from lesion.core.fields import SAMPLES
from lesion.core.functions import AnsweringOptions, ReadingOptions, runs
from lesion.edits.edit import Edit
from lesion.edits.files.artefact import EditFile
from lesion.models.load import Model
from lesion.studies.isolation.report import IsolationResult
from lesion.studies.isolation.study import EVALUATION, METHOD
from lesion.tasks.task import Task


@validated
@runs(METHOD)
def isolate(
    model: str | Model,
    skill: str | Task,
    controls: str | Task | Sequence[str | Task],
    *,
    keep: float | Sequence[float] = 0.05,
    samples: int | Sequence[int] = SAMPLES,
    repeats: int = 1,
    methods: str | Sequence[str] = "mathneuro",
    replacement: bool = False,
    exclude_super_weights: int = 0,
    seed: int = 0,
    weights: str | None = None,
    dtype: str = "auto",
    **options: Unpack[ReadingOptions],
) -> IsolationResult:
    """Find the weights that a skill needs and its controls do not, with forward passes only.

    Example:
        >>> result = lesion.isolate("bundled:llama-base", "primer:arithmetic", ["primer:atlas", "primer:reading"])
        >>> edit = lesion.read_edit(result.edits["mathneuro-0.05"])

    Raises:
        UsageError: a task does not exist or has too few items, or a value is wrong.
        LesionError: the model cannot be loaded, or every selection is empty or everything.
    """
    raise NotImplementedError  # `runs` does it


@validated
@runs(EVALUATION)
def evaluate(
    model: str | Model,
    edits: str | Path | EditFile | Edit | Collection[str | Path | EditFile | Edit],
    tasks: str | Task | Sequence[str | Task],
    *,
    factor: float | Sequence[float] | None = None,
    random_controls: int = 3,
    matched_in: str | Sequence[str] = "count",
    items: int | str = 100,
    validation: float | None = None,
    skill: str | Task | None = None,
    force: bool = False,
    **options: Unpack[AnsweringOptions],
) -> IsolationResult:
    """Evaluate the baseline and every edit on the same items, each edit beside its matched random controls.

    An edit is a value, its text form, or an `.edit` file. Its controls are the same change at other places: as many
    random weights of every matrix, or as many other blocks (`lesion.edits.matched`). With `matched_in` "magnitude" the
    weights are of the same sizes too, with "importance" of the same importance to the texts of the edit's controls.

    Example:
        >>> result = lesion.evaluate(model, ["3×0", "0-3.mlp×0.5", "cut.edit"], ["primer:arithmetic", "primer:atlas"])
        >>> result.table[["edit", "task", "accuracy", "drop_low", "drop_high", "random_lowest", "random_highest"]]

    Raises:
        UsageError: a task does not exist, or a value is wrong.
        LesionError: an edit does not fit the model, or moves too little in its dtype.
    """
    raise NotImplementedError  # `runs` does it
