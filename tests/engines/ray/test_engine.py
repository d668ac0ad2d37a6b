"""Units are dealt, lost and dealt again: whatever dies, every request gets exactly one response, or an error says why.

Workers run in this process here, behind a stand-in for Ray that lets them die when told to.
"""

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Listener

import lesion.engines.ray.cluster
import lesion.engines.ray.engine
import tiny
from alone import prompts
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.config import EngineChoice
from lesion.engines.engine import Decoding, Request, Response
from lesion.engines.ray.cluster import Cluster
from lesion.engines.ray.engine import Call, RayEngine, cause
from lesion.engines.ray.joining import Raylet
from lesion.engines.ray.placement import Node, Placement
from lesion.engines.ray.units import cut
from lesion.engines.ray.worker import Answerer, Order, Report, WorkerInfo
from lesion.errors import LesionError, UsageError
from lesion.tasks.task import Answer

EDITS = (BASELINE, ScaleBlock(0), ScaleBlock(1), ScaleBlock(2))
MODEL = tiny.model("llama")


class RayError(Exception):
    """As Ray's."""


class RayTaskError(RayError):
    """As Ray's."""


class DiedError(RayError):
    """A process is gone."""


class Reference:
    """What a call will have told; it runs when it is first waited for, in the order of calls."""

    def __init__(self, run: Callable[[], object], worker: int = 0, method: str = "") -> None:
        self.run = run
        self.worker = worker
        self.method = method
        self.told: object = None
        self.done = False

    def settle(self) -> None:
        if not self.done:
            self.done = True
            try:
                self.told = self.run()
            except Exception as error:
                self.told = error


class StandIn:
    """What of Ray the driver uses."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)

    def put(self, value):
        return value

    def get(self, reference):
        if isinstance(reference.told, Exception):
            raise reference.told
        return reference.told

    def wait(self, references, num_returns, timeout):
        # One worker has told something, any of them.
        ready = [reference for reference in references if reference.done] or [self.rng.choice(references)]
        for reference in ready:
            reference.settle()
        return ready[:num_returns], []

    def kill(self, actor):
        actor.dead = True


class Echo:
    """An engine that says the key of a request."""

    def __init__(self, description: str = "echo 1.0") -> None:
        self.description = description

    def answer(self, requests):
        for request in requests:
            yield Response(request.key, Answer(request.key, 1, "stop"), (len(request.prompt),), self.description)


class Actor:
    """A worker's process: calls of its methods are references; it dies when its fate says so."""

    def __init__(self, number: int, fate, engine) -> None:
        self.dead = False
        self.number = number
        self.fate = fate
        self.engine = engine
        self.answerer = Answerer(lambda table: table)
        self.units = 0

    def __getattr__(self, method: str):
        return SimpleNamespace(
            remote=lambda *arguments: Reference(lambda: self._run(method, arguments), self.number, method)
        )

    def _run(self, method: str, arguments):
        if self.dead:
            raise DiedError("The actor is dead")
        if self.fate(self, method):
            self.dead = True
            raise DiedError("The actor died unexpectedly")
        if method == "info":
            from importlib.metadata import version

            return WorkerInfo(f"host{self.number}", 1, version("lesion"))
        if method == "open":
            self.answerer._engine = self.engine
            return Report(rows=4)
        self.units += method == "proceed" and arguments[3] is not None
        return getattr(self.answerer, method)(*arguments)


class StandInCluster(Cluster):
    """Three workers by default, each an `Actor`."""

    def __init__(self, workers: int = 3, fate=lambda actor, method: False, engine=None) -> None:
        super().__init__(EngineChoice(workers=workers), [Node("here", 8, 0)], Listener())
        self.fate = fate
        self.made = 0
        self.engine_of = engine or (lambda number: Echo())

    def order(self, model, batch_size) -> Order:
        return Order("transformers", "x", None, "float32", False, "tiny:x", "f", "s", batch_size, 0, 1, 1)

    def _process(self, plan: Placement) -> Actor:
        self.made += 1
        return Actor(self.made, self.fate, self.engine_of(self.made))


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    ray = StandIn()
    monkeypatch.setattr(lesion.engines.ray.engine, "ray_module", lambda: ray)
    monkeypatch.setattr(lesion.engines.ray.cluster, "ray_module", lambda: ray)
    # One answer at a time, so that there is much to lose.
    monkeypatch.setattr(lesion.engines.ray.engine, "TELL_EVERY", 1e-9)
    return ray


def questions(count: int = 12) -> list[Request]:
    return [
        Request(f"{n} under {edit}", text, edit, Decoding(4)) for n, text in enumerate(prompts(count)) for edit in EDITS
    ]


def answered(cluster: Cluster, requests: list[Request]) -> Counter:
    responses = list(RayEngine(cluster, MODEL, 4).answer(requests))
    assert all(response.answer.text == response.key for response in responses)
    return Counter(response.key for response in responses)


