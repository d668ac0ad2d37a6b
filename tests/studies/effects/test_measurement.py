"""Numbers of one item against plain hooks on the network, numpy in float64, and the algebra of sums."""

from itertools import product

import numpy as np
import pytest
import torch

import architectures_zoo as zoo
from lesion.activations.readout import readout
from lesion.edits.apply import applied
from lesion.errors import LesionError
from lesion.models.load import wrap
from lesion.studies.ablation.sweep import sweep
from lesion.studies.effects.measurement import Text, measure
from tiny import model, tokenizer

TEXT = Text((1, 5, 6, 7, 30, 12), (9, 20, 33), classes=("result", "form", "result"))
TEMPTED = Text((1, 5, 6, 7, 30, 12), (9,), tempting=20)
FAMILIES = {
    "llama": "model.norm",
    "gpt2": "transformer.ln_f",
    "gpt_neox": "gpt_neox.final_layer_norm",
    "gemma2": "model.norm",
    "olmo2": "model.norm",
}


def places(lesion_model):
    blocks = range(len(lesion_model.anatomy.blocks))
    return sweep(lesion_model.anatomy, ("block", "attention", "mlp", "head"), blocks, [0.0])


def head_outputs(network, text):
    """What the head gives before the gold tokens, float64 numpy: before any softcap."""
    kept = []
    hook = network.get_output_embeddings().register_forward_hook(lambda module, args, output: kept.append(output))
    with torch.inference_mode():
        logits = network(torch.tensor([text.read])).logits
    hook.remove()
    return kept[0][0, -len(text.gold) :].double().numpy(), logits[0, -len(text.gold) :].double().numpy()


def relative(raw, text):
    own = raw[np.arange(len(text.gold)), list(text.gold)]
    return (own - (raw.mean(1) if text.tempting is None else raw[:, text.tempting])).mean()


def log_probability(logits, text):
    top = logits.max(1, keepdims=True)
    norm = top[:, 0] + np.log(np.exp(logits - top).sum(1))
    return (logits[np.arange(len(text.gold)), list(text.gold)] - norm).mean()


def streams(lesion_model, text):
    """The stream at every layer, [tokens, width] each, in float64."""
    seen = []
    blocks = [block.module for block in lesion_model.anatomy.blocks]

    def enters(module, args, kwargs):
        seen.append(args[0] if args else kwargs["hidden_states"])

    def leaves(module, args, output):
        seen.append(output[0] if isinstance(output, tuple) else output)

    hooks = [blocks[0].register_forward_pre_hook(enters, with_kwargs=True)]
    hooks += [block.register_forward_hook(leaves) for block in blocks]
    with torch.inference_mode():
        lesion_model.network(torch.tensor([text.read]))
    for hook in hooks:
        hook.remove()
    return [stream[0].double().numpy() for stream in seen]


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    lesion_model = model(request.param)
    reads = readout(lesion_model, TEXT.read)
    edits = places(lesion_model)
    return request.param, lesion_model, {text: measure(reads, text, edits) for text in (TEXT, TEMPTED)}, edits


@pytest.mark.parametrize("text", [TEXT, TEMPTED])
def test_embedding_offset_and_all_direct_effects_add_up_to_the_logit(case, text):
    _, lesion_model, measured, _ = case
    own = measured[text]
    raw, logits = head_outputs(lesion_model.network, text)
    assert own.logit == pytest.approx(relative(raw, text), abs=1e-4)
    assert own.lens[-1] == pytest.approx(log_probability(logits, text), abs=1e-4)
    for units in ({"block"}, {"attention", "mlp"}):
        parts = [value for place, value in own.direct.items() if (place.partition(".")[2] or "block") in units]
        assert own.embedding + own.offset + sum(parts) == pytest.approx(own.logit, abs=1e-4)


