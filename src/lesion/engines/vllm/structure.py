"""Where the blocks of a model lie inside vLLM, and which of their modules give what a branch adds to the stream."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from lesion.errors import LesionError
from lesion.models.families import families

# vLLM's own decoder layers: the modules whose output is what attention and MLP add to the residual stream.
TAILS: Mapping[str, tuple[str, str]] = {
    "LlamaDecoderLayer": ("self_attn", "mlp"),
    "MistralDecoderLayer": ("self_attn", "mlp"),
    "Qwen2DecoderLayer": ("self_attn", "mlp"),
    "Qwen3DecoderLayer": ("self_attn", "mlp"),
    "Gemma2DecoderLayer": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "Gemma3DecoderLayer": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "GPT2Block": ("attn", "mlp"),
    "OPTDecoderLayer": ("self_attn", "fc2"),
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer inside vLLM.

    Attributes:
        module: it takes and gives the residual stream.
        attention, mlp: the modules whose output (its first element, where it is a tuple) a branch adds to the stream.
        parameters: names of the arguments of its `forward`, in order.
        apart: whether the stream travels as two tensors, `hidden_states` and `residual`, which the next layer's norm
            adds up.
    """

    module: nn.Module
    attention: nn.Module
    mlp: nn.Module
    parameters: tuple[str, ...]
    apart: bool


def layers_of(network: nn.Module, blocks: int, family: str, name: str) -> tuple[Layer, ...]:
    """The decoder layers of a network that vLLM has built, in order; `family` is for those taken from transformers."""
    stack = _stack(network, blocks)
    if stack is None:
        raise LesionError(
            f"vLLM builds {name} as {type(network).__name__}, in which no list of {blocks} decoder layers was found;"
            f" use --engine transformers."
        )
    return tuple(_layer(module, family, name) for module in stack)


def _stack(network: nn.Module, blocks: int) -> nn.ModuleList | None:
    for module in network.modules():  # from the outside in: experts are inside layers
        if isinstance(module, nn.ModuleList) and len(module) == blocks:
            return module
    return None


def _layer(module: nn.Module, family: str, name: str) -> Layer:
    kind = type(module).__name__
    tails = TAILS.get(kind) if type(module).__module__.startswith("vllm.") else None
    known = families().get(family)
    if tails is None and type(module).__module__.startswith("transformers.models.") and known is not None:
        attention, mlp = known.attention[0], known.mlp[0]
        if attention is not None and mlp is not None:
            tails = (attention.tail, mlp.tail)
    if tails is None:
        raise LesionError(
            f"vLLM builds {name} of {kind}, a decoder layer whose structure is not known here, so that no edit can be"
            f" made in it; use --engine transformers."
        )
    parameters = tuple(inspect.signature(module.forward).parameters)
    try:
        attention_tail, mlp_tail = (module.get_submodule(path) for path in tails)
    except AttributeError as error:
        raise LesionError(
            f"vLLM builds {name} of {kind} in another way than is known here ({error}); use --engine transformers."
        ) from error
    return Layer(module, attention_tail, mlp_tail, parameters, "residual" in parameters)
