"""Requests under edits of weights: each answered as a network with those weights would, and none left edited."""

import gc
from dataclasses import replace
from itertools import groupby

import pytest
import torch

import lesion.engines.transformers.engine
import tiny
from alone import greedy, log_probability, prompts, questions
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock, ScaleMlp, ScaleParameters, of_places, of_weights
from lesion.edits.selections.controls import Random
from lesion.edits.selections.topk import Magnitude
from lesion.engines.engine import Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.load import Model
from tiny import bits, same_bits

PRUNED = ScaleParameters(Magnitude(0.1), 0.0)
BOOSTED = ScaleParameters(Random(Magnitude(0.3), 1), 1.7)
EDITS: tuple[Edit, ...] = (
    PRUNED, BASELINE, Compose((PRUNED, ScaleBlock(1))), Compose((ScaleMlp(0, 0.5), BOOSTED)), ScaleBlock(2),
    Compose((PRUNED, BOOSTED)), BOOSTED,
)  # fmt: skip
CHOICES = ((7, 8, 9), (20,), (33, 5))


def requests_under(edits=EDITS, count: int = 3) -> list[Request]:
    """Prompts to go on from and prompts with choices, under every edit, each with a key of its own."""
    texts = prompts(count, seed=7), prompts(count, seed=10)
    every = [*questions(texts[0], edits, 8), *questions(texts[1], edits, choices=CHOICES)]
    return [replace(request, key=f"{number}: {request.key}") for number, request in enumerate(every)]


def by_hand(family: str, edit: Edit) -> Model:
    """A network of its own in which every matrix was overwritten with what the edit makes of it."""
    model = tiny.model(family)
    for address, matrix in model.anatomy.scored.items():
        weight = matrix.read()
        factor = torch.ones(weight.shape, dtype=torch.float64)
        for part in of_weights(edit):
            factor[part.selection.mask(address, weight)] *= part.factor
        matrix.write((weight.double() * factor).to(weight.dtype))
    return model


@pytest.mark.parametrize("family", ["llama", "gpt2", "phi3", "gpt_neox", "mixtral"])
def test_every_edit_answers_and_chooses_as_a_network_with_those_weights(family):
    model, requests = tiny.model(family), requests_under()
    before = bits(model.network)
    found = {response.key: response for response in TransformersEngine(model, 5).answer(requests)}
    assert found.keys() == {request.key for request in requests}
    assert same_bits(model.network, before)
    edited = {edit: by_hand(family, edit) for edit in EDITS}
    for request in requests:
        alone = edited[request.edit]
        if request.choices:
            edit = of_places(request.edit)
            expected = [log_probability(alone, request.prompt, choice, edit) for choice in request.choices]
            assert found[request.key].answer.scores == pytest.approx(expected, rel=1e-5, abs=1e-4)
        else:
            said, limit = found[request.key].token_ids, request.decoding.max_new_tokens
            assert said == greedy(alone, request.prompt, of_places(request.edit), limit, guess=said)
    # The edits are seen: each moves the scores of some choice.
    scored = {edit: [found[r.key].answer.scores for r in requests if r.edit == edit and r.choices] for edit in EDITS}
    assert len({str(values) for values in scored.values()}) == len(EDITS)


def test_each_edit_of_weights_is_written_once_and_the_unedited_come_first(monkeypatch):
    model, requests = tiny.model("llama"), requests_under()
    whole, entered = lesion.engines.transformers.engine.written, []

    def written(model, edits, truncations):
        assert truncations == ()
        entered.append(edits)
        return whole(model, edits, truncations)

    monkeypatch.setattr(lesion.engines.transformers.engine, "written", written)
    weights_of = {request.key: of_weights(request.edit) for request in requests}
    answered = [weights_of[response.key] for response in TransformersEngine(model, 4).answer(requests)]
    groups = [weights for weights, _ in groupby(answered)]
    assert groups == entered == [(), (PRUNED,), (BOOSTED,), (PRUNED, BOOSTED)]


@pytest.mark.parametrize("way", ["closed", "let go", "broken off"])
def test_answers_that_are_not_taken_to_the_end_leave_the_weights_as_they_were(way):
    model = tiny.model("llama")
    before = bits(model.network)
    answers = TransformersEngine(model, 4).answer(requests_under((PRUNED,)))
    next(answers)
    assert not same_bits(model.network, before)
    if way == "closed":
        answers.close()
    elif way == "let go":
        del answers
        gc.collect()
    else:
        with pytest.raises(KeyboardInterrupt):
            answers.throw(KeyboardInterrupt)
    assert same_bits(model.network, before)


@pytest.mark.parametrize("only_steps", [True, False])
def test_memory_that_runs_out_halves_the_rows_and_keeps_the_weights(only_steps):
    model, requests = tiny.model("llama"), requests_under()
    expected = {response.key: response for response in TransformersEngine(model, 2).answer(requests)}
    before = bits(model.network)

    def hook(module, args, kwargs):
        rows, length = kwargs["input_ids"].shape
        if rows > (1 if only_steps else 3) and (length == 1 or not only_steps):
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.network.register_forward_pre_hook(hook, with_kwargs=True)
    engine = TransformersEngine(model, 14)
    found = list(engine.answer(requests))
    assert engine.work.batch_size <= 3
    assert len(found) == len(requests)
    for response in found:
        assert response.token_ids == expected[response.key].token_ids
        assert response.answer.scores == pytest.approx(expected[response.key].answer.scores, rel=1e-5)
    assert same_bits(model.network, before)


def test_an_edit_that_does_not_take_hold_is_an_error_and_leaves_the_weights_as_they_were():
    model = tiny.model("llama")
    before = bits(model.network)
    requests = requests_under((BASELINE, ScaleParameters(Magnitude(0.1), 1.0)))
    answers = TransformersEngine(model, 4).answer(requests)
    for _ in range(len(requests) // 2):
        next(answers)
    with pytest.raises(LesionError, match="the factor is 1"):
        next(answers)
    assert same_bits(model.network, before)


def test_a_second_run_on_one_model_is_refused_while_the_weights_are_those_of_the_first():
    model = tiny.model("llama")
    before = bits(model.network)
    requests = requests_under((PRUNED,))
    first, second = (TransformersEngine(model, 4).answer(requests) for _ in range(2))
    next(first)
    with pytest.raises(LesionError, match="in use by an edit of weights in a generator that has not ended"):
        next(second)
    assert len(list(first)) == len(requests) - 1
    assert same_bits(model.network, before)
    assert len(list(TransformersEngine(model, 4).answer(requests))) == len(requests)