def test_heads_and_the_bias_of_their_output_matrix_add_up_to_what_the_attention_writes(case):
    family, lesion_model, measured, _ = case
    own, network = measured[TEXT], lesion_model.network
    biases = {"gpt2": "attn.c_proj", "gpt_neox": "attention.dense"}
    for block in lesion_model.anatomy.blocks:
        heads = [value for place, value in own.direct.items() if place.startswith(f"{block.index}.attention.head.")]
        assert len(heads) == network.config.num_attention_heads
        written = 0.0
        if family in biases:  # behind a LayerNorm, its scale frozen
            bias = block.module.get_submodule(biases[family]).bias.detach().double().numpy()
            norm, weight = network.get_submodule(FAMILIES[family]), network.get_output_embeddings().weight
            scale = 1 / np.sqrt(streams(lesion_model, TEXT)[-1][-len(TEXT.gold) :].var(1) + norm.eps)
            rows = weight.detach().double().numpy()
            centred = (bias - bias.mean()) * norm.weight.detach().double().numpy()
            towards = [(rows[token] - rows.mean(0)) @ centred for token in TEXT.gold]
            written = float(np.mean(scale * towards))
        assert sum(heads) + written == pytest.approx(own.direct[f"{block.index}.attention"], abs=1e-4)


@pytest.mark.parametrize("text", [TEXT, TEMPTED])
def test_total_effects_are_those_of_each_place_switched_off_alone(case, text):
    _, lesion_model, measured, edits = case
    raw, logits = head_outputs(lesion_model.network, text)
    for edit in edits:
        with applied(lesion_model, edit):
            other, other_logits = head_outputs(lesion_model.network, text)
        own = measured[text]
        assert own.total[edit.address] == pytest.approx(relative(raw, text) - relative(other, text), abs=1e-4)
        lost = log_probability(logits, text) - log_probability(other_logits, text)
        assert own.loss[edit.address] == pytest.approx(lost, abs=1e-4)


def test_sums_by_class_are_those_of_a_loop_over_tokens(case):
    _, lesion_model, measured, edits = case
    places = {"result": (0, 2), "form": (1,)}

    def loop(name):
        """(most probable ones, summed log-probability) of the tokens of a class."""
        _, logits = head_outputs(lesion_model.network, TEXT)
        top, nats = 0, 0.0
        for at in places[name]:
            row = logits[at] - logits[at].max()
            top += int(row.argmax()) == TEXT.gold[at]
            nats += row[TEXT.gold[at]] - np.log(np.exp(row).sum())
        return top, nats

    assert measured[TEMPTED].classes == {}
    for name, own in measured[TEXT].classes.items():
        top, nats = loop(name)
        assert (own.tokens, own.top) == (len(places[name]), top)
        assert own.log_probability == pytest.approx(nats, abs=1e-4)
        for edit in edits:
            with applied(lesion_model, edit):
                without, left = loop(name)
            assert own.top_without[edit.address] == without
            assert own.loss[edit.address] == pytest.approx(nats - left, abs=1e-4)


def test_the_lens_is_norm_and_head_on_every_stream(case):
    family, lesion_model, measured, _ = case
    network, own = lesion_model.network, measured[TEXT]
    cap = getattr(network.config, "final_logit_softcapping", None)
    for layer, stream in enumerate(streams(lesion_model, TEXT)):
        with torch.inference_mode():
            normed = network.get_submodule(FAMILIES[family])(torch.tensor(stream[None]).float())
            logits = network.get_output_embeddings()(normed)[0, -3:].double().numpy()
        logits = logits if cap is None else cap * np.tanh(logits / cap)
        assert own.lens[layer] == pytest.approx(log_probability(logits, TEXT), abs=1e-4)
        ranks = [int((row > row[token]).sum()) + 1 for row, token in zip(logits, TEXT.gold, strict=True)]
        assert np.exp(own.log_rank[layer]) == pytest.approx(np.prod(ranks) ** (1 / 3))
        assert own.top[layer] == pytest.approx(np.mean([rank == 1 for rank in ranks]))


