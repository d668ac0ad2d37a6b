"""Arms of a tuning study: from names such as `critical` to blocks, ranks and numbers of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lesion.core.layers import parse_layers
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy
from lesion.training.blocks import adapter_size, linear_modules


@dataclass(frozen=True)
class Arm:
    """A choice of what trains.

    Attributes:
        name: as in the study.
        rank: of the adapters on the linear layers of the blocks; None where these train in full.
        parameters: how many numbers train.
    """

    name: str
    blocks: tuple[int, ...]
    rank: int | None
    parameters: int


def by_drops(arms: Sequence[str]) -> bool:
    """Whether the blocks of some arm depend on the drop without each block."""
    return CRITICAL in arms or LEAST in arms


def budget_of(study: TuningStudy, blocks: int) -> int:
    """How many blocks `critical`, `least` and `random` tune: the number, or the share rounded down, at least 1."""
    if isinstance(study.budget, str):
        return max(1, int(blocks * float(study.budget.removesuffix("%")) / 100 + 1e-9))
    if study.budget > blocks:
        raise UsageError(
            f"A budget of {study.budget} blocks is more than {study.model.name} has: {blocks}. Give a smaller --budget,"
            f" or tune --layers all."
        )
    return study.budget


def random_pool(blocks: int, budget: int, critical: Sequence[int]) -> tuple[int, ...]:
    """The blocks that `random` is drawn from: those that are not critical, or all where fewer than the budget are left.

    Otherwise critical blocks would be compared with critical ones: of the 28 pairs of llama-base's blocks, 25 hold a
    critical one.
    """
    others = tuple(block for block in range(blocks) if block not in critical)
    return others if len(others) >= budget else tuple(range(blocks))


def arms_of(
    study: TuningStudy, model: Model, seed: int, drops: Sequence[float] | None, critical: Sequence[int] = ()
) -> list[Arm]:
    """The arms of a study under a seed; only `random`, drawn from `random_pool`, depends on it.

    `critical` are the blocks without which the task loses most, `least` those without which it loses least; of equal
    drops the earlier block is taken. `all-adapter` has adapters on all blocks, of the largest rank that trains no more
    parameters than the critical blocks of the budget have, or where these are unknown the first blocks.

    `drops` has the drop of accuracy without each block, needed for `critical` and `least`; the argument `critical` the
    blocks that the layer study calls critical.
    """
    count = len(model.anatomy.blocks)
    budget = budget_of(study, count)
    every = tuple(range(count))
    # The blocks from the largest drop to the smallest; of equal ones the earlier first.
    order = list(every) if drops is None else sorted(every, key=lambda block: (-drops[block], block))

    def blocks_of(name: str) -> tuple[int, ...]:
        if name == ALL_FULL:
            return every
        if name == RANDOM:
            # A generator of its own, so that the draw does not depend on what else the seed is used for.
            generator = np.random.default_rng([seed, 0x7475])
            drawn = generator.choice(random_pool(count, budget, critical), size=budget, replace=False)
            return tuple(sorted(drawn.tolist()))
        if name not in (CRITICAL, LEAST):
            return tuple(parse_layers(name, count, study.model.name))
        if drops is None or len(drops) != count:
            raise LesionError(f"Which blocks are {name} is only known from the drop without each of the {count}.")
        return tuple(sorted(order[:budget] if name == CRITICAL else order[count - budget :]))

    arms = []
    for name in study.arms:
        if name == ALL_ADAPTER:
            arms.append(_everywhere(model, _parameters(model, order[:budget])))
            continue
        blocks = blocks_of(name)
        rank = None if name == ALL_FULL else study.adapter
        size = _parameters(model, blocks) if rank is None else _adapters(model, rank, blocks)
        arms.append(Arm(name, blocks, rank, size))
    return arms


def _parameters(model: Model, blocks: Sequence[int]) -> int:
    """How many numbers the blocks have, norms and biases with the matrices."""
    return sum({p: p.numel() for b in blocks for p in model.anatomy.blocks[b].module.parameters()}.values())


def _adapters(model: Model, rank: int, blocks: Sequence[int]) -> int:
    try:
        return adapter_size(model, rank, blocks)
    except UsageError as error:
        advice = "Give another --adapter, or none to tune the blocks in full."
        raise UsageError(f"{str(error).rstrip('.')}. {advice}") from None


def _everywhere(model: Model, most: int) -> Arm:
    """Adapters on all blocks, of the largest rank with no more than `most` parameters."""
    modules = linear_modules(model).values()
    largest = min(min(module.weight.shape) for module in modules)  # type: ignore[arg-type]
    rank = max(1, min(largest, most // adapter_size(model, 1)))
    return Arm(ALL_ADAPTER, tuple(range(len(model.anatomy.blocks))), rank, adapter_size(model, rank))
