"""Jobs: prompts that vLLM computes together, stepped until each has its tokens or what is looked up in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from lesion.engines.answers import TRACED, Lookup
from lesion.engines.engine import Request
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.vllm.building import Running
from lesion.engines.vllm.wishes import Look, Wish
from lesion.engines.vllm.worker import KEY
from lesion.errors import LesionError
from lesion.tasks.task import Finish

# Requests that vLLM holds, as a multiple of those at work: enough that nobody waits for the next.
HELD = 2


@dataclass(eq=False)
class Job:
    """One prompt, and what is wanted of it: an answer, whose tokens go to `row`, or what `look` names.

    Attributes:
        column: of the edit it is under, among those that the workers know.
        limit: new tokens at most, where no answer is wanted.
        request: whose tokens are looked up; part: which of its jobs this is.
        finish: why the answer ended, once it has.
        lookups: what was looked up, position by position.
    """

    tokens: tuple[int, ...]
    column: int = 0
    row: ActiveRequest | None = None
    look: Look | None = None
    limit: int = 1
    request: Request | None = None
    part: int = 0
    finish: Finish = "length"
    lookups: list[Lookup] = field(default_factory=list)


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
                    row, ended = job.row, False
                    if row is not None:
                        ended = self._hear(job, row, output.outputs[0].token_ids)
                        if scores := output.outputs[0].logprobs:  # of every token that this output has
                            most = sorted(((each.logprob, token) for token, each in scores[-1].items()), reverse=True)
                            row.last = tuple((token, logprob) for logprob, token in most[:TRACED])
                        if row.closing is not None and not ended and row.closing.due(row.generated):
                            ended = self._hear(job, row, row.closing.tokens)
                            if not ended:
                                closed.append(output.request_id)
                                continue
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
        row, look = job.row, job.look
        wish, limit, watched, traced = Wish(number, job.column, len(job.tokens)), job.limit, False, False
        said: list[int] = []
        if look is not None:
            wish = replace(wish, first=look.first, targets=look.targets, forbidden=look.forbidden)
        if row is not None:
            decoding, said, limit, traced = row.request.decoding, row.generated, row.limit, row.request.traced
            watched = bool(row.stop.stop) or row.loop is not None or row.closing is not None
            wish = replace(wish, forbidden=decoding.forbidden)
            if row.noise_key is not None:
                wish = replace(wish, draw=(decoding.temperature, decoding.top_p, row.noise_key))
        parameters = SamplingParams(
            temperature=0.0,  # what is drawn is drawn by the worker, see `lesion.engines.vllm.wishes.draw`
            max_tokens=limit - len(said),
            stop_token_ids=sorted(self.ends),
            ignore_eos=True,
            detokenize=False,
            logprobs=TRACED if traced else None,
            output_kind=RequestOutputKind.DELTA if watched else RequestOutputKind.FINAL_ONLY,
            extra_args={KEY: asdict(wish)},
        )
        with self.running.speaking() as engine:
            engine.add_request(str(number), tokens_input([*job.tokens, *said]), parameters)
        return str(number)

    def _hear(self, job: Job, row: ActiveRequest, tokens: Iterable[int]) -> bool:
        for token in tokens:
            if finish := row.say(int(token), True):
                job.finish = finish
                return True
            if row.closing is not None and row.closing.due(row.generated):
                break  # what vLLM has computed behind it is no part of the answer
        return False

    def _collect(self) -> None:
        results = json.loads(self.running.calls("found")[0])
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
        if job.row is not None and isinstance(results, int) and results < len(job.row.generated):
            job.finish = "nonfinite"
            del job.row.generated[results:]
