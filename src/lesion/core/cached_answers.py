"""Cached answers: a model evaluated in several rounds, with its answers at hand between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lesion.core.inference import PendingAnswer, answer_cells
from lesion.core.row import StoredAnswer, storable
from lesion.core.run import Evaluation, Pending
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.engines.engine import Engine
from lesion.models.load import Model
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import Gold, gold_name


@dataclass(frozen=True)
class CachedAnswer:
    """One stored answer, as far as a search looks at it."""

    correct: bool
    parsed: str | None
    scores: tuple[float, ...]
    ranks: tuple[int, ...]
    tokens: int = 0


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one edit to items of a task, in the order of the items.

    Attributes:
        right: [items] whether each is right.
        gold: [items] log-probability of the gold answer in nats; NaN where it was not evaluated.
        labels: the answer that was read from each, "" for none.
        scores: [items, 2] of a contrast: log-probability of the right token and of the first that tempts, a rival where
            there is one; else empty.
        ranks: [items, 2] likewise, 1 for the most probable; 0 where logits were not finite.
        forced: of each item the log-probabilities of the right text and its rivals (`lesion.tasks.contrast`).
    """

    right: NDArray[np.bool_]
    gold: NDArray[np.float64]
    labels: tuple[str, ...]
    scores: NDArray[np.float64]
    ranks: NDArray[np.int64]
    forced: tuple[tuple[float, ...], ...] = ()


