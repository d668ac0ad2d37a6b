"""A real checkpoint, stories260K, through the engine: what it says, and a sweep over its blocks against `generate`."""

from alone import answered, generated
from lesion.edits.edit import BASELINE, ScaleAttention, ScaleBlock, ScaleMlp
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.models.load import Model

PROMPTS = ["Once upon a time, there was", "The dog was very", "Tom and Sue went to the park. They", "One day,"]


def tokens(model: Model, text: str) -> tuple[int, ...]:
    return tuple(model.tokenizer(text)["input_ids"])


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
    found, _ = answered(stories, requests, 16)
    for request in requests:
        assert found[request.key].token_ids == generated(stories, request.prompt, request.edit, 24), request.key
    # The edits did something: no two of them tell the same four stories.
    told = {tuple(found[f"{text} under {edit}"].token_ids for text in PROMPTS) for edit in edits}
    assert len(told) == len(edits)
