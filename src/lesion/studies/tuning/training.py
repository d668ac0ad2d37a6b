"""Arms of a tuning study, from names such as `critical` to blocks and ranks, what they train on, and their trainings.

Trainings are by completions or by reward, resumable, and undone bit for bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from lesion.atomic import keep
from lesion.core.layers import canonical_layers, parse_layers
from lesion.core.run import Run, refuse_scored
from lesion.core.study_file import Questions, TaskChoice
from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError, UsageError, nearest
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report.values import Number, Value
from lesion.report.wording import counted
from lesion.studies.ablation.result import read_finished
from lesion.studies.ablation.study import METHOD, Study
from lesion.studies.tuning.report import CurvePoint, Drops
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, REWARD, TuningStudy
from lesion.tasks.catalogue import canonical, draw, find
from lesion.tasks.item_clusters import value
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Item, Task
from lesion.training.blocks import adapter_size, linear_modules
from lesion.training.resume import Point
from lesion.training.supervised import Tuning, examples, supervise
from lesion.training.verifiable import Reinforcement, reinforce

FOLDER = "layers"
"""Where in a study's folder its own ablation lies: a layer study like any other."""


def ablated(study: TuningStudy, model: Model, run: Run) -> Drops:
    """Switch off one block after another on the first items of the draw, in `layers` of the study's folder."""
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
    return read_drops(study, len(model.anatomy.blocks), place).model_copy(update={"source": None})


def read_drops(study: TuningStudy, blocks: int, place: str | Path) -> Drops:
    """The drops of a finished layer study, for this model and task."""
    name = study.model.name
    tasks = next(model.tasks for model in read_finished(place, [name]).models if model.model == name)
    result = next((task for task in tasks if canonical(task.task) == canonical(study.task)), None)
    if result is None:
        known = [task.task for task in tasks]
        raise UsageError(
            f"The layer study in {place} asked {', '.join(known)}, not {study.task}{nearest(study.task, known)}; give"
            " one of this task, or leave --study out."
        )
    off = {cell.layer: cell for cell in result.of("block", 0.0)}
    missing = [layer for layer in range(blocks) if layer not in off]
    if missing:
        raise UsageError(
            f"The layer study in {place} did not switch off every block of {name}: block {missing[0]} is missing."
            " Finish it, or leave --study out."
        )
    return Drops(
        drops=[off[layer].drop.value or 0.0 for layer in range(blocks)],
        critical=[layer for layer in range(blocks) if off[layer].critical],
        items=result.items,
        source=str(place),
    )


@dataclass(frozen=True)
class Arm:
    """A choice of what trains."""

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

    Otherwise critical blocks would be compared with critical ones: 25 of the 28 pairs of llama-base's blocks hold one.
    """
    others = tuple(block for block in range(blocks) if block not in critical)
    return others if len(others) >= budget else tuple(range(blocks))


def arms_of(study: TuningStudy, model: Model, seed: int, known: Drops | None) -> list[Arm]:
    """The arms of a study under a seed; only `random`, drawn from `random_pool`, depends on it.

    Of equal drops the earlier block is taken. `all-adapter` has adapters on all blocks, of the largest rank that trains
    no more parameters than the critical blocks of the budget have, or where these are unknown the first blocks.

    Args:
        known: what every block is worth, which `critical` and `least` need.
    """
    count = len(model.anatomy.blocks)
    budget = budget_of(study, count)
    every = tuple(range(count))
    worth = known or Drops(drops=[0.0] * count, critical=(), items=0, source=None)
    order = sorted(every, key=lambda block: (-worth.drops[block], block))

    def blocks_of(name: str) -> tuple[int, ...]:
        if name in (ALL_FULL, ALL_ADAPTER):
            return every
        if name == RANDOM:
            # A generator of its own, so that the draw does not depend on what else the seed is used for.
            generator = np.random.default_rng([seed, 0x7475])
            drawn = generator.choice(random_pool(count, budget, worth.critical), size=budget, replace=False)
            return tuple(sorted(drawn.tolist()))
        if name not in (CRITICAL, LEAST):
            return tuple(parse_layers(name, count, study.model.name))
        return tuple(sorted(order[:budget] if name == CRITICAL else order[count - budget :]))

    arms = []
    for name in study.arms:
        rank = {ALL_FULL: None}.get(name, study.adapter)
        if name == ALL_ADAPTER:
            largest = min(min(module.weight.shape) for module in linear_modules(model).values())  # type: ignore[arg-type]
            rank = max(1, min(largest, _parameters(model, order[:budget]) // adapter_size(model, 1)))
        blocks = blocks_of(name)
        arms.append(Arm(name, blocks, rank, _parameters(model, blocks, rank)))
    return arms


def _parameters(model: Model, blocks: Sequence[int], rank: int | None = None) -> int:
    """How many numbers the blocks have, norms and biases with the matrices, or adapters on them."""
    if rank is None:
        return sum({p: p.numel() for b in blocks for p in model.anatomy.blocks[b].module.parameters()}.values())
    try:
        return adapter_size(model, rank, blocks)
    except UsageError as error:
        advice = "Give another --adapter, or none to tune the blocks in full."
        raise UsageError(f"{str(error).rstrip('.')}. {advice}") from None


TRAINABLE = (
    *("primer:arithmetic", "primer:reading", "arithmetic:add", "arithmetic:subtract", "arithmetic:multiply"),
    *("arithmetic:compare", "arithmetic:copy", "copying", "gsm8k", "triviaqa", "nq_open", "race", "mmlu"),
)
"""Tasks with training items: a training split, or of generated tasks the half of the items that is not asked."""


@dataclass(frozen=True)
class Data:
    """Items, none of them in two parts: trained on, choosing the rate, and testing; the studied task comes first."""

    questions: Questions
    tasks: dict[TaskChoice, Task]
    train: tuple[Item, ...]
    validation: tuple[Item, ...]
    test: dict[TaskChoice, list[Item]]

    @property
    def choice(self) -> TaskChoice:
        """The studied task, as the store names it."""
        return next(iter(self.tasks))

    def every_item(self) -> dict[TaskChoice, list[Item]]:
        """Every item that is evaluated at some point, by task."""
        return {**self.test, self.choice: [*self.validation, *self.test[self.choice]]}


def prepare(study: TuningStudy) -> Data:
    """Draw every item of a study; test items are those behind the first `ablation_items` of the task's draw."""
    questions = study.questions()
    tasks = {choice: find(choice.name) for choice in questions.tasks}
    first, *controls = tasks
    task = tasks[first]
    train, validation = _training(study, task)
    drawn = draw(task, None, study.seed)
    wanted = study.ablation_items + study.items
    if len(drawn) < wanted:
        raise UsageError(
            f"{study.task} has {len(drawn):,} items, and {wanted:,} are needed: {study.ablation_items:,} to find the"
            f" critical blocks on and {study.items:,} to test. Ask for fewer with --items (or --ablation-items)."
        )
    test = {first: drawn[study.ablation_items : wanted]}
    refuse_scored({choice: tasks[choice] for choice in controls}, "; give another --control.")
    for choice in controls:
        test[choice] = draw(tasks[choice], None, study.seed)[: study.control_items]
    return Data(questions, tasks, train, validation, test)


