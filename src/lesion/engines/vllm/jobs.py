"""Jobs: prompts that vLLM computes together, stepped until each has its tokens or what is looked up in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lesion.engines.answers import TRACED, Lookup
from lesion.engines.endings import Closing, Loop, StopStrings
from lesion.engines.engine import Request
from lesion.engines.vllm.building import Running
from lesion.engines.vllm.wishes import Look, Settings, Wish
from lesion.engines.vllm.worker import KEY
from lesion.errors import LesionError
from lesion.tasks.task import Finish

# Requests that vLLM holds, as a multiple of those at work: enough that nobody waits for the next.
HELD = 2


@dataclass(eq=False)
class Job:
    """One prompt, and what is wanted of it.

    Attributes:
        limit: new tokens at most.
        column: of the edit it is under, among those that the workers know.
        stop: looks for stop strings in the answer.
        loop: looks for a loop in the answer; None where loops may go on.
        closing: closes the trace at the limit for it; None where it may think on.
        look: what is looked up, in place of an answer.
        draw: see `Wish`.
        part: which of its request's jobs this is.
        generated, finish: the tokens of the answer, once it is done, and why it ended.
        lookups: what was looked up, position by position.
        last: of a traced request, between which tokens its last one was chosen (`Response.last`).
    """

    tokens: tuple[int, ...]
    limit: int = 1
    column: int = 0
    stop: StopStrings | None = None
    loop: Loop | None = None
    look: Look | None = None
    closing: Closing | None = None
    draw: Settings | tuple[()] = ()
    request: Request | None = None
    part: int = 0
    generated: list[int] = field(default_factory=list)
    finish: Finish = "length"
    lookups: list[Lookup] = field(default_factory=list)
    last: tuple[tuple[int, float], ...] = ()


class Jobs:
    """Runs jobs on one vLLM, `rows` of them at work at once."""

    def __init__(self, running: Running, rows: int, ends: set[int]) -> None:
        self.running = running
        self.rows = rows
        self.ends = ends
        self._number = 0
        self._found: dict[int, Any] = {}

    def run(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Each job once it is done, in any order. Those at work are given up when the iterator is closed."""
        waiting = iter(jobs)
        at_work: dict[str, Job] = {}
        more = True
        try:
            while more or at_work:
                while more and len(at_work) < HELD * self.rows:
                    job = next(waiting, None)
                    if job is None:
                        more = False
                    else:
                        at_work[self._add(job)] = job
                if not at_work:
                    return
                done: list[str] = []
                stopped: list[str] = []
                closed: list[str] = []
                with self.running.speaking() as engine:
                    outputs = engine.step()
                for output in outputs:
                    job = at_work.get(output.request_id)
                    if job is None:
                        continue
                    ended = self._hear(job, output.outputs[0].token_ids)
                    if scores := output.outputs[0].logprobs:  # of every token that this output has
                        most = sorted(((each.logprob, token) for token, each in scores[-1].items()), reverse=True)
                        job.last = tuple((token, logprob) for logprob, token in most[:TRACED])
                    if job.closing is not None and not ended and job.closing.due(job.generated):
                        ended = self._hear(job, job.closing.tokens[: job.limit - len(job.generated)])
                        if not ended and len(job.generated) < job.limit:
                            closed.append(output.request_id)
                            continue
                        ended = True
                    if ended or output.finished:
                        done.append(output.request_id)
                    if ended and not output.finished:
                        stopped.append(output.request_id)
                if stopped or closed:
                    self.running.engine.abort_request([*stopped, *closed])
                for name in closed:  # goes on behind the closing tag, as a prompt that is longer by the trace
                    job = at_work.pop(name)
                    at_work[self._add(job)] = job
                if done:
                    self._collect()
                for name in done:
                    job = at_work.pop(name)
                    self._conclude(job, int(name))
                    yield job
        finally:
            if at_work and self.running.engine is not None:
                self.running.engine.abort_request(list(at_work))
                self._collect()
                self._found.clear()

    def _add(self, job: Job) -> str:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        number, self._number = self._number, self._number + 1
        watched = (job.stop is not None and bool(job.stop.stop)) or job.loop is not None or job.closing is not None
        first, targets = (job.look.first, job.look.targets) if job.look else (0, ())
        forbidden = job.look.forbidden if job.look else job.request.decoding.forbidden if job.request else ()
        wish = Wish(number, job.column, len(job.tokens), first, targets, job.draw, forbidden)
        parameters = SamplingParams(
            temperature=0.0,  # what is drawn is drawn by the worker, see `lesion.engines.vllm.wishes.draw`
            max_tokens=job.limit - len(job.generated),
            stop_token_ids=sorted(self.ends),
            ignore_eos=True,
            detokenize=False,
            logprobs=TRACED if job.request and job.request.traced else None,
            output_kind=RequestOutputKind.DELTA if watched else RequestOutputKind.FINAL_ONLY,
            extra_args={KEY: wish.plain()},
        )
        with self.running.speaking() as engine:
            engine.add_request(str(number), tokens_input([*job.tokens, *job.generated]), parameters)
        return str(number)

    def _hear(self, job: Job, tokens: Iterable[int]) -> bool:
        for token in tokens:
            job.generated.append(int(token))
            if job.look is not None:
                continue
            if token in self.ends or (job.stop is not None and job.stop.hit(job.generated)):
                job.finish = "stop"
                return True
            # At the limit an answer has met the limit, loop or not.
            if job.loop is not None and len(job.generated) < job.limit and job.loop.hit(job.generated):
                job.finish = "loop"
                return True
            if job.closing is not None and job.closing.due(job.generated):
                return False  # what vLLM has computed behind it is no part of the answer
        return False

    def _collect(self) -> None:
        results = json.loads(self.running.calls("lesion_lookups")[0])
        for key, value in results.items():
            known = self._found.get(int(key))
            if isinstance(known, dict) and isinstance(value, dict):
                known.update(value)
            else:
                self._found.setdefault(int(key), value)

    def _conclude(self, job: Job, number: int) -> None:
        results = self._found.pop(number, None)
        if job.look is not None:
            try:
                entries = [results[str(index)] for index in range(len(job.look.targets))]
            except (KeyError, TypeError):
                raise LesionError(
                    "vLLM finished a prompt without computing all positions that were to be looked up; use --engine"
                    " transformers."
                ) from None
            job.lookups = [Lookup(tuple(scores), tuple(ranks), *others) for scores, ranks, *others in entries]
            return
        # What broke behind the end, in a step that was under way already, is no part of the answer.
        if isinstance(results, int) and results < len(job.generated):
            job.finish = "nonfinite"
            del job.generated[results:]
