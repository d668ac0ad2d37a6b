"""The study of a logit lens, how it is run, and its result."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from lesion.core.fields import MODELS, Several
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, kind_key
from lesion.core.study_file import OneModel, Questions
from lesion.core.values import Summary
from lesion.report.rows import Row, column
from lesion.report.values import SHARE, Estimate, decimals
from lesion.statistics.paired import wilson

if TYPE_CHECKING:
    import pandas as pd

    from lesion.core.run import Run
    from lesion.edits.edit import Edit
    from lesion_logit_lens.report import LensResult


DRAWS = 2_000
"""Resamples of the items behind a bootstrap interval."""


class LensStudy(Questions):
    """Which models are read on which tasks. Every field declared by `option` is an option everywhere."""

    # What the identity of a study begins with: two kinds never share a folder.
    IDENTITY_PREFIX: ClassVar[str] = "lesion logit lens"

    kind: Literal["logit-lens"] = kind_key("logit-lens")
    models: Several[OneModel] = MODELS(identity=EXTENDABLE)  # a finished folder takes further models


class LensLayer(Row):
    """What is read at a layer: 0 is what enters block 0, l is the output of block l − 1.

    Attributes:
        accuracy: of the answers, with Wilson's interval.
        log_probability: of the gold answer in nats, mean over items, with a bootstrap interval.
    """

    layer: int = column("Layer")
    accuracy: Estimate = column("Accuracy", SHARE, ends=("low", "high"))
    log_probability: Estimate = column("Log-probability", decimals(2, "nats"))


class LensTask(Row):
    """The layers of one model on one task."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)
    items: int = column("Items")
    layers: tuple[LensLayer, ...]


class LensSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["logit-lens"] = "logit-lens"
    version: str
    study: LensStudy
    tasks: tuple[LensTask, ...]


def lens(layer: int, blocks: int) -> Edit:
    """The edit that reads at a layer: all blocks from there on are switched off."""
    from lesion.edits.edit import Compose, ScaleBlock

    return Compose(tuple(ScaleBlock(block, 0.0) for block in range(layer, blocks)))


def run_lens(study: LensStudy, run: Run) -> LensResult:
    """Evaluate every layer; what the folder has is not evaluated again."""
    from lesion.core.cached_answers import gold_tasks
    from lesion.core.run import refuse_scored
    from lesion.tasks.catalogue import find
    from lesion_logit_lens.report import LensResult

    parts = []
    refuse_scored({choice: find(choice.name) for choice in study.tasks}, "; give tasks that are answered.")
    with run.evaluation(study) as evaluation:
        for chosen, model in evaluation.models():
            blocks = len(model.anatomy.blocks)
            edits = [lens(layer, blocks) for layer in range(blocks)]
            evaluation.evaluate(chosen, model, edits)
            evaluation.evaluate(chosen, model, edits, gold_tasks(evaluation.tasks), what="gold answers")
            answers = evaluation.store.answers()
            for choice in study.tasks:
                parts.append(_task(study, chosen.name, choice.name, blocks, answers))
        summary = LensSummary(version=version("lesion-logit-lens"), study=study, tasks=parts)
        summary.write(run.folder)
    return LensResult(run.folder, summary, evaluation.evaluated, evaluation.planned)


def _task(study: LensStudy, model: str, task: str, blocks: int, answers: pd.DataFrame) -> LensTask:
    own = answers[answers["model_name"] == model]
    answered = dict(iter(own[own["task"] == task].groupby("edit")))
    gold = dict(iter(own[own["task"] == f"gold:{task}"].groupby("edit")))
    layers = []
    for layer in range(blocks + 1):
        edit = str(lens(layer, blocks))
        right = answered[edit]["correct"].to_numpy(dtype=bool)
        low, high = wilson(int(right.sum()), len(right), study.level)
        scores = np.array([score[0] if len(score) else np.nan for score in gold[edit]["scores"]])
        layers.append(
            LensLayer(
                layer=layer,
                accuracy=Estimate(value=right.mean(), low=low, high=high),
                log_probability=mean(scores, study.level, study.seed),
            )
        )
    return LensTask(model=model, task=task, items=len(right), layers=layers)


def mean(values: np.ndarray, level: float, seed: int) -> Estimate:
    """The mean over items with its percentile bootstrap interval (Efron, 1979); a single item has none.

    A mean of log-probabilities drawn anew is never above 0, so neither is the interval; Student's can be.
    """
    if len(values) < 2:
        return Estimate(value=values.mean())
    draws = np.random.default_rng(seed).integers(len(values), size=(DRAWS, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value=values.mean(), low=low, high=high)


METHOD = Method(
    LensStudy,
    "lesion_logit_lens.study:run_lens",
    "lesion_logit_lens.report:LensResult",
    "logit-lens",
    "Read the answers that a model would give after each of its blocks.",
    python="""
Example:
    >>> from lesion.functions import logit_lens
    >>> result = logit_lens("bundled:llama-base", "primer:arithmetic", items=4)
    >>> result.table[["layer", "accuracy"]]
""",
)
