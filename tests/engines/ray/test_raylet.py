"""The end of Ray's own process is noticed; one that is merely slow, or out of reach, is never taken for dead."""

import socket
from types import SimpleNamespace

import pytest

import lesion.engines.ray.joining
from lesion.engines.ray.joining import Raylet
from raying import needs_ray, ray

__all__ = ["ray"]


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_what_listens_has_not_ended_and_what_no_longer_listens_has(listening, monkeypatch):
    monkeypatch.setattr(lesion.engines.ray.joining, "LOOK_EVERY", 0.0)
    raylet = Raylet(*listening.getsockname())
    assert not raylet.ended()
    listening.close()
    assert raylet.ended()


def test_one_that_cannot_be_reached_is_not_taken_for_dead(monkeypatch):
    def slow(*_, **__):
        raise TimeoutError("timed out")

    monkeypatch.setattr(lesion.engines.ray.joining.socket, "create_connection", slow)
    assert not Raylet("127.0.0.1", 1).ended()


def test_it_is_looked_after_now_and_then_and_not_with_every_answer(listening, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(lesion.engines.ray.joining, "time", SimpleNamespace(monotonic=lambda: now[0]))
    raylet = Raylet(*listening.getsockname())
    assert not raylet.ended()
    listening.close()
    assert not raylet.ended()
    now[0] += lesion.engines.ray.joining.LOOK_EVERY
    assert raylet.ended()


def _stand_in(address: str, port: int) -> SimpleNamespace:
    nodes = [
        {"NodeID": "other", "NodeManagerAddress": "127.0.0.2", "NodeManagerPort": 1},
        {"NodeID": "mine", "NodeManagerAddress": address, "NodeManagerPort": port},
    ]
    return SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "mine"), nodes=lambda: nodes)


def test_of_several_machines_this_one_is_looked_after_and_only_where_it_is_within_reach(listening, monkeypatch):
    address, port = listening.getsockname()
    monkeypatch.setattr(lesion.engines.ray.joining, "ray_module", lambda: _stand_in(address, port))
    assert Raylet.here() == Raylet(address, port)
    listening.close()
    assert Raylet.here() is None


@pytest.mark.slow
@needs_ray
def test_rays_own_process_is_found_where_ray_says_it_is(ray):
    raylet = Raylet.here()
    assert raylet is not None
    assert not raylet.ended()
