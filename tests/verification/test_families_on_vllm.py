"""Families on vLLM: a type is verified there, and an engine on it that forgets an edit is found out."""

from dataclasses import replace

import pytest

from architectures import family
from lesion.edits.edit import BASELINE
from lesion.edits.units import ScaleHead

pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` installs it and runs this test")


def test_an_engine_that_forgets_heads_is_found_out(monkeypatch):
    from lesion.engines.vllm.engine import VllmEngine

    right = VllmEngine.answer

    def answer(engine, requests):
        forgotten = (replace(each, edit=BASELINE) if isinstance(each.edit, ScaleHead) else each for each in requests)
        return right(engine, forgotten)

    assert set(family("llama", "vllm").states.values()) == {"verified"}
    monkeypatch.setattr(VllmEngine, "answer", answer)
    states = family("llama", "vllm").states
    assert {column for column, state in states.items() if state == "wrong"} == {"vLLM head"}
