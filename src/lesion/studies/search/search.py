"""The search: a screen by log-probability that halves the candidates, a choice by accuracy on other items, what luck
gives there, and a test on items that neither saw.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lesion.core.cached_answers import Answers, CachedAnswers, gold_of, gold_tasks
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.edits.edit import BASELINE, Edit
from lesion.models.load import Model
from lesion.models.order import Order, order_text
from lesion.models.reordered import in_order
from lesion.statistics.luck import best_by_luck
from lesion.studies.search.candidates import BETTER, Candidate
from lesion.studies.search.study import SearchStudy
from lesion.studies.truncation.search import Items, collapsed, looks, mean_of, screen_tasks
from lesion.tasks.task import Item, Task

RIVALS = 5
"""Random candidates of the kind of the chosen one."""
Tasks = Mapping[TaskChoice, Task]


class Networks:
    """The model in every order of its blocks that candidates need, and the answers of each; no weight is copied."""

    def __init__(self, evaluation: Evaluation, chosen: ModelChoice, model: Model) -> None:
        self.model = model
        self._evaluation, self._chosen = evaluation, chosen
        self._own = tuple(range(len(model.anatomy.blocks)))
        self._caches: dict[Order, CachedAnswers] = {}

    def name(self, order: Order) -> str:
        """What the network of an order is called among the stored answers."""
        return self._chosen.name if order == self._own else f"{self._chosen.name} order {order_text(order)}"

    def _cache(self, order: Order) -> CachedAnswers:
        if order not in self._caches:
            network, chosen = in_order(self.model, order), self._chosen
            if network is not self.model:
                only = {"source": self.name(order), "revision": None, "dtype": None}
                chosen = chosen.model_copy(update=only)
            self._evaluation.add(chosen.name, network)
            self._caches[order] = CachedAnswers(self._evaluation, chosen, network)
        return self._caches[order]

    def evaluate(
        self, wanted: Sequence[Candidate], tasks: Tasks, items: Items, what: str, *, estimated: bool = False
    ) -> None:
        """Have the unedited model and candidates answer these items, as far as they have not, network by network."""
        by_order: dict[Order, list[Edit]] = defaultdict(list, {self._own: [BASELINE]})
        for candidate in wanted:
            by_order[candidate.order].append(candidate.edit)
        pending = {order: self._cache(order).pending(tasks, items, edits) for order, edits in by_order.items()}
        total, left = sum(each.total for each in pending.values()), sum(len(each.cells) for each in pending.values())
        if left:
            self._evaluation.run.watcher.inner.begin(self._chosen.name, total, total - left, what)
        for order, each in pending.items():
            self._cache(order).answer(each, what, begun=True, estimated=estimated)

    @property
    def requested(self) -> int:
        """How many answers the search has asked for, whether or not they were stored before."""
        return sum(len(cache.requested) for cache in self._caches.values())

    def answers(self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]) -> Answers:
        """The answers of a candidate, or of the unedited model."""
        return self._caches[self._order(candidate)].answers(choice, items, candidate.edit if candidate else BASELINE)

    def gold(self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]) -> float:
        """The mean log-probability of the gold answers."""
        cache = self._caches[self._order(candidate)]
        return mean_of(cache.golds(choice, items, candidate.edit if candidate else BASELINE))

    def _order(self, candidate: Candidate | None) -> Order:
        return candidate.order if candidate else self._own


@dataclass
class Contest:
    """Candidates among which one is chosen.

    Attributes:
        finalists: those left by the screen.
        best: on the items that choose; chosen: the same, where it may be.
        gain, gold_gain: of every finalist there, minus the unedited model's; mean over tasks.
        by_luck: gains of the best on draws of signs.
    """

    name: str
    candidates: list[Candidate]
    finalists: list[Candidate] = field(default_factory=list)
    best: Candidate | None = None
    chosen: Candidate | None = None
    gain: dict[Candidate, float] = field(default_factory=dict)
    gold_gain: dict[Candidate, float] = field(default_factory=dict)
    by_luck: np.ndarray | None = None


@dataclass
class Search:
    """A search at work.

    Args:
        tasks: on which candidates are chosen; controls: beside.
        screen, choice, test: the items of each task that screen, choose and test; test also of the controls.
        earlier: searches whose choices these items have tested already.

    Attributes:
        screened: gain of the log-probability of the gold answers in the screen, and on how many items of each task.
        rivals: of every contest, candidates of the kind of the chosen one.
    """

    study: SearchStudy
    candidates: Sequence[Candidate]
    networks: Networks
    tasks: Tasks
    controls: Tasks
    screen: Items
    choice: Items
    test: Items
    earlier: int = 0
    contests: list[Contest] = field(default_factory=list)
    screened: dict[Candidate, tuple[float, int]] = field(default_factory=dict)
    rivals: dict[str, list[Candidate]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_contest: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.candidates:
            by_contest[candidate.contest].append(candidate)
        self.contests = [Contest(name, own) for name, own in by_contest.items()]

    @property
    def rounds(self) -> list[tuple[int, int]]:
        """Of the screen: so many items of each task, and how many candidates are left behind them; ever more items."""
        most, screen = max(map(len, self.screen.values()), default=0), self.study.screen
        if screen == "none" or not most:
            return []
        left, rounds = max(len(contest.candidates) for contest in self.contests), []
        for seen in (*looks(most), most):
            if left <= screen:
                break
            left = screen if seen == most else max(screen, -(-left // 2))
            rounds.append((seen, left))
        return rounds

    def run(self) -> None:
        """Screen, choose, and evaluate what was chosen and its rivals on the test items."""
        self._screen()
        everyone = [candidate for contest in self.contests for candidate in contest.finalists]
        self._evaluate(everyone, self.tasks, self.choice, "answers on the items that choose")
        for contest in self.contests:
            self._choose(contest)
        chosen = {contest.name: contest.chosen for contest in self.contests if contest.chosen is not None}
        everything = {**self.tasks, **self.controls} if chosen else {}
        self._evaluate(list(chosen.values()), everything, self.test, "answers on test items")
        generator = np.random.default_rng(self.study.seed)
        for contest in self.contests:
            best = chosen.get(contest.name)
            alike = [each for each in contest.candidates if best and each.how == best.how and each != best]
            drawn = sorted(generator.choice(len(alike), min(RIVALS, len(alike)), replace=False)) if alike else []
            self.rivals[contest.name] = [alike[place] for place in drawn]
        if rivals := [rival for own in self.rivals.values() for rival in own]:
            self.networks.evaluate(rivals, self.tasks, self.test, "answers of random candidates")

    def _evaluate(self, candidates: Sequence[Candidate], tasks: Tasks, items: Items, what: str) -> None:
        """Evaluate tasks and, of those that generate, the log-probability of the gold answers too."""
        generating = gold_tasks({choice: task for choice, task in tasks.items() if task.kind == "generate"})
        of_golds = {gold_of(choice): drawn for choice, drawn in items.items()}
        if tasks:
            self.networks.evaluate(candidates, {**tasks, **generating}, {**items, **of_golds}, what)

    def _screen(self) -> None:
        tasks = screen_tasks(self.tasks)
        alive = {contest.name: contest.candidates for contest in self.contests}
        for seen, left in self.rounds:
            some = {choice: drawn[:seen] for choice, drawn in self.screen.items()}
            items = {**some, **{gold_of(choice): drawn for choice, drawn in some.items()}}
            large = {name: own for name, own in alive.items() if len(own) > left}
            everyone = [candidate for own in large.values() for candidate in own]
            self.networks.evaluate(everyone, tasks, items, "answers of the screen")
            before = {choice: self.networks.gold(None, choice, drawn) for choice, drawn in some.items()}
            for name, own in large.items():
                for candidate in own:
                    gains = [self._gain(candidate, choice, some[choice], before[choice]) for choice in some]
                    self.screened[candidate] = float(np.mean(gains)), seen
                ranked = sorted(own, key=lambda candidate: (self.screened[candidate][0], candidate.kept), reverse=True)
                alive[name] = ranked[:left]
        for contest in self.contests:
            kept = set(alive[contest.name])
            contest.finalists = [candidate for candidate in contest.candidates if candidate in kept]

    def _gain(self, candidate: Candidate, choice: TaskChoice, items: Sequence[Item], before: float) -> float:
        after = self.networks.gold(candidate, choice, items)
        return 0.0 if after == before else after - before  # −∞ − −∞ would be no number

    def _choose(self, contest: Contest) -> None:
        own = {choice: self.networks.answers(None, choice, items) for choice, items in self.choice.items()}
        sound: list[Candidate] = []
        gains: dict[TaskChoice, list[np.ndarray]] = {choice: [] for choice in own}
        for candidate in contest.finalists:
            edited = {choice: self.networks.answers(candidate, choice, self.choice[choice]) for choice in own}
            each = {choice: edited[choice].right.astype(float) - own[choice].right for choice in own}
            contest.gain[candidate] = float(np.mean([gain.mean() for gain in each.values()]))
            golds = [self._gain(candidate, choice, self.choice[choice], mean_of(own[choice].gold)) for choice in own]
            contest.gold_gain[candidate] = float(np.mean(golds))
            if not any(collapsed(edited[choice], own[choice])[2] for choice in own):
                sound.append(candidate)
                for choice, gain in each.items():
                    gains[choice].append(gain)

        def rank(candidate: Candidate) -> tuple[float, float, float]:
            gold = contest.gold_gain[candidate]
            return round(contest.gain[candidate], 12), -math.inf if math.isnan(gold) else gold, candidate.kept

        contest.best = max(sound, key=rank, default=None)
        if contest.best is None:
            return
        if contest.name == BETTER:
            contest.by_luck = best_by_luck([np.array(each) for each in gains.values()], self.study.seed)
        if contest.name != BETTER or contest.gain[contest.best] > 1e-12:
            contest.chosen = contest.best
