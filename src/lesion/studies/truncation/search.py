"""Search: the cells of a grid compared on validation items, the best chosen and composed.

Nothing here sees an answer to a test item.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lesion.core.cached_answers import Answers, CachedAnswers, gold_of, gold_tasks
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Compose, Edit, Truncate
from lesion.studies.truncation import result
from lesion.studies.truncation.elimination import hopeless, looks, threshold
from lesion.studies.truncation.grid import GridCell
from lesion.studies.truncation.study import Objective, Screen, TruncationStudy
from lesion.tasks.task import Item, Task
from lesion.tasks.values import value

# An answer to this share of all items, and to so much more of them than without the edit, is a label.
LABEL, MORE = 0.9, 0.1


@dataclass(frozen=True)
class Split:
    """The items of each task: those on which an edit is chosen, and the others."""

    tasks: Mapping[TaskChoice, Task]
    validation: Mapping[TaskChoice, Sequence[Item]]
    test: Mapping[TaskChoice, Sequence[Item]]


def split(tasks: Mapping[TaskChoice, Task], drawn: Mapping[TaskChoice, Sequence[Item]], share: float) -> Split:
    """The first of the drawn items, which stand in seeded order, are for validation; neither part is empty.

    Of the others, those that ask what chose an edit do not test it (`tasks.values`): 34 + 12 is no test where 12 + 34
    chose. Where all ask that, all are left.
    """
    validation: dict[TaskChoice, Sequence[Item]] = {}
    test: dict[TaskChoice, Sequence[Item]] = {}
    for choice, items in drawn.items():
        ahead = min(max(1, math.ceil(share * len(items))), len(items) - 1)
        validation[choice] = items[:ahead]
        seen = {value(choice.name, item) for item in items[:ahead]}
        others = [item for item in items[ahead:] if value(choice.name, item) not in seen]
        test[choice] = others or items[ahead:]
    return Split(tasks, validation, test)


@dataclass(frozen=True, order=True)
class Score:
    """How good an edit is on validation items: the first number counts, the second orders those of which it is equal.

    Against the unedited model, and against what a composition has already, the first number alone decides: what has
    the same number of items right does not make the model better, however its log-probabilities have moved.
    """

    first: float
    second: float

    def better(self, than: Score) -> bool:
        """Whether the first number is greater; never where it is not a number."""
        return self.first > than.first

    def named(self, objective: Objective) -> result.Score:
        """The score with its numbers by name."""
        accuracy, gold = (self.first, self.second) if objective == "accuracy" else (self.second, self.first)
        return result.Score(accuracy=accuracy, gold=gold)


@dataclass
class SearchOutcome:
    """What a search decided, on validation items alone.

    Attributes:
        screened: mean log-probability of gold answers minus the baseline's, by edit, of every cell; None unscreened.
        evaluated: the cells that were to be evaluated in full, in the order of the grid.
        eliminated: after how many items each cell was given up.
        scores: of the cells that were answered in full.
        baseline: score of the unedited model.
        chosen: the best cell, if it is better than the baseline.
        best: the best cell whether or not it is.
        steps: of the composition.
        composed: the composition, if more than one edit was accepted.
        looks: number of looks at which cells could be given up.
        screen: what was used as a screen.
        notes: what the person should know.
    """

    screened: dict[Truncate, float] | None = None
    evaluated: list[GridCell] = field(default_factory=list)
    eliminated: dict[Truncate, int] = field(default_factory=dict)
    scores: dict[Edit, Score] = field(default_factory=dict)
    baseline: Score = field(default_factory=lambda: Score(math.nan, math.nan))
    chosen: Truncate | None = None
    best: Truncate | None = None
    steps: list[result.Step] = field(default_factory=list)
    composed: Compose | None = None
    looks: int = 0
    screen: Screen | None = None
    notes: list[str] = field(default_factory=list)


def search(study: TruncationStudy, cells: Sequence[GridCell], parts: Split, cache: CachedAnswers) -> SearchOutcome:
    """Screen, evaluate, choose and compose, on validation items alone.

    Args:
        study: how.
        cells: of the grid.
        parts: the items.
        cache: evaluates the model, and has its answers.
    """
    outcome = SearchOutcome()
    _screen(study, cells, parts, cache, outcome)
    _evaluate_screened(study, parts, cache, outcome)
    outcome.baseline = _score(study, parts, cache, BASELINE)
    sound = []
    for cell in outcome.evaluated:
        if cell.edit not in outcome.eliminated:
            outcome.scores[cell.edit] = _score(study, parts, cache, cell.edit)
            if not collapsed_anywhere(parts, cache, cell.edit):
                sound.append(cell)
    # Of equals, the edit that keeps more: it changes less.
    ranked = sorted(sound, key=lambda cell: (outcome.scores[cell.edit], cell.rank / cell.of), reverse=True)
    if ranked:
        outcome.best = ranked[0].edit
        if outcome.scores[outcome.best].better(outcome.baseline):
            outcome.chosen = outcome.best
    if study.compose and outcome.chosen is not None:
        _compose(study, ranked, parts, cache, outcome)
    return outcome


def collapsed(answers: Answers, baseline: Answers) -> tuple[str, float, bool]:
    """The most frequent answer, the share of items that it is given to, and whether it is a label.

    It is a label where at least 90 % of the answers are the same, and the unedited model gives that same answer to at
    least 10 points fewer of the items. How often it is right does not count: where one answer is that of nearly all
    items, the accuracy of such an edit says how frequent the answer is. A single item says nothing.
    """
    label, count = Counter(answers.labels).most_common(1)[0]
    items = len(answers.labels)
    before = baseline.labels.count(label)
    # In whole items: 0.9 + 0.1 is not 1 in every arithmetic.
    return (
        label,
        count / items,
        items > 1 and count >= round(LABEL * items, 6) and count - before >= round(MORE * items, 6),
    )


def collapsed_anywhere(parts: Split, cache: CachedAnswers, edit: Edit) -> bool:
    """Whether nearly all validation items of some task get one answer that they do not get without the edit."""
    return any(
        collapsed(cache.answers(choice, items, edit), cache.answers(choice, items, BASELINE))[2]
        for choice, items in ((choice, parts.validation[choice]) for choice in parts.tasks)
    )


def _score(study: TruncationStudy, parts: Split, cache: CachedAnswers, edit: Edit) -> Score:
    """Means over tasks of their means over validation items; a log-probability that is not a number counts as none."""
    accuracies, golds = [], []
    for choice in parts.tasks:
        answers = cache.answers(choice, parts.validation[choice], edit)
        accuracies.append(float(answers.right.mean()))
        golds.append(_mean(answers.gold))
    accuracy, gold = float(np.mean(accuracies)), float(np.mean(golds))
    return Score(accuracy, gold) if study.objective == "accuracy" else Score(gold, accuracy)


def _mean(golds: NDArray[np.float64]) -> float:
    """The mean log-probability; that of an answer that is not a number is less than any."""
    return float(golds.mean()) if not np.isnan(golds).any() else -math.inf


def _items_for(
    tasks: Mapping[TaskChoice, Task], items: Mapping[TaskChoice, Sequence[Item]]
) -> dict[TaskChoice, Sequence[Item]]:
    by_name = {name: drawn for choice, drawn in items.items() for name in (choice.name, gold_of(choice).name)}
    return {choice: by_name[choice.name] for choice in tasks}


def evaluate_in_full(
    parts: Split, items: Mapping[TaskChoice, Sequence[Item]], edits: Sequence[Edit], cache: CachedAnswers, what: str
) -> None:
    """Evaluate the tasks and, of those that generate, the log-probability of the gold answers too."""
    generating = {choice: task for choice, task in parts.tasks.items() if task.kind == "generate"}
    tasks = {**parts.tasks, **gold_tasks(generating)}
    cache.evaluate(tasks, _items_for(tasks, items), edits, what)


def _screen(
    study: TruncationStudy, cells: Sequence[GridCell], parts: Split, cache: CachedAnswers, outcome: SearchOutcome
) -> None:
    """Every cell by the gold answers alone; the best of them, and some others, are to be evaluated in full."""
    outcome.evaluated = list(cells)
    screen = study.screen
    if screen == "none":
        return
    if screen == "auto":
        # Scoring is as cheap as a screen; generating is not.
        if all(task.kind != "generate" for task in parts.tasks.values()):
            return
        screen = Screen()
    if len(cells) <= screen.best + screen.random:
        outcome.notes.append("Every cell is asked in full: a screen would leave none out.")
        return
    count = None if screen.items == "all" else screen.items
    items = {choice: parts.validation[choice][:count] for choice in parts.tasks}
    # A contrast is one pass already, and its answers are needed anyway.
    tasks: dict[TaskChoice, Task] = {}
    for choice, task in parts.tasks.items():
        tasks |= {choice: task} if task.kind == "contrast" else gold_tasks({choice: task})
    cache.evaluate(tasks, _items_for(tasks, items), [cell.edit for cell in cells], "answers of the screen")

    def mean(edit: Edit) -> float:
        return float(np.mean([_mean(cache.golds(choice, items[choice], edit)) for choice in parts.tasks]))

    baseline, means = mean(BASELINE), [mean(cell.edit) for cell in cells]
    outcome.screen = screen
    # Where both are broken they are equally so; −∞ − −∞ would be no number.
    outcome.screened = {
        cell.edit: 0.0 if gold == baseline else gold - baseline for cell, gold in zip(cells, means, strict=True)
    }
    order = sorted(range(len(cells)), key=lambda index: -means[index])
    rest = order[screen.best :]
    drawn = np.random.default_rng(study.seed).choice(len(rest), min(screen.random, len(rest)), replace=False)
    kept = {*order[: screen.best], *(rest[index] for index in drawn)}
    outcome.evaluated = [cell for index, cell in enumerate(cells) if index in kept]


def _evaluate_screened(study: TruncationStudy, parts: Split, cache: CachedAnswers, outcome: SearchOutcome) -> None:
    alive = list(outcome.evaluated)
    if study.eliminate is not None:
        if study.objective == "accuracy" and len(parts.tasks) == 1:
            alive = _eliminate(study.eliminate, parts, cache, outcome)
        else:
            outcome.notes.append(
                "No cell is given up early: its bound holds for the accuracy on one task, and here the search goes by "
                + ("several tasks." if study.objective == "accuracy" else "log-probability.")
            )
    evaluate_in_full(parts, parts.validation, [cell.edit for cell in alive], cache, "answers on validation items")


def _eliminate(error: float, parts: Split, cache: CachedAnswers, outcome: SearchOutcome) -> list[GridCell]:
    """Give up cells that are worse than the baseline, at looks after some of the items; those that are left."""
    (choice,) = parts.tasks
    items = parts.validation[choice]
    steps = looks(len(items))
    outcome.looks = len(steps)
    if not steps:
        outcome.notes.append(f"No cell is given up early: {len(items)} validation items are too few to look back at.")
    alive = list(outcome.evaluated)
    at = threshold(error, len(alive), len(steps))
    for seen in steps:
        some = items[:seen]
        cache.evaluate(
            parts.tasks, {choice: some}, [cell.edit for cell in alive], f"answers on {seen} validation items"
        )
        baseline = cache.answers(choice, some, BASELINE).right
        edited = [cache.answers(choice, some, cell.edit).right for cell in alive]
        gone = hopeless(
            [int((right & ~baseline).sum()) for right in edited],
            [int((baseline & ~right).sum()) for right in edited],
            seen,
            len(items),
            at,
        )
        outcome.eliminated |= {cell.edit: seen for cell, is_gone in zip(alive, gone, strict=True) if is_gone}
        alive = [cell for cell, is_gone in zip(alive, gone, strict=True) if not is_gone]
    return alive


def _compose(
    study: TruncationStudy, ranked: Sequence[GridCell], parts: Split, cache: CachedAnswers, outcome: SearchOutcome
) -> None:
    """Add the best cell of each further matrix while that makes the score better; else go back to what was there.

    The order is that of the single scores (Sharma et al., section 5.1, go greedily too). What is not better than the
    baseline by itself is not tried.
    """
    assert outcome.chosen is not None
    current: Edit = outcome.chosen
    score = outcome.scores[outcome.chosen]

    def note(added: Edit, before: Score, after: Score, accepted: bool, reason: str, edit: Edit) -> None:
        step = result.Step(
            step=len(outcome.steps),
            added=str(added),
            edit=str(edit),
            before=before.named(study.objective),
            after=after.named(study.objective),
            accepted=accepted,
            reason=reason,
        )
        outcome.steps.append(step)

    note(current, outcome.baseline, score, True, "the best single edit", current)
    seen = {outcome.chosen.address}
    for cell in ranked:
        if cell.edit.address in seen or not outcome.scores[cell.edit].better(outcome.baseline):
            continue
        seen.add(cell.edit.address)
        tried = Compose((current, cell.edit))
        evaluate_in_full(parts, parts.validation, [tried], cache, f"answers with {cell.edit} added")
        after = _score(study, parts, cache, tried)
        label = collapsed_anywhere(parts, cache, tried)
        accepted = after.better(score) and not label
        reason = "better" if accepted else "one answer to nearly all items" if label else "not better, rolled back"
        note(cell.edit, score, after, accepted, reason, tried)
        if accepted:
            current, score = tried, after
            outcome.scores[tried] = after
    if isinstance(current, Compose):
        outcome.composed = current
