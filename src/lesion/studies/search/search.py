"""The search: candidates, a screen by log-probability that halves them, a choice by accuracy (of running text: by
perplexity) on other items, what luck gives there, and a test on items that neither saw.

A candidate is an order of a model's blocks, and an edit of the network in that order. A dropped run is an exact zero
ablation, so all drops are edits of the model itself. Repeats that end at one block are edits of one network: it repeats
the longest run that ends there, and blocks of the copies that stand before a shorter run's begin are zeroed. So lengths
and dampings share a batch, and in it all that stands before the first copy.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lesion.core.cached_answers import Answers, CachedAnswers, for_golds, with_golds
from lesion.core.run import Evaluation
from lesion.core.study_file import ModelChoice, TaskChoice
from lesion.core.values import alike
from lesion.edits.edit import BASELINE, SCALES, Edit, ScaleAttention, ScaleBlock, ScaleMlp, Single, composed, number
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.load import Model
from lesion.models.order import Order, order_text
from lesion.models.reordered import in_order
from lesion.report import wording
from lesion.report.wording import counted
from lesion.statistics.luck import best_by_luck
from lesion.studies.search.study import OF, Family, SearchStudy
from lesion.studies.truncation.search import (
    Items,
    collapsed,
    gold_gain,
    grid,
    looks,
    mean_of,
    merged_note,
    screen_tasks,
)
from lesion.tasks.task import Item, Task

BETTER = "better"
"""The contest of all candidates that are to make a model better; each length of dropped runs is one of its own."""


@dataclass(frozen=True)
class Candidate:
    """One change of the layout.

    Attributes:
        name: in words, unique in a search: `blocks 3–5 twice (×0.5)`; contest: `better`, or `drop 3`.
        how: what is done, whatever the blocks: `3 blocks twice (×0.5)`; those that are done alike are its rivals.
        order, edit: the network in which it is evaluated, and the edit of that network.
        written, damped: the same as a checkpoint: its blocks, and the edit of the model that has these.
    """

    family: Family
    name: str
    contest: str
    first: int
    length: int
    how: str
    order: Order
    edit: Edit
    written: Order
    damped: Edit
    kept: float = 0.0


def candidates(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> list[Candidate]:
    """All candidates of a study, family by family."""
    found: list[Candidate] = []
    for family in study.family:
        own = list(_FAMILIES[family](study, anatomy, layers))
        if not own:
            raise UsageError(
                f"There is nothing to {family} in {anatomy.name}, which has {counted(len(anatomy.blocks), 'block')},"
                f" with --lengths {','.join(map(str, study.lengths))} and --layers {study.layers}; give others."
            )
        found += own
    return found


def without_effect(
    study: SearchStudy, anatomy: Anatomy, layers: Sequence[int], found: Sequence[Candidate]
) -> list[str]:
    """Notes on what was asked for and makes no candidate, or no difference."""
    notes, runs = [], {candidate.length for candidate in found if candidate.family in OF["lengths"]}
    given = study.lengths if study.lengths != SearchStudy.model_fields["lengths"].default else ()
    if none := sorted({*given} - runs):
        notes.append(f"No run of {wording.listed(list(map(str, none)), 'or')} blocks can be tried in these layers.")
    if "truncate" in study.family:
        merged = grid(anatomy, layers, study.matrices, study.keep, study.side)[1]
        notes += merged_note(merged)
    most, left = max(map(len, alike(found, "contest"))), study.screen
    if left not in ("none", SearchStudy.model_fields["screen"].default) and most <= int(left):
        notes.append(f"Every candidate is evaluated in full: a screen to {left} would leave none out.")
    return notes


def _runs(lengths: Sequence[int], layers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First block and length of every run within the layers."""
    for length in sorted(lengths):
        for first in layers:
            if {*layers}.issuperset(range(first, first + length)):
                yield first, length


