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

from lesion.core.apart import chosen_and_tested
from lesion.core.cached_answers import Answers, CachedAnswers, for_golds, gold_tasks, with_golds
from lesion.core.study_file import TaskChoice
from lesion.edits.edit import BASELINE, Compose, Edit, Side, Truncate
from lesion.errors import UsageError, nearest
from lesion.models.anatomy import Anatomy
from lesion.studies.truncation import result
from lesion.studies.truncation.result import TruncatedMatrix
from lesion.studies.truncation.study import Objective, Screen, Sides, TruncationStudy
from lesion.tasks.task import Item, Task

ALL = "all"
SIDES: Mapping[Sides, tuple[Side, ...]] = {"top": ("top",), "bottom": ("bottom",), "both": ("top", "bottom")}


def grid(
    anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str], keep: Sequence[float], side: Sides
) -> tuple[dict[Truncate, TruncatedMatrix], int]:
    """Every matrix × keep × side of the layers, each different edit once.

    Args:
        matrices: `mlp.up`, a whole branch (`mlp`, `attention`), or `all`.

    Returns:
        Each edit with its line in the result, before it is evaluated; how many others leave the same, or all.
    """
    cells: dict[Truncate, TruncatedMatrix] = {}
    merged = 0
    wanted = _named(anatomy, layers, matrices)
    for layer in layers:
        for name, matrix in anatomy.block(layer).matrices.items():
            if name not in wanted:
                continue
            rank = min(matrix.shape)
            known = {range(rank)}  # what keeps all components is the baseline
            for kept_side in SIDES[side]:
                for fraction in sorted(keep, reverse=True):
                    edit = Truncate(matrix.address, fraction, kept_side)
                    kept = range(*edit.kept(rank))
                    if kept in known:
                        merged += 1
                        continue
                    known.add(kept)
                    saved = matrix.shape[0] * matrix.shape[1] - len(kept) * sum(matrix.shape)
                    cells[edit] = TruncatedMatrix(
                        edit=str(edit), address=matrix.address, layer=layer, matrix=name, keep=fraction,
                        side=kept_side, rank=len(kept), of=rank, saved=saved,
                    )  # fmt: skip
    if not cells:
        raise UsageError(
            "Nothing is left to try: every keep leaves its matrix as it is. Give smaller ones, for example --keep 0.1."
        )
    return cells, merged


def merged_note(merged: int) -> list[str]:
    """Of keeps that were the same as others, that they are not asked; of none nothing."""
    return [f"{merged} keeps leave the same components as another, or all, and were not asked again."] * bool(merged)


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
            known = [*there, "attention", "mlp", ALL]
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
    """The items of every task on which an edit is chosen, and those on which it is tested; neither part is empty."""
    validation: dict[TaskChoice, Sequence[Item]] = {}
    test: dict[TaskChoice, Sequence[Item]] = {}
    for choice, items in drawn.items():
        parts = chosen_and_tested(choice.name, items, share)
        validation[choice], test[choice] = ([items[place] for place in part] for part in parts)
        if not test[choice]:
            raise UsageError(
                f"All {len(items):,} items of {choice.name} ask what those ask that choose, so that none is left for a"
                " test; give more questions."
            )
    return Split(tasks, validation, test)


ORDER: Mapping[Objective, tuple[Objective, Objective]] = {
    "accuracy": ("accuracy", "gold"),
    "gold": ("gold", "accuracy"),
}
Score = tuple[float, float]
"""How good an edit is on validation items, in the order of the objective: the second number orders equals of the first.

Against the unedited model, and against what a composition has already, the first alone decides: what has the same
number of items right does not make the model better, however its log-probabilities have moved.
"""


