"""Independent computations of what an edit means: copies of a network, blocks cut out or weights overwritten.

Nothing here knows of lesion's anatomy or hooks: where blocks and projections lie is written down by hand.
"""

import copy
from operator import attrgetter

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lesion.edits.edit import Edit, parts

STACK = {"gpt_neox": "gpt_neox.layers", "gpt2": "transformer.h", "opt": "model.decoder.layers", "unknown": "stack"}
# The last linear map of each branch: with its weights and biases at zero the branch adds nothing.
LAST = {
    "gpt_neox": {"attention": ["attention.dense"], "mlp": ["mlp.dense_4h_to_h"]},
    "gpt2": {"attention": ["attn.c_proj"], "mlp": ["mlp.c_proj"]},
    "opt": {"attention": ["self_attn.out_proj"], "mlp": ["fc2"]},
    "mixtral": {"attention": ["self_attn.o_proj"], "mlp": ["mlp.experts.down_proj"]},
    "qwen2_moe": {
        "attention": ["self_attn.o_proj"],
        "mlp": ["mlp.experts.down_proj", "mlp.shared_expert.down_proj", "mlp.down_proj"],
    },
    "unknown": {"attention": ["norm_behind"], "mlp": ["ffn.contract"]},
}
GATED_LAST = {"attention": ["self_attn.o_proj"], "mlp": ["mlp.down_proj"]}
# Where a norm stands behind the branch, half the branch is half the gain; Gemma stores the gain minus one.
NORM_BEHIND = {
    "gemma2": {"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
    "gemma3": {"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
    "olmo2": {"attention": "post_attention_layernorm", "mlp": "post_feedforward_layernorm"},
}
# Everything that the paper sets to zero.
WHOLE = {"gpt_neox": ["attention", "mlp"], "gpt2": ["attn", "mlp"], "opt": ["self_attn", "fc1", "fc2"]}


def stack(network: PreTrainedModel, family: str) -> nn.ModuleList:
    """The blocks of the network."""
    return attrgetter(STACK.get(family, "model.layers"))(network)


def _parameters(block: nn.Module, places: list[str]) -> dict[str, nn.Parameter]:
    inside = tuple(place + "." for place in places)
    found = {n: p for n, p in block.named_parameters() if n in places or n.startswith(inside)}
    assert found, f"none of {places}"
    return found


def without_block(network: PreTrainedModel, family: str, layer: int) -> PreTrainedModel:
    """A copy in which the block is not there: its neighbours are joined, the cache has one layer less."""
    cut = copy.deepcopy(network)
    blocks = stack(cut, family)
    del blocks[layer]
    for module in blocks.modules():
        for name in ("layer_idx", "index"):
            if getattr(module, name, -1) > layer:
                setattr(module, name, getattr(module, name) - 1)
    cut.config.num_hidden_layers -= 1
    if getattr(cut.config, "layer_types", None) is not None:
        del cut.config.layer_types[layer]
    return cut


def without_branch(network: PreTrainedModel, family: str, layer: int, unit: str) -> PreTrainedModel:
    """A copy in which the last linear map of the branch is zero, weights and biases."""
    cut = copy.deepcopy(network)
    for parameter in _parameters(stack(cut, family)[layer], LAST.get(family, GATED_LAST)[unit]).values():
        nn.init.zeros_(parameter)
    return cut


def zero_ablated(network: PreTrainedModel, family: str, layer: int) -> PreTrainedModel:
    """A copy under the paper's ablation: attention and MLP zero, weights and biases, norms untouched."""
    cut = copy.deepcopy(network)
    for name, parameter in _parameters(stack(cut, family)[layer], WHOLE.get(family, ["self_attn", "mlp"])).items():
        if "norm" not in name:
            nn.init.zeros_(parameter)
    return cut


def double(network: PreTrainedModel) -> PreTrainedModel:
    """A copy in float64; experts run one after another, because their grouped product knows no float64."""
    copied = copy.deepcopy(network).double()
    if hasattr(copied.config, "num_experts_per_tok"):
        copied.set_experts_implementation("eager")
    return copied


def scaled(network: PreTrainedModel, family: str, edit: Edit) -> PreTrainedModel:
    """A float64 copy under the edit: branches by their weights, blocks by a formula around their forward."""
    copied = double(network)
    for part in parts(edit):
        block = stack(copied, family)[part.layer]
        if part.unit == "block":
            block.forward = _formula(block.forward, part.factor)
        elif family in NORM_BEHIND:
            gain = attrgetter(NORM_BEHIND[family][part.unit])(block).weight
            offset = 1.0 if family.startswith("gemma") else 0.0
            with torch.no_grad():
                gain.copy_(part.factor * (gain + offset) - offset)
        else:
            for parameter in _parameters(block, LAST.get(family, GATED_LAST)[part.unit]).values():
                with torch.no_grad():
                    parameter.mul_(part.factor)
    return copied


def _formula(forward, factor):
    def scaled_forward(hidden_states: Tensor, *args, **kwargs):
        output = forward(hidden_states, *args, **kwargs)
        stream = output[0] if isinstance(output, tuple) else output
        stream = (1 - factor) * hidden_states + factor * stream
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    return scaled_forward


def everything_hooked(network: nn.Module) -> dict[str, list[int]]:
    """How many hooks of each kind hang on each module."""
    kinds = [kind for kind in vars(nn.Module()) if kind.endswith(("_hooks", "_hooks_with_kwargs"))]
    return {name: [len(getattr(module, kind)) for kind in kinds] for name, module in network.named_modules()}
