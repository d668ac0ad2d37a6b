"""A choice's score is the sum of its tokens' log-probabilities after the prompt; the best choice is the answer."""

import math
from dataclasses import replace

import pytest
import torch

import lesion.engines.transformers.prefixes
import tiny
from alone import EDITS, answered, assert_scored_alone, forward, log_probability, prompts
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Request, Response
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model

CHOICES = ((7, 8, 9), (30,), (12, 11), (40, 41, 42, 43, 44))


def ask(model: Model, requests, batch_size: int = 16) -> dict[str, Response]:
    return answered(model, requests, batch_size)[0]


def questions(edits=EDITS, count: int = 3) -> list[Request]:
    """Prompts of different lengths, each with another number of the choices, under every edit."""
    return [
        Request(f"{index} under {edit}", prompt, edit, choices=CHOICES[: index + 2])
        for index, prompt in enumerate(prompts(count, longest=15, seed=9))
        for edit in edits
    ]


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_neox", "gpt2", "opt", "mixtral"])
def test_scores_are_the_float64_log_probabilities_of_a_plain_pass_under_every_edit(family):
    model, requests = tiny.model(family), questions()
    found = ask(model, requests)
    assert_scored_alone(model, requests, found)
    for request in requests:
        answer = found[request.key].answer
        best = request.choices[max(range(len(answer.scores)), key=answer.scores.__getitem__)]
        assert answer.text == model.tokenizer.decode(best).strip()
        assert found[request.key].token_ids == best
        assert (answer.tokens, answer.finish) == (0, "stop")


@pytest.mark.parametrize(
    ("choices", "tokens"),
    [(((30,), (31,), (32,), (33,)), 15), (((7, 8, 30), (7, 8, 31), (7, 8, 32)), 17), (((7, 30), (8, 30)), 32)],
    ids=["one token each", "the last token differs", "the first token differs"],
)
def test_choices_that_differ_in_their_last_token_alone_share_one_pass(choices, tokens):
    model = tiny.model("llama")
    (prompt,) = prompts(1, longest=15, shortest=15)
    engine = TransformersEngine(model)
    (response,) = engine.answer([Request("one", prompt, choices=choices)])
    expected = [log_probability(model, prompt, choice) for choice in choices]
    assert response.answer.scores == pytest.approx(expected, abs=1e-4)
    assert engine.work.prompt == tokens


@pytest.mark.same_bits("logits that are equal are meant")
def test_among_equally_likely_choices_the_first_is_the_answer():
    model = tiny.model("llama")
    with torch.no_grad():
        model.network.lm_head.weight.zero_()  # every token is as likely as any other
    answer = ask(model, [Request("tie", (5, 6), choices=((20,), (21,), (22,)))])["tie"].answer
    assert answer.scores == pytest.approx([-math.log(64)] * 3, abs=1e-9)
    assert answer.text == model.tokenizer.decode((20,))


def test_choosing_and_generating_may_be_asked_in_one_call():
    model = tiny.model("llama")
    mixed = [*questions(count=1), Request("free", (5, 6, 7))]
    found = ask(model, mixed)
    assert found["free"].answer.scores == ()
    assert all(found[request.key].answer.scores for request in mixed[:-1])


def test_an_edit_that_breaks_the_numbers_is_reported_and_the_others_are_scored():
    model = tiny.model("llama")
    requests = questions(edits=(BASELINE, ScaleBlock(1, 1e38), ScaleBlock(1)))
    found = ask(model, requests)
    broken = [request for request in requests if request.edit == ScaleBlock(1, 1e38)]
    assert {key for key, each in found.items() if each.answer.finish == "nonfinite"} == {each.key for each in broken}
    assert_scored_alone(model, [request for request in requests if request not in broken], found)


def test_in_bfloat16_scores_are_those_of_the_bfloat16_network_summed_in_float64():
    model = tiny.model("llama")
    model.network.to(torch.bfloat16)
    requests = questions(edits=(BASELINE, ScaleBlock(1)))
    for key, response in ask(model, requests).items():
        request = next(r for r in requests if r.key == key)
        expected = [log_probability(model, request.prompt, choice, request.edit) for choice in request.choices]
        # One rounding of a logit of 8 is 1/32; a batch rounds elsewhere than one row.
        assert response.answer.scores == pytest.approx(expected, abs=0.5)


def test_an_empty_choice_and_one_that_exceeds_the_context_are_refused_by_name():
    model = tiny.model("llama")
    with pytest.raises(LesionError, match="choice of item-7 is empty"):
        ask(model, [Request("item-7", (5, 6), choices=((9,), ()))])
    long = tuple([9] * 200)
    with pytest.raises(LesionError, match=r"item-8 .*context of tiny:llama, 256"):
        ask(model, [Request("item-8", long, choices=((9,), tuple([9] * 58)))])


def test_a_choice_may_reach_one_token_beyond_the_context_for_its_last_is_only_looked_up():
    model = tiny.model("llama")
    prompt, choice = tuple([9] * 200), tuple([7] * 57)
    (score,) = ask(model, [Request("item-9", prompt, choices=(choice,))])["item-9"].answer.scores
    assert score == pytest.approx(log_probability(model, prompt, choice), abs=1e-3)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_choice_is_greedy_when_greedy_decoding_says_it_also_under_an_edit(family):
    model = tiny.model(family)
    prompt = (5, 6, 7)
    for edit in (BASELINE, ScaleBlock(0, 0.0)):
        said = prompt
        while len(said) < 7:
            said = (*said, int(forward(model, said, edit)[0][-1].argmax()))
        greedy = said[3:]
        others = [(*greedy[:place], (greedy[place] + 1) % 64, *greedy[place + 1 :]) for place in range(4)]
        choices = (greedy, *others, greedy[:2], greedy[:1])
        answer = ask(model, [Request("one", prompt, edit, choices=choices)])["one"].answer
        assert answer.greedy == (True, False, False, False, False, True, True)


@pytest.mark.parametrize("kind", [{}, {"choices": (), "tokens": (7, 30, 12)}], ids=["choices", "contrasts"])
def test_when_memory_runs_out_the_batch_is_halved_and_every_request_is_still_scored_once(monkeypatch, kind):
    model, requests = tiny.model("llama"), [replace(request, **kind) for request in questions()]
    expected = ask(model, requests)
    whole = lesion.engines.transformers.prefixes.prefill

    def prefill(model, gates, prompts, *args, **kwargs):
        if len(prompts) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(model, gates, prompts, *args, **kwargs)

    monkeypatch.setattr(lesion.engines.transformers.prefixes, "prefill", prefill)
    engine = TransformersEngine(model, batch_size=16)
    found = list(engine.answer(requests))
    assert len(found) == len(requests)
    for response in found:
        assert response.answer.scores == pytest.approx(expected[response.key].answer.scores, abs=1e-4)
    assert engine.work.batch_size == 1
