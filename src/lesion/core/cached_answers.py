"""Recollection: a model asked in several rounds, and its answers at hand between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lesion.core.row import Row, storable
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.models.load import Model
from lesion.tasks.gold import Gold
from lesion.tasks.task import Item, Task


@dataclass(frozen=True)
class Said:
    """One stored answer, as far as a search looks at it."""

    correct: bool
    parsed: str | None
    scores: tuple[float, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one edit to items of a task, in the order of the items.

    Attributes:
        right: [items] whether each is right.
        gold: [items] log-probability of the gold answer in nats; NaN where it was not asked for.
        labels: the answer that was read from each, "" for none.
        scores: [items, tokens] of a contrast: log-probability of the right and the tempting token; else empty.
        ranks: [items, tokens] likewise, 1 for the most probable; 0 where logits were not finite.
    """

    right: NDArray[np.bool_]
    gold: NDArray[np.float64]
    labels: tuple[str, ...]
    scores: NDArray[np.float64]
    ranks: NDArray[np.int64]


class Recollection:
    """Asks one model, keeps every answer in the store, and remembers it.

    Args:
        evaluation: asks for answers that its store does not have.
        chosen: the model, as the study names it.
        model: the model itself.

    Attributes:
        wanted: fingerprint, edit, task and item of every answer that was wanted, whether or not it was stored already.
    """

    def __init__(self, evaluation: Evaluation, chosen: ModelChoice, model: Model) -> None:
        self.model = model
        self.wanted: set[tuple[str, str, str, str]] = set()
        self._evaluation, self._chosen, self._store = evaluation, chosen, evaluation.store
        self._keys = self._store.keys()
        self._said: dict[tuple[str, str, str], Said] = {}
        stored = self._store.answers(model=chosen.name)
        columns = ("edit", "task", "item", "correct", "parsed", "scores", "ranks")
        for edit, task, item, *said in zip(*(stored[column] for column in columns), strict=True):
            self._said[edit, task, item] = Said(bool(said[0]), *said[1:])

    def keys(self) -> set[str]:
        """The keys of all answers that there are."""
        return self._keys

    def write(self, rows: Iterable[Row]) -> int:
        """Keep answers, and remember them."""
        rows = list(rows)
        new = self._store.write(rows)
        for row in rows:
            self._keys.add(row.key)
            # As the store keeps it, so that a run that goes on from the store ends with the same numbers.
            parsed = None if row.parsed is None else storable(row.parsed)
            self._said[row.edit, row.task, row.item] = Said(row.correct, parsed, row.scores, row.ranks)
        return new

    def ask(
        self,
        tasks: Mapping[TaskChoice, Task],
        items: Mapping[TaskChoice, Sequence[Item]],
        edits: Sequence[Edit],
        what: str,
    ) -> None:
        """Have the baseline and every edit answer these items, as far as they have not.

        Args:
            tasks: what is asked.
            items: of each task.
            edits: beside the baseline.
            what: the answers are for, for the watcher.
        """
        pending = self._evaluation.pending(self._chosen, self.model, edits, tasks, items, self)
        texts = {str(BASELINE), *map(str, edits)}
        names = ((choice.name, item.id) for choice in tasks for item in items[choice])
        self.wanted |= {(self.model.fingerprint, text, *name) for name in names for text in texts}
        self._evaluation.answer(self._chosen, self.model, pending, what, keeper=self)

    def answers(self, task: TaskChoice, items: Sequence[Item], edit: Edit) -> Answers:
        """What the model said under an edit; all of it must have been asked.

        The log-probability of the gold answer is that of `gold:TASK` where it was asked, else of the right one among
        the choices, or of the right token.
        """
        text = str(edit)
        said = [self._said[text, task.name, item.id] for item in items]
        gold = [self._gold(task, item, text, one) for item, one in zip(items, said, strict=True)]
        pairs = [one.scores if one.ranks else () for one in said]
        width = max(map(len, pairs), default=0)
        return Answers(
            np.array([one.correct for one in said], dtype=bool),
            np.array(gold, dtype=np.float64),
            tuple(one.parsed or "" for one in said),
            np.array([[*pair, *[math.nan] * (width - len(pair))] for pair in pairs]).reshape(len(said), width),
            np.array([[*one.ranks, *[0] * (width - len(one.ranks))] for one in said], dtype=np.int64).reshape(
                len(said), width
            ),
        )

    def golds(self, task: TaskChoice, items: Sequence[Item], edit: Edit) -> NDArray[np.float64]:
        """[items] log-probability of the gold answer, where only that may have been asked."""
        text = str(edit)
        found = [self._gold(task, item, text, self._said.get((text, task.name, item.id))) for item in items]
        return np.array(found, dtype=np.float64)

    def _gold(self, task: TaskChoice, item: Item, edit: str, said: Said | None) -> float:
        """NaN also where it is −∞, which the store keeps as no number."""
        scored = self._said.get((edit, gold_name(task.name), item.id))
        place = 0
        if scored is None and said is not None:
            if said.ranks:
                scored = said
            elif said.scores and item.gold in item.choices:
                scored, place = said, item.choices.index(item.gold)
        if scored is None or not scored.scores:
            return math.nan
        return scored.scores[place] if math.isfinite(scored.scores[place]) else math.nan


def gold_of(choice: TaskChoice) -> TaskChoice:
    """The choice of `gold:TASK` for that of TASK: the same items, put in the same way."""
    return choice.model_copy(update={"name": gold_name(choice.name)})


def gold_name(task: str) -> str:
    """The name of a task as the log-probability of its gold answers."""
    return f"gold:{task}"


def gold_tasks(tasks: Mapping[TaskChoice, Task]) -> dict[TaskChoice, Task]:
    """Each task as the log-probability of its gold answers."""
    return {gold_of(choice): Gold(task) for choice, task in tasks.items()}
