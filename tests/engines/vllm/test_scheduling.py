"""However vLLM cuts the work up: prompts in chunks, requests thrown out of a full cache and computed again."""

import pytest

from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.vllm.engine import VllmEngine
from lesion.models.load import Model, load
from vllm_cases import NEEDED, answers, assert_same, generations, places, prompts

pytest.importorskip("vllm", reason=NEEDED)


def asked(model: Model) -> list[Request]:
    texts = prompts(model, (200, 250, 300))[1:]
    edits = places(model)
    return [
        *generations(texts, edits, Decoding(20)),
        *generations(texts, edits[:3], Decoding(20, temperature=0.9, seed=2)),
        *(
            Request(f"choices {index} {edit}", text, edit, choices=((5, 6, 7), (5, 6, 8), (9,)))
            for index, text in enumerate(texts)
            for edit in edits[:4]
        ),
        *(Request(f"tokens {index}", text, ScaleBlock(1), tokens=(5, 61)) for index, text in enumerate(texts)),
    ]


def test_prompts_in_chunks():
    model = load("bundled:llama-base")
    with VllmEngine(model, 8, in_process=True, settings={"max_num_batched_tokens": 48}) as engine:
        # The chunks of a prompt are under its edit as the whole is, and nothing is said after any but the last.
        assert_same(answers(engine, asked(model)), answers(TransformersEngine(model, 16), asked(model)))


def test_requests_that_are_thrown_out_and_computed_again():
    model = load("bundled:llama-base")
    # Keys and values of 8 blocks, 2 heads of 32, in float32, of about 900 tokens: for two of the longest.
    room = {"kv_cache_memory_bytes": 2 * 8 * 2 * 32 * 4 * 900}
    with VllmEngine(model, 8, in_process=True, settings=room) as engine:
        scheduler = engine._running.engine.engine_core.engine_core.scheduler
        thrown = []
        preempt = scheduler._preempt_request

        def noted(request, *arguments, **named):
            thrown.append(request)
            return preempt(request, *arguments, **named)

        scheduler._preempt_request = noted
        told = answers(engine, asked(model))
        assert thrown
        assert_same(told, answers(TransformersEngine(model, 16), asked(model)))
        assert told[f"0 {BASELINE} {Decoding(20)}"].answer.tokens > 1
