"""Edits of a quantised model: of places by hooks, exactly; of weights refused by name."""

import pytest
import torch

from lesion.edits.apply import applied
from lesion.edits.edit import ScaleAttention, ScaleBlock, ScaleMlp, ScaleParameters, Truncate
from lesion.edits.selections.topk import Magnitude
from lesion.engines.engine import Decoding, Request
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError
from lesion.models.fingerprint import stored_tensors
from lesion.models.load import load, wrap
from quantising import STORAGES, coded, dequantised, quantised
from tiny import tiny, tokenizer

STAND_IN = "stand-in"
PROMPT = (5, 9, 23, 41, 8, 30)
TOKENS = 12


@pytest.fixture(scope="module", params=[STAND_IN, *STORAGES])
def model(request, tmp_path_factory):
    if request.param == STAND_IN:
        return wrap(coded(tiny("llama")), tokenizer(), "stand-in")
    return load(quantised(request.param, tmp_path_factory.mktemp("quantised"))[1])


def bits(network) -> dict[str, list[int]]:
    flat = {name: tensor.detach().reshape(-1).contiguous() for name, tensor in stored_tensors(network)}
    return {name: tensor.view(torch.uint8).tolist() for name, tensor in flat.items()}


@torch.no_grad()
def naive(network, module, hook) -> tuple[int, ...]:
    """Greedy tokens by whole forward passes under one plain forward hook; no cache, no batch."""
    handle = module.register_forward_hook(hook)
    tokens = list(PROMPT)
    try:
        for _ in range(TOKENS):
            tokens.append(int(network(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
    finally:
        handle.remove()
    return tuple(tokens[len(PROMPT) :])


def identity(module, args, output):
    return (args[0], *output[1:]) if isinstance(output, tuple) else args[0]


def nothing(module, args, output):
    return (torch.zeros_like(output[0]), *output[1:]) if isinstance(output, tuple) else torch.zeros_like(output)


def said(model, edits) -> list[tuple[int, ...]]:
    decoding = Decoding(max_new_tokens=TOKENS)
    requests = [Request(str(number), PROMPT, edit, decoding) for number, edit in enumerate(edits)]
    answers = {response.key: response.token_ids for response in TransformersEngine(model, 8).answer(requests)}
    return [answers[request.key] for request in requests]


def cut(tokens: tuple[int, ...], model) -> tuple[int, ...]:
    """Up to the first end of text, where an engine stops."""
    end = model.network.config.eos_token_id
    return tokens[: tokens.index(end)] if end in tokens else tokens


def places(model):
    """Edits of places, and for each the module and the plain hook that do the same."""
    for block in model.anatomy.blocks:
        yield ScaleBlock(block.index), block.module, identity
        yield ScaleAttention(block.index), block.attention.tail, nothing
        yield ScaleMlp(block.index), block.mlp.tail, nothing


def test_ablations_say_token_for_token_what_a_loop_with_hooks_says(model):
    if model.quantisation.activations:
        pytest.skip("activations are rounded: an answer may depend on its batch, edited or not")
    edits, modules, hooks = zip(*places(model), strict=True)
    loops = [cut(naive(model.network, *pair), model) for pair in zip(modules, hooks, strict=True)]
    assert [cut(tokens, model) for tokens in said(model, edits)] == loops
    assert len(set(loops)) > 2, "the edits change what is said"


def test_an_applied_ablation_gives_the_logits_of_a_hook_and_leaves_every_bit(model):
    ids = torch.tensor([PROMPT])
    before = bits(model.network)
    with torch.no_grad():
        plain = model.network(ids).logits
        for edit, module, hook in places(model):
            with applied(model, edit):
                edited = model.network(ids).logits
            handle = module.register_forward_hook(hook)
            hooked = model.network(ids).logits
            handle.remove()
            torch.testing.assert_close(edited, hooked)
            assert not torch.allclose(edited, plain)
        assert torch.equal(model.network(ids).logits, plain)
    assert bits(model.network) == before


@pytest.mark.parametrize("edit", [ScaleParameters(Magnitude(0.1)), Truncate("1.mlp.up", 0.5)])
def test_edits_of_weights_are_refused_by_name_and_change_nothing(edit, model):
    before = bits(model.network)
    says = r"[01]\.\S+ is stored packed .* Edit places instead.* --weights"
    with pytest.raises(LesionError, match=says), applied(model, edit):
        pass
    with pytest.raises(LesionError, match=says):
        said(model, [edit])
    assert bits(model.network) == before


def test_the_stand_in_computes_what_its_dequantised_weights_do():
    network = coded(tiny("llama"))
    ids = torch.tensor([PROMPT])
    torch.testing.assert_close(network(ids).logits, dequantised(network)(ids).logits)