def _training(study: TuningStudy, task: Task) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """What is trained on and what is held out of the training split, in seeded order."""
    if task.kind not in ("generate", "choose"):
        raise UsageError(
            f"{study.task} has no answers to learn, its items are {'read' if task.kind == 'score' else 'contrasts'};"
            f" tune on a task that is answered, such as {', '.join(TRAINABLE)}."
        )
    if study.reinforced and task.kind != "generate":
        raise UsageError(
            f"{study.task} has no answers to draw and reward, its items are choices; train by completions (leave --by"
            " reward out), or choose a task whose answers are generated, such as arithmetic:add."
        )
    pool = getattr(task, "calibration", tuple)
    evaluated = list(task.load())
    # Some tasks have nothing else to observe a model on than what is evaluated: that must never be trained on.
    ids, texts = {item.id for item in evaluated}, {value(task.name, item) for item in evaluated}
    items = [item for item in pool() if item.id not in ids and value(task.name, item) not in texts]
    if not items:
        raise UsageError(
            f"{study.task} has no training items apart from those that it asks; these have: {', '.join(TRAINABLE)}."
        )
    if len(items) <= study.validation_items:
        raise UsageError(
            f"{study.task} has {len(items):,} training items, and {study.validation_items:,} would be held out to"
            f" choose the learning rate; hold out fewer with --validation-items."
        )
    items.sort(key=lambda item: hashlib.sha256(f"{study.seed}:{item.id}".encode("utf-8", "surrogatepass")).digest())
    return tuple(items[study.validation_items :]), tuple(items[: study.validation_items])


@dataclass(frozen=True)
class Training:
    """How every arm of a study is trained, on the same items in the same order.

    Attributes:
        identity: all that decides the trained weights beside model, arm, learning rate and seed, in JSON's types.
        train: of a model in place, or on in a folder, under a learning rate and a seed, what keywords say; the curve.
    """

    items: int
    identity: list[Any]
    train: Callable[..., list[Point]]


