"""Truncation from Python: what `lesion truncate` does, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.arguments import validated
from lesion.core.result import StudyResult, progress_line
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.truncation import report as page
from lesion.studies.truncation import tables, terminal
from lesion.studies.truncation.grid import KEEP
from lesion.studies.truncation.result import TruncationSummary
from lesion.studies.truncation.run import BEST, run_truncation
from lesion.studies.truncation.study import TruncationStudy


@dataclass(frozen=True)
class TruncationResult(StudyResult[TruncationSummary]):
    """A truncation search: its numbers, and the edit that it chose as a file.

    Attributes:
        asked: answers that this run evaluated, without those stored before.
        planned: answers that the study consists of; 0 where it was not run now.
    """

    asked: int = 0
    planned: int = 0

    @property
    def edit(self) -> Path | None:
        """The `.edit` file of the chosen edit, or of the composition; None: no edit was better."""
        return self.folder / BEST if self.summary.chosen else None

    @property
    def table(self) -> pd.DataFrame:
        """One row per cell and task, as in `cells.csv`. A cell that was not evaluated in full has one row."""
        return tables.cells(self.summary).frame

    @override
    def report(self) -> Path:
        return page.write(self.folder, self.summary)

    @override
    def text(self) -> RenderableType:
        return terminal.text_tables(self.summary)

    @override
    def done(self) -> list[str]:
        lines = [progress_line("asked", self.asked, self.planned, " answers")] if self.planned else []
        return lines + ([f"edit: {self.folder / BEST}"] if (self.folder / BEST).exists() else [])


@validated
def truncate(
    model: str | Model,
    tasks: str | Sequence[str],
    *,
    matrices: str | Sequence[str] = "mlp",
    layers: str | int | Sequence[int] = "all",
    keep: float | Sequence[float] = KEEP,
    side: str = "top",
    compose: bool = False,
    revisions: str | Sequence[str] = (),
    objective: str = "accuracy",
    validation: float = 0.2,
    screen: str | Mapping[str, int | str] = "auto",
    eliminate: float | None = None,
    items: int | str = 100,
    seed: int = 0,
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    prompt_style: str | None = None,
    level: float = 0.95,
    batch_size: int | str = "auto",
    dtype: str = "auto",
    device: str = "auto",
    engine: str | EngineChoice = "transformers",
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> TruncationResult:
    """Search for a part of a matrix whose removal makes a model better: chosen on some items, tested on the others.

    Args:
        model: a source for `load`, or a loaded model.
        tasks: name of a task, or several; an edit is chosen by the mean over them.
        matrices: `mlp.up`, `attention.o`, …, a branch (`mlp`, `attention`), `all`, or several of these.
        layers: `all`, `0-3,7`, a number, or numbers, also as an array.
        keep: a fraction of the rank, from 0 (the matrix is removed) to 1, or several, also as an array.
        side: of the spectrum that is kept: `top`, `bottom` or `both`.
        compose: add the best edit of each further matrix greedily, while that improves the score.
        revisions: checkpoints on which the chosen edit is tested too.
        objective: `accuracy`, or `gold`, the log-probability of the gold answers.
        validation: the share of the items on which an edit is chosen.
        screen: `auto` screens tasks whose answers are generated, `none` nothing; or how:
            `{"items": 64, "best": 16, "random": 8}`.
        eliminate: give up hopeless cells early, with this chance of giving up any wrongly.
        items: how many items of each task, or `all`.
        seed: of the draw of items.
        max_new_tokens: limit for one answer; the task's own by default.
        stop_loops: end an answer that has said the same piece so many times in a row, which is approximate; by default
            none is.
        prompt_style: as `--prompt-style`.
        level: of the intervals.
        batch_size: rows decoded at once, or `auto`.
        dtype: for models that are loaded here.
        device: likewise.
        engine: `transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.
        out: folder of the search; what it has is not evaluated again. By default a temporary one, removed when Python
            ends.
        watcher: is told how it goes.

    Example:
        >>> search = lesion.truncate("bundled:llama-base", "primer:atlas?form=contrast", matrices="mlp.up", keep=0.1)
        >>> search.summary.chosen, search.edit

    Raises:
        UsageError: a task, matrix, layer or number of items does not exist, or a value is wrong.
        LesionError: the model cannot be loaded or its weights are not finite, or the folder belongs to other questions.
    """
    study = TruncationStudy.make(
        name="truncation",
        model=model.name if isinstance(model, Model) else model,
        tasks=tasks,
        matrices=matrices,
        layers=layers,
        keep=keep,
        side=side,
        compose=compose,
        revisions=revisions,
        objective=objective,
        validation=validation,
        screen=screen,
        items=items,
        seed=seed,
        level=level,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        engine=EngineChoice.of(engine).engine,
        decoding={"max_new_tokens": max_new_tokens, "stop_loops": stop_loops},
        **({} if eliminate is None else {"eliminate": eliminate}),
        **({} if prompt_style is None else {"prompt_style": prompt_style}),
    )
    loaded = as_it_is(model) if isinstance(model, Model) else None
    with folder_of(out) as folder, opened(EngineChoice.of(engine), watcher) as make_engine:
        outcome = run_truncation(study, folder, watcher=watcher, model=loaded, make_engine=make_engine)
    return TruncationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)
