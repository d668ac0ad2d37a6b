"""Rivals: what does the same without a part of a spectrum removed. The chosen edit is compared with each on test items.

Rivals of the answer's form, alone and together with the edit: the k most frequent wrong first tokens of the unedited
model forbidden at decoding, and the choice among rivals of the right text's own kind. Rivals of the spectrum, in the
edit's place: random subspaces of the same rank, the branch deleted, the matrix multiplied by a constant. What is fitted
is fitted on validation items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

from lesion.core import cells
from lesion.core.cached_answers import CachedAnswers
from lesion.core.inference import pending_cells
from lesion.core.run import Evaluation
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, SCALES, Edit, Truncate, composed, parts
from lesion.edits.units import ScaleMatrix
from lesion.engines.engine import Request
from lesion.report.values import Estimate, Value
from lesion.statistics.paired import accuracy, mcnemar_exact, paired_drop
from lesion.studies.truncation.result import Rival
from lesion.studies.truncation.search import Split
from lesion.studies.truncation.study import TruncationStudy
from lesion.tasks.contrast import forced
from lesion.tasks.task import Item, Task
from lesion.tasks.wrapped import Relation, has_relations

FORBIDDEN = (1, 3, 10)
"""So many of the most frequent wrong first tokens are forbidden."""
FORBIDDING = "answers with first tokens forbidden"
DRAWS = 5
"""Random subspaces."""
FACTORS = (0.75, 0.5, 0.25, 0.0)
"""By which the matrices are multiplied; the best of them on validation items is tested."""


Right = Bool[np.ndarray, " items"]


class FirstTokens(Value):
    """The first token of the unedited model's answer to each of some prompts; None of an empty answer."""

    tokens: tuple[int | None, ...]


@dataclass
class Rivals:
    """Evaluates the rivals of an edit.

    Args:
        study: the search.
        split: the items.
        cache: of the model's answers.
        evaluation: of the study.
        folder: where first tokens are kept.
    """

    study: TruncationStudy
    split: Split
    cache: CachedAnswers
    evaluation: Evaluation
    folder: Path

    def of(self, edit: Edit | None) -> tuple[Rival, ...]:
        """The rivals of an edit on the test items of every task; without an edit, those of the unedited model."""
        rivals: list[Rival] = []
        for choice in self.split.tasks:
            rivals += [*self._forbidding(choice, edit), *self._forced(choice, edit)]
        return (*rivals, *(self._in_place_of(edit) if edit is not None else ()))

    def _forbidding(self, choice: TaskChoice, edit: Edit | None) -> list[Rival]:
        task, level = self.split.tasks[choice], self.study.level
        if task.kind not in ("generate", "contrast"):
            return []
        validation, test = self.split.validation[choice], self.split.test[choice]
        frequent = self._wrong_first_tokens(choice, task, validation)
        numbers = list(dict.fromkeys(min(number, len(frequent)) for number in FORBIDDEN if frequent))
        without = [_without(choice, tuple(frequent[:number])) for number in numbers]
        # All in one round: prompts are shared, whatever is forbidden behind them.
        self._evaluate(dict.fromkeys(without, task), dict.fromkeys(without, validation), (), FORBIDDING)
        edits = () if edit is None else (edit,)
        self._evaluate(dict.fromkeys(without, task), dict.fromkeys(without, test), edits, FORBIDDING)
        decode = self.cache.model.tokenizer.decode
        unedited = self.cache.answers(choice, test, BASELINE).right
        rivals = [
            Rival(
                task=choice.name,
                what="forbidden",
                rival=str(BASELINE),
                forbidden=tuple(decode([token]) for token in each.forbid or ()),
                validation=float(self.cache.answers(each, validation, BASELINE).right.mean()),
                **_compared(
                    unedited,
                    self.cache.answers(each, test, BASELINE).right,
                    None if edit is None else self.cache.answers(each, test, edit).right,
                    level,
                ),
            )
            for each in without
        ]
        # Of equals the fewest tokens; none where that is as good.
        best = max(rivals, key=lambda rival: rival.validation or 0.0, default=None)
        plain = float(self.cache.answers(choice, validation, BASELINE).right.mean())
        return [
            rival.model_copy(update={"fitted": rival is best and (rival.validation or 0.0) > plain}) for rival in rivals
        ]

    def _forced(self, choice: TaskChoice, edit: Edit | None) -> list[Rival]:
        """Forced answers: against the rivals of each item, read from the same pass, and among its relation."""
        task, test, level = self.split.tasks[choice], self.split.test[choice], self.study.level
        edits = () if edit is None else (edit,)
        answers = [self.cache.answers(choice, test, each) for each in (BASELINE, *edits)]
        counts = [len(whole) for whole in answers[0].forced if len(whole) > 1]
        rivals = []
        if counts:
            asked = np.array([len(whole) > 1 for whole in answers[0].forced])
            right = [np.array([bool(forced(whole)) for whole in each.forced])[asked] for each in answers]
            rivals.append(_choice(choice, "pair", counts, right, level))
        if has_relations(task):
            named, among = choice.model_copy(update={"name": f"relation:{choice.name}"}), Relation(task)
            by_id = {item.id: item for item in among.load()}
            if items := [by_id[item.id] for item in test if item.id in by_id]:
                self._evaluate({named: among}, {named: items}, edits, "choices among relations")
                right = [self.cache.answers(named, items, each).right for each in (BASELINE, *edits)]
                rivals.append(_choice(choice, "relation", [len(item.choices) for item in items], right, level))
        return rivals

    def _in_place_of(self, edit: Edit) -> list[Rival]:
        """The rivals that stand in the place of an edit, on every task."""
        cuts = [part for part in parts(edit) if isinstance(part, Truncate)]
        scaled = [composed([_multiplied(cut, factor) for cut in cuts]) for factor in FACTORS]
        self._evaluate(self.split.tasks, self.split.validation, scaled, "answers with scaled matrices")
        means = {each: self._validation(each) for each in scaled}
        others: list[tuple[str, Edit]] = [
            *(
                ("subspace", composed([replace(cut, side="random", draw=draw) for cut in cuts]))
                for draw in range(DRAWS)
            ),
            ("branch", composed(list(dict.fromkeys(_branch(cut) for cut in cuts)))),
            ("factor", max(scaled, key=means.__getitem__)),
        ]
        self._evaluate(self.split.tasks, self.split.test, [other for _, other in others], "answers of the controls")
        rivals = []
        for choice, items in self.split.test.items():
            unedited, edited = (self.cache.answers(choice, items, each).right for each in (BASELINE, edit))
            for number, (what, other) in enumerate(others):
                alone = self.cache.answers(choice, items, other).right
                rivals.append(
                    Rival(
                        task=choice.name,
                        what=what,
                        rival=str(other),
                        draw=number if what == "subspace" else None,
                        validation=means.get(other),
                        **_compared(unedited, alone, edited, self.study.level),
                    )
                )
        return rivals

    def _validation(self, edit: Edit) -> float:
        """Mean accuracy over the tasks on validation items."""
        answers = (self.cache.answers(choice, items, edit) for choice, items in self.split.validation.items())
        return float(np.mean([each.right.mean() for each in answers]))

    def _evaluate(
        self,
        tasks: Mapping[TaskChoice, Task],
        items: Mapping[TaskChoice, Sequence[Item]],
        edits: Sequence[Edit],
        what: str,
    ) -> None:
        self.cache.ask({choice: task for choice, task in tasks.items() if choice not in self.split.tasks}, items)
        self.cache.evaluate(tasks, items, edits, what)

    def _wrong_first_tokens(self, choice: TaskChoice, task: Task, items: Sequence[Item]) -> list[int]:
        """The first tokens of the unedited model's wrong answers to these items, the most frequent first."""
        right = self.cache.answers(choice, items, BASELINE).right
        wrong = {choice: [item for item, is_right in zip(items, right, strict=True) if not is_right]}
        chosen, model = self.study.model, self.cache.model
        asked = pending_cells(self.study, chosen, model, {choice: task}, wrong, ())
        key = cells.key_of(
            {"first tokens": [model.fingerprint, *((c.prompt, str(c.decoding)) for c in asked.values())]}
        )
        first = cells.read(self.folder, key, FirstTokens)
        if first is None:
            requests = [
                Request(name, cell.prompt, BASELINE, replace(cell.decoding, max_new_tokens=1, thinking_tokens=0))
                for name, cell in asked.items()
            ]
            found = {response.key: response for response in self.evaluation.engine(model).answer(requests)}
            first = FirstTokens(tokens=tuple(next(iter(found[name].token_ids), None) for name in asked))
            cells.write(self.folder, key, first)
        counts = Counter(token for token in first.tokens if token is not None)
        return sorted(counts, key=lambda token: (-counts[token], token))


