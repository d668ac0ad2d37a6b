"""Edits of heads are refused on vLLM by name, before any model runs."""

from __future__ import annotations

import pytest

import tiny
from lesion.edits.edit import BASELINE, Compose, ScaleBlock
from lesion.edits.heads import ScaleHead
from lesion.engines.engine import Request
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import UsageError


def test_an_edited_head_is_refused_before_any_model_runs():
    engine = object.__new__(VllmEngine)  # without vLLM
    engine.model, engine._columns, engine._busy = tiny.model("llama"), {BASELINE: 0}, False
    edit = Compose((ScaleBlock(0), ScaleHead(1, 3)))
    with pytest.raises(UsageError, match=r"'1.attention.head.3×0' multiplies heads .* use --engine transformers"):
        next(iter(engine.answer([Request("one", (5, 6), edit)])))
