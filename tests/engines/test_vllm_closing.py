"""How jobs for vLLM close a trace, with a stand-in for vLLM.

vLLM itself is compared with the transformers engine in `tests/engines/vllm`.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

import tiny
from alone import greedy, prompts
from lesion.edits.edit import BASELINE
from lesion.engines.endings import FORCED, Closing, StopStrings
from lesion.engines.engine import Request
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.vllm.building import Running
from lesion.engines.vllm.jobs import Job, Jobs

LIMIT, THINKING = 36, 9


class StandIn:
    """Decodes greedily, two tokens of every request a step, so that a limit may fall between them."""

    def __init__(self, model) -> None:
        self.model = model
        self.requests: dict[str, list] = {}
        self.aborted: list[str] = []

    def add_request(self, name, prompt, parameters) -> None:
        self.requests[name] = [tuple(prompt["ids"]), (), parameters.max_tokens, parameters.output_kind]

    def abort_request(self, names) -> None:
        self.aborted += names
        for name in names:
            self.requests.pop(name, None)

    def collective_rpc(self, method, args) -> list[str]:
        return ["{}"]

    def step(self) -> list:
        outputs = []
        for name, request in list(self.requests.items()):
            prompt, said, most, _ = request
            new = greedy(self.model, (*prompt, *said), BASELINE, min(2, most - len(said)))
            request[1] = (*said, *new)
            finished = len(request[1]) >= most or new[-1] == 2
            if finished:
                del self.requests[name]
            outputs.append(
                SimpleNamespace(
                    request_id=name, outputs=[SimpleNamespace(token_ids=new, logprobs=None)], finished=finished
                )
            )
        return outputs


@pytest.fixture
def stand_in(monkeypatch):
    names = ("vllm", "vllm.inputs", "vllm.inputs.engine", "vllm.sampling_params")
    modules = {name: ModuleType(name) for name in names}
    modules["vllm"].SamplingParams = SimpleNamespace
    modules["vllm.inputs.engine"].tokens_input = lambda ids: {"ids": ids}
    modules["vllm.sampling_params"].RequestOutputKind = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return StandIn(tiny.model("llama"))


def answer(model, prompt, limit: int) -> Job:
    stop, closing = StopStrings(model.tokenizer, (), True), Closing(model.tokenizer, THINKING, True)
    return Job(prompt, row=ActiveRequest(Request("", prompt), 0, 0, limit, {2}, stop, closing=closing))


def test_a_trace_is_closed_and_the_job_goes_on_behind_it(stand_in):
    model = stand_in.model
    tag = tuple(model.tokenizer.encode(FORCED, add_special_tokens=False))
    running = Running(stand_in, "stand-in", True, None, None)
    jobs = [answer(model, prompt, LIMIT) for prompt in prompts(4, seed=6)]
    done = list(Jobs(running, 2, {2}).run(jobs))
    assert len(done) == len(jobs)
    closed = 0
    for job in done:
        trace = greedy(model, job.tokens, BASELINE, THINKING)
        if trace[-1] == 2:
            assert tuple(job.row.generated) == trace
            continue
        closed += 1
        rest = greedy(model, (*job.tokens, *trace, *tag), BASELINE, LIMIT - THINKING - len(tag))
        assert tuple(job.row.generated) == (*trace, *tag, *rest)
        assert job.finish == ("stop" if rest[-1] == 2 else "length")
    assert closed == len(stand_in.aborted) > 0


def test_a_limit_that_falls_into_the_tag_ends_the_answer_there(stand_in):
    model = stand_in.model
    tag = tuple(model.tokenizer.encode(FORCED, add_special_tokens=False))
    running = Running(stand_in, "stand-in", True, None, None)
    (prompt,) = prompts(1, seed=6)
    (job,) = Jobs(running, 2, {2}).run([answer(model, prompt, THINKING + 3)])
    assert tuple(job.row.generated[THINKING:]) == tag[:3]
    assert job.finish == "length"