def _without(choice: TaskChoice, tokens: tuple[int, ...]) -> TaskChoice:
    """The same task where no answer begins with these tokens either."""
    name = f"forbid {','.join(map(str, tokens))}:{choice.name}"
    return choice.model_copy(update={"name": name, "forbid": (*(choice.forbid or ()), *tokens)})


def _multiplied(cut: Truncate, factor: float) -> ScaleMatrix:
    layer, _, name = cut.address.partition(".")
    return ScaleMatrix(int(layer), name, factor)


def _branch(cut: Truncate) -> Edit:
    layer, name, *_ = cut.address.split(".")
    return SCALES["attention" if name == "attention" else "mlp"](int(layer), 0.0)


def _choice(
    choice: TaskChoice, what: Literal["pair", "relation"], counts: Sequence[int], right: Sequence[Right], level: float
) -> Rival:
    """A forced choice among so many texts an item: of the unedited model, and under the edit where there is one."""
    return Rival(
        task=choice.name,
        what=what,
        rival=str(BASELINE),
        candidates=float(np.mean(counts)),
        chance=float(np.mean([1 / count for count in counts])),
        **_compared(None, right[0], right[1] if len(right) > 1 else None, level),
    )


def _compared(unedited: Right | None, alone: Right, edited: Right | None, level: float) -> dict[str, Any]:
    """The numbers of a rival: its accuracy and gain, and what the edit, with it or in its place, has beyond it."""
    return {
        "items": len(alone),
        "accuracy": Estimate.of(accuracy(alone, level)),
        "gain": None if unedited is None else _gain(unedited, alone, level),
        "edited": None if edited is None else Estimate.of(accuracy(edited, level)),
        "beyond": None if edited is None else _gain(alone, edited, level),
    }


def _gain(before: Right, after: Right, level: float) -> Estimate:
    lost, won = int((before & ~after).sum()), int((after & ~before).sum())
    return Estimate.of(paired_drop(before, after, level), mcnemar_exact(lost, won)).negative