def test_block_influence_is_one_minus_the_cosine_over_all_tokens(case):
    _, lesion_model, measured, _ = case
    layers = streams(lesion_model, TEXT)
    for block, own in enumerate(measured[TEXT].influence):
        cosines = []
        for before, after in zip(layers[block], layers[block + 1], strict=True):
            cosines.append(before @ after / np.sqrt((before @ before) * (after @ after)))
        assert own == pytest.approx(1 - np.mean(cosines), abs=1e-6)


def test_with_the_scale_frozen_nothing_makes_up_for_the_last_block(case):
    """Behind it is the norm alone; of earlier blocks the change of the last stream goes through the same map."""
    _, lesion_model, measured, _ = case
    last = str(len(lesion_model.anatomy.blocks) - 1)
    assert measured[TEXT].frozen[last] == pytest.approx(measured[TEXT].direct[last], abs=1e-4)
    assert measured[TEXT].frozen["0"] != pytest.approx(measured[TEXT].direct["0"], abs=1e-3)


def test_the_number_of_rows_of_a_pass_changes_nothing(case):
    _, lesion_model, measured, edits = case
    alone = measure(readout(lesion_model, TEXT.read), TEXT, edits, rows=1)
    for name in ("direct", "total", "frozen", "loss"):
        assert getattr(alone, name) == pytest.approx(getattr(measured[TEXT], name), abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [("granite", {"residual_multiplier": 0.22}), ("falcon_h1", {"attn_out_multiplier": 0.9, "ssm_out_multiplier": 0})],
)
def test_what_branches_give_is_multiplied_by_the_numbers_of_the_architecture(kind, numbers):
    """Where the state-space layer beside attention is multiplied by 0, heads are all that the attention writes."""
    multiplied = wrap(zoo.made(kind), tokenizer(), kind)
    for (name, number), layer in product(numbers.items(), multiplied.network.model.layers):
        assert hasattr(layer, name)
        setattr(layer, name, number)
    own = measure(readout(multiplied, TEXT.read), TEXT, places(multiplied))
    raw, _ = head_outputs(multiplied.network, TEXT)
    branches = sum(value for place, value in own.direct.items() if place.count(".") == 1)
    assert own.embedding + own.offset + branches == pytest.approx(relative(raw, TEXT), abs=1e-4)
    for layer in range(4):
        heads = [value for place, value in own.direct.items() if place.startswith(f"{layer}.attention.head.")]
        assert sum(heads) == pytest.approx(own.direct[f"{layer}.attention"], abs=1e-4)
        assert abs(sum(heads)) > 1e-3


def test_branches_that_are_not_all_of_a_block_are_refused():
    strange = model("llama")
    block = strange.network.model.layers[1]
    hook = block.register_forward_hook(lambda module, args, output: output * 1.5)
    with pytest.raises(LesionError, match="Attention and MLP of block 1 of tiny:llama do not add up"):
        measure(readout(strange, TEXT.read), TEXT, places(strange))
    blocks = [edit for edit in places(strange) if edit.unit == "block"]
    assert measure(readout(strange, TEXT.read), TEXT, blocks).direct
    hook.remove()


def test_a_stream_that_changes_between_two_blocks_is_refused():
    strange = model("llama")
    strange.network.model.layers[1].register_forward_pre_hook(
        lambda module, args: (2 * args[0], *args[1:]), prepend=True
    )
    with pytest.raises(LesionError, match="What enters block 1 of tiny:llama is not what left block 0"):
        measure(readout(strange, TEXT.read), TEXT, places(strange))


def test_logits_that_are_not_finite_are_refused():
    broken = model("llama")
    reads = readout(broken, TEXT.read)
    broken.network.lm_head.weight[40] = float("inf")
    with pytest.raises(
        LesionError, match=r"Logits of tiny:llama are not finite; load the model in bfloat16 or float32"
    ):
        measure(reads, TEXT, places(broken))
