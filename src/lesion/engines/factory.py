"""Engines made as chosen, one at a time, and models loaded as these need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from lesion.engines.config import EngineChoice
from lesion.engines.engine import Engine
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import DTYPES, Model, configuration, load
from lesion.models.quantised import Quantisation, quantisation

if TYPE_CHECKING:
    from lesion.engines.ray.cluster import Cluster


class Opened:
    """Makes engines as chosen (`lesion.engines.engine.MakeEngine`), at most one vLLM at a time, and loads models for
    them.
    """

    def __init__(self, choice: EngineChoice, cluster: Cluster | None) -> None:
        self.choice = choice
        self.cluster = cluster
        self._running: Any = None

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def __call__(self, model: Model, batch_size: int | str) -> Engine:
        """An engine that answers with this model."""
        self._let_go()
        if self.choice.engine == "vllm":
            refuse_quantised(model.name, model.quantisation)
        if self.cluster is not None:
            from lesion.engines.ray.engine import RayEngine

            return RayEngine(self.cluster, model, batch_size)
        if self.choice.engine == "transformers":
            return TransformersEngine(model, batch_size)
        from lesion.engines.vllm.engine import VllmEngine

        self._running = running = VllmEngine(model, batch_size, tensor_parallel=self.choice.gpus_per_worker)
        return running

    def load(self, source: str | Path, *, revision: str | None, dtype: str, device: str) -> Model:
        """Load a model for the engines made here: where others answer with it, it stays in main memory."""
        spread, trusted = self.choice.gpus_per_worker > 1, self.choice.trust_remote_code
        if self.choice.engine == "vllm":
            config = configuration(source, revision=revision, trust_remote_code=trusted)
            refuse_quantised(str(source), quantisation(config))
            if self.cluster is None:
                from lesion.engines.vllm.building import look_ahead

                look_ahead(source, revision, trusted)
        device_map = self.choice.device_map or ("auto" if spread and device == "auto" else None)
        if self.cluster is None and self.choice.engine == "transformers":
            return load(
                source, revision=revision, dtype=dtype, device=device, device_map=device_map, trust_remote_code=trusted
            )
        if self.cluster is not None:
            self.cluster.prepare(device)
            device = "auto"
            accelerated = self.cluster.accelerated
        else:
            accelerated = torch.cuda.is_available()
        if dtype == "auto" and accelerated and device == "auto":  # that in which it is stored
            config = configuration(source, revision=revision, trust_remote_code=trusted)
            stated = str(getattr(config, "dtype", None)).removeprefix("torch.")
            dtype = stated if stated in DTYPES else "float32"
        device = "cpu" if device == "auto" else device
        return load(source, revision=revision, dtype=dtype, device=device, trust_remote_code=trusted)

    def _let_go(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            running.close()


def refuse_quantised(name: str, storage: Quantisation | None) -> None:
    """Refuse a quantised model for vLLM, whose kernels round otherwise than those of transformers."""
    if storage is not None:
        raise LesionError(
            f"{name} is stored quantised ({storage}), which vLLM computes with other roundings than transformers; leave"
            " out --engine vllm, or give its full-precision checkpoint."
        )


def refuse_few_gpus(choice: EngineChoice) -> None:
    """Refuse a model spread over more GPUs than this machine has; vLLM can spread it over processes instead."""
    there = torch.cuda.device_count()
    if choice.gpus_per_worker > max(there, 1) and (there or choice.engine != "vllm"):
        raise UsageError(
            f"A model cannot be spread over {choice.gpus_per_worker} GPUs here: this machine has {there or 'none'}."
        )


def load_for(make_engine: object, source: str | Path, *, revision: str | None, dtype: str, device: str) -> Model:
    """Load a model as what makes engines wants it; plainly where that has no wishes."""
    loading = make_engine.load if isinstance(make_engine, Opened) else load
    return loading(source, revision=revision, dtype=dtype, device=device)
