"""Layer ablation from Python: what `lesion ablate` does, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.arguments import validated
from lesion.core import cost
from lesion.core.result import StudyResult, progress_line
from lesion.core.temporary_folder import folder_of
from lesion.edits.apply import as_it_is
from lesion.edits.edit import Unit
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.models.load import Model
from lesion.outputs import refuse_another_kind
from lesion.plain import plain
from lesion.progress import Silent, Watcher
from lesion.studies.ablation import report as page
from lesion.studies.ablation import tables
from lesion.studies.ablation.invariance.revisions import over_time
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.run import answers_and_items, run
from lesion.studies.ablation.screening import ASKING
from lesion.studies.ablation.study import Study, stopping


@dataclass(frozen=True)
class AblationResult(StudyResult[AblationSummary]):
    """A study that has been run: its numbers, and every answer behind them.

    Attributes:
        folder: where the store lies; a temporary one, removed when Python ends, unless it was named.
        summary: what `summary.json` holds.
        asked: answers asked for by this run, without those stored before.
        planned: answers that the study consists of; 0 where it was not run now.
    """

    asked: int = 0
    planned: int = 0

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, task, unit, factor and layer, the baseline beside it: what `layers.csv` holds."""
        return tables.frame(self.summary)

    @property
    def answers(self) -> pd.DataFrame:
        """Every stored answer with its item, verdict and how it ended."""
        return answers_and_items(self.folder)[0]

    @validated
    def report(self, path: str | Path | None = None) -> Path:
        """Write the report into a folder (the study's own by default) and return the path of `report.html`.

        Raises:
            UsageError: the folder belongs to another study.
            LesionError: the folder cannot be written.
        """
        answers, items = answers_and_items(self.folder)
        folder = self.folder if path is None else Path(path)
        refuse_another_kind(folder, "layers")
        return page.write(folder, self.summary, answers, items)

    def text(self) -> RenderableType:
        """The tables for a terminal, and for every family of models whether the same layers matter in all of them."""
        families = self.summary.invariance.families if self.summary.invariance else ()
        verdicts = [Text("\n" + plain(f"{family.family}: {family.verdict.text}")) for family in families]
        return Group(tables.text(self.summary, cost.read(self.folder).get(ASKING) or {}), *verdicts)

    def done(self) -> list[str]:
        """How many answers were asked for."""
        return [progress_line("asked", self.asked, self.planned, " answers")] if self.planned else []


@validated
def ablate(
    model: str | Model | Sequence[str | Model],
    tasks: str | Sequence[str],
    *,
    items: int | str = 100,
    seed: int = 0,
    unit: Unit | Sequence[Unit] = "block",
    layers: str | int | Sequence[int] = "all",
    factor: float | Sequence[float] = 0.0,
    revisions: str | Sequence[str] = (),
    max_new_tokens: int | None = None,
    stop_loops: int | None = None,
    prompt_style: str | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    level: float = 0.95,
    batch_size: int | str = "auto",
    dtype: str = "auto",
    device: str = "auto",
    engine: str | EngineChoice = "transformers",
    stop_when: Literal["decided"] | None = None,
    effect: float = 0.1,
    screen: bool = False,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> AblationResult:
    """Switch off (or scale) one place after another and measure what each does to each task.

    Args:
        model: a source for `load`, a loaded model, or several of either.
        tasks: name of a task, or several: `gsm8k`, `primer:atlas`, `questions.jsonl`.
        items: how many items of each task, or `all`.
        seed: of the draw of items, and of sampling.
        unit: `block`, `attention` or `mlp`, or several.
        layers: `all`, `0-3,7`, a number, or numbers.
        factor: 0 switches off; 0.5 and 1.1 are as legal.
        revisions: checkpoints of the training that are asked too: `all`, or names.
        max_new_tokens: limit for one answer; the task's own by default.
        stop_loops: end an answer that has said the same piece so many times in a row, which is approximate; by default
            none is.
        prompt_style: as `--prompt-style`.
        temperature: 0 is greedy.
        top_p: nucleus, for sampling.
        level: of the intervals.
        batch_size: rows decoded at once, or `auto`.
        dtype: for models that are loaded here.
        device: likewise.
        engine: `transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.
        stop_when: `decided` stops asking a cell as soon as it is decided whether its drop exceeds the effect; by
            default all items are asked, and only then is it told which places are critical.
        effect: for `stop_when`, the smallest drop of accuracy that counts.
        screen: also score gold solutions under every edit, a cheap look that says where generating will show a drop.
        out: folder of the study; what lies there already is not asked again. By default a temporary one, removed when
            Python ends.
        watcher: is told how it goes.

    Example:
        >>> result = lesion.ablate("bundled:llama-base", tasks=["primer:arithmetic"], items=100)
        >>> result.table[["layer", "accuracy", "critical"]]

    Raises:
        UsageError: a task, layer or number of items does not exist, or an argument cannot be what it is to be.
        LesionError: a model cannot be loaded, or the folder belongs to another study.
    """
    several = [model] if isinstance(model, str | Model) else list(model)
    chosen: list[Any] = [each.name if isinstance(each, Model) else each for each in several]
    if revisions:
        chosen, notes = over_time(chosen, revisions)
        for note in notes:
            (watcher or Silent()).note(note)
    loaded = {each.name: as_it_is(each) for each in several if isinstance(each, Model)}
    study = Study.make(
        name="ablation",
        models=chosen,
        tasks=tasks,
        items=items,
        seed=seed,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        engine=EngineChoice.of(engine).engine,
        **{"level": level, **stopping(stop_when, effect, level, screen)},
        edits={
            "unit": unit,
            "layers": layers,
            "factor": factor,
        },
        decoding={
            "temperature": temperature,
            "top_p": top_p,
            "stop_loops": stop_loops,
            **({"max_new_tokens": max_new_tokens} if max_new_tokens is not None else {}),
        },
        **({"prompt_style": prompt_style} if prompt_style is not None else {}),
    )
    with folder_of(out) as folder, opened(EngineChoice.of(engine), watcher) as make_engine:
        outcome = run(study, folder, watcher=watcher, models=loaded, make_engine=make_engine)
    return AblationResult(outcome.folder, outcome.summary, outcome.asked, outcome.planned)
