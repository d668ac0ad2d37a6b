"""Two workers of Ray say token for token what one process says, also when one of them is killed."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from oracle import Listener

import lesion.engines.ray.engine
import lesion.engines.ray.joining
import tiny
from alone import prompts
from commandline import lesion as command
from commandline import questions as written
from commandline import save
from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleMlp, ScaleParameters, Truncate
from lesion.edits.selections.controls import Random
from lesion.edits.selections.topk import Magnitude
from lesion.engines import config as opening
from lesion.engines.config import EngineChoice
from lesion.engines.engine import Decoding, Request
from lesion.engines.factory import Opened
from lesion.engines.ray.cluster import Worker
from lesion.engines.ray.joining import connected
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from raying import linux, needs_ray, ray

__all__ = ["ray"]

EDITS = (
    BASELINE,
    ScaleBlock(1),
    ScaleMlp(2, 0.5),
    ScaleParameters(Magnitude(0.2), 0.0),
    Compose((ScaleBlock(0, 0.5), ScaleParameters(Random(Magnitude(0.3), 1), 1.5))),
    Truncate("1.mlp.up", 0.25, "top"),
)


@pytest.fixture(scope="module")
def opened(ray) -> Iterator[Opened]:
    with opening.opened(EngineChoice(workers=2), Listener()) as made:
        yield made


def questions(count: int = 8, limit: int = 12) -> list[Request]:
    return [
        Request(f"{n} under {edit}", text, edit, Decoding(limit), ((7, 8), (9,)) if n % 4 == 3 else ())
        for n, text in enumerate(prompts(count, longest=40))
        for edit in EDITS
    ]


def unanswered(worker: Worker) -> int:
    """Requests that a worker was given, and of which the driver has no answer."""
    return sum(len(unit.requests) for unit in worker.units)


def assert_same(responses, expected) -> None:
    """One response to each request, with the tokens and, up to the last digits, the scores that are expected."""
    expected = {response.key: response for response in expected}
    assert sorted(response.key for response in responses) == sorted(expected)
    for response in responses:
        one = expected[response.key]
        assert response.token_ids == one.token_ids
        assert (response.answer.text, response.answer.finish) == (one.answer.text, one.answer.finish)
        assert response.answer.scores == pytest.approx(one.answer.scores, rel=1e-5)
        assert response.engine == one.engine


@pytest.mark.slow
@needs_ray
def test_two_workers_say_what_one_process_says_of_one_model_after_another(opened):
    requests = questions()
    models = {family: tiny.model(family) for family in ("llama", "gemma3")}
    expected = {family: [*TransformersEngine(model, 8).answer(requests)] for family, model in models.items()}
    for number, family in enumerate(chain(models, repeat("llama", 60))):
        if number > 2 and all(worker.answers for worker in opened.cluster.workers):
            break  # on a busy machine one of them starts late
        assert_same(list(opened(models[family], 8).answer(requests)), expected[family])
    assert all(worker.answers for worker in opened.cluster.workers)
    assert len({worker.process for worker in opened.cluster.workers}) == 2


@pytest.mark.slow
@needs_ray
@linux
def test_a_killed_worker_is_replaced_and_every_request_gets_one_response(opened, monkeypatch):
    # One answer a call: while the test acts, no worker gives more answers than it has pending calls.
    monkeypatch.setattr(lesion.engines.ray.engine, "TELL_EVERY", 1e-9)
    model, requests = tiny.model("llama"), questions(24, 60)
    responses = opened(model, 8).answer(requests)
    answered = [next(responses) for _ in range(5)]
    killed = max(opened.cluster.workers, key=unanswered)
    assert unanswered(killed) > len(killed.pending)
    process, told = killed.process, len(opened.cluster.watcher.notes)
    os.kill(process, signal.SIGKILL)
    answered += responses
    assert_same(answered, TransformersEngine(model, 8).answer(requests))
    lost = [note for note in opened.cluster.watcher.notes[told:] if "was lost" in note]
    assert len(lost) == 1
    assert lost[0].startswith(f"worker {killed.number} on {socket.gethostname()} was lost: its process was killed or")
    assert killed.process != process


@pytest.mark.slow
@needs_ray
def test_what_is_wrong_with_a_request_is_told_as_without_workers_and_the_workers_go_on(opened):
    model = tiny.model("llama")
    long = Request("long", (5,) * 400, BASELINE, Decoding(2))
    messages = []
    for engine in (opened(model, 8), TransformersEngine(model, 8)):
        with pytest.raises(LesionError) as raised:
            list(engine.answer([*questions(2), long]))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    requests = questions(2)
    responses = opened(model, 8).answer(requests)
    next(responses)
    responses.close()
    assert_same(list(opened(model, 8).answer(requests)), TransformersEngine(model, 8).answer(requests))


def not_connected(monkeypatch) -> None:
    def init(**_):
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify one.")

    stand_in = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setattr(lesion.engines.ray.joining, "ray_module", lambda: stand_in)
    monkeypatch.setattr(lesion.engines.ray.joining, "PATIENCE", 1.0)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_an_address_that_does_not_answer_is_told_soon_and_with_what_to_check(monkeypatch, silent_port):
    not_connected(monkeypatch)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
    began = time.monotonic()
    for address, said in (
        (nobody, f"Nothing answers at {nobody} (Connection refused). Check that the cluster is up"),
        (f"ray://{nobody}", f"Nothing answers at ray://{nobody}"),
        ("auto", "No Ray cluster runs on this machine: start one with `ray start --head`"),
        ("head-node", "'head-node' is not an address of Ray: give auto, HOST:PORT or ray://HOST:PORT"),
        ("head:70000", "'head:70000' is not an address of Ray"),
    ):
        joinings = [lambda address=address: connected(address)]
        if address != "auto":
            joinings.append(lambda address=address: opening.opened(EngineChoice(ray=address)))
        for joining in joinings:
            with pytest.raises(LesionError) as raised, joining():
                pass
            assert said in str(raised.value)
    assert time.monotonic() - began < 10


def test_a_port_that_is_not_rays_is_told_soon(monkeypatch, silent_port):
    pytest.importorskip("grpc", reason="grpc comes with Ray's client: pip install 'lesion[ray]'")
    not_connected(monkeypatch)
    with pytest.raises(LesionError, match="is not Ray") as raised, connected(f"127.0.0.1:{silent_port}"):
        pass
    assert "ray status" in str(raised.value)


@needs_ray
def test_more_workers_than_cores_are_wrong_use_and_start_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("lesion.engines.ray.cluster.connected", lambda _: pytest.fail("Ray was started"))
    place, file = save(tmp_path / "llama"), written(tmp_path / "sums.jsonl", 2)
    said = command(capsys, "ablate", place, "--task", file, "--workers", 9999, "--out", tmp_path / "out")
    assert said.code == 2
    assert "9999 workers are asked for, and this machine has" in said.complaint


def test_folders_of_killed_processes_are_removed_and_those_of_living_ones_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(lesion.engines.ray.joining, "LONGEST_FOLDER", 500)
    gone, there = tmp_path / "lesion-ray-99999999-x", tmp_path / f"lesion-ray-{os.getpid()}-y"
    gone.mkdir()
    there.mkdir()
    made = lesion.engines.ray.joining._folder()
    assert not gone.exists()
    assert there.is_dir()
    assert made.parent == tmp_path


def test_rays_folder_is_short_enough_for_its_sockets_wherever_temporary_files_lie(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(long))
    made = lesion.engines.ray.joining._folder()
    made.rmdir()
    # A socket's path has room for 107 bytes, and Ray adds a session's name with date, time and process.
    assert len(f"{made}/r/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store") <= 107
