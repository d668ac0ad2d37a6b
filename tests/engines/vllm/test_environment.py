"""What is set while vLLM starts is as it was afterwards, and only what is of no use to anybody is kept quiet."""

import logging
import os
from types import SimpleNamespace

import pytest
import torch

import lesion.engines.vllm.environment
from lesion.engines.vllm.environment import environment

OPERATION = "init_cpu_memory_env"


@pytest.fixture
def operations(monkeypatch) -> SimpleNamespace:
    """Stands for what vLLM's library has registered: an operation that binds memory."""
    made = SimpleNamespace(init_cpu_memory_env=lambda nodes: f"bound to {nodes}")
    monkeypatch.setattr(torch, "ops", SimpleNamespace(_C=made))
    return made


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Says which memory nodes there are."""
    file = tmp_path / "online"
    monkeypatch.setattr(lesion.engines.vllm.environment, "NODES", file)
    return file


def test_memory_is_not_bound_where_there_is_one_node_and_the_operation_is_back_afterwards(operations, nodes):
    nodes.write_text("0\n", encoding="ascii")
    binding = operations.init_cpu_memory_env

    def start() -> None:
        with environment(here=True):
            assert operations.init_cpu_memory_env([0]) is None
            raise RuntimeError("does not start")

    with pytest.raises(RuntimeError, match="does not start"):
        start()
    assert operations.init_cpu_memory_env is binding


@pytest.mark.parametrize("online", ["0-1\n", "0,2\n", None])
def test_of_several_nodes_or_where_nobody_knows_vllm_binds_and_warns(operations, nodes, online):
    if online is not None:
        nodes.write_text(online, encoding="ascii")
    with environment(here=True):
        assert operations.init_cpu_memory_env([0]) == "bound to [0]"


def test_where_vllms_library_is_not_loaded_yet_nothing_stays_of_it(operations, nodes):
    nodes.write_text("0\n", encoding="ascii")
    del operations.init_cpu_memory_env
    with environment(here=True):
        assert operations.init_cpu_memory_env([0]) is None
    assert not hasattr(operations, OPERATION)


def test_vllms_warnings_are_quiet_while_it_starts_its_errors_are_not(caplog, monkeypatch):
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    logger = logging.getLogger("vllm.triton_utils.importing")
    with environment(here=True):
        logger.warning("no backend for processors")
        logger.error("no room")
    logger.warning("afterwards")
    assert caplog.messages == ["no room", "afterwards"]


def test_a_level_that_the_person_has_set_is_respected(caplog, monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    with environment(here=True):
        logging.getLogger("vllm").warning("no backend for processors")
    assert caplog.messages == ["no backend for processors"]


def test_the_environment_is_as_it_was(monkeypatch):
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    before = dict(os.environ)
    with environment(here=False):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "0"
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert dict(os.environ) == before