def _repeat(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    runs, blocks = list(_runs(study.lengths, layers)), len(anatomy.blocks)
    lacking = [at for at in layers if None in (anatomy.block(at).attention, anatomy.block(at).mlp)]
    if lacking and {*study.damping} != {1.0}:
        raise UsageError(
            f"Damping scales attention and MLP, and block {lacking[0]} of {anatomy.name} has not both; leave --damping"
            " out, or give other --layers."
        )
    longest = {first + length - 1: length for first, length in runs}
    for times in study.times:
        for first, length in runs:
            last = first + length - 1
            most, rest = longest[last], range(last + 1, blocks)
            order = (*range(last + 1), *[*range(last + 1 - most, last + 1)] * (times - 1), *rest)
            written = (*range(last + 1), *[*range(first, last + 1)] * (times - 1), *rest)
            for damping in study.damping:
                ends = [last + 1 + copy * most for copy in range(1, times)]
                zeroed = [ScaleBlock(place, 0.0) for end in ends for place in range(end - most, end - length)]
                own = _damped([place for end in ends for place in range(end - length, end)], damping)
                damped, parts = _damped(range(last + 1, last + 1 + length * (times - 1)), damping), [*zeroed, *own]
                how = f"{_TIMES.get(times, f'{times} times')}{f' (×{number(damping)})' * (damping != 1)}"
                yield Candidate(
                    "repeat", f"{_named(first, length)} {how}", BETTER, first, length,
                    f"{counted(length, 'block')} {how}", order, composed(parts) if parts else BASELINE, written,
                    composed(damped) if damped else BASELINE, -length * (times - 1.0),
                )  # fmt: skip


_TIMES = {2: "twice", 3: "three times", 4: "four times"}


def _damped(places: Sequence[int], damping: float) -> list[Single]:
    """Attention and MLP multiplied each, as their last matrices can be, and as a block's whole contribution cannot."""
    return [unit(place, damping) for place in places for unit in (ScaleAttention, ScaleMlp) if damping != 1]


def _drop(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    blocks = len(anatomy.blocks)
    for first, length in _runs(study.lengths, layers):
        if length < blocks:
            edit = composed([ScaleBlock(block, 0.0) for block in range(first, first + length)])
            written = tuple(block for block in range(blocks) if not first <= block < first + length)
            name, how = (f"{run} left out" for run in (_named(first, length), counted(length, "block")))
            own = tuple(range(blocks))
            yield Candidate("drop", name, f"drop {length}", first, length, how, own, edit, written, BASELINE)


def _swap(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    blocks = len(anatomy.blocks)
    for first, length in _runs(study.lengths, layers):
        middle, end = first + length, first + 2 * length
        if {*layers}.issuperset(range(middle, end)):
            order = (*range(first), *range(middle, end), *range(first, middle), *range(end, blocks))
            name = f"{_named(first, length)} behind {_named(middle, length)}"
            how, kept = f"{counted(length, 'block')} swapped with the next", -2.0 * length
            yield Candidate("swap", name, BETTER, first, length, how, order, BASELINE, order, BASELINE, kept)


def _scale(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    for unit in study.unit:
        if unit != "block" and not any(getattr(anatomy.block(layer), unit) for layer in layers):
            raise UsageError(f"No block of {anatomy.name} among these has {unit} to scale; give another --unit.")
    for layer in layers:
        for unit in study.unit:
            if unit != "block" and getattr(anatomy.block(layer), unit) is None:
                continue
            for factor in study.factor:
                edit = SCALES[unit](layer, factor)
                how = f"{unit} ×{number(factor)}"
                yield _edited("scale", f"{edit}", layer, how, edit, anatomy, -abs(factor - 1))


def _truncate(study: SearchStudy, anatomy: Anatomy, layers: Sequence[int]) -> Iterator[Candidate]:
    for edit, row in grid(anatomy, layers, study.matrices, study.keep, study.side)[0].items():
        how = f"{row.matrix} {row.side} {number(row.keep)}"
        yield _edited("truncate", row.name, row.layer, how, edit, anatomy, row.rank / row.of - 1)


def _edited(family: Family, name: str, layer: int, how: str, edit: Edit, anatomy: Anatomy, kept: float) -> Candidate:
    order = tuple(range(len(anatomy.blocks)))
    return Candidate(family, name, BETTER, layer, 1, how, order, edit, order, edit, kept)


def _named(first: int, length: int) -> str:
    return f"block {first}" if length == 1 else f"blocks {first}–{first + length - 1}"


_FAMILIES: Mapping[Family, Callable[[SearchStudy, Anatomy, Sequence[int]], Iterator[Candidate]]] = {
    "repeat": _repeat,
    "drop": _drop,
    "swap": _swap,
    "scale": _scale,
    "truncate": _truncate,
}


Tasks = Mapping[TaskChoice, Task]


def running(tasks: Tasks) -> set[TaskChoice]:
    """Those of running text, which have a perplexity and no accuracy."""
    return {choice for choice, task in tasks.items() if task.kind == "score"}


RIVALS = 5
"""Random candidates of the kind of the chosen one."""


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

    def network(self, candidate: Candidate | None) -> tuple[Model, Edit]:
        """The network of a candidate, or of the unedited model, and the edit of it."""
        cache, edit = self._of(candidate)
        return cache.model, edit

    @property
    def unedited(self) -> CachedAnswers:
        """The answers of the model in its own order."""
        return self._cache(self._own)

    def ask(self, wanted: Sequence[Candidate], tasks: Tasks, items: Items) -> None:
        """Note that tasks made from those of the study are asked too, of these candidates' networks."""
        for order in {self._own, *(candidate.order for candidate in wanted)}:
            self._cache(order).ask(tasks, items)

    @property
    def requested(self) -> int:
        """How many answers the search has asked for, whether or not they were stored before."""
        return sum(len(cache.requested) for cache in self._caches.values())

    def answers(self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]) -> Answers:
        """The answers of a candidate, or of the unedited model."""
        cache, edit = self._of(candidate)
        return cache.answers(choice, items, edit)

    def texts(
        self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of running text: log-probabilities under a candidate, and numbers of tokens."""
        cache, edit = self._of(candidate)
        return cache.texts(choice, items, edit)

    def gold(self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]) -> float:
        """The mean log-probability of the gold answers."""
        cache, edit = self._of(candidate)
        return mean_of(cache.golds(choice, items, edit))

    def _of(self, candidate: Candidate | None) -> tuple[CachedAnswers, Edit]:
        if candidate is None:
            return self._caches[self._own], BASELINE
        return self._caches[candidate.order], candidate.edit


@dataclass
class Contest:
    """Candidates among which one is chosen.

    Attributes:
        best: on the items that choose; chosen: the same, where it may be; rivals: of its kind.
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
    rivals: list[Candidate] = field(default_factory=list)


@dataclass
class Search:
    """A search at work.

    Args:
        tasks: on which candidates are chosen; controls: beside, also running text.
        screen, choice, test: the items of each task that screen, choose and test; test also of the controls.
        earlier: searches whose choices these items have tested already.
        screened: gain of the log-probability of the gold answers in the screen, and on how many items of each task.
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

    def __post_init__(self) -> None:
        self.contests = [Contest(own[0].contest, own) for own in alike(self.candidates, "contest")]

    @property
    def running(self) -> set[TaskChoice]:
        """The tasks and controls of running text, which have a perplexity and no accuracy."""
        return running({**self.tasks, **self.controls})

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
        self._evaluate(everyone, self.tasks, self.choice, "answers that choose")
        for contest in self.contests:
            self._choose(contest)
        chosen = [contest.chosen for contest in self.contests if contest.chosen is not None]
        self._evaluate(chosen, {**self.tasks, **self.controls}, self.test, "test answers")
        generator = np.random.default_rng(self.study.seed)
        for contest in self.contests:
            best = contest.chosen
            alike = [each for each in contest.candidates if best and each.how == best.how and each != best]
            if alike:
                drawn = sorted(generator.choice(len(alike), min(RIVALS, len(alike)), replace=False))
                contest.rivals = [alike[place] for place in drawn]
        if rivals := [rival for contest in self.contests for rival in contest.rivals]:
            self.networks.evaluate(rivals, self.tasks, self.test, "answers of rivals")

    def _evaluate(self, candidates: Sequence[Candidate], tasks: Tasks, items: Items, what: str) -> None:
        """Evaluate tasks and, of those that generate, the log-probability of the gold answers too."""
        if candidates:
            self.networks.evaluate(candidates, with_golds(tasks), for_golds(items), what)

    def _screen(self) -> None:
        tasks = screen_tasks(self.tasks)
        alive = {contest.name: contest.candidates for contest in self.contests}
        for seen, left in self.rounds:
            some = {choice: drawn[:seen] for choice, drawn in self.screen.items()}
            large = {name: own for name, own in alive.items() if len(own) > left}
            everyone = [candidate for own in large.values() for candidate in own]
            self.networks.evaluate(everyone, tasks, for_golds(some), "screen answers")
            before = {choice: self._gold(None, choice, drawn) for choice, drawn in some.items()}
            for name, own in large.items():
                for candidate in own:
                    gains = [
                        gold_gain(before[choice], self._gold(candidate, choice, drawn))
                        for choice, drawn in some.items()
                    ]
                    self.screened[candidate] = float(np.mean(gains)), seen
                ranked = sorted(own, key=lambda candidate: (self.screened[candidate][0], candidate.kept), reverse=True)
                alive[name] = ranked[:left]
        for contest in self.contests:
            contest.finalists = [each for each in contest.candidates if each in alive[contest.name]]

    def _gold(self, candidate: Candidate | None, choice: TaskChoice, items: Sequence[Item]) -> float:
        """The mean log-probability of the gold answers; of running text that of a token."""
        if choice not in self.running:
            return self.networks.gold(candidate, choice, items)
        scores, tokens = self.networks.texts(candidate, choice, items)
        return mean_of(scores / tokens.mean())

    def _gains(self, candidate: Candidate, choice: TaskChoice) -> np.ndarray:
        """[items] what a candidate gains on the items that choose: right answers; of running text log-probability, in
        nats a token of the mean text.
        """
        items = self.choice[choice]
        if choice not in self.running:
            before, after = (self.networks.answers(each, choice, items).right for each in (None, candidate))
            return after.astype(float) - before
        (before, tokens), (after, _) = (self.networks.texts(each, choice, items) for each in (None, candidate))
        return (after - before) / tokens.mean()

    def _broken(self, candidate: Candidate, choice: TaskChoice, gains: np.ndarray) -> bool:
        """Whether nearly all answers are one that the unedited model does not give so often, or a text has no score."""
        if choice in self.running:
            return not np.isfinite(gains).all()
        after, before = (self.networks.answers(each, choice, self.choice[choice]) for each in (candidate, None))
        return collapsed(after, before)[2]

    def _choose(self, contest: Contest) -> None:
        sound: list[Candidate] = []
        gains: dict[TaskChoice, list[np.ndarray]] = {choice: [] for choice in self.choice}
        before = {choice: self._gold(None, choice, items) for choice, items in self.choice.items()}
        for candidate in contest.finalists:
            each = {choice: self._gains(candidate, choice) for choice in self.choice}
            contest.gain[candidate] = float(np.mean([gain.mean() for gain in each.values()]))
            golds = [
                gold_gain(before[choice], self._gold(candidate, choice, items)) for choice, items in self.choice.items()
            ]
            contest.gold_gain[candidate] = float(np.mean(golds))
            if not any(self._broken(candidate, choice, gain) for choice, gain in each.items()):
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
