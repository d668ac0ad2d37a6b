"""A worker, called in this process: it opens the model that was ordered, and answers its units as the engine does."""

import pickle
from dataclasses import replace

import pytest
import torch

import tiny
from alone import prompts
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleParameters
from lesion.edits.selections.controls import Random
from lesion.edits.selections.topk import Magnitude
from lesion.engines.checking import spelling
from lesion.engines.engine import Decoding, Request, Response
from lesion.engines.ray.worker import Answerer, Order, Report, WorkUnit
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import load

EDITS = (
    BASELINE,
    ScaleBlock(1),
    ScaleParameters(Magnitude(0.2), 0.0),
    Compose((ScaleBlock(0, 0.5), ScaleParameters(Random(Magnitude(0.3), 1), 1.5))),
)
TABLE = {edit: number for number, edit in enumerate(EDITS)}


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.save(tiny.tiny("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def order(folder) -> Order:
    model = load(folder, device="cpu")
    identity = model.fingerprint, spelling(model)
    return Order("transformers", str(folder), None, "float32", False, "mine", *identity, 8, 0, 1, 1)


def questions(count: int = 6) -> list[Request]:
    return [
        Request(f"{n} under {edit}", text, edit, Decoding(6), ((7, 8), (9,)) if n % 2 else ())
        for n, text in enumerate(prompts(count))
        for edit in EDITS
    ]


def answerer() -> Answerer:
    """A worker that is given the table of edits as it is, pickled as Ray would."""
    return Answerer(lambda reference: pickle.loads(pickle.dumps(EDITS)))


def through(worker: Answerer, work_units, seconds: float = 0.0, call: int = 1) -> tuple[list[Response], list[int]]:
    """All responses to some work_units, told in pieces of so many seconds; and the units in the order of their end."""
    responses, finished = [], []
    waiting = list(work_units)
    for _ in range(10_000):
        part = worker.proceed(seconds, call, ["the table"], waiting.pop(0) if waiting else None)
        assert part.failure is None
        responses += part.responses
        finished += part.finished
        if len(finished) == len(work_units):
            return responses, finished
    raise AssertionError("the worker never finished")


def test_parcels_carry_their_edits_by_number_and_give_the_same_requests_back():
    requests = questions()
    work_unit = WorkUnit.packed(3, requests, TABLE)
    assert {request.edit for request in work_unit.requests} == {BASELINE}
    assert work_unit.unpacked(pickle.loads(pickle.dumps(EDITS))) == requests
    # Edits hold a vector per matrix; a work_unit does not grow with them.
    assert b"Magnitude" not in pickle.dumps(work_unit)


@pytest.mark.parametrize("seconds", [1e-9, 60.0])
def test_it_answers_every_unit_as_the_engine_in_this_process_does(order, folder, seconds):
    requests = questions()
    worker = answerer()
    assert worker.open(order) == Report(rows=8)
    work_units = [WorkUnit.packed(n, requests[n * 8 : n * 8 + 8], TABLE) for n in range(3)]
    responses, finished = through(worker, work_units, seconds)
    assert finished == [0, 1, 2]
    expected = {r.key: r for r in TransformersEngine(load(folder, device="cpu"), 8).answer(requests)}
    assert len(responses) == len(requests)
    for response in responses:
        assert response.token_ids == expected[response.key].token_ids
        assert response.engine == expected[response.key].engine
        assert response.answer.scores == pytest.approx(expected[response.key].answer.scores, rel=1e-5)


def test_loops_end_on_a_worker_where_they_end_in_this_process(order, folder):
    decoding, texts = Decoding(80, stop_loops=2), prompts(3, seed=5)
    requests = [Request(f"{n} {edit}", text, edit, decoding) for n, text in enumerate(texts) for edit in EDITS]
    worker = answerer()
    worker.open(order)
    work_unit = pickle.loads(pickle.dumps(WorkUnit.packed(0, requests, TABLE)))
    responses, _ = through(worker, [work_unit])
    expected = {r.key: r for r in TransformersEngine(load(folder, device="cpu"), 8).answer(requests)}
    assert {r.key: (r.token_ids, r.answer) for r in responses} == {
        key: (response.token_ids, response.answer) for key, response in expected.items()
    }
    assert "loop" in {response.answer.finish for response in responses}


def test_another_call_or_a_drop_ends_what_was_at_work_and_leaves_no_edit_behind(order):
    requests = questions()
    worker = answerer()
    worker.open(order)
    work_unit = WorkUnit.packed(0, requests, TABLE)
    for _ in range(14):  # into the groups whose edits are written into the weights
        worker.proceed(1e-9, 1, ["the table"], work_unit)
        work_unit = None
    again = [WorkUnit.packed(7, requests[:8], TABLE)]
    # The same answers, and under the same number of calls: nothing of the first call is left.
    responses, finished = through(worker, again, 60.0, call=2)
    assert {response.key for response in responses} == {request.key for request in requests[:8]}
    assert finished == [7]
    worker.proceed(1e-9, 2, ["the table"], WorkUnit.packed(8, requests, TABLE))
    worker.drop()
    assert worker.proceed(60.0, 2, ["the table"]) == Report()
    fresh = answerer()
    fresh.open(order)
    expected, _ = through(fresh, again, 60.0)
    assert [r.token_ids for r in responses] == [r.token_ids for r in expected]


def test_a_model_with_other_weights_than_the_drivers_is_refused(order):
    failure = answerer().open(replace(order, fingerprint="0" * 16)).failure
    assert "mine has other weights here" in str(failure.error)
    assert not failure.broken


def test_what_a_person_can_mend_comes_back_as_it_is_and_a_fault_with_its_traceback(order, monkeypatch):
    worker = answerer()
    missing = worker.open(replace(order, source="/no/such/folder"))
    assert isinstance(missing.failure.error, UsageError)
    worker.open(order)
    nowhere = Request("far", (5, 6), ScaleBlock(99), Decoding(2))
    part = Answerer.proceed(worker, 60.0, 1, ["x"], WorkUnit(0, (replace(nowhere, prompt=()),), (0,)))
    assert isinstance(part.failure.error, LesionError)
    assert "The prompt of far is empty" in str(part.failure.error)

    def broken(self, requests):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
        yield

    monkeypatch.setattr(TransformersEngine, "answer", broken)
    part = worker.proceed(60.0, 1, ["x"], WorkUnit.packed(1, questions(), TABLE))
    assert part.failure.error is None
    assert part.failure.broken
    assert part.failure.text.startswith("Traceback")
