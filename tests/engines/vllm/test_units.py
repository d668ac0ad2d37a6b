"""Edits of inner units are refused on vLLM by name, before any model runs."""

import pytest

import tiny
from lesion.edits.edit import BASELINE, Compose, ScaleBlock
from lesion.edits.units import ScaleExpert, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.engines.engine import Request
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import UsageError


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (ScaleHead(1, 3), "1.attention.head.3×0' multiplies one head"),
        (ScaleNeuron(1, 3), "1.mlp.neuron.3×0' multiplies one neuron"),
        (ScaleExpert(1, 3), "1.mlp.expert.3×0' multiplies one expert"),
        (ScaleMatrix(1, "mlp.up", 0.5), "1.mlp.up×0.5' multiplies one matrix"),
    ],
)
def test_an_edited_unit_is_refused_before_any_model_runs(edit, said):
    engine = object.__new__(VllmEngine)  # without vLLM
    engine.model, engine._columns, engine._busy = tiny.model("llama"), {BASELINE: 0}, False
    with pytest.raises(UsageError, match=rf"'{said} .* use --engine transformers"):
        next(iter(engine.answer([Request("one", (5, 6), Compose((ScaleBlock(0), edit)))])))
