"""Drift from Python: what `lesion drift` does, as values."""

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
from lesion.engines.config import EngineChoice
from lesion.engines.opening import opened
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.drift import report as page
from lesion.studies.drift import tables
from lesion.studies.drift.result import DriftSummary
from lesion.studies.drift.run import run_drift
from lesion.studies.drift.study import DriftStudy


@dataclass(frozen=True)
class DriftResult(StudyResult[DriftSummary]):
    """A drift study: its numbers.

    Attributes:
        asked: own solutions asked for by this run, without those stored before.
        measured: runs of a model under a number of clusters that were clustered now.
        planned: of these, how many the study consists of; 0 where it was not run now.
    """

    asked: int = 0
    measured: int = 0
    planned: int = 0

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, number of clusters and layer: mean and standard deviation over runs, as `drift.csv`.

        Cosine, CKA and the agreement with labels (columns `nmi with LABEL`) do not depend on the number of clusters or
        are measured under the drawn one alone; in other rows they are missing.
        """
        return tables.layers(self.summary).frame

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per model and token type or class between two layers, as `tokens.csv`."""
        return tables.tokens(self.summary).frame

    @override
    def report(self) -> Path:
        return page.write(self.folder, self.summary)

    @override
    def text(self) -> RenderableType:
        return tables.text_tables(self.summary)

    @override
    def done(self) -> list[str]:
        return [progress_line("clustered", self.measured, self.planned, " runs")] if self.planned else []


@validated
def drift(
    model: str | Model | Sequence[str | Model],
    task: str,
    *,
    clusters: int | Sequence[int] = 50,
    runs: int = 5,
    items: int = 20,
    layer_zero: str = "embedding",
    part: str = "both",
    solution: str = "own",
    normalise: str = "none",
    nmi: str = "arithmetic",
    starts: int = 10,
    elbow: str = "later",
    between: Sequence[int] | None = None,
    study: str | Path | None = None,
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
) -> DriftResult:
    """Cluster the hidden states of every layer and tell how far tokens leave the clusters they began in.

    Args:
        model: a source for `load`, a loaded model, or several of either.
        task: name of a task.
        clusters: of k-means, or several numbers; 50, or else the first, is the drawn one.
        runs: draws of items; curves are means over them.
        items: of each run.
        layer_zero: `embedding`, or `block` for the output of block 0.
        part: whose tokens are clustered: `prompt`, `solution` or `both`.
        solution: what stands behind the prompt: `own` (said greedily), `gold` or `none`.
        normalise: vectors as they are (`none`), of length 1 (`unit`), or `standardise`d per dimension.
        nmi: the mean of entropies that divides: `arithmetic`, `geometric`, `min` or `max`.
        starts: of k-means++.
        elbow: layers tested for a hinge (the paper's elbow) or step: those after layer 0 (`later`), or `all`.
        between: two layers between which tokens are followed; at the hinge or step by default.
        study: folder of a layer study, whose critical blocks are compared with the hinge or step.
        seed: of the draws of items, and of all clusterings.
        max_new_tokens: limit for one solution; the task's own by default.
        stop_loops: end a solution that has said the same piece so many times in a row, which is approximate; by default
            none is.
        prompt_style: as `--prompt-style`.
        level: of the intervals.
        batch_size: rows decoded at once, or `auto`.
        dtype: for models that are loaded here.
        device: likewise.
        engine: `transformers` or `vllm`; or `EngineChoice(workers=2)`, which says too on what it runs.
        out: folder of the study; what it has is not made again. By default a temporary one, removed when Python ends.
        watcher: is told how it goes.

    Example:
        >>> result = lesion.drift("bundled:llama-base", "primer:arithmetic", clusters=[50, 10])
        >>> result.table[["layer", "nmi", "null"]], result.summary.models[0].curve.shape

    Raises:
        UsageError: a task, model, layer or number of items does not exist, or a run has fewer tokens than clusters.
        LesionError: a model cannot be loaded or its states are not finite, or the folder belongs to other questions.
    """
    several = [model] if isinstance(model, str | Model) else list(model)
    loaded = {each.name: as_it_is(each) for each in several if isinstance(each, Model)}
    asked = DriftStudy.make(
        name="drift",
        models=[each.name if isinstance(each, Model) else each for each in several],
        task=task,
        clusters=clusters,
        runs=runs,
        items=items,
        layer_zero=layer_zero,
        part=part,
        solution=solution,
        normalise=normalise,
        nmi=nmi,
        starts=starts,
        elbow=elbow,
        seed=seed,
        level=level,
        batch_size=batch_size,
        dtype=dtype,
        device=device,
        engine=EngineChoice.of(engine).engine,
        **({} if between is None else {"between": between}),
        **({} if study is None else {"study": str(study)}),
        **({} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}),
        stop_loops=stop_loops,
        **({} if prompt_style is None else {"prompt_style": prompt_style}),
    )
    with folder_of(out) as folder, opened(EngineChoice.of(engine), watcher) as make_engine:
        outcome = run_drift(asked, folder, watcher=watcher, models=loaded, make_engine=make_engine)
    return DriftResult(outcome.folder, outcome.summary, outcome.asked, outcome.measured, outcome.planned)
