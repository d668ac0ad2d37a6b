"""What trains: the parameters of some blocks, or low-rank adapters on their linear layers, merged at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.training.blocks import adapter_size, linear_modules, trainable
from lesion.training.in_place import require_trl
from lesion.training.schedule import seed_all

SCALE = 2  # of an adapter's product


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
