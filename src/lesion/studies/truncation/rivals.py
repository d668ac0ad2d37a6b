"""Rivals: what does the same without a part of a spectrum removed. The chosen edit is compared with each on test items.

Rivals of the answer's form, alone and with the edit: the k most frequent wrong first tokens of the unedited model
forbidden at decoding, and the choice among rivals of the right text's own kind. Rivals of the spectrum, in the edit's
place: random subspaces of the same rank, the branch deleted, the matrix multiplied by a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

from lesion.core.cached_answers import gold_of
from lesion.core.run import Evaluation
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, SCALES, Edit, Truncate, composed, parts
from lesion.edits.units import ScaleMatrix
from lesion.report.values import Estimate
from lesion.statistics.paired import accuracy
from lesion.studies.truncation.forbidding import FORBIDDEN, KINDS, Forbidding
from lesion.studies.truncation.result import Rival
from lesion.studies.truncation.search import Items, Search, Split
from lesion.tasks.contrast import forced
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import Relation, has_relations

DRAWS = 5
"""Random subspaces."""
FACTORS = (0.75, 0.5, 0.25, 0.0)
"""By which the matrices are multiplied; the best of them on validation items is tested."""
Right = Bool[np.ndarray, " items"]


def answers_after_the_search(split: Split) -> dict[str, int]:
    """How many answers to each task the test of the best edit and its rivals take."""
    counts = {}
    for choice, task in split.tasks.items():
        validation, test = len(split.validation[choice]), len(split.test[choice])
        counts[choice.name] = len(FACTORS) * validation + (1 + DRAWS + 2) * test
        if task.kind in KINDS:
            counts[choice.name] += len(FORBIDDEN) * (validation + 2 * test)
        if task.kind == "generate":
            counts[gold_of(choice).name] = 2 * test
    return counts


@dataclass
class Rivals:
    """Evaluates the rivals of an edit."""

    search: Search
    evaluation: Evaluation

    def of(self, edits: Sequence[Edit]) -> tuple[Rival, ...]:
        """The rivals of an edit on the test items of every task; where there is none, those of the unedited model."""
        rivals: list[Rival] = []
        for choice in self.search.parts.tasks:
            rivals += [*self._forbidding(choice, edits), *self._forced(choice, edits)]
        return (*rivals, *(rival for edit in edits for rival in self._in_place_of(edit)))

    def _right(self, choice: TaskChoice, items: Sequence[Item], edit: Edit = BASELINE) -> Right:
        return self.search.cache.answers(choice, items, edit).right

    def _forbidding(self, choice: TaskChoice, edits: Sequence[Edit]) -> list[Rival]:
        task = self.search.parts.tasks[choice]
        validation, test = self.search.parts.validation[choice], self.search.parts.test[choice]
        forbidding = Forbidding(self.evaluation, self.search.cache)
        tried = forbidding.tried(choice, task, validation)
        self._evaluate(dict.fromkeys(tried.choices, task), dict.fromkeys(tried.choices, test), edits)
        unedited = self._right(choice, test)
        return [
            Rival(
                task=choice.name,
                what="forbidden",
                rival=str(BASELINE),
                forbidden=forbidding.texts(each),
                fitted=number == tried.best,
                validation=tried.scores[number],
                **self._compared(*(self._right(each, test, under) for under in (BASELINE, *edits)), unedited=unedited),
            )
            for number, each in enumerate(tried.choices, 1)
        ]

    def _forced(self, choice: TaskChoice, edits: Sequence[Edit]) -> list[Rival]:
        """Choices against each item's rivals, read from the same pass, and among the answers of its relation."""
        task, test = self.search.parts.tasks[choice], self.search.parts.test[choice]
        answers = [self.search.cache.answers(choice, test, each).forced for each in (BASELINE, *edits)]
        paired = [place for place, whole in enumerate(answers[0]) if len(whole) > 1]
        counts: dict[Literal["pair", "relation"], list[int]] = {"pair": [len(answers[0][place]) for place in paired]}
        right = {"pair": [np.array([forced(each[place]) for place in paired], dtype=bool) for each in answers]}
        if has_relations(task):
            among = Relation(task)
            by_id = {item.id: item for item in among.load()}
            items = [by_id[item.id] for item in test if item.id in by_id]
            if items:
                named = choice.model_copy(update={"name": f"relation:{choice.name}"})
                self._evaluate({named: among}, {named: items}, edits)
                counts["relation"] = [len(item.choices) for item in items]
                right["relation"] = [self._right(named, items, each) for each in (BASELINE, *edits)]
        return [
            Rival(
                task=choice.name,
                what=what,
                rival=str(BASELINE),
                candidates=float(np.mean(sizes)),
                chance=float(np.mean([1 / size for size in sizes])),
                **self._compared(*right[what]),
            )
            for what, sizes in counts.items()
            if sizes
        ]

    def _in_place_of(self, edit: Edit) -> list[Rival]:
        """The rivals that stand in the place of an edit, on every task."""
        split = self.search.parts
        cuts = [part for part in parts(edit) if isinstance(part, Truncate)]
        scaled = [composed([_multiplied(cut, factor) for cut in cuts]) for factor in FACTORS]
        self._evaluate(split.tasks, split.validation, scaled)
        items_of = split.validation.items()
        means = {each: float(np.mean([self._right(*of, each).mean() for of in items_of])) for each in scaled}
        others: list[tuple[Any, int | None, Edit]] = [
            *(("subspace", n, composed([replace(cut, side="random", draw=n) for cut in cuts])) for n in range(DRAWS)),
            ("branch", None, composed(list(dict.fromkeys(map(_branch, cuts))))),
            ("factor", None, max(scaled, key=means.__getitem__)),
        ]
        self._evaluate(split.tasks, split.test, [other for *_, other in others])
        return [
            Rival(
                task=choice.name,
                what=what,
                rival=str(other),
                draw=draw,
                validation=means.get(other),
                **self._compared(
                    *(self._right(choice, items, each) for each in (other, edit)), unedited=self._right(choice, items)
                ),
            )
            for choice, items in split.test.items()
            for what, draw, other in others
        ]

    def _compared(self, alone: Right, *edited: Right, unedited: Right | None = None) -> dict[str, Any]:
        """The accuracy of a rival, and what the edit, where there is one, has beyond it, with it or in its place."""
        level = self.search.study.level
        numbers: dict[str, Any] = {"items": len(alone), "accuracy": Estimate.of(accuracy(alone, level))}
        if unedited is not None:
            numbers["gain"] = Estimate.dropped(unedited, alone, level).negative
        for each in edited:
            numbers["edited"] = Estimate.of(accuracy(each, level))
            numbers["beyond"] = Estimate.dropped(alone, each, level).negative
        return numbers

    def _evaluate(self, tasks: Mapping[TaskChoice, Task], items: Items, edits: Sequence[Edit]) -> None:
        own = self.search.parts.tasks
        self.search.cache.ask({choice: task for choice, task in tasks.items() if choice not in own}, items)
        self.search.cache.evaluate(tasks, items, edits, "answers of rivals")


def _multiplied(cut: Truncate, factor: float) -> ScaleMatrix:
    layer, _, name = cut.address.partition(".")
    return ScaleMatrix(int(layer), name, factor)


def _branch(cut: Truncate) -> Edit:
    layer, name, *_ = cut.address.split(".")
    return SCALES["attention" if name == "attention" else "mlp"](int(layer), 0.0)
