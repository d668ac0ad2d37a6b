"""Tuning from Python: what `lesion tune` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.arguments import validated
from lesion.core.result import StudyResult, progress_line
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.tuning import report as page
from lesion.studies.tuning import tables
from lesion.studies.tuning.folder import training_seconds
from lesion.studies.tuning.result import TuningSummary
from lesion.studies.tuning.run import run_tuning
from lesion.studies.tuning.study import TuningStudy


@dataclass(frozen=True)
class TuningResult(StudyResult[TuningSummary]):
    """A tuning that has been run: its numbers, and the tuned model where there is one.

    Attributes:
        model: the folder of the tuned model, for `lesion.load`; None in a study of several arms or seeds.
        trained: trainings that this run had to do.
        planned: trainings that the study consists of; 0 where it was not run now.
    """

    model: Path | None = None
    trained: int = 0
    planned: int = 0

    @property
    def table(self) -> pd.DataFrame:
        """One row per arm, seed and task, as `tuning.csv`; accuracies and changes in 0…1."""
        return tables.every(self.summary).frame

    @override
    def report(self) -> Path:
        return page.write(self.folder, self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text_tables(self.summary, training_seconds(self.folder))

    @override
    def done(self) -> list[str]:
        """How many trainings there were, and where the model lies."""
        trained = progress_line("trained", self.trained, self.planned, already="trained already")
        return ([trained] if self.planned else []) + ([f"model: {self.model}"] if self.model else [])


@validated
def tune(
    model: str | Model,
    task: str,
    *,
    layers: str | int | Sequence[int] = "critical",
    budget: int | str = "25%",
    steps: int = 40,
    rows: int = 16,
    learning_rate: float | Sequence[float] = 1e-3,
    adapter: int | None = None,
    controls: str | Sequence[str] = (),
    study: str | Path | None = None,
    items: int = 400,
    control_items: int = 200,
    ablation_items: int = 100,
    validation_items: int = 200,
    seed: int = 0,
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    prompt_style: str | None = None,
    level: float = 0.95,
    batch_size: int | str = "auto",
    device: str = "auto",
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> TuningResult:
    """Fine-tune chosen blocks of a model on a task, the rest frozen, and measure what it gains and costs.

    Args:
        model: a source for `load`, or a loaded model in float32; its own weights are put back afterwards.
        task: one with a training split, such as `primer:arithmetic` or `gsm8k`.
        layers: `critical`, `least`, `random`, `all`, `all-adapter`, `0-3,7`, a number or numbers.
        budget: how many blocks `critical`, `least` and `random` are: a number, or a share such as `25%`.
        steps: of the training.
        rows: of a step.
        learning_rate: the largest; of several, the best on held-out training items is kept.
        adapter: train low-rank adapters of this rank (LoRA), merged at the end, in place of the blocks.
        controls: tasks that should survive, evaluated before and after.
        study: the folder of a layer study of this model and task; without it, an ablation is run in the folder.
        items: test items of the task.
        control_items: test items of each control, at most.
        ablation_items: on which the critical blocks are found.
        validation_items: held out to choose among several rates.
        seed: of the order of the rows, and of random blocks.
        max_new_tokens: limit for one answer; the task's own by default.
        stop_loops: end an answer that has said the same piece so many times in a row, which is approximate; by default
            none is.
        prompt_style: as `--prompt-style`.
        level: of the intervals.
        batch_size: rows decoded at once, or `auto`.
        device: for models that are loaded here.
        out: folder of the tuning; what it has is not trained again. By default a temporary one, removed when Python
            ends.
        watcher: is told how it goes.

    Example:
        >>> tuned = lesion.tune("bundled:llama-base", "primer:arithmetic", layers="critical", budget=2)
        >>> lesion.load(tuned.model)

    Raises:
        UsageError: a task, layer, budget, rank or number of items cannot be, or a model is not in float32.
        LesionError: the model cannot be loaded, TRL is not installed, or the folder belongs to something else.
    """
    study_file = TuningStudy.make(
        name="tuning",
        model=model.name if isinstance(model, Model) else model,
        task=task,
        controls=controls,
        arms=[layers],
        budget=budget,
        steps=steps,
        rows=rows,
        learning_rates=learning_rate,
        seeds=[seed],
        items=items,
        control_items=control_items,
        ablation_items=ablation_items,
        validation_items=validation_items,
        level=level,
        batch_size=batch_size,
        device=device,
        **{
            key: value
            for key, value in {
                "adapter": adapter,
                "layers_from": None if study is None else str(study),
                "max_new_tokens": max_new_tokens,
                "stop_loops": stop_loops,
                "prompt_style": prompt_style,
            }.items()
            if value is not None
        },
    )
    loaded = {model.name: as_it_is(model)} if isinstance(model, Model) else None
    with folder_of(out) as folder:
        outcome = run_tuning(study_file, folder, watcher=watcher, models=loaded)
    return TuningResult(outcome.folder, outcome.summary, outcome.model)
