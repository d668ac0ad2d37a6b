"""Edited heads, independently: plain hooks on output projections named by hand, with head counts written down."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter

from references import stack
from torch import nn
from transformers import PreTrainedModel

PROJECTION = {"gpt_neox": "attention.dense", "gpt2": "attn.c_proj", "opt": "self_attn.out_proj"}
SIZE = {"qwen3": 16, "gemma2": 16, "gemma3": 16}  # of a head; 8 elsewhere
HEADS = 4
GROUPS = {"gpt_neox": 4, "gpt2": 4, "opt": 4}  # 2 elsewhere
Factors = dict[tuple[int, int], float]
"""By block and query head."""


def projection(network: PreTrainedModel, family: str, layer: int) -> nn.Module:
    """The output projection of the attention of a block."""
    return attrgetter(PROJECTION.get(family, "self_attn.o_proj"))(stack(network, family)[layer])


@contextmanager
def headed(network: PreTrainedModel, family: str, factors: Factors) -> Iterator[None]:
    """A network whose heads are multiplied at the input of the output projection."""
    size = SIZE.get(family, 8)

    def hook_of(head, factor):
        def hook(module, args):
            given = args[0].clone()
            given[..., head * size : (head + 1) * size] *= factor
            return (given, *args[1:])

        return hook

    with ExitStack() as hooks:
        for (layer, head), factor in factors.items():
            module = projection(network, family, layer)
            hooks.callback(module.register_forward_pre_hook(hook_of(head, factor)).remove)
        yield
