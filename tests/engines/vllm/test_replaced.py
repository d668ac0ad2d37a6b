"""Replaced contributions are refused on vLLM by name, before any model runs."""

import pytest
import torch

import tiny
from lesion.edits.edit import BASELINE, Compose, ScaleBlock
from lesion.edits.reference import Reference
from lesion.edits.replace import Replace
from lesion.engines.engine import Request
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import UsageError


def test_a_replaced_contribution_is_refused_before_any_model_runs():
    model = tiny.model("llama")
    vectors = {"1": torch.zeros(1, 32), "1.attention.head.2": torch.zeros(1, 8)}
    texts = Reference(model.name, model.fingerprint, "texts", 1, {"mean": vectors})
    engine = object.__new__(VllmEngine)  # without vLLM
    engine.model, engine._columns, engine._busy = model, {BASELINE: 0}, False
    for address in vectors:
        edit = Compose((ScaleBlock(0), Replace(address, "mean", texts)))
        with pytest.raises(UsageError, match=rf"'{address}→mean@{texts.digest}' replaces .* use --engine transformers"):
            next(iter(engine.answer([Request("one", (5, 6), edit)])))
