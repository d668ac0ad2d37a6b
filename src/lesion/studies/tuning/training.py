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
from lesion.studies.ablation.result import AblationSummary, read_finished
from lesion.studies.ablation.study import METHOD, Study
from lesion.studies.tuning.result import CurvePoint, Drops
from lesion.studies.tuning.study import ALL_ADAPTER, ALL_FULL, CRITICAL, LEAST, RANDOM, REWARD, TuningStudy
from lesion.tasks.catalogue import canonical, draw, find
from lesion.tasks.item_clusters import value
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Item, Task
from lesion.training.blocks import adapter_size, linear_modules
from lesion.training.resume import Point
from lesion.training.supervised import Example, Tuning, examples, supervise
from lesion.training.verifiable import Reinforcement, reinforce

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
    name = study.model.name
    tasks = next(model.tasks for model in summary.models if model.model == name)
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
        source=source,
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


TRAINABLE = (
    *("primer:arithmetic", "primer:reading", "arithmetic:add", "arithmetic:subtract", "arithmetic:multiply"),
    *("arithmetic:compare", "arithmetic:copy", "copying", "gsm8k", "triviaqa", "nq_open", "race", "mmlu"),
)
"""Tasks with training items: a training split, or of generated tasks the half of the items that is not asked."""


@dataclass(frozen=True)
class Data:
    """Items, none of them in two parts: trained on, choosing the learning rate, and of every task testing.

    The studied task comes first among `tasks`.
    """

    questions: Questions
    tasks: dict[TaskChoice, Task]
    train: tuple[Item, ...]
    validation: tuple[Item, ...]
    test: dict[TaskChoice, list[Item]]

    @property
    def choice(self) -> TaskChoice:
        """The studied task, as the store names it."""
        return next(iter(self.tasks))

    @property
    def task(self) -> Task:
        """The studied task."""
        return self.tasks[self.choice]

    def every_item(self) -> dict[TaskChoice, list[Item]]:
        """Every item that is evaluated at some point, by task."""
        return {**self.test, self.choice: [*self.validation, *self.test[self.choice]]}


def prepare(study: TuningStudy) -> Data:
    """Draw every item of a study.

    The first `ablation_items` of the task's draw are left to the ablation, and test items are the next ones.
    """
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
class Completions:
    """Supervised tuning on solved items, `rows` of them in each step."""

    examples: Sequence[Example]
    recipe: Tuning

    @property
    def items(self) -> int:
        """How many items are trained on."""
        return len(self.examples)

    @property
    def identity(self) -> list[Any]:
        """All that decides the trained weights beside model, arm, learning rate and seed, in JSON's types."""
        texts = [[list(each.prompt), list(each.completion)] for each in self.examples]
        return [self.recipe.steps, self.recipe.rows, texts]

    def train(self, model: Model, arm: Arm, rate: float, seed: int, out: Path, watcher: Watcher) -> list[Point]:
        """Train an arm in place, or go on in `out`; the curve of the training."""
        recipe = replace(self.recipe, learning_rate=rate, seed=seed)
        return supervise(model, self.examples, recipe, out, watcher=watcher, blocks=arm.blocks, rank=arm.rank)


@dataclass(frozen=True)
class Reward:
    """GRPO: answers to items are drawn in each step; the task's judge gives the reward. Else as `Completions`."""

    task: Task
    practised: Sequence[Item]
    prompts: Sequence[tuple[int, ...]]
    style: str
    recipe: Reinforcement

    @property
    def items(self) -> int:
        """How many items are trained on."""
        return len(self.practised)

    @property
    def identity(self) -> list[Any]:
        """As of `Completions`."""
        recipe, pairs = self.recipe, zip(self.prompts, self.practised, strict=True)
        drawn = [recipe.generations, recipe.temperature, recipe.max_new_tokens, list(self.task.stop), SAMPLING]
        fitting = [[list(prompt), item.gold, list(item.aliases)] for prompt, item in pairs]
        return [REWARD, self.task.name, recipe.steps, recipe.prompts, drawn, fitting]

    def train(self, model: Model, arm: Arm, rate: float, seed: int, out: Path, watcher: Watcher) -> list[Point]:
        """As of `Completions`."""
        recipe = replace(self.recipe, learning_rate=rate, seed=seed)
        return reinforce(
            model, self.task, self.practised, recipe, out, watcher=watcher, style=self.style, blocks=arm.blocks,
            rank=arm.rank,
        )  # fmt: skip


Training = Completions | Reward
"""How every arm of a study is trained, on the same items in the same order."""


def training_of(study: TuningStudy, model: Model, data: Data, note: Callable[[str], None]) -> Training:
    """How a study trains a model: on as many training items as its steps can use.

    Items that do not fit the context are left out, which is noted.
    """
    task, style = data.task, resolve(model, data.task, study.styled())
    if not study.reinforced:
        learned = _fitting(study, data, lambda item: examples(model, task, [item], style)[0], note)
        return Completions([example for _, example in learned], Tuning(study.steps, study.rows))
    assert study.generations is not None  # filled in by the study, as is the temperature
    assert study.rollout_temperature is not None
    room = study.max_new_tokens or task.max_new_tokens
    # To train on an answer, its last token has to be read too.
    fitting = _fitting(study, data, lambda item: encode(model, task, item, style, room + 1), note)
    recipe = Reinforcement(study.steps, study.rows, study.generations, study.rollout_temperature, max_new_tokens=room)
    return Reward(task, [item for item, _ in fitting], [prompt for _, prompt in fitting], style, recipe)


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
        return [CurvePoint.model_validate({name: point.get(name) for name in CurvePoint.model_fields})
                for point in self.curve]  # fmt: skip


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
    """The model with the weights of a cell, trained here or taken from where the training left them.

    Afterwards, whatever happened, the network has its own weights again, bit for bit.

    The model is in float32, and nothing else may use its network meanwhile. The watcher is told of the steps of the
    training, under this name.
    """
    arm, place = cell.arm, folder / CELLS / cell.folder
    inside = [p for block in arm.blocks for p in model.anatomy.blocks[block].module.parameters()]
    before = [p.detach().clone() for p in inside]
    try:
        # All cells share the model, whose name would not tell one training from another.
        named = replace(model, name=name)
        points = training.train(named, arm, cell.rate, cell.seed, place, watcher)
        changed = replace(model, fingerprint=fingerprint(model.network), origin=None)
        finished = Trained(digest=cell.digest, fingerprint=changed.fingerprint, curve=points)
        keep(place / CELL, finished.model_dump_json(indent=1))
        yield changed, finished
    finally:
        with torch.no_grad():
            for parameter, value in zip(inside, before, strict=True):
                parameter.copy_(value)


def forget(folder: Path, cell: Cell) -> None:
    """Remove the weights of a cell that has answered everything; its curve stays, and it can be trained again."""
    (folder / CELLS / cell.folder / STATE).unlink(missing_ok=True)
