"""Rows whose contributions are replaced say token for token what each says alone: batched, padded, cached, drafted."""

import pytest
from replaced import some_reference

import tiny
from alone import answered, assert_alone, assert_scored_alone, prompts, questions
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock
from lesion.edits.reference import Reference
from lesion.edits.replace import Replace
from lesion.edits.units import ScaleHead
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import UsageError


def edits_of(reference: Reference) -> list[Edit]:
    """Replaced and scaled rows, in the first, a middle and the last block, some beginning at a removed one."""
    return [
        BASELINE,
        Replace("0", "mean", reference),
        Replace("1", "resample", reference),
        Replace("2", "resample", reference, 1),
        Replace("1.attention", "resample", reference, 2),
        Replace("2.mlp", "mean", reference),
        Replace("1", "position", reference),
        ScaleBlock(1),
        Compose((ScaleBlock(0), Replace("1.mlp", "resample", reference))),
        Compose((ScaleBlock(1), Replace("1.mlp", "mean", reference), Replace("2.attention", "mean", reference))),
    ]


@pytest.mark.parametrize("family", tiny.UNLIKE)
def test_a_mixed_batch_with_left_padding_and_drafts_says_what_each_row_says_alone(family):
    model = tiny.model(family)
    requests = questions(prompts(2, longest=20), edits_of(some_reference(model, seed=1)), 6)
    found, work = answered(model, requests)
    assert_alone(model, requests, found)
    assert work.drafted > 0
    # The edits do something: not all rows of a prompt say the same.
    assert len({found[request.key].token_ids for request in requests}) > len(requests) // 3


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2", "opt"])
def test_behind_a_shared_prefix_too(worth_it, family):
    model = tiny.model(family)
    begin = prompts(1, longest=60, shortest=60, seed=11)[0]
    texts = [(*begin, *rest) for rest in prompts(4, longest=9, seed=13)]
    edits = [*edits_of(some_reference(model))[:6], ScaleHead(0, 3), ScaleHead(1, 0, 1.5), ScaleHead(2, 2)]
    requests = questions(texts, edits, 6)
    found, work = answered(model, requests)
    assert_alone(model, requests, found)
    # Alone, the tokens of the prefix would be computed for every prompt.
    assert work.prompt < sum(len(text) for text in texts) * len(edits)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_choices_are_scored_as_alone(family):
    model = tiny.model(family)
    edits = [*edits_of(some_reference(model)), ScaleHead(0, 3), Compose((ScaleBlock(0), ScaleHead(1, 1)))]
    requests = questions(prompts(1, longest=9, shortest=9), edits, choices=((4, 8), (12, 33, 7)))
    assert_scored_alone(model, requests, answered(model, requests)[0])


def test_contributions_of_another_model_are_refused_before_anything_is_answered():
    model = tiny.model("llama")
    foreign = Replace("1", "mean", some_reference(tiny.model("qwen2")))
    requests = [Request("first", (5, 6), BASELINE), Request("second", (5, 6), foreign)]
    with pytest.raises(UsageError, match="takes contributions of tiny:qwen2"):
        next(iter(TransformersEngine(model).answer(requests)))
