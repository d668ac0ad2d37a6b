"""Edited neurons, experts and matrices, independently: plain hooks on modules that are named by hand.

An expert's output is taken out of what the mixture gives: computed anew from the weights, for the tokens and with the
routing weights that the router says.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter

import torch
from references import stack
from torch import Tensor, nn
from transformers import PreTrainedModel

DOWN = {"gpt_neox": "mlp.dense_4h_to_h", "gpt2": "mlp.c_proj", "opt": "fc2"}
NEURONS = 48
FUSED: dict[str, dict[str, tuple[str, Callable[[Tensor], Tensor]]]] = {
    # The part of a fused output that one matrix gives: heads of size 8, two key-value heads where queries are grouped.
    "phi3": {
        "attention.q": ("self_attn.qkv_proj", lambda out: out[..., :32]),
        "attention.v": ("self_attn.qkv_proj", lambda out: out[..., 48:]),
        "mlp.up": ("mlp.gate_up_proj", lambda out: out[..., 48:]),
    },
    "gpt_neox": {"attention.k": ("attention.query_key_value", lambda out: out.unflatten(-1, (4, 24))[..., 8:16])},
    "gpt2": {"attention.k": ("attn.c_attn", lambda out: out[..., 32:64])},
}
PLAIN = {"gpt_neox": "mlp.dense_h_to_4h", "gpt2": "mlp.c_fc", "opt": "fc1"}
"""The module of a matrix that is alone in its module: `up` elsewhere."""


def _hooked(module: nn.Module, change: Callable[[Tensor], Tensor], before: bool):
    if before:
        return module.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:])).remove
    return module.register_forward_hook(lambda _, args, output: change(output)).remove


@contextmanager
def without_bias(network: PreTrainedModel, family: str, layer: int, name: str, factor: float) -> Iterator[None]:
    """A network with one matrix multiplied and its bias left alone, at the output of its module."""
    block = stack(network, family)[layer]
    path, part = FUSED.get(family, {}).get(name, ("", lambda out: out))
    module = attrgetter(path or {"mlp.in": PLAIN.get(family)}.get(name) or "mlp.up_proj")(block)

    def change(output: Tensor) -> Tensor:
        changed = output.clone()
        bias = torch.zeros_like(output) if module.bias is None else module.bias.expand(output.shape)
        part(changed).copy_(factor * (part(output) - part(bias)) + part(bias))
        return changed

    remove = _hooked(module, change, before=False)
    try:
        yield
    finally:
        remove()


@contextmanager
def neurons(network: PreTrainedModel, family: str, factors: dict[tuple[int, int], float]) -> Iterator[None]:
    """A network whose neurons are multiplied at the input of the matrix that ends the MLP."""
    with ExitStack() as hooks:
        for (layer, neuron), factor in factors.items():
            module = attrgetter(DOWN.get(family, "mlp.down_proj"))(stack(network, family)[layer])

            def change(given: Tensor, neuron=neuron, factor=factor) -> Tensor:
                changed = given.clone()
                changed[..., neuron] *= factor
                return changed

            hooks.callback(_hooked(module, change, before=True))
        yield


@contextmanager
def experts(network: PreTrainedModel, family: str, factors: dict[tuple[int, int], float]) -> Iterator[None]:
    """A network whose mixtures give what they give, plus (factor − 1) times what an expert writes."""
    with ExitStack() as hooks:
        for (layer, number), factor in factors.items():
            mixture = stack(network, family)[layer].mlp

            def change(_, args, output, mixture=mixture, number=number, factor=factor) -> Tensor:
                tokens = args[0].reshape(-1, args[0].shape[-1])
                _, weights, chosen = mixture.gate(tokens)
                weight = torch.where(chosen == number, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
                gate, up = (tokens @ mixture.experts.gate_up_proj[number].T).chunk(2, -1)
                written = (nn.functional.silu(gate) * up) @ mixture.experts.down_proj[number].T
                return output + (factor - 1) * (weight * written).reshape(output.shape)

            hooks.callback(mixture.register_forward_hook(change).remove)
        yield
