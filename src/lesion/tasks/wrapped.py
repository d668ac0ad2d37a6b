"""Wrapped tasks, made from another: its gold answers, choices within a relation, solved questions before each, answers
shuffled; and how often guessing is right.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

from lesion.errors import UsageError
from lesion.reprs import described
from lesion.statistics.distributions import binomial_sf
from lesion.statistics.paired import ALPHA
from lesion.tasks import running
from lesion.tasks.counterparts import Aligning
from lesion.tasks.gold_classes import GoldClasses
from lesion.tasks.task import Answer, Item, Kind, Task, Verdict


class WrappedTask:
    """A task made from another, which it is like unless it says otherwise.

    Args:
        of: the other task.
        head: what stands before its name.
    """

    def __init__(self, of: Task, head: str) -> None:
        self.of = of
        self.name = f"{head}:{of.name}"
        self.kind: Kind = of.kind
        self.max_new_tokens = of.max_new_tokens
        self.stop = of.stop
        self.style = of.style
        self.unchatted = getattr(of, "unchatted", "plain")
        self.subject: str = getattr(of, "subject", "")
        self.judged_by: str = getattr(of, "judged_by", "")
        self.gold_classes: GoldClasses | None = getattr(of, "gold_classes", None)

    def __repr__(self) -> str:
        return described(self, repr(self.name))

    def load(self) -> Sequence[Item]:
        """The items of the task, changed."""
        return self._items

    def calibration(self) -> Sequence[Item]:
        """The calibration items of the task, changed."""
        return self._pool

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the answer is right, by the rule of the task."""
        return self.of.judge(item, answer)

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """What is made of items of the task."""
        return items

    @cached_property
    def _items(self) -> Sequence[Item]:
        return self.changed(self.of.load())

    @cached_property
    def _pool(self) -> Sequence[Item]:
        return self.changed(calibration_items(self.of))


def calibration_items(task: Task) -> Sequence[Item]:
    """The items of a task that a model is observed on, which are not those that are asked where there are others.

    From the hub, another split: `train` of gsm8k, triviaqa, nq_open and race, `validation` and `dev` of mmlu,
    `validation` of wikitext. The primer's arithmetic, reading and text are generated anew, of the training split, and
    so is ioi. Of math500 (one split), the atlas and the facts (one world) and local files there is nothing else: these
    are the items that are asked; name another file for calibration to keep them apart.
    """
    items: Sequence[Item] = getattr(task, "calibration", task.load)()
    return items


def gold_name(task: str) -> str:
    """`gold:TASK`: what stored answers call the gold answers of a task."""
    return f"gold:{task}"


class Gold(WrappedTask):
    """A task whose answer is the summed log-probability of its gold continuation after its prompt (kind `score`).

    `lesion.tasks.continuations.encode_gold` says what the continuation is. Items keep the ids of the task, so that a
    screen by this score and the task itself are about the same items.
    """

    def __init__(self, of: Task) -> None:
        if of.kind == "score":
            raise UsageError(
                f"{of.name} is scored by its log-probability already and has no gold answers; leave 'gold:' out."
            )
        super().__init__(of, "gold")
        self.kind, self.max_new_tokens, self.stop = "score", 1, ()

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the log-probability is finite; nothing else is right or wrong about a score."""
        return running.verdict(item, answer)


class Relation(WrappedTask):
    """Facts whose answer is the likeliest right text of all items of the same group, each as a whole (kind `choose`).

    Items keep their ids; those of a relation with one object are left out.
    """

    def __init__(self, of: Task) -> None:
        super().__init__(of, "relation")
        self.kind, self.max_new_tokens, self.stop = "choose", 1, ()

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items with the objects of their relation as choices, in the order of the alphabet."""
        of_group: dict[str, set[str]] = {}
        for item in items:
            of_group.setdefault(item.group, set()).add(item.gold)
        return [
            replace(item, choices=tuple(sorted(of_group[item.group])))
            for item in items
            if len(of_group[item.group]) > 1
        ]

    def judge(self, item: Item, answer: Answer) -> Verdict:
        """Whether the right text was chosen."""
        return Verdict(answer.finish != "nonfinite" and answer.text == item.gold, answer.text)


def has_relations(task: Task) -> bool:
    """Whether the groups of a task are relations, whose right texts are of one kind."""
    return task.kind == "contrast" and getattr(task, "shared", "") == "relation"


# Where a model goes on with a next question, as it saw several, its answer has ended.
NEXT_QUESTION = "\nQuestion:"
NEXT_PROMPT = "\n\n"