def training_of(study: TuningStudy, model: Model, data: Data, note: Callable[[str], None]) -> Training:
    """How a study trains a model; items that do not fit the context are left out, which is noted."""
    task = data.tasks[data.choice]
    style = resolve(model, task, study.styled())
    if not study.reinforced:
        learned = _fitting(study, data, lambda item: examples(model, task, [item], style)[0], note)
        solved = [example for _, example in learned]
        texts = [[list(each.prompt), list(each.completion)] for each in solved]

        def completions(model: Model, rate: float, seed: int, out: Path, **what: Any) -> list[Point]:
            recipe = Tuning(study.steps, study.rows, learning_rate=rate, seed=seed)
            return supervise(model, solved, recipe, out, **what)

        return Training(len(solved), [study.steps, study.rows, texts], completions)
    assert study.generations is not None  # filled in by the study, as is the temperature
    assert study.rollout_temperature is not None
    room = study.max_new_tokens or task.max_new_tokens
    # To train on an answer, its last token has to be read too.
    fitting = _fitting(study, data, lambda item: encode(model, task, item, style, room + 1), note)
    drawn = study.steps, study.rows, study.generations, study.rollout_temperature
    pairs = [[list(prompt), item.gold, list(item.aliases)] for item, prompt in fitting]

    def reward(model: Model, rate: float, seed: int, out: Path, **what: Any) -> list[Point]:
        recipe = Reinforcement(*drawn, max_new_tokens=room, learning_rate=rate, seed=seed)
        return reinforce(model, task, [item for item, _ in fitting], recipe, out, style=style, **what)

    steps, prompts, *of_answers = drawn
    rule = [*of_answers, room, list(task.stop), SAMPLING]
    return Training(len(fitting), [REWARD, task.name, steps, prompts, rule, pairs], reward)


def _fitting(
    study: TuningStudy, data: Data, encoded: Callable[[Item], Any], note: Callable[[str], None]
) -> list[tuple[Item, Any]]:
    """The first training items that can be encoded, each with what it is encoded as."""
    wanted = study.steps * study.rows
    fit: list[tuple[Item, Any]] = []
    unfit: list[str] = []
    for item in data.train:
        if len(fit) == wanted:
            break
        try:
            fit.append((item, encoded(item)))
        except UsageError:
            raise
        except LesionError as error:
            unfit.append(str(error))
    if not fit:
        raise LesionError(f"No training item of {study.task} can be learned. The first: {unfit[0]}")
    if unfit:
        note(f"{len(unfit):,} training items were left out. The first: {unfit[0]}")
    return fit


CELLS, CELL, STATE = "cells", "cell.json", "resume.safetensors"


@dataclass(frozen=True)
class Cell:
    """One training, of an arm under a learning rate and a seed; `digest` is of all that decides the trained weights."""

    arm: Arm
    rate: float
    seed: int
    digest: str

    @property
    def folder(self) -> str:
        """Its folder in `cells`. Two arms that tune the same blocks share one."""
        blocks = canonical_layers(self.arm.blocks).replace(",", "+")
        short = blocks if len(blocks) <= 40 else f"{len(self.arm.blocks)}-blocks"
        adapter = "" if self.arm.rank is None else f"-rank{self.arm.rank}"
        return f"blocks{short}{adapter}-rate{self.rate:g}-seed{self.seed}-{self.digest[:8]}"


class Trained(Value):
    """What a finished training left: the digest of its cell, the fingerprint of its weights, what was measured."""

    digest: str
    fingerprint: str
    curve: tuple[dict[str, Number], ...]

    @property
    def points(self) -> list[CurvePoint]:
        """The curve with what is drawn of it."""
        names = CurvePoint.model_fields
        return [CurvePoint(**{name: point[name] for name in names if name in point}) for point in self.curve]


def cell_of(arm: Arm, rate: float, seed: int, model: Model, training: Training) -> Cell:
    """The cell of an arm under a rate and a seed, for this model and this training."""
    parts = [model.fingerprint, list(arm.blocks), arm.rank, rate, seed, *training.identity]
    return Cell(arm, rate, seed, hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest())


def trained(folder: Path, cell: Cell) -> Trained | None:
    """What is known of a cell in a study's folder; None: it is not trained yet, or its note is damaged."""
    try:
        text = read_text(folder / CELLS / cell.folder / CELL, limit=SUMMARY_BYTES)
        stored = Trained.model_validate_json(text)
    except (LesionError, ValidationError):
        return None
    return stored if stored.digest == cell.digest else None


@contextmanager
def tuned(
    model: Model, cell: Cell, training: Training, folder: Path, watcher: Watcher, name: str
) -> Iterator[tuple[Model, Trained]]:
    """The model with the weights of a cell, trained here or before; afterwards it has its own again, bit for bit."""
    arm, place = cell.arm, folder / CELLS / cell.folder
    inside = [p for block in arm.blocks for p in model.anatomy.blocks[block].module.parameters()]
    before = [p.detach().clone() for p in inside]
    try:
        # All cells share the model, whose name would not tell one training from another.
        named = replace(model, name=name)
        what: dict[str, Any] = {"blocks": arm.blocks, "rank": arm.rank, "watcher": watcher}
        points = training.train(named, cell.rate, cell.seed, place, **what)
        changed = replace(model, fingerprint=fingerprint(model.network), origin=None)
        finished = Trained(digest=cell.digest, fingerprint=changed.fingerprint, curve=points)
        keep(place / CELL, finished.model_dump_json(indent=1))
        yield changed, finished
    finally:
        with torch.no_grad():
            for parameter, value in zip(inside, before, strict=True):
                parameter.copy_(value)


def forget(folder: Path, cell: Cell) -> None:
    """Remove the weights of a cell that has answered everything; its curve stays."""
    (folder / CELLS / cell.folder / STATE).unlink(missing_ok=True)