@dataclass
class Search:
    """A search on validation items alone, and what it decided.

    Attributes:
        screen: what it was; screened: mean log-probability of gold answers minus the baseline's, of every cell.
        evaluated: the cells that were to be evaluated in full, in the order of the grid.
        eliminated: after how many items each cell was given up, at so many `looks`.
        scores: of the cells that were answered in full; baseline: of the unedited model.
        best: the best cell; chosen: the same, if it is better than the baseline.
        composed: the composition, if more than one edit was accepted, by its steps.
    """

    study: TruncationStudy
    cells: Mapping[Truncate, TruncatedMatrix]
    parts: Split
    cache: CachedAnswers
    screen: Screen | None = None
    screened: dict[Truncate, float] = field(default_factory=dict)
    evaluated: list[Truncate] = field(default_factory=list)
    eliminated: dict[Truncate, int] = field(default_factory=dict)
    scores: dict[Edit, Score] = field(default_factory=dict)
    baseline: Score = (math.nan, math.nan)
    chosen: Truncate | None = None
    best: Truncate | None = None
    steps: list[result.Step] = field(default_factory=list)
    composed: Compose | None = None
    looks: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def tested(self) -> list[Edit]:
        """The edits that are evaluated on test items: the best one and the composition."""
        return [edit for edit in (self.best, self.composed) if edit is not None]

    def run(self) -> None:
        """Screen, evaluate, choose and compose."""
        self._screen()
        alive = self._alive()
        self.evaluate(self.parts.validation, alive, "validation answers")
        self.baseline = self._score(BASELINE)
        self.scores |= {edit: self._score(edit) for edit in alive}
        sound = [edit for edit in alive if not self._collapsed(edit)]
        # Of equals, the edit that keeps more: it changes less.
        kept = {edit: cell.rank / cell.of for edit, cell in self.cells.items()}
        ranked = sorted(sound, key=lambda edit: (self.scores[edit], kept[edit]), reverse=True)
        if ranked:
            self.best = ranked[0]
            if self._better(self.best):
                self.chosen = self.best
        if self.study.compose and self.chosen is not None:
            self._compose(self.chosen, ranked)

    def pair(self, choice: TaskChoice, edit: Edit, items: Items) -> tuple[Answers, Answers]:
        """The answers of the unedited model to some items of a task, and those under an edit."""
        return self.cache.answers(choice, items[choice], BASELINE), self.cache.answers(choice, items[choice], edit)

    def evaluate(self, items: Items, edits: Sequence[Edit], what: str) -> None:
        """Evaluate the tasks and, of those that generate, the log-probability of the gold answers too."""
        self.cache.evaluate(with_golds(self.parts.tasks), for_golds(items), edits, what)

    def _collapsed(self, edit: Edit) -> bool:
        """Whether nearly all validation items of some task get one answer that they do not get without the edit."""
        pairs = (self.pair(choice, edit, self.parts.validation) for choice in self.parts.tasks)
        return any(collapsed(edited, baseline)[2] for baseline, edited in pairs)

    def _score(self, edit: Edit) -> Score:
        """Means over tasks of their means over validation items; a log-probability that is no number counts as none."""
        answers = [self.cache.answers(choice, items, edit) for choice, items in self.parts.validation.items()]
        means = {
            "accuracy": float(np.mean([float(each.right.mean()) for each in answers])),
            "gold": float(np.mean([mean_of(each.gold) for each in answers])),
        }
        first, second = ORDER[self.study.objective]
        return means[first], means[second]

    def _better(self, edit: Edit, than: Edit = BASELINE) -> bool:
        """Whether the first number is greater; never where it is not a number."""
        return self.scores[edit][0] > self.scores.get(than, self.baseline)[0]

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
        self.cache.evaluate(screen_tasks(self.parts.tasks), for_golds(items), self.evaluated, "screen answers")

        def mean(edit: Edit) -> float:
            return float(np.mean([mean_of(self.cache.golds(choice, items[choice], edit)) for choice in items]))

        self.screen, baseline = screen, mean(BASELINE)
        means = {edit: mean(edit) for edit in self.cells}
        self.screened = {edit: gold_gain(baseline, gold) for edit, gold in means.items()}
        order = sorted(means, key=means.__getitem__, reverse=True)
        rest = order[screen.best :]
        drawn = np.random.default_rng(self.study.seed).choice(len(rest), min(screen.random, len(rest)), replace=False)
        kept = {*order[: screen.best], *(rest[index] for index in drawn)}
        self.evaluated = [edit for edit in self.cells if edit in kept]

    def _alive(self) -> list[Truncate]:
        """The cells that are not given up: those worse than the baseline are, at looks after some of the items."""
        alive = self.evaluated
        if self.study.eliminate is None:
            return alive
        if self.study.objective != "accuracy" or len(self.parts.tasks) > 1:
            self.notes.append("No cell is given up early: the bound holds for the accuracy on a single task only.")
            return alive
        ((choice, items),) = self.parts.validation.items()
        steps = looks(len(items))
        self.looks = len(steps)
        if not steps:
            self.notes.append(f"No cell is given up early: {len(items)} validation items are too few to look back at.")
        at = threshold(self.study.eliminate, len(alive), len(steps))
        for seen in steps:
            some = items[:seen]
            self.cache.evaluate(self.parts.tasks, {choice: some}, alive, f"{seen} validation answers")
            baseline = self.cache.answers(choice, some, BASELINE).right
            edited = [self.cache.answers(choice, some, edit).right for edit in alive]
            better = [int((right & ~baseline).sum()) for right in edited]
            worse = [int((baseline & ~right).sum()) for right in edited]
            gone = hopeless(better, worse, seen, len(items), at)
            self.eliminated |= {edit: seen for edit, is_gone in zip(alive, gone, strict=True) if is_gone}
            alive = [edit for edit in alive if edit not in self.eliminated]
        return alive

    def _compose(self, chosen: Truncate, ranked: Sequence[Truncate]) -> None:
        """Add the best cell of each further matrix while that makes the score better; else go back to what was there.

        The order is that of the single scores (Sharma et al., section 5.1, go greedily too). What is not better than
        the baseline by itself is not tried.
        """
        current: Edit = chosen
        self._note(chosen, chosen, self.baseline, "the best single edit", accepted=True)
        seen = {chosen.address}
        for edit in ranked:
            if edit.address in seen or not self._better(edit):
                continue
            seen.add(edit.address)
            tried = Compose((current, edit))
            self.evaluate(self.parts.validation, [tried], f"answers with {edit}")
            self.scores[tried], label = self._score(tried), self._collapsed(tried)
            accepted = self._better(tried, current) and not label
            reason = "better" if accepted else "one answer to nearly all items" if label else "not better, rolled back"
            self._note(edit, tried, self.scores[current], reason, accepted=accepted)
            if accepted:
                current = self.composed = tried

    def _note(self, added: Edit, edit: Edit, before: Score, reason: str, *, accepted: bool) -> None:
        names = ORDER[self.study.objective]
        old, new = (result.Score(**dict(zip(names, score, strict=True))) for score in (before, self.scores[edit]))
        step = result.Step(
            step=len(self.steps), added=str(added), edit=str(edit), before=old, after=new, accepted=accepted,
            reason=reason,
        )  # fmt: skip
        self.steps.append(step)


