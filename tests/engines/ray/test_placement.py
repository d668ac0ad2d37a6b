"""Workers are given GPUs or a fair share of processor cores, and what there is no room for is refused with numbers."""

import pytest

from lesion.engines.config import EngineChoice
from lesion.engines.ray.placement import Node, Placement, planned
from lesion.errors import UsageError

LAPTOP = [Node("laptop", 8, 0)]
HOST = [Node("host", 96, 8)]
CLUSTER = [Node("a", 64, 8), Node("b", 32, 4), Node("head", 16, 0)]


@pytest.fixture(autouse=True)
def no_stated_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def plan(nodes, workers=None, each: int = 1, device: str = "auto") -> Placement:
    return planned(EngineChoice("transformers", workers, None, each), nodes, device, "this machine")


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        (LAPTOP, {"workers": 2}, Placement(2, 0, 4, 4, 2)),
        (LAPTOP, {"workers": 3}, Placement(3, 0, 2, 2, 3)),
        (LAPTOP, {"workers": 8}, Placement(8, 0, 1, 1, 8)),
        (HOST, {}, Placement(8, 1, 1, 12, 8)),
        (HOST, {"workers": 2}, Placement(2, 1, 1, 48, 2)),
        (HOST, {"each": 4}, Placement(2, 4, 1, 48, 2)),
        (HOST, {"workers": 12, "device": "cpu"}, Placement(12, 0, 8, 8, 12)),
        (CLUSTER, {}, Placement(12, 1, 1, 8, 8)),
        (CLUSTER, {"each": 4}, Placement(3, 4, 1, 32, 2)),
        # 112 cores among 5: 21 each would leave room for 4 only (3 + 1 + 0); 16 each for 7.
        (CLUSTER, {"workers": 5, "device": "cpu"}, Placement(5, 0, 16, 16, 4)),
    ],
)
def test_workers_get_gpus_where_there_are_any_and_else_cores(nodes, asked, expected):
    assert plan(nodes, **asked) == expected


@pytest.mark.parametrize("workers", range(1, 113))
def test_cores_are_never_promised_twice_and_shared_as_far_as_they_go(workers):
    made = plan(CLUSTER, workers, device="cpu")
    assert sum(node.cores // made.cores for node in CLUSTER) >= workers
    larger = made.cores + 1
    assert sum(node.cores // larger for node in CLUSTER) < workers or larger > 64


def test_fewer_threads_than_the_share_are_taken_where_the_person_has_set_so(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert plan(HOST).threads == 3
    assert plan(LAPTOP, 8).threads == 1


@pytest.mark.parametrize(
    ("nodes", "asked", "told"),
    [
        (LAPTOP, {"workers": 9}, "9 workers are asked for, and this machine has 8 processor cores: at most"),
        (HOST, {"workers": 9}, "9 workers need 9 GPUs, and this machine has 8: at most --workers 8"),
        (HOST, {"workers": 3, "each": 4}, "3 workers with 4 GPUs each need 12 GPUs, and this machine has 8: at most"),
        (CLUSTER, {"workers": 4, "each": 3}, "and this machine has 12 on 3 machines; the GPUs of a worker are those"),
        (HOST, {"each": 16}, "A worker with 16 GPUs each needs 16 GPUs, and this machine has 8"),
        (LAPTOP, {}, "say how many workers are to share its 8 processor cores, as --workers N"),
        (LAPTOP, {"workers": 2, "each": 2}, "Leave --gpus-per-worker out"),
        (LAPTOP, {"workers": 2, "device": "cuda"}, "This machine has no GPU"),
        (HOST, {"device": "cuda:1"}, "give --device auto, cpu or cuda, not cuda:1"),
    ],
)
def test_what_there_is_no_room_for_is_refused_with_both_numbers(nodes, asked, told):
    with pytest.raises(UsageError) as refused:
        plan(nodes, **asked)
    assert told in str(refused.value)
