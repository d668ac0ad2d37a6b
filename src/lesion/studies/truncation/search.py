"""The search of a truncation: a grid of cells compared on validation items, the best chosen and composed.

A cell of the grid is one matrix of one block with a part of its spectrum kept (Sharma et al. 2023; composed as in Chen
et al. 2024). Cells that keep the same components are the same edit, evaluated once; cells that keep all of them are the
baseline. Nothing here sees an answer to a test item.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from lesion.core.apart import validation_count
from lesion.core.cached_answers import Answers, CachedAnswers, gold_of, gold_tasks
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Compose, Edit, Side, Truncate
from lesion.errors import UsageError, nearest
from lesion.models.anatomy import Anatomy
from lesion.studies.truncation import result
from lesion.studies.truncation.result import ItemsPart, TruncatedMatrix
from lesion.studies.truncation.study import Objective, Screen, Sides, TruncationStudy
from lesion.tasks.item_clusters import value
from lesion.tasks.task import Item, Task

ALL = "all"
BRANCHES = ("attention", "mlp")


@dataclass(frozen=True)
class GridCell:
    """One edit of the grid, and its line in the result, before it is evaluated."""

    edit: Truncate
    row: TruncatedMatrix


@dataclass(frozen=True)
class Grid:
    """The cells of a search, and those that were not made since they are the same as another."""

    cells: tuple[GridCell, ...]
    merged: Mapping[Truncate, Truncate | None]


def grid(anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str], keep: Sequence[float], side: Sides) -> Grid:
    """Every matrix × keep × side of the layers, each different edit once.

    Args:
        matrices: `mlp.up`, a whole branch (`mlp`, `attention`), or `all`.
        side: of the spectrum that is kept; `both` tries one and the other.
    """
    sides: tuple[Side, ...] = ("top", "bottom") if side == "both" else (side,)
    cells: list[GridCell] = []
    merged: dict[Truncate, Truncate | None] = {}
    wanted = _named(anatomy, layers, matrices)
    for layer in layers:
        for name, matrix in anatomy.block(layer).matrices.items():
            if name not in wanted:
                continue
            rank = min(matrix.shape)
            made: dict[tuple[int, int], Truncate] = {}
            for kept_side in sides:
                for fraction in sorted(keep, reverse=True):
                    edit = Truncate(matrix.address, fraction, kept_side)
                    start, stop = edit.kept(rank)
                    kept = (0, 0) if start == stop else (start, stop)
                    if kept == (0, rank):
                        merged[edit] = None
                    elif kept in made:
                        if made[kept] != edit:
                            merged[edit] = made[kept]
                    else:
                        made[kept] = edit
                        saved = matrix.shape[0] * matrix.shape[1] - (stop - start) * sum(matrix.shape)
                        row = TruncatedMatrix(
                            edit=str(edit), address=matrix.address, layer=layer, matrix=name, keep=fraction,
                            side=kept_side, rank=stop - start, of=rank, saved=saved,
                        )  # fmt: skip
                        cells.append(GridCell(edit, row))
    if not cells:
        raise UsageError(
            "Nothing is left to try: every keep leaves its matrix as it is. Give smaller ones, for example --keep 0.1."
        )
    return Grid(tuple(cells), merged)


def _named(anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str]) -> set[str]:
    """The names of matrices that are meant; every word must mean at least one."""
    there = list(dict.fromkeys(name for layer in layers for name in anatomy.block(layer).matrices))
    if not there:
        raise UsageError(
            f"No matrices are known in these blocks of {anatomy.name} (family {anatomy.family}), so there is none to"
            f" truncate. Its blocks can be scaled all the same: `lesion ablate`."
        )
    meant: set[str] = set()
    for word in matrices:
        names = there if word == ALL else [name for name in there if name == word or name.startswith(f"{word}.")]
        if not names:
            known = [*there, *BRANCHES, ALL]
            raise UsageError(
                f"There is no matrix '{word}' in {anatomy.name}{nearest(word, known)}. There are "
                f"{', '.join(there[:16])}{', …' if len(there) > 16 else ''}; mlp, attention and all name several."
            )
        meant.update(names)
    return meant


# An answer to this share of all items, and to so much more of them than without the edit, is a label.
LABEL, MORE = 0.9, 0.1
Items = Mapping[TaskChoice, Sequence[Item]]


@dataclass(frozen=True)
class Split:
    """The items of each task: those on which an edit is chosen, and the others."""

    tasks: Mapping[TaskChoice, Task]
    validation: Items
    test: Items


def split(tasks: Mapping[TaskChoice, Task], drawn: Items, share: float) -> Split:
    """The first of the drawn items, which stand in seeded order, are for validation; neither part is empty.

    Of the others, those that ask what chose an edit do not test it (`tasks.values`): 34 + 12 is no test where 12 + 34
    chose. Where all ask that, all are left.
    """
    validation: dict[TaskChoice, Sequence[Item]] = {}
    test: dict[TaskChoice, Sequence[Item]] = {}
    for choice, items in drawn.items():
        ahead = validation_count(share, len(items))
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
class Search:
    """A search on validation items alone, and what it decided.

    Attributes:
        screened: mean log-probability of gold answers minus the baseline's, by edit, of every cell; None unscreened.
        evaluated: the cells that were to be evaluated in full, in the order of the grid.
        eliminated: after how many items each cell was given up.
        scores: of the cells that were answered in full; baseline: of the unedited model.
        best: the best cell; chosen: the same, if it is better than the baseline.
        composed: the composition, if more than one edit was accepted, by its steps.
        looks: number of looks at which cells could be given up.
    """

    study: TruncationStudy
    cells: Sequence[GridCell]
    parts: Split
    cache: CachedAnswers
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

    @property
    def tested(self) -> list[Edit]:
        """The edits that are evaluated on test items: the best one and the composition."""
        return [edit for edit in (self.best, self.composed) if edit is not None]

    def run(self) -> None:
        """Screen, evaluate, choose and compose."""
        self._screen()
        alive = self._alive()
        self.evaluate("validation", [cell.edit for cell in alive], "answers on validation items")
        self.baseline = self._score(BASELINE)
        self.scores |= {cell.edit: self._score(cell.edit) for cell in alive}
        sound = [cell for cell in alive if not self._collapsed(cell.edit)]
        # Of equals, the edit that keeps more: it changes less.
        ranked = sorted(sound, key=lambda cell: (self.scores[cell.edit], cell.row.rank / cell.row.of), reverse=True)
        if ranked:
            self.best = ranked[0].edit
            if self.scores[self.best].better(self.baseline):
                self.chosen = self.best
        if self.study.compose and self.chosen is not None:
            self._compose(self.chosen, ranked)

    def items(self, part: ItemsPart) -> Items:
        """The validation or the test items of every task."""
        return self.parts.validation if part == "validation" else self.parts.test

    def pair(self, choice: TaskChoice, edit: Edit, part: ItemsPart) -> tuple[Answers, Answers]:
        """The answers to a part of a task of the unedited model, and those under an edit."""
        items = self.items(part)[choice]
        return self.cache.answers(choice, items, BASELINE), self.cache.answers(choice, items, edit)

    def evaluate(self, part: ItemsPart, edits: Sequence[Edit], what: str) -> None:
        """Evaluate the tasks and, of those that generate, the log-probability of the gold answers too."""
        generating = {choice: task for choice, task in self.parts.tasks.items() if task.kind == "generate"}
        self._ask({**self.parts.tasks, **gold_tasks(generating)}, self.items(part), edits, what)

    def _ask(self, tasks: Mapping[TaskChoice, Task], items: Items, edits: Sequence[Edit], what: str) -> None:
        by_name = {name: drawn for choice, drawn in items.items() for name in (choice.name, gold_of(choice).name)}
        self.cache.evaluate(tasks, {choice: by_name[choice.name] for choice in tasks}, edits, what)

    def _collapsed(self, edit: Edit) -> bool:
        """Whether nearly all validation items of some task get one answer that they do not get without the edit."""
        pairs = (self.pair(choice, edit, "validation") for choice in self.parts.tasks)
        return any(collapsed(edited, baseline)[2] for baseline, edited in pairs)

    def _score(self, edit: Edit) -> Score:
        """Means over tasks of their means over validation items; a log-probability that is no number counts as none."""
        answers = [self.cache.answers(choice, items, edit) for choice, items in self.parts.validation.items()]
        accuracy = float(np.mean([float(each.right.mean()) for each in answers]))
        gold = float(np.mean([mean_of(each.gold) for each in answers]))
        return Score(accuracy, gold) if self.study.objective == "accuracy" else Score(gold, accuracy)

    def _screen(self) -> None:
        """Every cell by the gold answers alone; the best of them, and some others, are to be evaluated in full."""
        self.evaluated = list(self.cells)
        screen = self.study.screen
        # Scoring is as cheap as a screen; generating is not.
        cheap = all(task.kind != "generate" for task in self.parts.tasks.values())
        if screen == "none" or (screen == "auto" and cheap):
            return
        screen = Screen() if screen == "auto" else screen
        if len(self.cells) <= screen.best + screen.random:
            self.notes.append("Every cell is asked in full: a screen would leave none out.")
            return
        count = None if screen.items == "all" else screen.items
        items = {choice: drawn[:count] for choice, drawn in self.parts.validation.items()}
        edits = [cell.edit for cell in self.cells]
        self._ask(screen_tasks(self.parts.tasks), items, edits, "answers of the screen")

        def mean(edit: Edit) -> float:
            return float(np.mean([mean_of(self.cache.golds(choice, items[choice], edit)) for choice in items]))

        baseline, means = mean(BASELINE), [mean(cell.edit) for cell in self.cells]
        self.screen = screen
        # Where both are broken they are equally so; −∞ − −∞ would be no number.
        self.screened = {
            cell.edit: 0.0 if gold == baseline else gold - baseline
            for cell, gold in zip(self.cells, means, strict=True)
        }
        order = sorted(range(len(self.cells)), key=lambda index: -means[index])
        rest = order[screen.best :]
        drawn = np.random.default_rng(self.study.seed).choice(len(rest), min(screen.random, len(rest)), replace=False)
        kept = {*order[: screen.best], *(rest[index] for index in drawn)}
        self.evaluated = [cell for index, cell in enumerate(self.cells) if index in kept]

    def _alive(self) -> list[GridCell]:
        """The cells that are not given up: those worse than the baseline are, at looks after some of the items."""
        if self.study.eliminate is None:
            return self.evaluated
        if self.study.objective != "accuracy" or len(self.parts.tasks) > 1:
            self.notes.append("No cell is given up early: the bound holds for the accuracy on a single task only.")
            return self.evaluated
        ((choice, items),) = self.parts.validation.items()
        steps = looks(len(items))
        self.looks = len(steps)
        if not steps:
            self.notes.append(f"No cell is given up early: {len(items)} validation items are too few to look back at.")
        alive = self.evaluated
        at = threshold(self.study.eliminate, len(alive), len(steps))
        for seen in steps:
            some = items[:seen]
            what = f"answers on {seen} validation items"
            self.cache.evaluate(self.parts.tasks, {choice: some}, [cell.edit for cell in alive], what)
            baseline = self.cache.answers(choice, some, BASELINE).right
            edited = [self.cache.answers(choice, some, cell.edit).right for cell in alive]
            better = [int((right & ~baseline).sum()) for right in edited]
            worse = [int((baseline & ~right).sum()) for right in edited]
            gone = hopeless(better, worse, seen, len(items), at)
            self.eliminated |= {cell.edit: seen for cell, is_gone in zip(alive, gone, strict=True) if is_gone}
            alive = [cell for cell, is_gone in zip(alive, gone, strict=True) if not is_gone]
        return alive

    def _compose(self, chosen: Truncate, ranked: Sequence[GridCell]) -> None:
        """Add the best cell of each further matrix while that makes the score better; else go back to what was there.

        The order is that of the single scores (Sharma et al., section 5.1, go greedily too). What is not better than
        the baseline by itself is not tried.
        """
        current: Edit = chosen
        self._note(chosen, chosen, self.baseline, "the best single edit", accepted=True)
        seen = {chosen.address}
        for cell in ranked:
            if cell.edit.address in seen or not self.scores[cell.edit].better(self.baseline):
                continue
            seen.add(cell.edit.address)
            tried = Compose((current, cell.edit))
            self.evaluate("validation", [tried], f"answers with {cell.edit} added")
            before, self.scores[tried] = self.scores[current], self._score(tried)
            label = self._collapsed(tried)
            accepted = self.scores[tried].better(before) and not label
            reason = "better" if accepted else "one answer to nearly all items" if label else "not better, rolled back"
            self._note(cell.edit, tried, before, reason, accepted=accepted)
            if accepted:
                current = self.composed = tried

    def _note(self, added: Edit, edit: Edit, before: Score, reason: str, *, accepted: bool) -> None:
        """Note a step of the composition."""
        before_named, after = (each.named(self.study.objective) for each in (before, self.scores[edit]))
        step = result.Step(
            step=len(self.steps), added=str(added), edit=str(edit), before=before_named, after=after,
            accepted=accepted, reason=reason,
        )  # fmt: skip
        self.steps.append(step)


def screen_tasks(tasks: Mapping[TaskChoice, Task]) -> dict[TaskChoice, Task]:
    """What a screen asks: gold answers; of a contrast the task itself, which is one pass already."""
    asked: dict[TaskChoice, Task] = {}
    for choice, task in tasks.items():
        asked |= {choice: task} if task.kind == "contrast" else gold_tasks({choice: task})
    return asked


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
    is_label = items > 1 and count >= round(LABEL * items, 6) and count - before >= round(MORE * items, 6)
    return label, count / items, is_label


def mean_of(golds: NDArray[np.float64]) -> float:
    """The mean log-probability; that of an answer that is not a number is less than any."""
    return float(golds.mean()) if not np.isnan(golds).any() else -math.inf


def looks(items: int) -> list[int]:
    """After how many of the items a search looks back: 8, 16, 32, … below their number.

    The last look is when all are answered; it is no part of the list, since nothing is left to be saved then.
    """
    return list(takewhile(lambda seen: seen < items, (8 << doubling for doubling in count())))


def no_worse(better: int, worse: int, seen: int, items: int) -> float:
    """A p-value of "on all items this edit is right at least as often as the baseline", from a part of them.

    Items come in random order, so those on which the two differ are drawn without replacement from all such items of
    the whole set. If among all D of them at least half speak for the edit, the chance that of those seen so far at
    most `better` do is at most the hypergeometric tail with exactly half. D is not known; the largest tail over all D
    that are still possible is an exact bound, 0 where the remaining items could not make good what is lost.

    `better` of the items `seen` only the edit has right, `worse` only the baseline.
    """
    differing = better + worse
    if better >= worse:
        return 1.0
    total = np.arange(differing, differing + items - seen + 1)
    half = -(-total // 2)
    # P(at most `better` of `differing` draws are among the `half` that speak for the edit).
    return float(np.max(hypergeom.cdf(better, total, half, differing)))


def threshold(error: float, cells: int, number_of_looks: int) -> float:
    """The p-value at which a cell is given up, so that over all cells and looks the chance of any error is bounded.

    An error is: a cell that on all validation items is right as often as the baseline, or more often, is given up.
    Bonferroni's inequality over cells and looks, whatever their dependence.
    """
    return error / max(1, cells * number_of_looks)


def hopeless(better: Sequence[int], worse: Sequence[int], seen: int, items: int, at: float) -> list[bool]:
    """Which cells are given up at a look; `better` and `worse` per cell as in `no_worse`, `at` from `threshold`."""
    pairs = list(zip(better, worse, strict=True))
    p_values = {pair: no_worse(*pair, seen, items) for pair in set(pairs)}
    return [p_values[pair] <= at for pair in pairs]
