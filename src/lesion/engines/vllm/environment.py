"""What vLLM does to the process that starts it, and how that is undone: environment, random generators, globals."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch


@contextmanager
def environment(here: bool) -> Iterator[None]:
    """What vLLM reads from the environment while it starts, `here` in this process; afterwards it is as it was."""
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
    os.environ.update(given)
    try:
        with _errors_only() if "VLLM_LOGGING_LEVEL" in given else nullcontext():
            yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _errors_only() -> Iterator[None]:
    """Of vLLM's messages only errors, also of those before it has set its own level."""
    logger = logging.getLogger("vllm")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def same_luck() -> Iterator[None]:
    """Random generators of this process as they were: vLLM seeds them."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def leave_nothing() -> None:
    """Undo what vLLM has set up in this process."""
    if "vllm.distributed.parallel_state" not in sys.modules:
        return
    cleanup = getattr(importlib.import_module("vllm.distributed.parallel_state"), "cleanup_dist_env_and_memory", None)
    if cleanup is not None:
        cleanup()
    gc.collect()