def screen_tasks(tasks: Mapping[TaskChoice, Task]) -> dict[TaskChoice, Task]:
    """What a screen asks: gold answers; of a contrast or a score the task itself, which is one pass already."""
    passes = {choice: task for choice, task in tasks.items() if task.kind in ("contrast", "score")}
    return passes | gold_tasks({choice: task for choice, task in tasks.items() if choice not in passes})


def collapsed(answers: Answers, baseline: Answers) -> tuple[str, float, bool]:
    """The most frequent answer, the share of items that it is given to, and whether it is a label.

    It is a label where at least 90 % of the answers are the same, and the unedited model gives that same answer to at
    least 10 points fewer of the items, however often it is right. A single item says nothing.
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


def gold_gain(before: float, after: float) -> float:
    """What a mean log-probability gains; 0 where both are broken, since −∞ − −∞ is no number."""
    return 0.0 if after == before else after - before


def looks(items: int) -> list[int]:
    """After how many of the items a search looks back: 8, 16, 32, … below their number."""
    return list(takewhile(lambda seen: seen < items, (8 << doubling for doubling in count())))


def no_worse(better: int, worse: int, seen: int, items: int) -> float:
    """A p-value of "on all items this edit is right at least as often as the baseline", from a part of them.

    Items come in random order, so those on which the two differ are drawn without replacement from all such items of
    the whole set. If among all D of them at least half speak for the edit, the chance that of those seen so far at
    most `better` do is at most the hypergeometric tail with exactly half. D is not known; the largest tail over all D
    that are still possible is an exact bound, 0 where the remaining items could not make good what is lost.
    """
    differing = better + worse
    if better >= worse:
        return 1.0
    total = np.arange(differing, differing + items - seen + 1)
    half = -(-total // 2)
    # P(at most `better` of `differing` draws are among the `half` that speak for the edit).
    return float(np.max(hypergeom.cdf(better, total, half, differing)))


def threshold(error: float, cells: int, number_of_looks: int) -> float:
    """The p-value at which a cell is given up, so that over all cells and looks the chance is bounded (Bonferroni) that
    one which on all validation items is right as often as the baseline is given up.
    """
    return error / max(1, cells * number_of_looks)


def hopeless(better: Sequence[int], worse: Sequence[int], seen: int, items: int, at: float) -> list[bool]:
    """Which cells are given up at a look; `better` and `worse` per cell as in `no_worse`, `at` from `threshold`."""
    pairs = list(zip(better, worse, strict=True))
    p_values = {pair: no_worse(*pair, seen, items) for pair in set(pairs)}
    return [p_values[pair] <= at for pair in pairs]