class FewShot(WrappedTask):
    """A task asked after some of its questions with their solutions.

    The shots are drawn from the calibration items of the task by the id of the item that is asked, which is never among
    them, nor a question of the same words. The shots of one item for a smaller number are the first of those for a
    larger one. A shot is solved by its worked solution, with `#### ANSWER` behind it where it does not mark its answer
    itself; by its gold answer where the judge wants that alone; of items with choices, by the gold choice. No
    instruction is given: the shots show what is wanted.

    A generated answer ends where a next question begins: at "\\nQuestion:", in style `raw` also at an empty line.
    """

    def __init__(self, of: Task, count: int) -> None:
        if of.kind == "score":
            raise UsageError(f"{of.name} is scored as text and has no solved questions; fewshot:K:TASK needs some.")
        super().__init__(of, f"fewshot:{count}")
        self.count = count
        self.subject = ""  # the shots show what is wanted
        if self.kind == "generate":
            more = (NEXT_QUESTION, NEXT_PROMPT) if "raw" in (self.style, self.unchatted) else (NEXT_QUESTION,)
            self.stop = tuple(dict.fromkeys((*of.stop, *more)))

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, each with its shots; it raises `UsageError` where the task has not enough other items."""
        pool = calibration_items(self.of)
        solved: dict[str, str] = {}
        with_shots = []
        for item in items:
            shots = draw_shots(item, pool, self.count, self.of.name)
            for shot in shots:
                if shot.id not in solved:
                    solved[shot.id] = solution(self.of, shot)
            with_shots.append(replace(item, shots=tuple((shot.question, solved[shot.id]) for shot in shots)))
        return tuple(with_shots)

    def aligned(self, item: Item) -> Iterable[Item] | None:
        """The aligned items of the task behind the shots of an item, which show none of them."""
        others = self.of.aligned(item) if isinstance(self.of, Aligning) else None
        if others is None:
            return None
        shown = {question for question, _ in item.shots}
        return (replace(other, shots=item.shots) for other in others if other.question not in shown)


def draw_shots(item: Item, pool: Sequence[Item], count: int, task: str) -> list[Item]:
    """Items of a pool to stand before an item: a function of its id and the pool, the first of a seeded order."""
    rng = random.Random(f"shots before {item.id}")
    taken: list[Item] = []
    words = {item.question}
    seen: set[int] = set()
    while len(taken) < count and len(seen) < len(pool):
        place = rng.randrange(len(pool))
        candidate = pool[place]
        if place not in seen and candidate.id != item.id and candidate.question not in words:
            taken.append(candidate)
            words.add(candidate.question)
        seen.add(place)
    if len(taken) < count:
        raise UsageError(
            f"{count} solved questions were asked for before item {item.id} of {task}, and there are {len(taken)} "
            f"others to take; ask for fewer, or give the task more items."
        )
    return taken


def solution(task: Task, item: Item) -> str:
    """What stands behind a solved question: an answer as the judge of the task wants it."""
    if item.choices or not item.solution or item.solution == item.gold:
        return item.gold
    if "####" in item.solution or "\\boxed" in item.solution:
        return item.solution
    texts = (f"{item.solution}\n#### {item.gold}", item.solution, item.gold)
    return next((text for text in texts if task.judge(item, Answer(text)).correct), item.gold)


SEED = "shuffled gold answers"
LabelT = TypeVar("LabelT", bound=Hashable)


class Shuffled(WrappedTask):
    """A task with its gold answers dealt out anew among its items, always in the same way.

    Questions, choices, ids and prompts stay; so does how often every answer is right. Generated answers move with
    their aliases and solutions. Of choices, the place of the right one moves, among items with as many choices. Of
    contrasts, the right text moves and the tempting one stays, unless the new right text is that very one: then the
    item's own right text is tempting. No item keeps its own answer where that can be avoided.
    """

    def __init__(self, of: Task) -> None:
        if of.kind == "score":
            inner = of.name.removeprefix("gold:")
            way_out = f"; write gold:shuffled:{inner}" if inner != of.name else ""
            raise UsageError(f"{of.name} has no gold answers that could be shuffled{way_out}.")
        super().__init__(of, "shuffled")

    def changed(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items, each with the gold answer of another of them."""
        return tuple(shuffle(items, self.kind))


