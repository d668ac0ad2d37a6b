"""What is set while vLLM starts is as it was afterwards, and only what is of no use to anybody is kept quiet."""

import logging
import os
from collections.abc import Iterator

import pytest

from lesion.engines.vllm.environment import environment


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What is logged."""
    kept: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: kept.append(record.getMessage())
    logging.getLogger("vllm").addHandler(handler)
    yield kept
    logging.getLogger("vllm").removeHandler(handler)


def test_vllms_warnings_are_quiet_while_it_starts_its_errors_are_not(messages, monkeypatch):
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)
    logger = logging.getLogger("vllm.triton_utils.importing")
    with environment(here=True):
        logger.warning("no backend for processors")
        logger.error("no room")
    logger.warning("afterwards")
    assert messages == ["no room", "afterwards"]


def test_a_level_that_the_person_has_set_is_respected(messages, monkeypatch):
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    with environment(here=True):
        logging.getLogger("vllm").warning("no backend for processors")
    assert messages == ["no backend for processors"]


def test_the_environment_is_as_it_was(monkeypatch):
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "0")
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    before = dict(os.environ)
    with environment(here=False):
        assert os.environ["VLLM_NO_USAGE_STATS"] == "0"
        assert os.environ["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert dict(os.environ) == before
