"""A study from outside in one file: block influence, how much each block turns the residual stream (Men et al. 2024).

It is what a package would hold; `test_block_influence.py` drives it. Nothing is generated: every prompt is read once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from lesion.activations.hidden_states import hidden_states
from lesion.core.fields import MODELS, Several
from lesion.core.method import Method
from lesion.core.options import EXTENDABLE, kind_key
from lesion.core.result import StudyResult
from lesion.core.run import Run
from lesion.core.study_file import OneModel, Questions
from lesion.core.values import Summary
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Profile
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, column, subject
from lesion.report.values import Estimate, decimals
from lesion.statistics.contrasts import mean
from lesion.tasks.prompts import encode


class InfluenceStudy(Questions):
    """Which models read the prompts of which tasks."""

    IDENTITY_PREFIX = "lesion block influence"

    kind: Literal["block-influence"] = kind_key("block-influence")
    models: Several[OneModel] = MODELS(identity=EXTENDABLE)


class Where(Row):
    """One model on one task."""

    model: str = column("Model", label=True)
    task: str = column("Task", label=True)


class Influence(Row):
    """What one block does: 1 − cosine of what enters and what leaves it, mean over tokens, then over prompts."""

    layer: int = column("Block", label=True)
    influence: Estimate = column("Influence", decimals(3))


class Influences(Where):
    """The blocks of one model on one task."""

    prompts: int = column("Prompts")
    blocks: tuple[Influence, ...]


class InfluenceSummary(Summary):
    """All numbers of the study."""

    kind: Literal["block-influence"] = "block-influence"
    study: InfluenceStudy
    tasks: tuple[Influences, ...]


@dataclass(frozen=True)
class InfluenceResult(StudyResult[InfluenceSummary]):
    """What the study showed."""

    SUMMARY = InfluenceSummary
    EYEBROW = "block influence"
    READING = ("Influence: 1 − cosine of the residual stream before and after a block. It needs no right answers.",)

    def parts(self) -> tuple[Part, ...]:
        """The blocks."""
        tasks = self.summary.tasks
        records = [(task, block) for task in tasks for block in task.blocks]
        rows = Rows("block-influence", records, (Influences, Influence), "Block influence")
        marks = (Profile("influence", "layer", panel=("model", "task")),)
        return (Part("Which blocks turn the residual stream least?", rows, marks, least(tasks)),)


@rule
def least(tasks: Sequence[Influences]) -> Iterable[Claim]:
    """The blocks at both ends.

    Says: Block L turns the stream least (x), block M most (y).
    Needs: the smallest and the largest mean; no test
    """
    write = Influence.model_fields["influence"].json_schema_extra["column"].form.text
    for task in tasks:
        ends = [choose(task.blocks, key=lambda block: block.influence.value or 0.0) for choose in (min, max)]
        low, high = (f"block{wording.SPACE}{block.layer}" for block in ends)
        numbers = [write(block.influence) for block in ends]
        sentences = (
            f"{wording.capital(low)} turns the residual stream least, {high} most.",
            f"Influence {numbers[0]} and {numbers[1]} over {wording.counted(task.prompts, 'prompt')}.",
        )
        yield Claim(sentences, tuple((task, block) for block in ends), subject(task, tasks))


def run_influence(study: InfluenceStudy, run: Run) -> InfluenceResult:
    """Read every prompt once with every model."""
    tasks = []
    with run.evaluation(study) as evaluation:
        for chosen, model in evaluation.models():
            for choice, task in evaluation.tasks.items():
                style = study.prompt_style_of(chosen, choice)
                texts = [encode(model, task, item, style) for item in evaluation.items_of(choice)]
                with hidden_states(model, texts, watcher=run.watcher) as states:
                    layers = [torch.tensor(states.mapped(at)) for at in range(states.layers)]
                turned = [1 - torch.cosine_similarity(a, b, dim=-1).double() for a, b in pairwise(layers)]
                of_text = np.asarray(states.text_of)
                by_text = [
                    np.array([turn.numpy()[of_text == text].mean() for text in range(len(texts))]) for turn in turned
                ]
                blocks = [
                    Influence(layer=at, influence=Estimate.of(mean(values, study.level)))
                    for at, values in enumerate(by_text)
                ]
                tasks.append(Influences(model=chosen.name, task=choice.name, prompts=len(texts), blocks=blocks))
        summary = InfluenceSummary(study=study, tasks=tasks)
        summary.write(run.folder)
    return InfluenceResult(run.folder, summary)


METHOD = Method(
    InfluenceStudy,
    "block_influence:run_influence",
    "block_influence:InfluenceResult",
    "block-influence",
    "Show how much each block turns the residual stream.",
)
