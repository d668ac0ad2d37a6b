"""Rows under edits of inner units say token for token what each says alone, under plain hooks: batched and drafted."""

import pytest
import torch
from headed import headed
from united import experts, neurons, without_bias

import tiny
from alone import answered, as_guessed, assert_alone, ends, greedy, prompts, questions
from lesion.edits.edit import BASELINE, Compose, Edit, ScaleBlock
from lesion.edits.text import parse
from lesion.edits.units import ScaleExpert, ScaleHead, ScaleMatrix, ScaleNeuron
from lesion.engines.engine import Request

LIMIT = 6
KNOWN = [family for family in tiny.LAYOUTS if family != "unknown"]
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


def naive(model, prompt, hooked, guess) -> tuple[int, ...]:
    """Greedy decoding of one prompt under plain hooks and without a cache."""
    said: list[int] = []
    with hooked, torch.inference_mode():
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
    requests = questions(texts, EDITS, LIMIT)
    found, work = answered(model, requests)
    for request in requests:
        said = found[request.key].token_ids
        if isinstance(request.edit, ScaleHead) and request.edit.factor == 0:
            place = request.edit.layer, request.edit.head
            hooked = headed(model.network, family, {place: 0.0})
            assert said == naive(model, request.prompt, hooked, said), request.key
        else:
            assert said == greedy(model, request.prompt, request.edit, LIMIT, guess=said), request.key
    assert work.drafted > 0
    # The edits do something: not all rows of a prompt say the same.
    assert len({found[request.key].token_ids for request in requests}) > len(texts)


def of_family(network, family) -> dict[Edit, object]:
    """Edits of neurons, experts and matrices with the plain hooks that make them so."""
    if family in ("mixtral", "qwen2_moe"):
        places = {(0, 1): 0.0}, {(2, 0): 3.0}, {(2, 2): 0.0}
        return {ScaleExpert(*place, factor): experts(network, family, {place: factor})
                for each in places for place, factor in each.items()}  # fmt: skip
    name = {"gpt_neox": "attention.k", "gpt2": "attention.k", "phi3": "mlp.up", "opt": "mlp.in"}.get(family, "mlp.up")
    matrices = {ScaleMatrix(layer, name, factor): without_bias(network, family, layer, name, factor)
                for layer, factor in ((0, 0.0), (1, -1.0))}  # fmt: skip
    return matrices | {
        ScaleNeuron(layer, neuron, factor): neurons(network, family, {(layer, neuron): factor})
        for layer, neuron, factor in ((1, 7, -20.0), (2, 40, 30.0))
    }


@pytest.mark.parametrize("family", KNOWN)
def test_neurons_experts_and_matrices_say_in_a_mixed_batch_what_plain_hooks_say(family):
    model = tiny.model(family)
    references = of_family(model.network, family)
    texts = prompts(2, longest=20)
    requests = questions(texts, [BASELINE, ScaleBlock(1), *references], LIMIT)
    found, _ = answered(model, requests)
    for request in requests:
        said = found[request.key].token_ids
        if request.edit in references:
            fresh = of_family(model.network, family)[request.edit]
            assert said == naive(model, request.prompt, fresh, said), request.key
        else:
            assert said == greedy(model, request.prompt, request.edit, LIMIT, guess=said), request.key
    assert len({found[request.key].token_ids for request in requests}) > len(texts)


def test_matrices_of_experts_are_written_one_edit_after_another_beside_rows():
    model = tiny.model("mixtral")
    texts = prompts(2, longest=20)
    edits = [BASELINE, parse("1.mlp.expert1.up×0 + 0.mlp.expert.2×0"), parse("0.mlp.router×-2"), ScaleExpert(2, 1)]
    requests = questions(texts, edits, LIMIT)
    assert_alone(model, requests, answered(model, requests)[0])


def test_rows_of_every_head_share_the_blocks_below_theirs():
    """A sweep of the last block's heads costs little more than one row: they part from it there."""
    model = tiny.model("llama")
    (prompt,) = prompts(1, longest=40, shortest=40)
    requests = [Request(str(head), prompt, ScaleHead(2, head), choices=((4,),)) for head in range(4)]
    _, work = answered(model, [Request("baseline", prompt, choices=((4,),)), *requests])
    assert work.prompt <= (1 + 4 / 3 + 0.1) * 40 + 5
