"""Rows under edits of heads say token for token what each says alone, under plain hooks: batched and drafted."""

from __future__ import annotations

import pytest
import torch
from headed import headed

import lesion.engines.transformers.prefixes
import tiny
from alone import as_guessed, ends, forward, greedy, prompts
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock
from lesion.edits.heads import ScaleGroup, ScaleHead
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine

LIMIT = 6
KNOWN = [family for family in tiny.FAMILIES if family != "unknown"]
HEADS = [(0, 0), (0, 3), (1, 1), (2, 2), (2, 3)]
# In the first, a middle and the last block, some beginning at a removed one.
EDITS: list[Edit] = [
    BASELINE,
    *(ScaleHead(*place) for place in HEADS),
    ScaleHead(1, 0, 1.5),
    ScaleBlock(1),
    Compose((ScaleBlock(0), ScaleHead(0, 1), ScaleHead(1, 1))),
    Compose((ScaleBlock(1), ScaleHead(1, 0), ScaleHead(2, 2))),
]
"""The edits of one batch."""


def answered(model, requests, batch_size: int = 8):
    engine = TransformersEngine(model, batch_size)
    found = {response.key: response for response in engine.answer(requests)}
    assert found.keys() == {request.key for request in requests}
    return found, engine.work


def questions(texts, edits) -> list[Request]:
    return [
        Request(f"{index} under {edit}", text, edit, Decoding(LIMIT))
        for index, text in enumerate(texts)
        for edit in edits
    ]


def naive(model, family, prompt, place, guess) -> tuple[int, ...]:
    """Greedy decoding of one prompt without one head, by a plain hook and without a cache."""
    said: list[int] = []
    with headed(model.network, family, {place: 0.0}), torch.inference_mode():
        while len(said) < LIMIT and not (said and said[-1] in ends(model)):
            ahead = list(guess[len(said) :])
            logits = model.network(torch.tensor([[*prompt, *said, *ahead[:-1]]]), use_cache=False).logits
            chosen = map(int, logits[0, len(prompt) + len(said) - 1 :].argmax(-1))
            said += as_guessed(chosen, ahead, ends(model))[: LIMIT - len(said)]
            guess = guess if list(guess[: len(said)]) == said else ()
    return tuple(said)


@pytest.mark.parametrize("family", KNOWN)
def test_a_mixed_batch_with_left_padding_and_drafts_says_what_each_row_says_alone(family):
    model = tiny.model(family)
    texts = prompts(2, longest=20)
    requests = questions(texts, EDITS)
    found, work = answered(model, requests)
    for request in requests:
        said = found[request.key].token_ids
        if isinstance(request.edit, ScaleHead) and request.edit.factor == 0:
            place = request.edit.layer, request.edit.head
            assert said == naive(model, family, request.prompt, place, said), request.key
        else:
            assert said == greedy(model, request.prompt, request.edit, LIMIT, guess=said), request.key
    assert work.drafted > 0
    # The edits do something: not all rows of a prompt say the same.
    assert len({found[request.key].token_ids for request in requests}) > len(texts)


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_behind_a_shared_prefix_too(monkeypatch, family):
    monkeypatch.setattr(lesion.engines.transformers.prefixes, "COST", 30)
    model = tiny.model(family)
    begin = prompts(1, longest=60, shortest=60, seed=11)[0]
    texts = [(*begin, *rest) for rest in prompts(4, longest=9, seed=13)]
    requests = questions(texts, [*EDITS[:6], ScaleGroup(1, 0)])
    found, work = answered(model, requests)
    for request in requests:
        said = found[request.key].token_ids
        assert said == greedy(model, request.prompt, request.edit, LIMIT, guess=said), request.key
    # Alone, the tokens of the prefix would be computed for every prompt.
    assert work.prompt < sum(len(text) for text in texts) * 7


def test_choices_are_scored_as_alone():
    model = tiny.model("llama")
    choices = ((4, 8), (12, 33, 7))
    (prompt,) = prompts(1, longest=9, shortest=9)
    requests = [Request(str(edit), prompt, edit, choices=choices) for edit in EDITS]
    found, _ = answered(model, requests)
    for request in requests:
        for choice, score in zip(choices, found[request.key].answer.scores, strict=True):
            log = forward(model, (*prompt, *choice), request.edit)[0].double().log_softmax(-1)[len(prompt) - 1 : -1]
            assert score == pytest.approx(float(log[torch.arange(len(choice)), list(choice)].sum()), abs=2e-4)


def test_rows_of_every_head_share_the_blocks_below_theirs():
    """A sweep of the last block's heads costs little more than one row: they part from it there."""
    model = tiny.model("llama")
    (prompt,) = prompts(1, longest=40, shortest=40)
    requests = [Request(str(head), prompt, ScaleHead(2, head), choices=((4,),)) for head in range(4)]
    _, work = answered(model, [Request("baseline", prompt, choices=((4,),)), *requests])
    assert work.prompt <= (1 + 4 / 3 + 0.1) * 40 + 5
