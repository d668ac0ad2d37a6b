"""What is read off logits on vLLM, against numpy and against all choices one by one; without vLLM."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from alone import noise, nucleus
from lesion.engines.answers import looked_up
from lesion.engines.engine import Request
from lesion.engines.sampling import noise_key
from lesion.engines.vllm.wishes import Draw, Wish, draw, looks, scored

VOCABULARY = 64
choices_ = st.lists(st.lists(st.integers(5, 12), min_size=1, max_size=4).map(tuple), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def model():
    return tiny.model("llama")


def logits_after(tokens: tuple[int, ...]) -> torch.Tensor:
    """Logits that are a function of all tokens so far; some are equal."""
    rng = np.random.default_rng([*tokens, 7])
    return torch.from_numpy(rng.integers(-8, 8, VOCABULARY).astype(np.float32))


def log_softmax(row: torch.Tensor) -> np.ndarray:
    wide = row.double().numpy()
    return wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())


def answered(look):
    rows = [logits_after(look.tokens[: look.first + index + 1]) for index in range(len(look.targets))]
    return looked_up(torch.stack(rows), look.targets)


@given(choices_)
def test_choices_are_scored_as_one_by_one(model, choices):
    request = Request("one", (7, 8, 9), choices=tuple(choices))
    wanted = looks(request)
    # Choices that differ in their last token alone share a prompt.
    assert len(wanted) == len({choice[:-1] for choice in choices})
    response = scored(request, [answered(look) for look in wanted], model)
    for choice, score, greedy in zip(choices, response.answer.scores, response.answer.greedy, strict=True):
        rows = [logits_after((*request.prompt, *choice[:index])) for index in range(len(choice))]
        assert score == pytest.approx(sum(log_softmax(row)[token] for row, token in zip(rows, choice, strict=True)))
        assert greedy == all(int(row.numpy().argmax()) == token for row, token in zip(rows, choice, strict=True))
    assert response.token_ids == choices[int(np.argmax(response.answer.scores))]


@given(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=4))
def test_tokens_have_log_probabilities_and_ranks(model, tokens):
    request = Request("one", (7, 8, 9), tokens=tuple(tokens))
    (look,) = looks(request)
    response = scored(request, [answered(look)], model)
    row = logits_after(request.prompt)
    assert response.answer.scores == pytest.approx([log_softmax(row)[token] for token in tokens])
    assert response.answer.ranks == tuple(1 + int((row.numpy() > row[token].item()).sum()) for token in tokens)
    assert response.token_ids == (int(row.numpy().argmax()),)


def test_broken_logits_give_no_ranks(model):
    request = Request("one", (7,), tokens=(5, 6))
    row = torch.full((1, VOCABULARY), float("nan"))
    assert scored(request, [looked_up(row, [(5, 6)])], model).answer.finish == "nonfinite"
    request = Request("one", (7,), choices=((5,),))
    assert scored(request, [looked_up(row, [(5,)])], model).answer.finish == "nonfinite"


def test_a_draw_leaves_the_token_that_is_drawn_elsewhere_too():
    rows = torch.randn(4, VOCABULARY, generator=torch.Generator().manual_seed(0))
    settings = {1: (0.7, 0.9, noise_key(3, (7, 8))), 3: (1.5, 1.0, noise_key(4, (9,)))}
    for position in range(6):
        logits = rows.clone()
        draw(logits, [Draw(row, position + row, its) for row, its in settings.items()])
        assert torch.equal(logits[[0, 2]], rows[[0, 2]])
        for row, (temperature, top_p, key) in settings.items():
            inside = nucleus(rows[row].numpy(), temperature, top_p)
            sums = {token: np.log(share) + noise(key, position + row, token) for token, share in inside.items()}
            assert int(logits[row].argmax()) == max(sums, key=sums.get)
            assert int(logits[row].isfinite().sum()) == 1


def test_a_wish_travels_as_plain_json():
    wish = Wish(3, 2, 17, 16, ((5,), (6, 7)), (0.5, 0.9, -(2**63)))
    assert Wish.of(json.loads(json.dumps(asdict(wish)))) == wish
    assert Wish.of(json.loads(json.dumps(asdict(Wish(0, 0, 1))))) == Wish(0, 0, 1)
