"""The engine answers every row as plain greedy decoding under that row's edit alone would."""

from __future__ import annotations

import random

import pytest
import torch

import tiny
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers import TransformersEngine

EDITS = (
    BASELINE,
    ScaleBlock(0),
    ScaleBlock(1),
    ScaleBlock(2, 0.5),
    ScaleAttention(1),
    ScaleMlp(2, 1.1),
    Compose((ScaleMlp(0, 0.3), ScaleAttention(2))),
)


def prompts(count: int, longest: int = 12, seed: int = 0) -> list[tuple[int, ...]]:
    rng = random.Random(seed)
    return [tuple(rng.randrange(5, 60) for _ in range(rng.randint(1, longest))) for _ in range(count)]


def one_by_one(model, prompt, edit, limit) -> tuple[int, ...]:
    """Greedy decoding of one prompt, the whole sequence anew at each step: no cache, no padding, no batch."""
    said: list[int] = []
    ends = {model.network.generation_config.eos_token_id, model.tokenizer.eos_token_id}
    with applied(model, edit), torch.inference_mode():
        while len(said) < limit:
            logits = model.network(input_ids=torch.tensor([[*prompt, *said]]), use_cache=False).logits
            said.append(int(logits[0, -1].argmax()))
            if said[-1] in ends:
                break
    return tuple(said)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_sweep_in_one_batch_says_what_each_edit_says_alone_in_every_family(family):
    model = tiny.model(family)
    texts = prompts(5)
    requests = [
        Request(f"{item} under {edit}", prompt, edit, Decoding(max_new_tokens=10))
        for item, prompt in enumerate(texts)
        for edit in EDITS
    ]
    # A batch smaller than the work, so that rows leave and others enter.
    found = {r.key: r for r in TransformersEngine(model, batch_size=8).answer(requests)}
    assert len(found) == len(requests)
    for request in requests:
        expected = one_by_one(model, request.prompt, request.edit, 10)
        assert found[request.key].token_ids == expected, request.key
