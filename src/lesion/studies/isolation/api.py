"""Isolation from Python: what `lesion isolate` and `lesion evaluate` do, as values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.arguments import validated
from lesion.core.functions import runs
from lesion.core.result import StudyResult, progress_line
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.edits.files.artefact import EditFile, read_edit
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report.blocks import Chapter
from lesion.studies.isolation import report as page
from lesion.studies.isolation import tables, terminal
from lesion.studies.isolation.method import METHOD
from lesion.studies.isolation.result import IsolationSummary
from lesion.studies.isolation.run import recall_isolation, run_evaluation
from lesion.studies.isolation.study import SAMPLES, EvaluationStudy


@dataclass(frozen=True)
class IsolationResult(StudyResult[IsolationSummary]):
    """A skill that has been isolated, or edits that have been evaluated: the numbers, and the edits as files.

    Attributes:
        asked: answers asked for by this run, without those stored before.
        planned: answers that the study consists of; 0 where it was not run now.
    """

    asked: int = 0
    planned: int = 0

    @property
    def edits(self) -> dict[str, Path]:
        """The `.edit` files by name: `mathneuro-0.05`."""
        selections = self.summary.isolation.selections if self.summary.isolation else ()
        return {Path(one.file).stem: self.folder / one.file for one in selections if one.file}

    @property
    def table(self) -> pd.DataFrame:
        """One row per task and edit, random controls beside it: what `evaluation.csv` holds."""
        return tables.evaluation(self.summary).frame

    @override
    def report(self) -> Path:
        recalled = recall_isolation(self.folder)
        assert recalled is not None
        return page.write(self.folder, *recalled)

    @override
    def text(self) -> RenderableType:
        return terminal.text_tables(self.summary)

    @override
    def chapter(self) -> Chapter:
        return page.chapter(self.summary)

    @override
    def done(self) -> list[str]:
        return [progress_line("asked", self.asked, self.planned, " answers")] if self.planned else []


@validated
@runs(METHOD)
def isolate(
    model: str | Model,
    skill: str,
    controls: str | Sequence[str],
    *,
    keep: float | Sequence[float] = 0.05,
    samples: int | Sequence[int] = SAMPLES,
    repeats: int = 1,
    methods: str | Sequence[str] = "mathneuro",
    seed: int = 0,
    replacement: bool = False,
    prompt_style: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    out: str | Path | None = None,
    watcher: Watcher | None = None,
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
def evaluate(
    model: str | Model,
    edits: str | Path | EditFile | Collection[str | Path | EditFile],
    tasks: str | Sequence[str],
    *,
    factor: float | Sequence[float] | None = None,
    random_controls: int = 3,
    items: int | str = 100,
    seed: int = 0,
    validation: float | None = None,
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    prompt_style: str | None = None,
    level: float = 0.95,
    batch_size: int | str = "auto",
    dtype: str = "auto",
    device: str = "auto",
    engine: str | EngineChoice = "transformers",
    force: bool = False,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> IsolationResult:
    """Ask the baseline and every edit the same items, each edit beside its matched random controls.

    Args:
        model: a source for `load`, or a loaded model.
        edits: `.edit` files, or what `read_edit` made of them.
        tasks: the skill and its controls.
        factor: that selected weights are multiplied by; None for each file's own.
        random_controls: how many of each edit under each factor.
        items: how many items of each task, or `all`.
        seed: of the draw of items.
        validation: the share of the items on which the best edit is chosen; it is reported on the others.
        max_new_tokens: limit for one answer; the task's own by default.
        stop_loops: end an answer that has said the same piece so many times in a row, which is approximate; by default
            none is.
        prompt_style: as `--prompt-style`.
        level: of the intervals.
        batch_size: rows decoded at once, or `auto`.
        dtype: for a model that is loaded here.
        device: likewise.
        engine: `transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.
        force: also edits that were made for another model, where shapes fit.
        out: folder of the answers; it takes further edits later. By default a temporary one, removed when Python ends.
        watcher: is told how it goes.

    Example:
        >>> result = lesion.evaluate(model, edits.values(), ["primer:arithmetic", "primer:atlas"], factor=[0, 1.1])
        >>> result.table[["edit", "task", "accuracy", "drop_low", "drop_high", "random_lowest", "random_highest"]]

    Raises:
        UsageError: a task does not exist, or a value is wrong.
        LesionError: an edit does not fit the model, or moves too little in its dtype.
    """
    several = [edits] if isinstance(edits, str | Path | EditFile) else list(edits)
    files = [edit if isinstance(edit, EditFile) else read_edit(edit) for edit in several]
    study = EvaluationStudy.make(
        name="evaluation",
        model=model.name if isinstance(model, Model) else model,
        tasks=tasks,
        items=items,
        seed=seed,
        level=level,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        engine=EngineChoice.of(engine).engine,
        decoding={"max_new_tokens": max_new_tokens, "stop_loops": stop_loops},
        **({"prompt_style": prompt_style} if prompt_style is not None else {}),
    )
    factors = () if factor is None else tuple(factor) if isinstance(factor, Sequence) else (factor,)
    with folder_of(out) as folder, opened(EngineChoice.of(engine), watcher) as make_engine:
        outcome = run_evaluation(
            study,
            files,
            folder,
            factors=factors,
            random_controls=random_controls,
            validation=validation,
            force=force,
            watcher=watcher,
            model=as_it_is(model) if isinstance(model, Model) else None,
            make_engine=make_engine,
        )
    return IsolationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)