def test_every_request_gets_one_response_and_all_workers_take_part():
    cluster = StandInCluster()
    requests = questions()
    assert answered(cluster, requests) == Counter(request.key for request in requests)
    assert sum(worker.answers for worker in cluster.workers) == len(requests)
    assert all(worker.answers for worker in cluster.workers)
    assert cluster.watcher.notes == []


def test_a_slow_worker_keeps_no_unit_from_the_others(monkeypatch):
    class Slow(StandIn):
        """The first worker tells nothing while another has something to tell."""

        def wait(self, references, num_returns, timeout):
            quick = [found for found in references if (found.worker, found.method) != (1, "proceed")]
            return super().wait(quick or references, num_returns, timeout)

    monkeypatch.setattr(lesion.engines.ray.engine, "ray_module", Slow)
    cluster = StandInCluster(2)
    requests = questions(60)
    assert answered(cluster, requests) == Counter(request.key for request in requests)
    assert [worker.actor.units for worker in cluster.workers] == [1, len(cut(requests, workers=2, rows=4)) - 1]


def test_a_worker_has_its_next_unit_before_it_ends_the_last_batch_of_the_present_one(monkeypatch):
    left = []
    deal = Call._deal

    def watched(call):
        deal(call)
        left.extend(len(worker.units[0].requests) for worker in call.cluster.workers if len(worker.units) == 2)

    monkeypatch.setattr(Call, "_deal", watched)
    answered(StandInCluster(2), questions(60))
    assert 0 < max(left) <= 4


@given(st.integers(0, 10**6), st.integers(1, 4), st.floats(0, 0.15))
@settings(max_examples=25, deadline=None)
def test_whatever_dies_every_request_gets_exactly_one_response(seed, workers, often):
    rng = random.Random(seed)
    lives = Counter()

    def fate(actor, method):
        # A unit may cost two workers; so no more than two processes die in all.
        dies = lives["dead"] < 2 and rng.random() < often
        lives["dead"] += dies
        return dies

    with pytest.MonkeyPatch.context() as patch:
        ray = StandIn(seed)
        patch.setattr(lesion.engines.ray.engine, "ray_module", lambda: ray)
        patch.setattr(lesion.engines.ray.cluster, "ray_module", lambda: ray)
        cluster = StandInCluster(workers, fate)
        requests = questions(6)
        assert answered(cluster, requests) == Counter(request.key for request in requests)
        assert cluster.made == workers + lives["dead"]
        assert len(cluster.watcher.notes) == lives["dead"]
        # The cluster goes on with the next call.
        assert answered(cluster, requests[:8]) == Counter(request.key for request in requests[:8])


def test_what_a_lost_worker_had_told_is_not_asked_again():
    proceeded = Counter()
    asked = Counter()

    class Counting(Echo):
        def answer(self, requests):
            for request in requests:
                asked[request.key] += 1
                yield from super().answer([request])

    def fate(actor, method):
        proceeded[actor.number] += method == "proceed"
        return actor.number == 1 and proceeded[1] == 5

    cluster = StandInCluster(1, fate, lambda number: Counting())
    requests = questions(6)
    assert answered(cluster, requests) == Counter(request.key for request in requests)
    # Four answers were told before the fifth call died: nothing but what was on its way is asked twice.
    assert sum(asked.values()) == len(requests)
    assert cluster.watcher.notes == [
        "worker 1 on host1 was lost: its process was killed or crashed (the system may have ended it for want of"
        " memory). What it had not answered is asked again; another takes its place."
    ]


def test_a_unit_over_which_three_workers_die_is_named_and_ends_the_study():
    cluster = StandInCluster(2, lambda actor, method: method == "proceed")
    with pytest.raises(LesionError, match=r"3 workers have died over the same work \(.* requests, .* prompts? under"):
        answered(cluster, questions())


def test_a_model_over_whose_loading_three_processes_die_ends_the_study():
    cluster = StandInCluster(1, lambda actor, method: method == "open")
    with pytest.raises(LesionError, match=r"worker 1 on host3 has died 3 times before it could answer with tiny:x"):
        answered(cluster, questions())


def test_a_response_that_is_told_twice_counts_once():
    class Twice(Echo):
        def answer(self, requests):
            for response in super().answer(requests):
                yield response
                yield response

    requests = questions()
    assert answered(StandInCluster(engine=lambda number: Twice()), requests) == Counter(r.key for r in requests)


def test_an_engine_that_leaves_a_request_out_is_an_error_and_not_an_endless_wait():
    class Forgetful(Echo):
        def answer(self, requests):
            return super().answer(requests[1:])

    with pytest.raises(LesionError, match="gave no answer to 1 requests"):
        answered(StandInCluster(engine=lambda number: Forgetful()), questions())


