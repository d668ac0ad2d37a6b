"""Choice of an engine: which library answers, in this process or on workers, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from lesion.arguments import validated
from lesion.bounds import check
from lesion.errors import UsageError, nearest

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
