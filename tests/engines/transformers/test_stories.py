"""A real checkpoint, stories260K, through the engine: what it says, and a sweep over its blocks against `generate`."""

import pytest
import torch

from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model, load

PROMPTS = ["Once upon a time, there was", "The dog was very", "Tom and Sue went to the park. They", "One day,"]


@pytest.fixture(scope="module")
def stories(shared) -> Model:
    place = shared / "models" / "stories260K"
    if not place.is_dir():
        pytest.skip(f"no checkpoint at {place}")
    return load(str(place), dtype="float32")


def tokens(model: Model, text: str) -> tuple[int, ...]:
    return tuple(model.tokenizer(text)["input_ids"])


def generated(model: Model, prompt: tuple[int, ...], edit, limit: int) -> tuple[int, ...]:
    """What transformers' own `generate` says to one prompt on the edited model."""
    with applied(model, edit), torch.inference_mode():
        ids = torch.tensor([prompt])
        said = model.network.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=limit, do_sample=False, pad_token_id=0
        )
    return tuple(said[0, len(prompt) :].tolist())


def test_the_story_goes_on_as_it_was_told_before(stories):
    request = Request("it", tokens(stories, PROMPTS[0]), decoding=Decoding(80, stop=("ball.",)))
    (response,) = TransformersEngine(stories).answer([request])
    expected = " a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball."
    # The stop string is cut off; whether a text begins with its space is the tokenizer's affair.
    assert (response.answer.text + "ball.").strip() == expected.strip()
    assert response.answer.finish == "stop"


def test_a_sweep_over_all_blocks_in_one_batch_is_generate_under_each_edit_token_for_token(stories):
    assert len(stories.anatomy.blocks) == 5
    edits = [BASELINE, *map(ScaleBlock, range(5)), ScaleAttention(2), ScaleMlp(3, 1.1), ScaleBlock(4, 0.5)]
    requests = [
        Request(f"{text} under {edit}", tokens(stories, text), edit, Decoding(24)) for text in PROMPTS for edit in edits
    ]
    found = {response.key: response for response in TransformersEngine(stories, batch_size=16).answer(requests)}
    for request in requests:
        assert found[request.key].token_ids == generated(stories, request.prompt, request.edit, 24), request.key
    # The edits did something: no two of them tell the same four stories.
    told = {tuple(found[f"{text} under {edit}"].token_ids for text in PROMPTS) for edit in edits}
    assert len(told) == len(edits)
