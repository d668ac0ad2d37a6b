"""Contestant: lesion with its transformers engine. The whole sweep is one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from engines_job import Answers, Job, Layer, Sweep
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Engine, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import load

LIBRARIES = ("lesion", "transformers", "torch")
SIZED = False


def start(job: Job) -> Sweep:
    """The engine as a study opens it."""
    model = load(job.place, dtype=job.dtype, device=job.device)
    engine = TransformersEngine(model)

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        before = asdict(engine.work)
        answers = asked(engine, job, edits)
        after = asdict(engine.work)
        counts = {name: after[name] - before[name] for name in after if name != "batch_size"}
        answers.count(**{**counts, "steps": counts["decoded"] + counts["idle"], "passes": counts["steps"]})
        return answers

    return sweep


def asked(engine: Engine, job: Job, edits: Sequence[Layer]) -> Answers:
    """All questions under all edits as one list of requests."""
    requests = [
        Request(
            f"{'' if layer is None else layer}|{index}",
            question.prompt,
            BASELINE if layer is None else ScaleBlock(layer),
            Decoding(question.limit),
        )
        for layer in edits
        for index, question in enumerate(job.questions)
    ]
    answers = Answers()
    for response in engine.answer(requests):
        layer, _, index = response.key.partition("|")
        answers.count(said=len(response.token_ids))
        answers.tokens[int(layer) if layer else None, int(index)] = job.trimmed(list(response.token_ids))
    return answers
