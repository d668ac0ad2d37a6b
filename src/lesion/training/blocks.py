"""What trains: the parameters of some blocks, or low-rank adapters on their linear layers, merged at the end.

Afterwards a network is as it was, but for its weights.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from lesion.engines.transformers.memory import ran_out
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.training.schedule import seed_all

# What TRL writes into a configuration in passing.
_SETTINGS = ("pad_token_id", "output_router_logits", "router_aux_loss_coef", "use_cache")


@contextmanager
def trained_in_place(model: Model) -> Iterator[None]:
    """Give a network to a training: afterwards it is in eval mode and without gradients, whatever happened.

    Also as before are what trainers leave on a network or its configuration, and the state of the random number
    generators (Python's, NumPy's and PyTorch's). Only the change of the weights stays.
    """
    network = model.network
    if any(p.dtype != torch.float32 for p in network.parameters() if p.is_floating_point()):
        raise LesionError(
            f"{model.name} is in half precision, in which small steps of a training are lost; load it with"
            " dtype='float32'."
        )
    if model.device.type == "cuda" and torch.cuda.device_count() > 1:
        raise LesionError("Trainings use one accelerator; show only that one with CUDA_VISIBLE_DEVICES.")
    own = dict(vars(network))
    configuration = network.config.get_text_config()
    settings = {name: getattr(configuration, name) for name in _SETTINGS if hasattr(configuration, name)}
    generation = copy.deepcopy(network.generation_config)
    luck = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            yield
    finally:
        vars(network).clear()
        vars(network).update(own)
        for name, value in settings.items():
            setattr(configuration, name, value)
        network.generation_config = generation
        network.zero_grad(set_to_none=True)
        network.eval().requires_grad_(False)
        random.setstate(luck[0])
        np.random.set_state(luck[1])


def require_trl() -> None:
    """Refuse to train without TRL and PEFT."""
    try:
        import peft  # noqa: F401
        import trl  # noqa: F401
    except ImportError as error:
        raise LesionError(
            f"Training needs TRL and PEFT ({error}); install them with: pip install 'lesion[labs]'"
        ) from error


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Say what to do where memory runs out in a step of `what`, its size as the person set it."""
    try:
        yield
    except RuntimeError as error:
        if not ran_out(error):
            raise
        raise LesionError(f"A step of {what} does not fit into memory; train with fewer.") from error


def chosen(model: Model, blocks: Collection[int] | None) -> tuple[int, ...]:
    """The indices of blocks in order, each once; of all blocks for None."""
    if blocks is None:
        return tuple(range(len(model.anatomy.blocks)))
    if not blocks:
        raise UsageError(f"No block was chosen to train; {model.name} has 0 to {len(model.anatomy.blocks) - 1}.")
    return tuple(model.anatomy.block(index).index for index in sorted(set(blocks)))


def trainable(model: Model, blocks: Collection[int] | None = None) -> int:
    """Let gradients flow to the parameters of some blocks, norms and biases too, or (None) to all; how many numbers
    train.
    """
    network = model.network
    if blocks is None:
        network.requires_grad_(True)
    else:
        indices = chosen(model, blocks)
        inside = {p for index in indices for p in model.anatomy.blocks[index].module.parameters()}
        prefixes = tuple(f"{_path(network, model.anatomy.blocks[index].module)}." for index in indices)
        for name, parameter in network.named_parameters(remove_duplicate=False):
            if parameter in inside and not name.startswith(prefixes):
                raise LesionError(
                    f"A weight of the chosen blocks of {model.name} is also {name}: it cannot be trained while that is"
                    " frozen. Choose all the blocks that share it, or train all parameters."
                )
        network.requires_grad_(False)
        for parameter in inside:
            parameter.requires_grad_(True)
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def linear_modules(model: Model, blocks: Collection[int] | None = None) -> dict[str, nn.Module]:
    """The modules of some blocks that hold one matrix each and take an adapter, by their names in the network."""
    modules: dict[str, nn.Module] = {}
    for index in chosen(model, blocks):
        block = model.anatomy.blocks[index]
        prefix = _path(model.network, block.module)
        here = {f"{prefix}.{n}": m for n, m in block.module.named_modules() if isinstance(m, nn.Linear | Conv1D)}
        if not all(matrix.called for matrix in block.matrices.values()) or _has_state_space(block.module):
            raise LesionError(
                f"Block {index} of {model.name} has a state-space layer, whose code takes weights past any adapter;"
                " train the blocks themselves, without a rank (--adapter), or choose other blocks."
            )
        weights = {id(module.weight) for module in here.values()}
        for matrix in block.matrices.values():
            if id(getattr(matrix.module, matrix.attribute)) not in weights:
                raise LesionError(
                    f"{matrix.address} of {model.name} is no linear layer of its own, so no adapter can be put on it;"
                    " train the blocks themselves, without a rank."
                )
        modules |= here
    return modules


def _has_state_space(block: nn.Module) -> bool:
    """Whether a block has a mixer of Mamba's kind, by the parameters that all of them have: its kernels are given the
    weight of the last matrix, which PEFT refuses for some types, and training would not reach for the others.
    """
    return any({"A_log", "D"} <= dict(part.named_parameters(recurse=False)).keys() for part in block.modules())


def adapter_size(model: Model, rank: int, blocks: Collection[int] | None = None) -> int:
    """How many numbers a low-rank adapter of all linear layers of some blocks trains: Σ rank · (in + out)."""
    weights = (p for module in linear_modules(model, blocks).values() for p in module.parameters())
    shapes = [weight.shape for weight in weights if weight.dim() == 2]
    largest = min(min(shape) for shape in shapes)
    if not 1 <= rank <= largest:
        raise UsageError(f"An adapter of {model.name} has a rank of 1 to {largest}, not {rank}.")
    return rank * sum(sum(shape) for shape in shapes)


def _path(network: nn.Module, module: nn.Module) -> str:
    return next(name for name, part in network.named_modules() if part is module)


SCALE = 2
"""Of an adapter's product."""


@contextmanager
def training(model: Model, blocks: Sequence[int] | None, rank: int | None, seed: int) -> Iterator[None]:
    """Let gradients flow to what trains: some blocks (None: all parameters), or with a rank adapters on their layers.

    Adapters are LoRA (Hu et al. 2022): of all linear layers of the blocks (None: of all blocks), the product scaled by
    2, without dropout. They are merged into the weights at the end, and taken off after an error.

    Args:
        seed: of an adapter's first weights.
    """
    if rank is None:
        trainable(model, blocks)
        yield
        return
    adapter_size(model, rank, blocks)
    require_trl()
    from peft import LoraConfig, LoraModel

    modules = linear_modules(model, blocks)
    seed_all(seed, -1)
    configuration = LoraConfig(
        r=rank,
        lora_alpha=SCALE * rank,
        lora_dropout=0.0,
        target_modules=list(modules),
        fan_in_fan_out=any(not isinstance(module, nn.Linear) for module in modules.values()),
    )
    with quiet():
        adapter = LoraModel(model.network, configuration, "default")
    try:
        yield
    except BaseException:
        adapter.unload()
        raise
    adapter.merge_and_unload()
