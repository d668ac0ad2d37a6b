"""A cluster of workers, on this machine or many: started, given a model, replaced when lost, and ended."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lesion.engines.checking import spelling
from lesion.engines.config import EngineChoice
from lesion.engines.ray.joining import Raylet, connected, ray_module
from lesion.engines.ray.placement import Node, Placement, planned, refuse_crowd
from lesion.engines.ray.units import Unit
from lesion.engines.ray.worker import Answerer, Order, WorkUnit
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.models.source import BUNDLED, find
from lesion.progress import Watcher


@dataclass(eq=False)
class Worker:
    """A worker as the driver sees it.

    Attributes:
        number: from 1; a replacement keeps it.
        actor: Ray's handle of its process.
        pending: calls that it has not answered yet, oldest first.
        started: when its process was asked for, by the monotonic clock.
        host, process: where it runs, once it has started.
        order: the engine that it has open or is opening.
        rows: that it answers at once; 0 until it is ready.
        units: that it was given, the first of them at work.
        deaths: how many of its processes have died before they were ready, one after another.
        answers, seconds: given by all its processes, and while it had something to answer.
    """

    number: int
    actor: Any
    pending: deque[Any] = field(default_factory=deque)
    started: float = 0.0
    host: str = ""
    process: int = 0
    order: Order | None = None
    rows: int = 0
    units: deque[Unit] = field(default_factory=deque)
    deaths: int = 0
    answers: int = 0
    seconds: float = 0.0
    since: float | None = None

    def __str__(self) -> str:
        return f"worker {self.number} on {self.host}" if self.host else f"worker {self.number}"

    def greet(self, actor: Any) -> None:
        """Begin with a process that was just asked for."""
        self.actor, self.host, self.process, self.order, self.rows = actor, "", 0, None, 0
        self.started = time.monotonic()
        self.units.clear()
        self.rest()
        self.pending = deque([actor.info.remote()])

    def open(self, order: Order) -> None:
        """Have it open an engine."""
        self.order, self.rows = order, 0
        self.pending.append(self.actor.open.remote(order))

    def proceed(self, seconds: float, call: int, edits: list[Any], work_unit: WorkUnit | None = None) -> None:
        """Have it answer on, with one more unit where a work_unit is given."""
        self.pending.append(self.actor.proceed.remote(seconds, call, edits, work_unit))

    def drop(self) -> None:
        """Have it forget what it was given."""
        if self.units:
            self.actor.drop.remote()
        self.units.clear()
        self.pending.clear()
        self.rest()

    def work(self) -> None:
        """It has something to answer from now on."""
        if self.since is None:
            self.since = time.monotonic()

    def rest(self) -> None:
        """It has nothing to answer any more."""
        if self.since is not None:
            self.seconds += time.monotonic() - self.since
            self.since = None


class Cluster:
    """Workers that answer, each with the whole model.

    The watcher hears of workers that are lost. `raylet` is Ray's own process here, if it can be looked after.
    """

    def __init__(self, choice: EngineChoice, nodes: list[Node], watcher: Watcher, raylet: Raylet | None = None) -> None:
        self.choice = choice
        self.nodes = nodes
        self.watcher = watcher
        self.raylet = raylet
        self.workers: list[Worker] = []
        self.calls = 0
        self._plan: Placement | None = None
        self._device = "auto"
        self._folders: list[tempfile.TemporaryDirectory[str]] = []
        self._saved: dict[str, str] = {}

    @property
    def name(self) -> str:
        """In messages."""
        return f"the Ray cluster at {self.choice.ray}" if self.choice.ray else "this machine"

    @property
    def accelerated(self) -> bool:
        """Whether workers have GPUs."""
        return self._plan.gpus > 0 if self._plan else any(node.gpus for node in self.nodes)

    @property
    def plan(self) -> Placement:
        """Where workers are and what each of them has."""
        if self._plan is None:
            self._plan = planned(self.choice, self.nodes, self._device, self.name)
        return self._plan

    def prepare(self, device: str | None = None) -> None:
        """Start the workers' processes, unless they run, for a model on this device (by default the last one's)."""
        if device is not None and device != self._device:
            self._release()
            self._device, self._plan = device, None
        plan = self.plan
        if not self.workers:
            self.workers = [Worker(number + 1, None) for number in range(plan.workers)]
            for worker in self.workers:
                worker.greet(self._process(plan))

    def order(self, model: Model, batch_size: int | str) -> Order:
        """What a worker is to open. A model that was made in memory is saved for the workers once."""
        origin = model.origin
        if origin is None:
            source, revision, code = self._save(model), None, False
        else:
            source, revision, code = origin.source, origin.revision, origin.trust_remote_code
            if not source.startswith(BUNDLED):
                place = find(source, revision)
                source, revision = place.place, place.revision
                if place.local:
                    source = str(Path(source, place.file or "").absolute())
                elif place.file is not None:
                    source = f"{source}:{place.file}"
        plan = self.plan
        dtype = model.dtype_name
        return Order(
            *(self.choice.engine, source, revision, dtype, code, model.name, model.fingerprint, spelling(model)),
            *(batch_size, plan.gpus, plan.threads, plan.sharers),
        )

    def replace(self, worker: Worker) -> None:
        """End a worker's process and start another."""
        with contextlib.suppress(Exception):  # it may be gone in many ways
            ray_module().kill(worker.actor)
        worker.greet(self._process(self.plan))

    def close(self) -> None:
        """End the workers and remove what was saved for them."""
        self._release()
        for folder in self._folders:
            folder.cleanup()

    def _release(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(Exception):  # Ray may be gone with them
                ray_module().kill(worker.actor)
        self.workers = []

    def _process(self, plan: Placement) -> Any:
        ray = ray_module()
        made = ray.remote(Answerer).options(num_cpus=plan.cores, num_gpus=plan.gpus, max_restarts=0)
        return made.remote(_fetch)

    def _save(self, model: Model) -> str:
        if model.fingerprint not in self._saved:
            folder = tempfile.TemporaryDirectory(prefix="lesion-model-", ignore_cleanup_errors=True)
            self._folders.append(folder)
            with quiet():
                model.network.save_pretrained(folder.name)
                model.tokenizer.save_pretrained(folder.name)
            self._saved[model.fingerprint] = folder.name
        return self._saved[model.fingerprint]


def _fetch(reference: Any) -> Any:
    return ray_module().get(reference)


@contextmanager
def joined(choice: EngineChoice, watcher: Watcher) -> Iterator[Cluster]:
    """The workers that a choice names, until the `with` ends."""
    with connected(choice.ray) as nodes:
        elsewhere = (choice.ray or "").startswith("ray://")
        cluster = Cluster(choice, nodes, watcher, None if elsewhere else Raylet.here())
        refuse_crowd(choice, sum(node.cores for node in nodes), cluster.name)
        try:
            yield cluster
        finally:
            cluster.close()
