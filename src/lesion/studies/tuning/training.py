"""The two ways to train on items: supervised completions, and reinforcement with a verifiable reward (GRPO)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lesion.engines.sampling import SAMPLING
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.progress import Watcher
from lesion.studies.tuning.arms import Arm
from lesion.studies.tuning.data import Data
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
