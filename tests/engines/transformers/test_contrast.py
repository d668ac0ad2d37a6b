"""Contrasts: probability and rank of tokens after a prompt are those of a plain pass under the edit alone."""

import math

import numpy as np
import pytest
import torch

import tiny
from alone import EDITS, answered, forward, prompts, questions
from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Request, Response
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_contrast
from oneencoding import contrasted

TOKENS = (7, 30, 12)


def plain(logits: torch.Tensor, tokens) -> tuple[list[float], list[int]]:
    """Log-probabilities in numpy's float64, and the places in a sorted list, from 1."""
    values = logits.double().numpy()
    log = values - values.max() - math.log(np.exp(values - values.max()).sum())
    order = sorted(range(len(values)), key=lambda token: -values[token])
    return [float(log[token]) for token in tokens], [order.index(token) + 1 for token in tokens]


def ask(model: Model, requests) -> dict[str, Response]:
    return answered(model, requests, 16)[0]


def contrasts(edits=EDITS) -> list[Request]:
    return questions(prompts(4, longest=15, seed=4), edits, tokens=TOKENS)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_neox", "gpt2", "mixtral"])
def test_scores_and_ranks_are_those_of_a_plain_pass_under_every_edit(family):
    model, requests = tiny.model(family), contrasts()
    found = ask(model, requests)
    for request in requests:
        logits = forward(model, request.prompt, request.edit)[0][-1]
        scores, ranks = plain(logits, TOKENS)
        response = found[request.key]
        assert response.answer.scores == pytest.approx(scores, abs=2e-4), request.key
        assert list(response.answer.ranks) == ranks, request.key
        assert response.token_ids == (int(logits.argmax()),)
        assert response.answer.text == model.tokenizer.decode([int(logits.argmax())])
        assert (response.answer.tokens, response.answer.finish) == (0, "stop")


def test_ranks_of_all_tokens_are_a_permutation_and_their_probabilities_sum_to_one():
    model = tiny.model("qwen2")
    answer = ask(model, [Request("all", (5, 6, 7), ScaleBlock(1, 0.5), tokens=tuple(range(64)))])["all"].answer
    assert sorted(answer.ranks) == list(range(1, 65))
    assert math.fsum(map(math.exp, answer.scores)) == pytest.approx(1, abs=1e-6)


@pytest.mark.same_bits("logits that are equal are meant")
def test_equal_logits_share_the_better_rank():
    model = tiny.model("llama")
    with torch.no_grad():
        model.network.lm_head.weight.zero_()
    answer = ask(model, [Request("tie", (5, 6), tokens=(20, 21))])["tie"].answer
    assert answer.ranks == (1, 1)
    assert answer.scores == pytest.approx([-math.log(64)] * 2, abs=1e-9)


def test_an_edit_that_breaks_the_numbers_is_reported_and_has_no_ranks():
    model = tiny.model("llama")
    found = ask(model, contrasts(edits=(BASELINE, ScaleBlock(1, 1e38), ScaleBlock(1))))
    for key, response in found.items():
        broken = key.endswith(str(ScaleBlock(1, 1e38)))
        assert (response.answer.finish == "nonfinite") == broken
        assert (response.answer.ranks == ()) == broken


def test_a_token_that_the_network_does_not_know_and_a_prompt_that_is_too_long_are_refused():
    model = tiny.model("llama")
    with pytest.raises(LesionError, match="beyond the 64 that the network has embeddings for"):
        ask(model, [Request("strange", (5, 6), tokens=(64, 3))])
    with pytest.raises(LesionError, match=r"long .*context of tiny:llama, 256"):
        ask(model, [Request("long", tuple([9] * 257), tokens=(5, 6))])


@pytest.mark.parametrize(
    "name", ["facts", "facts:{data}/counterfact/counterfact-val.json", "fewshot:2:ioi:{data}/ioi/ioi.json"]
)
def test_a_real_checkpoint_answers_as_one_plain_pass_over_the_text(shared, stories, name):
    task = find(name.format(data=shared / "data"))
    items = draw(task, 6, 1)
    edits = (BASELINE, ScaleBlock(0), ScaleBlock(4))
    asked = {item.id: encode_contrast(stories, task, item) for item in items}
    requests = [
        Request(f"{item.id} under {edit}", asked[item.id].prompt, edit, tokens=asked[item.id].tokens)
        for item in items
        for edit in edits
    ]
    found = ask(stories, requests)
    for request, (item, edit) in zip(requests, [(i, e) for i in items for e in edits], strict=True):
        shots = "".join(f"{question} {answer}\n\n" for question, answer in item.shots)
        # The tokens behind the prompt where both are encoded as one text; bare white space belongs to the prompt.
        prompt, (right, *others, word) = contrasted(stories.tokenizer, shots + item.question, item.choices)
        tokens = [right, *dict.fromkeys(token for token in others if token != right), word]
        assert stories.tokenizer.convert_ids_to_tokens(tokens[0]).strip("▁")
        logits = forward(stories, prompt, edit)[0][-1]
        scores, ranks = plain(logits, tokens)
        answer = found[request.key].answer
        assert answer.scores == pytest.approx(scores, abs=2e-4)
        assert list(answer.ranks) == ranks
        assert task.judge(item, answer).correct == (int(logits.argmax()) == tokens[0])
        assert task.judge(item, answer).parsed == stories.tokenizer.decode([int(logits.argmax())]).strip()


def test_tokens_and_choices_of_one_request_are_those_of_two():
    model = tiny.model("llama")
    choices = ((7, 30, 9), (30,), (12, 7))
    both = [Request(f"both {each.key}", each.prompt, each.edit, choices=choices, tokens=TOKENS) for each in contrasts()]
    apart = [Request(f"choices {each.key}", each.prompt, each.edit, choices=choices) for each in contrasts()]
    found = ask(model, [*both, *contrasts(), *apart])
    for each in contrasts():
        tokens, whole, one = (found[f"{before}{each.key}"].answer for before in ("", "choices ", "both "))
        assert one.scores == pytest.approx((*tokens.scores, *whole.scores), abs=2e-4)
        assert (one.ranks, one.text, one.finish) == (tokens.ranks, tokens.text, "stop")
