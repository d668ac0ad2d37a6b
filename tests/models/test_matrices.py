"""Matrices are what the network computes with, whatever the storage, and can be written back bit for bit."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AttentionInterface
from transformers.activations import ACT2FN

from lesion.errors import LesionError
from lesion.models.anatomy import dissect
from tiny import FAMILIES, bits, same_bits, tiny

KNOWN = [family for family in FAMILIES if family != "unknown"]


def numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()


def silence_biases_and_head_norms(network: nn.Module) -> None:
    """Leave only the matrices between the input of a branch and what is compared."""
    for module in network.modules():
        for name in ("q_norm", "k_norm"):
            if hasattr(module, name):
                setattr(module, name, nn.Identity())
        if getattr(module, "bias", None) is not None:
            module.bias.zero_()


@pytest.mark.parametrize("family", KNOWN)
def test_q_k_v_and_o_are_the_projections_of_the_attention(family):
    """One token at position 0, where rotary embeddings turn by no angle; the attention itself is replaced by a
    fixed answer, so that what goes in shows q, k and v, and what comes out shows o."""
    network = tiny(family)
    silence_biases_and_head_norms(network)
    anatomy = dissect(network, family)
    asked: list[tuple[np.ndarray, ...]] = []
    head_size = getattr(network.config, "head_dim", None) or 8
    answer = torch.randn(1, 1, 4, head_size, generator=torch.Generator().manual_seed(3))

    def spy(module, query, key, value, mask, **settings):
        asked.append(tuple(numpy(t[0, :, 0]).reshape(-1) for t in (query, key, value)))
        return answer, None

    AttentionInterface.register("spy", spy)
    network.set_attn_implementation("spy")
    inputs, outputs = [], []
    for block in anatomy.blocks:
        attention = next(m for n, m in block.module.named_children() if n in ("self_attn", "attn", "attention"))
        attention.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        )
        attention.register_forward_hook(lambda _, __, output: outputs.append(output[0]))
    network(input_ids=torch.tensor([[7]]))

    assert len(asked) == len(inputs) == len(outputs) == len(anatomy.blocks)
    for block, given, (q, k, v), result in zip(anatomy.blocks, inputs, asked, outputs, strict=True):
        x = numpy(given).reshape(-1)
        matrices = block.attention.matrices
        scale = 8**-0.5 if family == "opt" else 1.0  # OPT scales its queries before the product
        np.testing.assert_allclose(q, scale * numpy(matrices["q"].read()) @ x, atol=1e-5)
        np.testing.assert_allclose(k, numpy(matrices["k"].read()) @ x, atol=1e-5)
        np.testing.assert_allclose(v, numpy(matrices["v"].read()) @ x, atol=1e-5)
        expected = numpy(matrices["o"].read()) @ numpy(answer).reshape(-1)
        np.testing.assert_allclose(numpy(result).reshape(-1), expected, atol=1e-5)


def gated(matrices, act, x: np.ndarray, prefix: str = "") -> np.ndarray:
    """A gated MLP in numpy; x is [tokens, hidden]."""
    gate, up, down = (numpy(matrices[f"{prefix}{name}"].read()) for name in ("gate", "up", "down"))
    return (act(x @ gate.T) * (x @ up.T)) @ down.T


def experts(matrices, act, x: np.ndarray, top: int, normed: bool) -> np.ndarray:
    """Every token through its `top` most probable experts, weighted by their probabilities, one by one."""
    logits = x @ numpy(matrices["router"].read()).T
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    result = np.zeros_like(x)
    for token, row in enumerate(probabilities):
        chosen = np.argsort(-row)[:top]
        total = row[chosen].sum() if normed else 1.0
        for expert in chosen:
            part = gated(matrices, act, x[token : token + 1], f"expert{expert}.")
            result[token] += row[expert] / total * part[0]
    return result


@pytest.mark.parametrize("family", KNOWN)
def test_the_matrices_of_the_mlp_give_what_the_mlp_gives(family):
    network = tiny(family)
    silence_biases_and_head_norms(network)
    config = network.config
    anatomy = dissect(network, family)
    kind = next(
        getattr(config, key)
        for key in ("hidden_activation", "hidden_act", "activation_function")
        if hasattr(config, key)
    )

    def act(values: np.ndarray) -> np.ndarray:
        return ACT2FN[kind](torch.from_numpy(values)).numpy()

    inputs, outputs = [], []
    for block in anatomy.blocks:
        whole = getattr(block.module, "mlp", None)
        first, last = (whole, whole) if whole is not None else (block.module.fc1, block.module.fc2)
        first.register_forward_pre_hook(lambda _, args: inputs.append(numpy(args[0]).reshape(-1, 32)))
        last.register_forward_hook(lambda _, __, output: outputs.append(numpy(output).reshape(-1, 32)))
    network(input_ids=torch.tensor([[7, 9, 30, 41, 2]]))

    for block, x, result in zip(anatomy.blocks, inputs, outputs, strict=True):
        matrices = block.mlp.matrices
        if "router" in matrices:
            expected = experts(matrices, act, x, 2, normed=family == "mixtral")
            if "shared.gate" in matrices:
                weight = 1 / (1 + np.exp(-x @ numpy(matrices["shared.router"].read()).T))
                expected += weight * gated(matrices, act, x, "shared.")
        elif "gate" in matrices:
            expected = gated(matrices, act, x)
        else:
            expected = act(x @ numpy(matrices["in"].read()).T) @ numpy(matrices["out"].read()).T
        np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_zero_matrix_changes_exactly_its_own_entries_and_what_was_read_is_put_back_bit_for_bit(family, dtype):
    network = tiny(family).to(dtype)
    anatomy = dissect(network, family)
    before = bits(network)
    assert all((values != 0).all() for values in before.values())  # so that every entry set to zero is seen
    for matrix in anatomy.matrices.values():
        others = {
            a: m.read() for a, m in anatomy.matrices.items() if m.parameter == matrix.parameter and m is not matrix
        }
        values = matrix.read()
        matrix.write(torch.zeros(matrix.shape))
        changed = {
            name: int((parameter != before[name]).sum())
            for name, parameter in network.named_parameters()
            if not torch.equal(parameter, before[name])
        }
        assert changed == {matrix.parameter: matrix.shape[0] * matrix.shape[1]}
        for address, untouched in others.items():
            assert torch.equal(anatomy.matrix(address).read(), untouched)
        matrix.write(values)
        assert torch.equal(matrix.read(), values)
    assert same_bits(network, before)


def test_values_of_another_shape_are_refused_by_name():
    matrix = dissect(tiny("llama"), "llama").matrix("0.mlp.up")
    with pytest.raises(LesionError, match=r"0\.mlp\.up is 48 × 32 .* shape 32 × 48 cannot"):
        matrix.write(torch.zeros(32, 48))


def test_packed_weights_are_refused_by_the_name_of_their_storage():
    network = tiny("llama")
    layer = network.model.layers[1].mlp.up_proj
    layer.weight = nn.Parameter(torch.zeros(48 * 32 // 2, 1, dtype=torch.uint8), requires_grad=False)
    with pytest.raises(LesionError, match=r"model\.layers\.1\.mlp\.up_proj\.weight is stored as uint8 .* Linear"):
        dissect(network, "packed")
