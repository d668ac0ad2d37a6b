"""What runs in every worker: it holds one model on one engine and answers the units it is given.

The class knows nothing of Ray and could be called directly. Edits are never left in it: they come with the call that
their requests belong to.
"""

from __future__ import annotations

import gc
import os
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from lesion.edits.edit import BASELINE, Edit
from lesion.engines.engine import Engine, Request, Response
from lesion.errors import LesionError


@dataclass(frozen=True)
class Order:
    """The engine that a worker is to open.

    Attributes:
        source, revision, dtype, trust_remote_code: as `lesion.models.load.Origin`.
        fingerprint, spelling: that the loaded model must have.
        sharers: workers that share the memory of its machine.
    """

    engine: str
    source: str
    revision: str | None
    dtype: str
    trust_remote_code: bool
    name: str
    fingerprint: str
    spelling: str
    batch_size: int | str
    gpus: int
    threads: int
    sharers: int


@dataclass(frozen=True)
class WorkerInfo:
    """Who a worker is: its machine, its process, and the version of lesion there."""

    host: str
    process: int
    version: str


@dataclass(frozen=True)
class Failure:
    """What went wrong in a worker.

    Attributes:
        error: what a person can do something about; None where it is a fault, whose traceback is `text`.
        broken: whether the process cannot go on: its accelerator failed.
    """

    error: LesionError | None
    text: str
    broken: bool


@dataclass(frozen=True)
class WorkUnit:
    """A unit as it travels: requests without their edits, and for each the number of its edit in the call's table."""

    number: int
    requests: tuple[Request, ...]
    edits: tuple[int, ...]

    @classmethod
    def packed(cls, number: int, requests: Sequence[Request], table: dict[Edit, int]) -> WorkUnit:
        """Requests with their edits replaced by numbers."""
        bare = tuple(replace(request, edit=BASELINE) for request in requests)
        return cls(number, bare, tuple(table[request.edit] for request in requests))

    def unpacked(self, table: Sequence[Edit]) -> list[Request]:
        """The requests with their edits."""
        return [replace(request, edit=table[edit]) for request, edit in zip(self.requests, self.edits, strict=True)]


@dataclass(frozen=True)
class Report:
    """What a worker reports: answers and the numbers of finished units; of a model that it has loaded, how many rows it
    answers at once.
    """

    responses: tuple[Response, ...] = ()
    finished: tuple[int, ...] = ()
    failure: Failure | None = None
    rows: int = 0


class Answerer:
    """One engine in a process of its own; `fetch` gets the table of edits that a call's reference stands for."""

    def __init__(self, fetch: Callable[[Any], tuple[Edit, ...]]) -> None:
        self._fetch = fetch
        self._engine: Engine | None = None
        self._call = -1
        self._edits: tuple[Edit, ...] = ()
        self._waiting: deque[WorkUnit] = deque()
        self._working: tuple[int, Iterator[Response]] | None = None

    def info(self) -> WorkerInfo:
        """Who this is. What takes long to import is imported now, while the model is loaded elsewhere."""
        import lesion.engines.transformers.engine
        import lesion.models.load  # noqa: F401

        return WorkerInfo(socket.gethostname(), os.getpid(), version("lesion"))

    def open(self, order: Order) -> Report:
        """Load a model and start its engine, in place of what was open before."""
        try:
            self.drop()
            self._close()
            return Report(rows=self._open(order))
        except Exception as error:  # each becomes a message for the person at the driver
            return Report(failure=_failure(error))

    def proceed(self, seconds: float, call: int, edits: Sequence[Any], work_unit: WorkUnit | None = None) -> Report:
        """Answer for about so many seconds, or until there is nothing left to answer.

        Args:
            call: number of the call of `answer` that this belongs to; what is left of an earlier one is dropped.
            edits: one reference to the table of the call's edits, in a list.
            work_unit: one more unit, for after those that wait here.
        """
        started = time.monotonic()
        responses: list[Response] = []
        finished: list[int] = []
        try:
            if call != self._call:
                self.drop()
                self._call, self._edits = call, self._fetch(edits[0])
            if work_unit is not None:
                self._waiting.append(work_unit)
            while not (responses or finished) or time.monotonic() - started < seconds:
                if self._working is None:
                    if not self._waiting:
                        break
                    assert self._engine is not None, "a worker is asked before it has opened a model"
                    given = self._waiting.popleft()
                    self._working = given.number, iter(self._engine.answer(given.unpacked(self._edits)))
                number, answers = self._working
                response = next(answers, None)
                if response is None:
                    self._working = None
                    finished.append(number)
                else:
                    responses.append(response)
        except Exception as error:  # each becomes a message for the person at the driver
            self.drop()
            return Report(tuple(responses), tuple(finished), _failure(error))
        return Report(tuple(responses), tuple(finished))

    def drop(self) -> None:
        """Forget all units, the one at work too."""
        self._waiting.clear()
        working, self._working = self._working, None
        if working is not None:
            getattr(working[1], "close", lambda: None)()

    def _open(self, order: Order) -> int:
        import torch

        from lesion.engines.checking import spelling
        from lesion.models.load import load

        torch.set_num_threads(order.threads)
        gpus = order.gpus if order.engine == "transformers" else 0
        model = load(
            order.source,
            revision=order.revision,
            dtype=order.dtype,
            device="auto" if gpus > 1 else "cuda" if gpus else "cpu",
            device_map="auto" if gpus > 1 else None,
            trust_remote_code=order.trust_remote_code,
        )
        if model.fingerprint != order.fingerprint:
            raise LesionError(
                f"{order.name} has other weights here (fingerprint {model.fingerprint}) than where the study runs"
                f" ({order.fingerprint}). Every machine must find the same model under {order.source}: put it into a"
                f" folder that all of them see, or name a commit of the hub as its revision."
            )
        if spelling(model) != order.spelling:
            raise LesionError(
                f"{order.name} has another tokenizer here than where the study runs. Every machine must find the same"
                f" files under {order.source}."
            )
        model = replace(model, name=order.name)
        if order.engine == "vllm":
            from lesion.engines.vllm.engine import VllmEngine

            vllm = self._engine = VllmEngine(model, order.batch_size, tensor_parallel=max(1, order.gpus))
            return vllm.batch_size
        from lesion.engines.transformers.engine import TransformersEngine

        transformers = self._engine = TransformersEngine(model, order.batch_size, sharers=order.sharers)
        return transformers.rows()

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        getattr(engine, "close", lambda: None)()
        del engine
        gc.collect()
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _failure(error: Exception) -> Failure:
    if isinstance(error, LesionError):
        return Failure(error, str(error), False)
    text = "".join(traceback.format_exception(error)).rstrip()
    broken = type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)
    return Failure(None, text, broken)