class CachedAnswers:
    """Evaluates one model in several rounds, and has the answers of earlier rounds at hand.

    Attributes:
        requested: fingerprint, edit, task and item of every answer of the rounds, whether or not it was stored before.
    """

    def __init__(self, evaluation: Evaluation, chosen: ModelChoice, model: Model) -> None:
        self.model = model
        self.requested: set[tuple[str, str, str, str]] = set()
        self._evaluation, self._chosen = evaluation, chosen
        self._cache: dict[tuple[str, str, str], CachedAnswer] = {}
        self._read()

    def _read(self, task: str | None = None) -> None:
        stored = self._evaluation.store.answers(model=self._chosen.name, task=task)
        columns = ("edit", "task", "item", "correct", "parsed", "scores", "ranks", "tokens")
        for edit, task, item, correct, *rest in zip(*(stored[column] for column in columns), strict=True):
            self._cache[edit, task, item] = CachedAnswer(bool(correct), *rest)

    def ask(self, tasks: Mapping[TaskChoice, Task], items: Mapping[TaskChoice, Sequence[Item]]) -> None:
        """Note that tasks made from those of the study are asked too, and have their stored answers at hand."""
        self._evaluation.ask(tasks, items)
        for choice in tasks:
            self._read(choice.name)

    def evaluate(
        self,
        tasks: Mapping[TaskChoice, Task],
        items: Mapping[TaskChoice, Sequence[Item]],
        edits: Sequence[Edit],
        what: str,
    ) -> None:
        """Have the baseline and every edit answer these items, as far as they have not."""
        self.answer(self.pending(tasks, items, [BASELINE, *edits]), what)

    def pending(
        self, tasks: Mapping[TaskChoice, Task], items: Mapping[TaskChoice, Sequence[Item]], edits: Sequence[Edit]
    ) -> Pending:
        """The answers under these edits, of which some may be stored."""
        texts = set(map(str, edits))
        names = [(choice.name, item.id) for choice in tasks for item in items[choice]]
        self.requested |= {(self.model.fingerprint, text, *name) for name in names for text in texts}
        pending = self._evaluation.pending(self._chosen, self.model, edits, tasks, items)
        cells = {key: cell for key, cell in pending.cells.items() if str(cell.edit) in texts}
        return Pending(len(texts) * len(names), cells)

    def answer(self, pending: Pending, what: str, *, begun: bool = False, estimated: bool = True) -> None:
        """Have the model give the answers that are pending; arguments as of `Evaluation.answer`."""
        if pending.cells:
            self._evaluation.answer(
                self._chosen, self.model, pending, what, by=self._answer_cells, begun=begun, estimated=estimated
            )

    def _answer_cells(self, engine: Engine, cells: Mapping[str, PendingAnswer]) -> Iterator[list[StoredAnswer]]:
        for rows in answer_cells(engine, self.model, self._chosen.name, cells, self._evaluation.store):
            for row in rows:
                # As the store keeps it, so that a run that goes on from the store ends with the same numbers.
                parsed = None if row.parsed is None else storable(row.parsed)
                self._cache[row.edit, row.task, row.item] = CachedAnswer(
                    row.correct, parsed, row.scores, row.ranks, row.tokens
                )
            yield rows

    def answers(self, task: TaskChoice, items: Sequence[Item], edit: Edit) -> Answers:
        """The model's answers under an edit; all of them must have been evaluated.

        The log-probability of the gold answer is that of `gold:TASK` where it was evaluated, else of the right one
        among the choices, or of the right token.
        """
        text = str(edit)
        answers = [self._cache[text, task.name, item.id] for item in items]
        gold = [self._gold(task, item, text, answer) for item, answer in zip(items, answers, strict=True)]
        pairs = [answer.scores[:2] if answer.ranks else () for answer in answers]
        width = max(map(len, pairs), default=0)
        shape = len(answers), width
        ranks = [[*answer.ranks[:2], *[0] * (width - len(answer.ranks[:2]))] for answer in answers]
        return Answers(
            np.array([answer.correct for answer in answers], dtype=bool),
            np.array(gold, dtype=np.float64),
            tuple(answer.parsed or "" for answer in answers),
            np.array([[*pair, *[math.nan] * (width - len(pair))] for pair in pairs]).reshape(shape),
            np.array(ranks, dtype=np.int64).reshape(shape),
            tuple(answer.scores[len(answer.ranks) :] if answer.ranks else () for answer in answers),
        )

    def texts(
        self, task: TaskChoice, items: Sequence[Item], edit: Edit
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """[items] log-probability of each passage of running text in nats, NaN where it is not finite, and its tokens.

        All of them must have been evaluated.
        """
        answers = [self._cache[str(edit), task.name, item.id] for item in items]
        scores = [answer.scores[0] if answer.scores else math.nan for answer in answers]
        return np.array(scores, dtype=np.float64), np.array([answer.tokens for answer in answers], dtype=np.int64)

    def golds(self, task: TaskChoice, items: Sequence[Item], edit: Edit) -> NDArray[np.float64]:
        """[items] log-probability of the gold answer, where only that may have been evaluated."""
        text = str(edit)
        golds = [self._gold(task, item, text, self._cache.get((text, task.name, item.id))) for item in items]
        return np.array(golds, dtype=np.float64)

    def _gold(self, task: TaskChoice, item: Item, edit: str, answer: CachedAnswer | None) -> float:
        """NaN also where it is −∞, which the store keeps as no number."""
        scored = self._cache.get((edit, gold_name(task.name), item.id))
        place = 0
        if scored is None and answer is not None:
            if answer.ranks:
                scored = answer
            elif answer.scores and item.gold in item.choices:
                scored, place = answer, item.choices.index(item.gold)
        if scored is None or not scored.scores:
            return math.nan
        return scored.scores[place] if math.isfinite(scored.scores[place]) else math.nan


def gold_of(choice: TaskChoice) -> TaskChoice:
    """The choice of `gold:TASK` for that of TASK: the same items, put in the same way."""
    return choice.model_copy(update={"name": gold_name(choice.name), "forbid": None})


def gold_tasks(tasks: Mapping[TaskChoice, Task]) -> dict[TaskChoice, Task]:
    """Each task as the log-probability of its gold answers."""
    return {gold_of(choice): Gold(task) for choice, task in tasks.items()}


def with_golds(tasks: Mapping[TaskChoice, Task]) -> dict[TaskChoice, Task]:
    """Tasks and, of those that generate, the log-probability of their gold answers too."""
    return {**tasks, **gold_tasks({choice: task for choice, task in tasks.items() if task.kind == "generate"})}


def for_golds(items: Mapping[TaskChoice, Sequence[Item]]) -> dict[TaskChoice, Sequence[Item]]:
    """Items by task, and the same ones for the log-probability of their gold answers."""
    return {**items, **{gold_of(choice): drawn for choice, drawn in items.items()}}
