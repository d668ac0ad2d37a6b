"""vLLM in processes of its own: one, and two that split every matrix; each writes its own slice and puts it back."""

import pytest

from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleParameters, Truncate
from lesion.edits.selections.topk import Magnitude
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.vllm.engine import VllmEngine
from lesion.errors import LesionError
from lesion.models.load import load
from vllm_cases import NEEDED, answers, assert_same, generations, places, prompts, units

pytest.importorskip("vllm", reason=NEEDED)

IN_WEIGHTS = (
    *(Truncate(f"1.attention.{name}", 0.2) for name in "qkvo"),
    *(Truncate(f"2.mlp.{name}", 0.1) for name in ("gate", "up", "down")),
    ScaleParameters(Magnitude(0.1), 0.0),
    Compose((ScaleBlock(2), Truncate("5.mlp.gate", 0.2))),
)


@pytest.mark.slow
@pytest.mark.parametrize("split", [1, 2])
def test_workers_in_processes_of_their_own(split):
    model = load("bundled:llama-base")
    plain = TransformersEngine(model, 16)
    asked = [
        *generations(prompts(model)[2:], [*places(model), *units(model), *IN_WEIGHTS], Decoding(6)),
        *generations(prompts(model)[:1], [BASELINE, ScaleBlock(1)], Decoding(6, temperature=0.8)),
        *(Request(f"choices {edit}", prompts(model)[0], edit, choices=((5, 6), (7,))) for edit in IN_WEIGHTS),
    ]
    expected = answers(plain, asked)
    with VllmEngine(model, 16, tensor_parallel=split, in_process=False) as engine:
        told = answers(engine, asked)
        assert_same(told, expected)
        # Each edit did something, all different, and nothing of them is left.
        assert len({told[f"choices {edit}"].answer.scores for edit in IN_WEIGHTS}) == len(IN_WEIGHTS)
        assert_same(answers(engine, asked[:4]), {request.key: told[request.key] for request in asked[:4]})
        assert ("tensor parallel" in told["choices " + str(IN_WEIGHTS[0])].engine) == (split == 2)
    engine.close()
    with pytest.raises(LesionError, match="closed"):
        answers(engine, asked)
