"""The items of a tuning study: those that are trained on, those that choose the rate, and test items."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lesion.core.run import refuse_scored
from lesion.core.study_file import Questions, TaskChoice
from lesion.errors import UsageError
from lesion.studies.tuning.study import TuningStudy
from lesion.tasks.catalogue import draw, find
from lesion.tasks.item_clusters import value
from lesion.tasks.task import Item, Task

TRAINABLE = (
    *("primer:arithmetic", "primer:reading", "arithmetic:add", "arithmetic:subtract", "arithmetic:multiply"),
    *("arithmetic:compare", "arithmetic:copy", "copying", "gsm8k", "triviaqa", "nq_open", "race", "mmlu"),
)
"""Tasks with training items: a training split, or of generated tasks the half of the items that is not asked."""


@dataclass(frozen=True)
class Data:
    """Items, none of them in two parts.

    Attributes:
        questions: how items are put to a model.
        tasks: by choice, the studied one first.
        train: training items, in drawn order; validation: others, which choose the learning rate.
        test: by choice, what is evaluated.
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
