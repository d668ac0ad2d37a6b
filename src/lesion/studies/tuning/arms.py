"""Arms of a tuning study: how much every block matters, and from names such as `critical` to blocks and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lesion.core.layers import parse_layers
from lesion.core.run import Run
from lesion.errors import LesionError, UsageError, nearest
from lesion.models.load import Model
from lesion.report.wording import counted
from lesion.studies.ablation.result import AblationSummary, read_finished
from lesion.studies.ablation.study import METHOD, Study
from lesion.studies.tuning.result import Drops
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, TuningStudy
from lesion.tasks.catalogue import canonical
from lesion.training.blocks import adapter_size, linear_modules

FOLDER = "layers"
"""Where in a study's folder its own ablation lies: a layer study like any other."""


def ablated(study: TuningStudy, model: Model, run: Run) -> Drops:
    """Switch off one block after another on a few items, in `layers` of the study's folder; what is there is kept.

    The items are the first of the draw; test items are never among them (`tuning_data.prepare`).
    """
    layers = Study.make(
        name="layers",
        models=[study.model.model_dump(exclude_none=True)],
        tasks=[study.task],
        items=study.ablation_items,
        dtype="float32",
        **study.answering,
    )
    place = run.folder / FOLDER
    run.watcher.note(
        f"Which blocks are critical is found by switching off each of {len(model.anatomy.blocks)} on"
        f" {counted(study.ablation_items, 'item')}, none of them a test item; it is kept in {place}."
    )
    models = {study.model.name: model}
    outcome = METHOD.run(layers, place, watcher=run.watcher, models=models, make_engine=run.make_engine)
    outcome.summary.write(place)
    return _drops(outcome.summary, study, len(model.anatomy.blocks), place, None)


def read_drops(study: TuningStudy, blocks: int) -> Drops:
    """The drops of a layer study that was run before (`layers_from`), for this model and task."""
    source = str(study.layers_from)
    return _drops(read_finished(source, [study.model.name]), study, blocks, Path(source), source)


def _drops(summary: AblationSummary, study: TuningStudy, blocks: int, place: Path, source: str | None) -> Drops:
    name, which = study.model.name, f"The layer study in {place}"
    tasks = next(model.tasks for model in summary.models if model.model == name)
    result = next((task for task in tasks if canonical(task.task) == canonical(study.task)), None)
    if result is None:
        known = [task.task for task in tasks]
        raise UsageError(
            f"{which} asked {', '.join(known)}, not {study.task}{nearest(study.task, known)}; give one of this task, or"
            f" leave --study out."
        )
    off = {cell.layer: cell for cell in result.of("block", 0.0)}
    missing = [layer for layer in range(blocks) if layer not in off]
    if missing:
        raise UsageError(
            f"{which} did not switch off every block of {name}: block {missing[0]} is missing. Finish it, or leave"
            f" --study out."
        )
    return Drops(
        drops=[off[layer].drop.value or 0.0 for layer in range(blocks)],
        critical=[layer for layer in range(blocks) if off[layer].critical],
        items=result.items,
        source=source,
    )


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
