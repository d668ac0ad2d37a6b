"""Tokens that no answer begins with: what is said instead, and how likely the others are."""

from functools import cache

import pytest
import torch

import tiny
from alone import forward, prompts
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.engines.transformers.ways import Kind, Way
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model

LENGTH = 5


def alone(model: Model, prompt, edit, forbidden) -> list[int]:
    """Greedy decoding, a plain pass for every token; the first is the best of those that are allowed."""
    said: list[int] = []
    ends = {model.tokenizer.eos_token_id}
    while len(said) < LENGTH and not (said and said[-1] in ends):
        logits = forward(model, (*prompt, *said), edit)[0][-1].double()
        allowed = [token for token in range(len(logits)) if said or token not in forbidden]
        said.append(max(allowed, key=lambda token: float(logits[token])))
    return said


@pytest.fixture(params=list(Kind))
def alike(request, monkeypatch):
    """The same in every way."""
    monkeypatch.setattr("lesion.engines.transformers.engine.way_of", lambda model: Way(request.param))


@cache
def asked(family: str) -> tuple[Model, dict[Request, list[int]]]:
    """A model, and requests that forbid no token, the likeliest, and the two likeliest, with what each should say."""
    model = tiny.model(family)
    expected = {}
    for number, prompt in enumerate(prompts(3, longest=12, seed=3)):
        for edit in (BASELINE, ScaleBlock(1)):
            forbidden: tuple[int, ...] = ()
            for count in range(3):
                request = Request(f"{number} {edit} {count}", prompt, edit, Decoding(LENGTH, forbidden=forbidden))
                expected[request] = alone(model, prompt, edit, forbidden)
                assert expected[request][0] not in forbidden
                forbidden += (expected[request][0],)
    return model, expected


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_rows_of_one_batch_say_what_plain_decoding_says_whatever_is_forbidden_to_each(family, alike):
    model, expected = asked(family)
    answers = {response.key: response for response in TransformersEngine(model, 4).answer(expected)}
    for request, said in expected.items():
        assert list(answers[request.key].token_ids) == said


def test_a_token_that_is_looked_up_has_its_probability_and_rank_among_the_allowed_ones(alike):
    model = tiny.model("llama")
    (prompt,) = prompts(1, longest=9, seed=1)
    logits = forward(model, prompt)[0][-1].double()
    best, second, third = logits.argsort(descending=True)[:3].tolist()
    free, without = (
        Request(f"{forbidden}", prompt, decoding=Decoding(forbidden=forbidden), tokens=(third, second))
        for forbidden in ((), (best,))
    )
    answers = {response.key: response.answer for response in TransformersEngine(model, 4).answer([free, without])}
    assert (answers["()"].ranks, answers[without.key].ranks) == ((3, 2), (2, 1))
    allowed = logits.clone()
    allowed[best] = -torch.inf
    expected = allowed.log_softmax(-1)[[third, second]].tolist()
    assert answers[without.key].scores == pytest.approx(expected, abs=1e-4)
    assert answers[without.key].text == model.tokenizer.decode([second])


def test_a_forbidden_token_that_is_right_is_never_said_and_the_answer_is_not_a_broken_one():
    model = tiny.model("llama")
    (prompt,) = prompts(1, longest=9, seed=1)
    best, other = forward(model, prompt)[0][-1].argsort(descending=True)[:2].tolist()
    request = Request("q", prompt, decoding=Decoding(forbidden=(best,)), tokens=(best, other))
    (response,) = TransformersEngine(model, 4).answer([request])
    assert (response.answer.finish, response.answer.scores[0]) == ("stop", float("-inf"))
    assert response.answer.ranks[1] == 1 < response.answer.ranks[0]


def test_what_cannot_be_forbidden_is_refused():
    model = tiny.model("llama")
    with pytest.raises(UsageError, match="choices are scored as they stand"):
        Request("q", (5, 6), decoding=Decoding(forbidden=(3,)), choices=((7,),))
    with pytest.raises(UsageError, match="whole numbers from 0"):
        Decoding(forbidden=(-1,))
    with pytest.raises(LesionError, match="does not fit its network"):
        list(TransformersEngine(model, 4).answer([Request("q", (5, 6), decoding=Decoding(forbidden=(10**6,)))]))
