"""Choice of an engine: which library answers, in this process or on workers; and engines opened as it says."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.arguments import validated
from lesion.bounds import check
from lesion.errors import UsageError, nearest
from lesion.progress import Silent, Watcher

if TYPE_CHECKING:
    from lesion.engines.factory import Opened

ENGINES = ("transformers", "vllm")


@validated
@dataclass(frozen=True)
class EngineChoice:
    """Which engine answers, and where it runs.

    Attributes:
        engine: `transformers` or `vllm`.
        workers: how many workers answer, each with the whole model; None: no workers, unless `ray` is given, in which
            case one for every accelerator of the cluster.
        ray: address of a Ray cluster (`auto`, `HOST:PORT`, `ray://HOST:PORT`); None: workers run on this machine.
        gpus_per_worker: over how many GPUs a model is spread, by tensor parallelism (vllm) or block by block
            (transformers).
        device_map: how accelerate spreads a model over the devices of this process (`auto`, `balanced`, …), in place of
            a device.
        trust_remote_code: run the code that came with a checkpoint. Off unless you have read it.

    Raises:
        UsageError: there is no such engine, or a number is less than 1.
    """

    engine: str = "transformers"
    workers: int | None = None
    ray: str | None = None
    gpus_per_worker: int = 1
    device_map: str | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UsageError(
                f"There is no engine '{self.engine}'{nearest(self.engine, ENGINES)}; there are {', '.join(ENGINES)}."
            )
        check(workers=self.workers, gpus_per_worker=self.gpus_per_worker)
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"At least 1 worker is needed, not {self.workers}; leave --workers out for none.")
        if self.gpus_per_worker < 1:
            raise UsageError(f"A worker has at least 1 GPU or none at all, not {self.gpus_per_worker}.")
        if self.device_map is not None and (self.distributed or self.engine != "transformers"):
            raise UsageError(
                "A device map spreads a model that this process runs with transformers; for workers and vllm give"
                " --gpus-per-worker."
            )

    @classmethod
    @validated
    def of(cls, engine: str | EngineChoice) -> EngineChoice:
        """A choice as it is; the name of an engine as that engine in this process."""
        return engine if isinstance(engine, EngineChoice) else cls(engine)

    @property
    def distributed(self) -> bool:
        """Whether other processes answer."""
        return self.workers is not None or self.ray is not None


# What has to be installed for what is chosen, and how it is said.
_LIBRARIES = {
    "vllm": "The engine vllm needs vLLM, which is not installed: pip install 'lesion[vllm]' on a machine with a GPU;"
    " for a CPU see docs/how-to/several-gpus.md.",
    "ray": "Workers need Ray, which is not installed: pip install 'lesion[ray]'.",
}


@contextmanager
def opened(choice: EngineChoice, watcher: Watcher | None = None) -> Iterator[Opened]:
    """What makes engines of models, until the `with` ends; workers and engines end with it."""
    for library, needed in (("vllm", choice.engine == "vllm"), ("ray", choice.distributed)):
        if needed and importlib.util.find_spec(library) is None:
            raise UsageError(_LIBRARIES[library])
    if choice.distributed:
        from lesion.engines.ray.joining import look_ahead

        look_ahead(choice)
    from lesion.engines.factory import Opened, refuse_few_gpus  # they need torch

    if not choice.distributed:
        refuse_few_gpus(choice)
        with Opened(choice, None) as made:
            yield made
        return
    from lesion.engines.ray.cluster import joined

    with joined(choice, watcher or Silent()) as cluster, Opened(choice, cluster) as made:
        yield made
