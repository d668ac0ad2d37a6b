"""Reinforcement with a verifiable reward: GRPO through TRL (`trainers.py`); the task's judge says what is right.

Group relative policy optimisation (Shao et al. 2024): several answers to each prompt are drawn from the model, an
answer's advantage is its reward minus the mean of its group, over the group's standard deviation. The loss is TRL's
default, that of DAPO (Yu et al. 2025): the mean over all tokens of a step. Each drawn answer is used for one step, so
the ratio of probabilities is 1 and nothing is clipped. There is no reference model. An answer that hits the token limit
stays in, as the judge finds it: to stop in time is part of what is learned.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lesion.engines.engine import Decoding, Request
from lesion.engines.sampling import SAMPLING
from lesion.engines.transformers.engine import TransformersEngine
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.progress import Silent, Watcher
from lesion.tasks.judges.judge import UNREAD
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.style import opening, parted
from lesion.tasks.task import Answer, Item, Task, Verdict
from lesion.training.blocks import enough_memory
from lesion.training.resume import Point, Progress, curve, digest, resumed
from lesion.training.schedule import order, schedule_of
from lesion.training.supervised import end_token

EVERY = 10  # steps between two states
WARMUP = 0.05  # share of the steps over which the learning rate rises; then it stays
PATIENCE = 8  # steps after which a training that had nothing to learn ends


@dataclass(frozen=True)
class Reinforcement:
    """How a model is reinforced: in each of the `steps` of AdamW, `generations` answers to each of so many prompts.

    Args:
        temperature: at which answers are drawn, and for which they are made likelier.
        learning_rate: it rises over the first twentieth of the steps and stays.
        seed: of the order of the items and of the draws.
        max_new_tokens: the limit of an answer; None for the task's own.
    """

    steps: int
    prompts: int = 16
    generations: int = 8
    temperature: float = 1.0
    learning_rate: float = 1e-4
    seed: int = 0
    max_new_tokens: int | None = None


def reinforce(
    model: Model,
    task: Task,
    items: Sequence[Item],
    recipe: Reinforcement,
    out: Path,
    *,
    watcher: Watcher | None = None,
    style: str | None = None,
    blocks: Collection[int] | None = None,
    rank: int | None = None,
    every: int = EVERY,
) -> list[Point]:
    """Reinforce what the task's judge finds right, in place, or go on where an interrupted training in `out` stopped.

    What `supervise` says of the network, of its fingerprint and of interruptions holds here too.

    Args:
        task: of kind `generate`; its judge gives the reward, 1 for right and 0 for wrong.
        items: those to practise on, each once before any comes again; never those of the later evaluation.
        style: of the prompts; None for the task's own.
        blocks, rank: what trains, as in `supervise`; by default all parameters.
        every: steps between two states that are written.

    Returns:
        The curve, at most a hundred points, each the mean over the stretch since the last: `step`, `reward`,
            `reward_std` (over all answers of a step), `mixed` (the share of prompts with right and wrong answers, from
            which alone something is learned), `length` (tokens of an answer, the end included), `truncated` (share of
            answers that hit the limit), `unread` (share of answers in which the judge found none), `loss`, `rate` (the
            learning rate) and `seconds` (so far).
    """
    if task.kind != "generate":
        raise UsageError(f"GRPO needs answers that the model generates; those of {task.name} are of kind {task.kind}.")
    if not items:
        raise UsageError(f"There are no items of {task.name} to practise on.")
    watcher = watcher or Silent()
    room = task.max_new_tokens if recipe.max_new_tokens is None else recipe.max_new_tokens
    # To train on an answer, its last token has to be read too: one position more than to say it.
    prompts = [encode(model, task, item, style, room + 1) for item in items]
    end_token(model)
    identity = {
        "training": "reinforcement",
        "sampling": SAMPLING,
        "task": task.name,
        "prompt style": resolve(model, task, style),
        "items": digest([[*prompt, item.gold, *item.aliases] for prompt, item in zip(prompts, items, strict=True)]),
    }
    with resumed(model, recipe, identity, out, blocks, rank, watcher) as progress:
        if progress.step < recipe.steps:
            asker = _Asker(model, task, items, prompts, recipe, room, progress)
            with quiet(), enough_memory(f"{recipe.prompts} prompts × {recipe.generations} generations"):
                _train(model, asker, recipe, progress, watcher, every)
    return curve(progress.points)


def _train(
    model: Model, asker: _Asker, recipe: Reinforcement, progress: Progress, watcher: Watcher, every: int
) -> None:
    from datasets import Dataset
    from trl import GRPOConfig

    from lesion.training.trainers import Reinforced, Step, prepare, settings

    rows = recipe.prompts * recipe.generations
    positions = order(len(asker.items), recipe.prompts, recipe.steps, recipe.seed, progress.step)
    (optimizer,) = progress.optimizers
    tokenizer = model.tokenizer if model.tokenizer.pad_token is not None else copy.deepcopy(model.tokenizer)
    trainer = Reinforced(
        answer=asker.answer,
        model=model.network,
        reward_funcs=asker.reward,
        args=GRPOConfig(
            **settings(model, progress.path.parent, rows, recipe.steps - progress.step),
            num_generations=recipe.generations,
            steps_per_generation=1,
            num_iterations=1,
            max_completion_length=asker.room,
            temperature=recipe.temperature,
            beta=0.0,
            loss_type="dapo",
            scale_rewards="group",
            mask_truncated_completions=False,
        ),
        # TRL asks for texts; these are the places of the items.
        train_dataset=Dataset.from_dict({"prompt": [str(position) for position in positions]}),
        processing_class=tokenizer,
        optimizers=(optimizer, schedule_of(optimizer, progress.step, recipe.steps, WARMUP, falls=False)),
    )

    def measured() -> Mapping[str, float]:
        return {**asker.point, **trainer.measured()}

    prepare(trainer, Step(progress, recipe.seed, measured, every, watcher, asker.refuse_nothing_to_learn))
    trainer.train()


@dataclass(eq=False)
class _Asker:
    """Asks the model for answers to the items by their places, and has them judged."""

    model: Model
    task: Task
    items: Sequence[Item]
    prompts: Sequence[tuple[int, ...]]
    recipe: Reinforcement
    room: int
    progress: Progress
    point: Point = field(default_factory=dict)
    _answers: list[tuple[Item, Answer]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Adapters stand in the network while it is trained; nothing is edited, so that its build does not matter.
        model = replace(self.model, anatomy=replace(self.model.anatomy, build=None))
        self.engine = TransformersEngine(model, self.recipe.prompts * self.recipe.generations)

    def answer(self, texts: list[str]) -> tuple[list[list[int]], list[list[int]], list[str]]:
        """Token ids of prompts and answers, and the answers as text; draws depend on seed, step and row alone."""
        places = [int(text) for text in texts]
        requests = [
            Request(str(row), self.prompts[place], decoding=self._decoding(row)) for row, place in enumerate(places)
        ]
        responses = {int(response.key): response for response in self.engine.answer(requests)}
        in_order = [responses[row] for row in range(len(places))]
        self._answers = [
            (self.items[place], self._whole(place, each.answer)) for place, each in zip(places, in_order, strict=True)
        ]
        for item, answer in self._answers:
            if answer.finish == "nonfinite":
                raise LesionError(
                    f"The model's logits on item {item.id} are not finite any more; train again with a smaller learning"
                    " rate, into another folder."
                )
        prompts = [list(self.prompts[place]) for place in places]
        return prompts, [list(each.token_ids) for each in in_order], [answer.text for _, answer in self._answers]

    def reward(self, completions: list[str], **_: Any) -> list[float]:
        """1 for a final answer that the judge finds right, else 0; also where the thinking was never closed."""
        verdicts = [self._judged(item, answer) for item, answer in self._answers]
        rewards = np.array([float(verdict.correct) for verdict in verdicts])
        groups = rewards.reshape(-1, self.recipe.generations)
        answers = [answer for _, answer in self._answers]
        self.point = {
            "reward": float(rewards.mean()),
            "reward_std": float(rewards.std()),
            "mixed": float((groups.std(1) > 0).mean()),
            "length": float(np.mean([answer.tokens for answer in answers])),
            "truncated": float(np.mean([answer.finish == "length" for answer in answers])),
            "unread": float(np.mean([verdict.parsed is None for verdict in verdicts])),
        }
        return rewards.tolist()

    def _whole(self, place: int, answer: Answer) -> Answer:
        """An answer with the tag that its prompt ends in, so that trace and final answer can be told apart."""
        return replace(answer, text=opening(self.model.tokenizer, self.prompts[place]) + answer.text)

    def _judged(self, item: Item, answer: Answer) -> Verdict:
        _, final = parted(answer.text)
        return UNREAD if final is None else self.task.judge(item, replace(answer, text=final))

    def refuse_nothing_to_learn(self, progress: Progress) -> None:
        """End a training in which, over its first steps, no prompt had both right and wrong answers."""
        window = min(PATIENCE, self.recipe.steps)
        if progress.step != window or any(point["mixed"] for point in progress.points):
            return
        right = {point["reward"] for point in progress.points}
        answers = window * self.recipe.prompts * self.recipe.generations
        if right == {1.0}:
            what = f"all {answers} answers were right: choose harder items"
        elif right == {0.0} and all(point["unread"] == 1.0 for point in progress.points):
            what = (
                f"in none of {answers} answers could the judge of {self.task.name} read anything: tune the model to the"
                " form of its answers first, look at the prompt style, or allow more new tokens"
            )
        elif right == {0.0}:
            what = f"all {answers} answers were wrong: choose easier items, or tune the model on solved ones first"
        else:
            what = (
                "every prompt was answered right each time or wrong each time: choose items of middle difficulty, draw"
                " more generations, or at a higher temperature"
            )
        raise LesionError(
            f"GRPO has nothing to learn from {self.task.name}: over the first {window} steps {what}. Nothing was"
            " changed; use another --out."
        )

    def _decoding(self, row: int) -> Decoding:
        text = f"{self.recipe.seed}|{self.progress.step}|{row}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return Decoding(self.room, self.task.stop, temperature=self.recipe.temperature, seed=seed)
