"""Contestant: lesion with its transformers engine, one Ray worker for every thread that the others have."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from contextlib import ExitStack

from engines_job import Answers, Job, Layer, Sweep
from engines_lesion import asked
from lesion.edits.edit import BASELINE
from lesion.engines.config import EngineChoice, opened
from lesion.engines.engine import Decoding, Request
from lesion.models.load import load

LIBRARIES = ("lesion", "ray", "transformers", "torch")
SIZED = False


def start(job: Job) -> Sweep:
    """The workers as a study opens them."""
    workers = int(os.environ["OMP_NUM_THREADS"])
    open_until_the_end = ExitStack()
    atexit.register(open_until_the_end.close)
    make = open_until_the_end.enter_context(opened(EngineChoice(workers=workers)))
    engine = make(load(job.place, dtype=job.dtype, device=job.device), "auto")
    # Every worker has the model before anything is timed: that belongs to the start.
    first = job.questions[0]
    for _ in engine.answer([Request(str(n), first.prompt, BASELINE, Decoding(1)) for n in range(8 * workers)]):
        pass

    def sweep(edits: Sequence[Layer], size: int) -> Answers:
        return asked(engine, job, edits)

    return sweep
