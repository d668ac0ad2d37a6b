import pytest
import torch

import tiny
from alone import answered, assert_alone, assert_scored_alone, prompts, questions
from lesion.edits.apply import applied
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleAttention, ScaleMlp, Truncate
from lesion.edits.gates import gated
from lesion.edits.spectra import Spectrum
from lesion.edits.table import maskable
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError

families = pytest.mark.parametrize("family", tiny.LAYOUTS)
unlike = pytest.mark.parametrize("family", tiny.UNLIKE)
PROMPTS = [(5, 9, 20, 7), (11, 30, 8), (5, 9, 20, 7, 44, 21)]


def edits_of(anatomy) -> list[Edit]:
    """Several keeps and both sides of every matrix of two blocks, and some together."""
    single: list[Edit] = [
        Truncate(address, keep, side)
        for address in [*anatomy.block(0).matrices.values(), *anatomy.block(1).matrices.values()]
        for address in [address.address]
        for keep, side in ((0.0, "top"), (0.3, "top"), (0.6, "bottom"))
    ]
    first, last = single[1], single[-1]
    return [BASELINE, *single, Compose((first, last)), Compose((last, ScaleMlp(2, 0.5)))]


@families
def test_rows_that_truncate_say_token_for_token_what_the_edited_weights_say(family):
    model = tiny.model(family)
    edits = edits_of(model.anatomy)
    requests = [
        # Both lengths in every batch.
        Request(f"{index}", PROMPTS[index % 2], edit, Decoding(max_new_tokens=6))
        for index, edit in enumerate(edits)
    ]
    before = tiny.bits(model.network)
    assert_alone(model, requests, answered(model, requests, 32)[0])
    assert tiny.same_bits(model.network, before)


@unlike
def test_choices_are_scored_under_truncations_as_with_edited_weights(family):
    model = tiny.model(family)
    edits = edits_of(model.anatomy)[::2]  # of three for each matrix, one or two; in all each keep and side many times
    requests = questions([PROMPTS[0]], edits, choices=((4, 8), (12, 33, 7)))
    assert_scored_alone(model, requests, answered(model, requests, 64)[0])


def test_keeping_everything_is_the_baseline_to_the_bit():
    model = tiny.model("llama")
    requests = [
        Request(name, PROMPTS[0], edit, choices=((4,), (8,)))
        for name, edit in (
            ("none", BASELINE),
            ("all", Truncate("1.mlp.up", 1)),
            ("bottom", Truncate("1.mlp.up", 1, "bottom")),
        )
    ]
    scores = {response.key: response.answer.scores for response in TransformersEngine(model).answer(requests)}
    assert scores["none"] == scores["all"] == scores["bottom"]


def test_experts_are_truncated_in_the_weights_and_a_batch_of_them_is_refused():
    model = tiny.model("mixtral")
    expert = next(m for m in model.anatomy.matrices.values() if m.storage.expert is not None)
    assert not maskable(expert)
    with gated(model) as gates, pytest.raises(UsageError, match="cannot truncate"):
        gates.assign([Truncate(expert.address, 0.5)])


@pytest.mark.same_bits("one question twice, alone in its batch")
def test_thin_factors_are_made_once_for_all_rounds_of_questions_and_anew_for_other_weights(monkeypatch):
    model = tiny.model("llama")
    engine, edit, whole, made = TransformersEngine(model), Truncate("1.mlp.up", 0.3), Spectrum.factors, []

    def factors(spectrum, *given):
        made.append(spectrum)
        return whole(spectrum, *given)

    def ask():
        (response,) = engine.answer([Request("one", PROMPTS[0], edit, tokens=(5, 6))])
        return response.answer.scores

    def plain():
        with applied(model, edit), torch.no_grad():
            logits = model.network(torch.tensor([PROMPTS[0]])).logits[0, -1]
        return logits.double().log_softmax(0)[[5, 6]].tolist()

    expected = plain()
    monkeypatch.setattr(Spectrum, "factors", factors)
    first, again = ask(), ask()
    assert first == again == pytest.approx(expected, abs=1e-4)
    assert len(made) == 1
    with torch.no_grad():
        model.anatomy.matrix("1.mlp.up").module.weight.mul_(2)
    doubled = ask()
    assert len(made) == 2
    assert doubled == pytest.approx(plain(), abs=1e-4)
    assert doubled != pytest.approx(first, abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_the_head_is_truncated_for_its_rows_alone_also_where_answers_begin_with_drafts(family):
    model = tiny.model(family)
    edits = [BASELINE, ScaleAttention(1), ScaleMlp(2, 1.1), Truncate("head", 0.3), Truncate("head", 0.5, "bottom")]
    requests = questions(prompts(3, seed=1), edits, 16)
    found, work = answered(model, requests, 64)
    assert work.drafted
    assert_alone(model, requests, found)


def test_a_head_that_is_not_given_the_rows_that_truncate_it_is_an_error():
    model = tiny.model("llama")
    tokens = torch.tensor([[5, 6, 7], [8, 9, 10]])
    hook = model.network.get_output_embeddings().register_forward_pre_hook(
        lambda _, args: (args[0].flatten(0, 1)[None],)
    )
    with gated(model) as gates:
        gates.assign([BASELINE, Truncate("head", 0.3)])
        with pytest.raises(LesionError, match="was given 1 rows, and row 1 truncates it"):
            model.network(tokens)
    hook.remove()