@pytest.mark.parametrize("kind", [LesionError, UsageError])
def test_what_a_person_can_mend_is_raised_as_it_was_in_the_worker(kind):
    class Refusing(Echo):
        def answer(self, requests):
            yield from super().answer(requests[:1])
            raise kind("There is no block 12.")

    with pytest.raises(LesionError) as raised:
        answered(StandInCluster(engine=lambda number: Refusing()), questions())
    assert type(raised.value) is kind
    assert str(raised.value) == "There is no block 12."


def test_a_fault_is_told_with_its_traceback_and_a_failing_accelerator_costs_only_the_worker():
    class Faulty(Echo):
        def __init__(self, text):
            super().__init__()
            self.text = text

        def answer(self, requests):
            raise RuntimeError(self.text)
            yield

    with pytest.raises(LesionError, match=r"has failed, by a fault of lesion(.|\n)*Traceback(.|\n)*shapes differ"):
        answered(StandInCluster(engine=lambda number: Faulty("shapes differ")), questions())
    requests = questions()
    cluster = StandInCluster(engine=lambda number: Faulty("CUDA error: ECC") if number == 2 else Echo())
    assert answered(cluster, requests) == Counter(r.key for r in requests)
    assert (
        "worker 2 on host2 was lost: its accelerator failed (RuntimeError: CUDA error: ECC)" in cluster.watcher.notes[0]
    )


def test_a_call_that_is_closed_early_leaves_the_workers_ready_for_the_next():
    cluster = StandInCluster()
    requests = questions()
    responses = RayEngine(cluster, MODEL, 4).answer(requests)
    first = [next(responses).key for _ in range(5)]
    responses.close()
    assert answered(cluster, requests[20:]) == Counter(request.key for request in requests[20:])
    assert cluster.made == 3
    assert len(set(first)) == 5


def test_another_version_of_lesion_on_the_cluster_is_refused():
    class Old(Actor):
        def _run(self, method, arguments):
            return WorkerInfo("old", 1, "0.0.1") if method == "info" else super()._run(method, arguments)

    cluster = StandInCluster(1)
    cluster._process = lambda plan: Old(1, cluster.fate, Echo())
    with pytest.raises(LesionError, match=r"On old lesion 0\.0\.1 is installed, and here"):
        answered(cluster, questions())


def test_workers_of_different_kinds_are_noted_once():
    cluster = StandInCluster(3, engine=lambda number: Echo(f"transformers on GPU {number % 2}"))
    answered(cluster, questions())
    assert len(cluster.watcher.notes) == 1
    assert "an answer may depend on who gave it" in cluster.watcher.notes[0]


def test_a_cluster_without_room_is_told_of_and_given_up(monkeypatch):
    class Waiting(StandIn):
        def wait(self, references, num_returns, timeout):
            return [], references

    monkeypatch.setattr(lesion.engines.ray.engine, "ray_module", Waiting)
    monkeypatch.setattr(lesion.engines.ray.engine, "ROOM_NOTE", 0.01)
    monkeypatch.setattr(lesion.engines.ray.engine, "ROOM_PATIENCE", 0.05)
    cluster = StandInCluster(2)
    with pytest.raises(LesionError, match=r"this machine had no room for a worker"):
        answered(cluster, questions())
    assert cluster.watcher.notes == ["2 of 2 workers wait until this machine has room for them."]


@pytest.mark.parametrize(("ray", "first"), [(None, "Run the same"), ("auto", "Start Ray there again and run the same")])
def test_when_rays_own_process_is_gone_it_is_said_what_is_kept_and_how_to_go_on(ray, first, monkeypatch):
    cluster = StandInCluster()
    cluster.choice = EngineChoice(workers=3, ray=ray)
    requests = questions()
    responses = RayEngine(cluster, MODEL, 4).answer(requests)
    assert next(responses).key in {request.key for request in requests}
    monkeypatch.setattr(Raylet, "listens", lambda raylet: False)
    cluster.raylet = Raylet("here", 1)
    with pytest.raises(LesionError, match=rf"\(the raylet\) was killed.* so far is kept\. {first} command again"):
        list(responses)


def test_machines_without_lesion_are_told_as_such():
    class Bare(Actor):
        def _run(self, method, arguments):
            raise DiedError("creation task: ModuleNotFoundError: No module named 'lesion'")

    cluster = StandInCluster(1)
    cluster._process = lambda plan: Bare(1, cluster.fate, Echo())
    with pytest.raises(LesionError, match=r"lacks a library \(No module named 'lesion'\): install the same"):
        answered(cluster, questions())


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Worker exit type: SYSTEM_ERROR. connection error code 2. End of file.", "killed or crashed"),
        ("Task was killed due to the node running low on memory.", "its machine ran out of memory"),
        ("The actor died because its node has died. Node Id: 12", "its machine is gone"),
    ],
)
def test_why_a_worker_died_is_said_in_words(said, meant):
    assert meant in cause(DiedError(said))
