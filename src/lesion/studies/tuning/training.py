"""Trainings of a tuning study: supervised or by reward (GRPO), one cell each, resumable, undone bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from lesion.atomic import keep
from lesion.core.layers import canonical_layers
from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError, UsageError
from lesion.files import SUMMARY_BYTES, read_text
from lesion.models.fingerprint import fingerprint
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.report.values import Number, Value
from lesion.studies.tuning.arms import Arm
from lesion.studies.tuning.data import Data
from lesion.studies.tuning.result import CurvePoint
from lesion.studies.tuning.study import REWARD, TuningStudy
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Item, Task
from lesion.training.examples import Example, examples
from lesion.training.resume import Point
from lesion.training.supervised import Tuning, supervise
from lesion.training.verifiable import Reinforcement, reinforce


@dataclass(frozen=True)
class Completions:
    """Supervised tuning on solved items, `rows` of them in each step.

    Attributes:
        items: how many items are trained on.
        identity: all that decides the trained weights beside model, arm, learning rate and seed, in JSON's types.
    """

    examples: Sequence[Example]
    steps: int
    rows: int

    @property
    def items(self) -> int:  # noqa: D102
        return len(self.examples)

    @property
    def identity(self) -> list[Any]:  # noqa: D102
        return [self.steps, self.rows, [[list(each.prompt), list(each.completion)] for each in self.examples]]

    def train(self, model: Model, arm: Arm, rate: float, seed: int, out: Path, watcher: Watcher) -> list[Point]:
        """Train an arm in place, or go on in `out`; the curve of the training."""
        tuning = Tuning(steps=self.steps, rows=self.rows, learning_rate=rate, seed=seed)
        return supervise(model, self.examples, tuning, out, watcher=watcher, blocks=arm.blocks, rank=arm.rank)


@dataclass(frozen=True)
class Reward:
    """GRPO: in each step `generations` answers to each of `rows` items are drawn; the task's judge gives the reward.

    Attributes:
        task: whose judge it is.
        practised: the items.
        prompts: their token ids; style: of these prompts.
        temperature: at which answers are drawn.
        max_new_tokens: the limit of an answer.
        items, identity: as of `Completions`.
    """

    task: Task
    practised: Sequence[Item]
    prompts: Sequence[tuple[int, ...]]
    style: str
    steps: int
    rows: int
    generations: int
    temperature: float
    max_new_tokens: int

    @property
    def items(self) -> int:  # noqa: D102
        return len(self.practised)

    @property
    def identity(self) -> list[Any]:  # noqa: D102
        drawn = [self.generations, self.temperature, self.max_new_tokens, list(self.task.stop), SAMPLING]
        fitting = [
            [list(prompt), item.gold, list(item.aliases)]
            for prompt, item in zip(self.prompts, self.practised, strict=True)
        ]
        return [REWARD, self.task.name, self.steps, self.rows, drawn, fitting]

    def train(self, model: Model, arm: Arm, rate: float, seed: int, out: Path, watcher: Watcher) -> list[Point]:
        """Train an arm in place, or go on in `out`; the curve of the training."""
        recipe = Reinforcement(
            steps=self.steps,
            prompts=self.rows,
            generations=self.generations,
            temperature=self.temperature,
            learning_rate=rate,
            seed=seed,
            max_new_tokens=self.max_new_tokens,
        )
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
        return Completions([example for _, example in learned], study.steps, study.rows)
    assert study.generations is not None  # filled in by the study, as is the temperature
    assert study.rollout_temperature is not None
    room = study.max_new_tokens or task.max_new_tokens
    # To train on an answer, its last token has to be read too.
    fitting = _fitting(study, data, lambda item: encode(model, task, item, style, room + 1), note)
    return Reward(
        task,
        [item for item, _ in fitting],
        [prompt for _, prompt in fitting],
        style,
        study.steps,
        study.rows,
        study.generations,
        study.rollout_temperature,
        room,
    )


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
    """One training: of an arm, under a learning rate and a seed.

    Attributes:
        seed: of the order of the rows and of `random`.
        digest: of everything that decides the trained weights.
    """

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
    """What a finished training left.

    Attributes:
        digest: of the cell; fingerprint: of its weights.
        seconds: how long it took.
        curve: what was measured on the way, as `supervise` and `reinforce` give it.
    """

    digest: str
    fingerprint: str
    seconds: float
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
        finished = Trained(
            digest=cell.digest,
            fingerprint=changed.fingerprint,
            seconds=points[-1]["seconds"] if points else 0.0,
            curve=points,
        )
        keep(place / CELL, finished.model_dump_json(indent=1))
        yield changed, finished
    finally:
        with torch.no_grad():
            for parameter, value in zip(inside, before, strict=True):
                parameter.copy_(value)


def forget(folder: Path, cell: Cell) -> None:
    """Remove the weights of a cell that has answered everything; its curve stays, and it can be trained again."""
    (folder / CELLS / cell.folder / STATE).unlink(missing_ok=True)
