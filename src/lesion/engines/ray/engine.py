"""The contract of an engine over many workers: units of work go out, answers come back in whatever order.

Units are dealt to workers as these get free. A worker that dies is replaced, and what it had not answered is asked
again, so that every request gets exactly one response.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from importlib.metadata import version

from lesion.edits.edit import Edit, of_spectra, of_weights
from lesion.edits.table import in_weights
from lesion.engines.engine import Request, Response
from lesion.engines.ray.cluster import Cluster, Worker
from lesion.engines.ray.joining import ray_module
from lesion.engines.ray.units import Unit, cut
from lesion.engines.ray.worker import Failure, Report, WorkerInfo, WorkUnit
from lesion.engines.vllm.weights import without_matrices
from lesion.errors import LesionError
from lesion.models.load import Model

# Seconds after which a worker reports its answers; those not yet reported are lost with it.
TELL_EVERY = 0.5
# Seconds that answers are handed on before the workers are looked after again.
LOOK_EVERY = 0.1
# Seconds of waiting for a worker's process until that is noted, and until having none at all is an error.
ROOM_NOTE = 60.0
ROOM_PATIENCE = 300.0
# Workers that one unit, or the loading of one model, may cost.
DEATHS = 3


class RayEngine:
    """Answers requests with one model on the workers of a cluster."""

    def __init__(self, cluster: Cluster, model: Model, batch_size: int | str) -> None:
        cluster.prepare()
        self.cluster = cluster
        self.model = model
        self.batch_size = batch_size

    def answer(self, requests: Iterable[Request]) -> Iterator[Response]:
        """Responses as they are finished, in any order; every request gets exactly one."""
        waiting = list(requests)
        if waiting:
            yield from Call(self.cluster, self.model, self.batch_size, waiting).responses()


class Call:
    """One call of `answer`: which requests are open, and who works on what."""

    def __init__(self, cluster: Cluster, model: Model, batch_size: int | str, requests: Sequence[Request]) -> None:
        self.ray = ray_module()
        self.cluster = cluster
        self.model = model
        self.requests = requests
        self.order = cluster.order(model, batch_size)
        cluster.calls += 1
        self.number = cluster.calls
        # Edits may hold a vector for every matrix: they travel once, not with every unit.
        self.table: dict[Edit, int] = {}
        for request in requests:
            self.table.setdefault(request.edit, len(self.table))
        self.edits = [self.ray.put(tuple(self.table))]
        self.units: list[Unit] | None = None
        self.queue: deque[Unit] = deque()
        self.open: dict[str, Unit] = {}
        self.engines: dict[str, str] = {}
        self.noted: set[str] = set()

    def responses(self) -> Iterator[Response]:
        """The responses, as they come."""
        for worker in self.cluster.workers:
            self._ready(worker)
        arrived: deque[Response] = deque()
        try:
            while arrived or self.units is None or self.open:
                arrived += self._collect(0.0 if arrived else 1.0)
                until = time.monotonic() + LOOK_EVERY
                while arrived and time.monotonic() < until:
                    yield arrived.popleft()
        finally:
            for worker in self.cluster.workers:
                if worker.rows:
                    worker.drop()

    def _ready(self, worker: Worker) -> None:
        if not worker.host:
            return
        if worker.order == self.order:
            if worker.rows:
                self._cut(worker.rows)
        elif worker.order is not None and "vllm" in (worker.order.engine, self.order.engine):
            self.cluster.replace(worker)  # what vLLM holds of an accelerator goes with its process alone
        else:
            worker.open(self.order)

    def _collect(self, seconds: float) -> list[Response]:
        """What workers have finished, waiting so long for the first of them."""
        self._deal()
        pending = {worker.pending[0]: worker for worker in self.cluster.workers if worker.pending}
        finished, _ = self.ray.wait(list(pending), num_returns=1, timeout=seconds)
        if finished:
            finished, _ = self.ray.wait(list(pending), num_returns=len(pending), timeout=0)
        responses: list[Response] = []
        for reference in finished:
            responses += self._on_result(pending[reference])
        if self.cluster.raylet is not None:
            self.cluster.raylet.look(self.cluster.choice.ray)
        self._look_for_room()
        return responses

    def _deal(self) -> None:
        """Give units to workers that have none, while there are plenty also to those that are about to end; go on."""
        ready = [worker for worker in self.cluster.workers if worker.rows]
        for held in (0, 1):
            for worker in ready:
                if self.queue and len(worker.units) == held and (held == 0 or self._soon_free(worker)):
                    unit = self.queue.popleft()
                    worker.units.append(unit)
                    worker.work()
                    work_unit = WorkUnit.packed(unit.number, list(unit.requests.values()), self.table)
                    worker.proceed(TELL_EVERY, self.number, self.edits, work_unit)
        for worker in ready:
            # Two at a time: it goes on while its last answers are on their way.
            while worker.units and len(worker.pending) < 2:
                worker.proceed(TELL_EVERY, self.number, self.edits)

    def _soon_free(self, worker: Worker) -> bool:
        """Whether a worker is with the last batch of its unit, and giving it the next one starves nobody."""
        return len(worker.units[0].requests) <= worker.rows and len(self.queue) > len(self.cluster.workers)

    def _on_result(self, worker: Worker) -> list[Response]:
        reference = worker.pending.popleft()
        try:
            result = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise LesionError(f"{worker} has failed:", *str(error).splitlines()) from None
        except self.ray.exceptions.RayError as error:
            self._on_death(worker, error)
            return []
        if isinstance(result, WorkerInfo):
            self._on_started(worker, result)
            return []
        if result.rows:
            worker.rows, worker.deaths = result.rows, 0
            self._cut(result.rows)
        return self._report(worker, result)

    def _on_started(self, worker: Worker, info: WorkerInfo) -> None:
        here = version("lesion")
        if info.version != here:
            raise LesionError(
                f"On {info.host} lesion {info.version} is installed, and here {here}: install the same version on all"
                f" machines of the cluster."
            )
        worker.host, worker.process = info.host, info.process
        worker.open(self.order)

    def _cut(self, rows: int) -> None:
        """Cut the requests into units, once it is known how many rows a worker answers at once."""
        if self.units is None:
            self.units = cut(self.requests, len(self.cluster.workers), rows, self._in_weights)
            self.queue = deque(self.units)
            self.open = {key: unit for unit in self.units for key in unit.requests}

    def _in_weights(self, request: Request) -> Hashable:
        """What of a request's edit is the same for all rows of a batch."""
        if self.order.engine == "transformers":
            return in_weights(request.edit, self.model.anatomy)
        edit = without_matrices(request.edit, self.model)
        return of_weights(edit), of_spectra(edit)

    def _report(self, worker: Worker, report: Report) -> list[Response]:
        fresh = []
        for response in report.responses:
            unit = self.open.pop(response.key, None)
            if unit is not None:  # else another worker has answered it before it was lost
                del unit.requests[response.key]
                fresh.append(response)
        worker.answers += len(fresh)
        if fresh:
            self._compare(worker, fresh[0].engine)
        for number in report.finished:
            unit = worker.units.popleft()
            assert unit.number == number, "units are finished in the order in which they were given"
            if unit.requests:
                raise LesionError(f"The engine of {worker} gave no answer to {unit}.")
        if not worker.units:
            worker.rest()
        if report.failure is not None:
            self._failed(worker, report.failure)
        return fresh

    def _compare(self, worker: Worker, engine: str) -> None:
        if engine and self.engines.setdefault(engine, str(worker)) == str(worker) and len(self.engines) == 2:
            (engine, first), (other, second) = self.engines.items()
            self._note(
                "engines",
                f"{first} answers with {engine}, {second} with {other}: where these round differently, an answer may"
                f" depend on who gave it.",
            )

    def _failed(self, worker: Worker, failure: Failure) -> None:
        if failure.error is not None:
            if worker.rows:
                raise failure.error
            raise type(failure.error)(f"{worker} cannot answer. {failure.error}")
        if not failure.broken:
            lines = failure.text.splitlines()
            raise LesionError(f"{worker} has failed, by a fault of lesion or of a library:", *lines)
        self._on_death(worker, RuntimeError(failure.text.splitlines()[-1]))

    def _on_death(self, worker: Worker, error: Exception) -> None:
        if lacking := re.search(r"No module named '[\w.]+'", str(error)):
            raise LesionError(
                f"A machine of {self.cluster.name} lacks a library ({lacking[0]}): install the same version of lesion"
                f" and its extras on all of them, in the Python that Ray was started with."
            )
        reason = cause(error)
        if worker.units:
            unit = worker.units[0]
            unit.deaths += 1
            if unit.deaths >= DEATHS:
                raise LesionError(
                    f"{DEATHS} workers have died over the same work ({unit}), the last because {reason}. Fewer rows at"
                    f" once take less memory: --batch-size; every answer so far is kept."
                )
        else:
            worker.deaths += 1
            if worker.deaths >= DEATHS:
                raise LesionError(
                    f"{worker} has died {DEATHS} times before it could answer with {self.order.name}, at last because"
                    f" {reason}. Each worker holds the whole model: fewer --workers, or a smaller --dtype."
                )
        self.queue.extendleft(unit for unit in reversed(worker.units) if unit.requests)
        self.cluster.watcher.note(
            f"{worker} was lost: {reason}. What it had not answered is asked again; another takes its place."
        )
        self.cluster.replace(worker)

    def _look_for_room(self) -> None:
        outside = [worker for worker in self.cluster.workers if not worker.host]
        longest = max((time.monotonic() - worker.started for worker in outside), default=0.0)
        count = len(self.cluster.workers)
        if longest > ROOM_NOTE:
            self._note("room", f"{len(outside)} of {count} workers wait until {self.cluster.name} has room for them.")
        if longest > ROOM_PATIENCE and len(outside) == count:
            raise LesionError(
                f"{self.cluster.name} had no room for a worker in {ROOM_PATIENCE / 60:.0f} minutes: others may be using"
                f" it (`ray status` tells), or machines have gone. Every answer so far is kept; run the same command"
                f" again later, or ask for fewer --workers."
            )

    def _note(self, about: str, text: str) -> None:
        if about not in self.noted:
            self.noted.add(about)
            self.cluster.watcher.note(text)


def cause(error: Exception) -> str:
    """Why a worker is dead, from what Ray says about it."""
    text = str(error)
    if "running low on memory" in text:
        return "its machine ran out of memory, and Ray ended it"
    if "node has died" in text or "node died" in text.lower():
        return "its machine is gone"
    if "CUDA" in text or "Accelerator" in text:
        return f"its accelerator failed ({text})"
    if type(error).__name__ == "ActorUnavailableError":
        return "it cannot be reached"
    return "its process was killed or crashed (the system may have ended it for want of memory)"
