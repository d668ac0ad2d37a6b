"""What vLLM does to the process that starts it, and how that is undone: environment, random generators, globals."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def environment(here: bool) -> Iterator[None]:
    """What vLLM reads from the environment while it starts, `here` in this process; afterwards it is as it was, and so
    are the random generators, which vLLM seeds.
    """
    given = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": str(int(not here)),
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    }
    if not here:
        given["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    defaults = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    given |= {key: value for key, value in defaults.items() if key not in os.environ}
    before = {key: os.environ.get(key) for key in given}
    luck = random.getstate(), np.random.get_state(), torch.get_rng_state()
    logger = logging.getLogger("vllm")
    level = logger.level
    os.environ.update(given)
    hushed = "VLLM_LOGGING_LEVEL" in given  # messages from before it has set its own level, too
    logger.setLevel(logging.ERROR if hushed else level)
    try:
        yield
    finally:
        if hushed:
            logger.setLevel(level)
        random.setstate(luck[0])
        np.random.set_state(luck[1])
        torch.set_rng_state(luck[2])
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def leave_nothing() -> None:
    """Undo what vLLM has set up in this process."""
    if "vllm.distributed.parallel_state" not in sys.modules:
        return
    sys.modules["vllm.distributed.parallel_state"].cleanup_dist_env_and_memory()
    gc.collect()