def shuffle(items: Sequence[Item], kind: Kind) -> list[Item]:
    """The items of a task with their gold answers dealt out anew; their order does not matter to who gets what."""
    groups: dict[int, list[Item]] = defaultdict(list)
    for item in items:
        groups[len(item.choices) if kind == "choose" else 0].append(item)
    dealt: dict[str, Item] = {}
    for group in groups.values():
        group.sort(key=lambda item: item.id)
        dealing = _choices if kind == "choose" else _contrasts if kind == "contrast" else _texts
        dealt.update((item.id, item) for item in dealing(group))
    return [dealt[item.id] for item in items]


def deal(
    items: Sequence[Item], labels: Sequence[LabelT], own: Callable[[Item, LabelT], bool], seed: str = SEED
) -> list[LabelT]:
    """As many labels in a seeded random order in which no item has its `own` label where that can be avoided.

    An item that drew its own label exchanges it with another item for which neither label is its own. Where every item
    owns one label, this leaves no more items with their own than there must be: if an item with its own label L finds
    nobody to exchange with, every item owns L or has drawn it. Then more than half of the items own L.
    """
    rng = random.Random(seed)
    dealt = list(labels)
    rng.shuffle(dealt)
    nobody_takes: set[LabelT] = set()
    for place, item in enumerate(items):
        label = dealt[place]
        if not own(item, label) or label in nobody_takes:
            continue
        start = rng.randrange(place, len(items))  # those before it have labels that are not their own
        for other in chain(range(start, len(items)), range(start)):
            if not own(item, dealt[other]) and not own(items[other], label):
                dealt[place], dealt[other] = dealt[other], label
                break
        else:
            nobody_takes.add(label)
    return dealt


def _texts(items: Sequence[Item]) -> list[Item]:
    labels = [(item.gold, item.aliases, item.solution) for item in items]
    dealt = deal(items, labels, lambda item, label: bool(_rights(item) & {_plain(t) for t in (label[0], *label[1])}))
    return [
        replace(item, gold=gold, aliases=aliases, solution=solution)
        for item, (gold, aliases, solution) in zip(items, dealt, strict=True)
    ]


def _choices(items: Sequence[Item]) -> list[Item]:
    labels = [
        (item.choices.index(item.gold), tuple(item.choices.index(alias) for alias in item.aliases)) for item in items
    ]
    dealt = deal(items, labels, lambda item, label: _plain(item.choices[label[0]]) in _rights(item))
    shuffled = []
    for item, (place, others) in zip(items, dealt, strict=True):
        gold = item.choices[place]
        solution = gold if item.solution == item.gold else item.solution
        aliases = tuple(item.choices[other] for other in others)
        shuffled.append(replace(item, gold=gold, aliases=aliases, solution=solution))
    return shuffled


def _contrasts(items: Sequence[Item]) -> list[Item]:
    dealt = deal(items, [item.gold for item in items], lambda item, gold: _plain(gold) == _plain(item.gold))
    shuffled = []
    for item, gold in zip(items, dealt, strict=True):
        first, *more = [item.gold if _plain(gold) == _plain(text) else text for text in item.choices[1:]]
        shuffled.append(replace(item, gold=gold, choices=(gold, first, *more), solution=gold))
    return shuffled


def _rights(item: Item) -> set[str]:
    return {_plain(text) for text in (item.gold, *item.aliases)}


def _plain(text: str) -> str:
    return text.strip().casefold()


def guessing(task: Task, items: Sequence[Item]) -> float:
    """The accuracy of guessing, in 0…1: of items with choices the mean share that is right, 0 where nothing is chosen.

    An item with one choice alone (a continuation of lm-evaluation-harness) is none to guess. One answer to all items is
    a guess too: where one is right more often than the share by an exact binomial test (Bonferroni over the answers),
    its accuracy counts, kept below 1 by half an item.
    """
    if task.kind == "choose":
        every = [
            {text for text in item.choices if text in (item.gold, *item.aliases)} if len(item.choices) > 1 else set()
            for item in items
        ]
        share = sum(len(right) / len(item.choices) for right, item in zip(every, items, strict=True) if right)
    else:
        every = [{item.gold, *item.aliases} for item in items]
        while isinstance(task, WrappedTask):
            task = task.of
        share = float(getattr(task, "guessing", 0.0)) * len(items)
    if not share:
        return 0.0
    answers = Counter(text for right in every for text in right)
    (_, most), share = answers.most_common(1)[0], share / len(items)
    unbalanced = len(answers) * binomial_sf(most - 1, len(items), share) <= ALPHA
    return min(most, len(items) - 0.5) / len(items) if unbalanced else share
