"""Calibration: seeded draws of texts, prompt and gold solution, to observe a model on, and frames that align them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from lesion.arguments import validated
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.quiet import quiet
from lesion.reprs import described
from lesion.tasks import catalogue
from lesion.tasks.continuations import solved_parts
from lesion.tasks.conversation import spell
from lesion.tasks.counterparts import every_aligned
from lesion.tasks.prompts import encode, resolve
from lesion.tasks.task import Item, Task

MOST_TEXTS = 1_000_000
"""Texts of all repeats together: more could not be observed in a lifetime."""


@dataclass(frozen=True)
class Draw:
    """One sample of so many texts: their `places` in `Calibration.texts` as drawn; one drawn twice stands twice."""

    samples: int
    repeat: int
    places: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Texts as token ids, and which of them every draw uses.

    Attributes:
        data: name of the task as typed.
        style: the prompt style in which the texts are written, never `auto`.
        seed, replacement: of the draws.
        disjoint: whether no text is in the draws of two repeats.
        ids: of the items that some draw uses, each once.
        texts: their token ids, cut at the end of the context.
        cut: which of them were longer.
        draws: for every number of samples, in the order given, its repeats (from 0).
        starts: where in each text the tokens of its solution begin; 0 where prompt and solution are one text.
    """

    data: str
    style: str
    seed: int
    replacement: bool
    disjoint: bool
    ids: tuple[str, ...]
    texts: tuple[tuple[int, ...], ...]
    cut: tuple[bool, ...]
    draws: tuple[Draw, ...]
    starts: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Which texts they are, in words."""
        return f"{len(self.texts):,} texts of {self.data}, style {self.style}, seed {self.seed}"

    def __repr__(self) -> str:
        texts = f"{len(self.texts):,} texts"
        return described(self, repr(self.data), texts, f"style {self.style}", f"seed {self.seed}")


@validated
def calibration(
    model: Model,
    task: Task,
    samples: int | Sequence[int],
    *,
    repeats: int = 1,
    seed: int = 0,
    replacement: bool = False,
    style: str | None = None,
    items: Sequence[Item] | None = None,
) -> Calibration:
    """Draw calibration texts from a task.

    Without replacement, items are ordered by the SHA-256 of seed and id, in reverse of how `catalogue.draw` orders
    them: a later evaluation on the same pool and seed shares an item only when there are too few for both. Repeat r is
    the r-th stretch of that order, so that repeats share no text; where the pool is too small, every repeat is the
    beginning of a seeded order of its own (`disjoint` says which). With replacement, place k of repeat r is the SHA-256
    of seed, r and k, modulo the size of the pool. A draw of fewer samples is the beginning of one of more.

    Args:
        model: whose tokenizer and context count.
        task: where the items come from: those that it sets aside for calibration, where it does.
        samples: how many texts a draw has; several numbers make draws of several sizes.
        repeats: how many draws of each size.
        seed: any integer.
        replacement: whether a text may be drawn again, as in the released code of Christ et al. (2024).
        style: the prompt style; None for the task's own.
        items: the pool to draw from, in place of the task's own.

    Raises:
        UsageError: a number is below 1 or cannot be meant, the pool is empty, or it has fewer items than a draw
            without replacement.
        LesionError: a text has no tokens.
    """
    sizes = (samples,) if isinstance(samples, int) else tuple(samples)
    if not sizes or min(sizes) < 1:
        raise UsageError(f"{min(sizes, default=0)} calibration texts were asked for; ask for at least 1.")
    if repeats < 1:
        raise UsageError(f"{repeats} repeats were asked for; ask for at least 1.")
    if repeats * max(sizes) > MOST_TEXTS:
        raise UsageError(
            f"{repeats:,} repeats of {max(sizes):,} calibration texts were asked for; at most {MOST_TEXTS:,} texts are "
            f"drawn in all."
        )
    pool = list(catalogue.calibration_items(task) if items is None else items)
    if not pool:
        raise UsageError(f"{task.name} has no items to observe a model on; name a task or a file that has some.")
    if not replacement and max(sizes) > len(pool):
        raise UsageError(
            f"{max(sizes):,} calibration texts were asked for, and {task.name} has {len(pool):,}; ask for at most that"
            f" many, or draw with replacement."
        )
    pool, orders, disjoint = seeded(pool, max(sizes), repeats, seed, replacement)
    used = list(dict.fromkeys(index for order in orders for index in order))
    place_of = {index: place for place, index in enumerate(used)}
    draws = tuple(
        Draw(size, repeat, tuple(place_of[index] for index in order[:size]))
        for size in sizes
        for repeat, order in enumerate(orders)
    )
    style = resolve(model, task, style)
    with quiet():  # transformers remarks on texts that exceed the context; here they are cut and counted
        solved = [solved_parts(model, task, pool[index], style) for index in used]
    texts = [(*prompt, *solution) for prompt, solution in solved]
    for index, text in zip(used, texts, strict=True):
        if not text:
            raise LesionError(f"The calibration text of item {pool[index].id} of {task.name} has no tokens.")
    return Calibration(
        task.name,
        style,
        seed,
        replacement,
        disjoint,
        tuple(pool[index].id for index in used),
        tuple(text[: model.context] for text in texts),
        tuple(len(text) > model.context for text in texts),
        draws,
        tuple(len(prompt) for prompt, _ in solved),
    )


def seeded(
    items: Sequence[Item], size: int, repeats: int, seed: int, replacement: bool
) -> tuple[list[Item], list[list[int]], bool]:
    """What `calibration` draws, whatever the model: the pool in its order, the places in it that each repeat takes,
    and whether no two repeats share one.
    """
    pool = sorted(items, key=lambda item: _hash(f"{seed}:{item.id}"), reverse=True)
    disjoint = not replacement and repeats * size <= len(pool)
    orders = [
        [int.from_bytes(_hash(f"{seed}:{repeat}:{place}"), "big") % len(pool) for place in range(size)]
        if replacement
        else _order(pool, size, repeat, seed, disjoint)
        for repeat in range(repeats)
    ]
    return pool, orders, disjoint


def _order(pool: Sequence[Item], size: int, repeat: int, seed: int, disjoint: bool) -> list[int]:
    if disjoint:
        return list(range(repeat * size, (repeat + 1) * size))
    if repeat == 0:
        return list(range(size))
    return sorted(range(len(pool)), key=lambda index: _hash(f"{seed}.{repeat}:{pool[index].id}"))[:size]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True)
class Frame:
    """Items of one form, and the texts that stand in for them.

    Attributes:
        items: whose prompts have as many tokens as those of the texts, every word as many as the word at its place.
        texts: other items of the form, behind the same solved problems.
    """

    items: tuple[Item, ...]
    texts: tuple[Item, ...]


def frames(
    model: Model, task: Task, items: Sequence[Item], *, style: str | None = None, texts: int = 50, fewest: int = 10
) -> list[Frame]:
    """Items with the texts that are aligned with them: from the first token on, each with one of the same role.

    Two questions of one form (`lesion.tasks.counterparts`) are aligned where their prompts have as many tokens, and
    each of their words has as many as the word at the same place. An item itself may be among its texts.
    """
    style = resolve(model, task, style)
    shape = _Shape(model, task, style)
    groups: dict[tuple[object, ...], tuple[list[Item], list[Item]]] = {}
    short: list[tuple[Item, int]] = []
    for item in items:
        found = list(islice((other for other in every_aligned(task, item) if shape.equal(item, other)), texts))
        if len(found) < fewest:
            short.append((item, len(found)))
            continue
        groups.setdefault(tuple((other.shots, other.question) for other in found), ([], found))[0].append(item)
    if short:
        item, count = min(short, key=lambda each: each[1])
        raise UsageError(
            f"{len(short)} of {len(items)} items of {task.name} have fewer than {fewest} texts that are aligned with"
            f" them token by token under the tokenizer of {model.name} (item {item.id}: {count}), so that position and"
            " resample cannot be had for them; take mean or optimal, or fewer draws."
        )
    return [Frame(tuple(own), tuple(found)) for own, found in groups.values()]


class _Shape:
    """What has to be equal of two prompts of one form: how many tokens they have, and each of their words."""

    def __init__(self, model: Model, task: Task, style: str) -> None:
        self.model, self.task, self.style = model, task, style
        self._words: dict[str, int] = {}
        self._prompts: dict[Item, int] = {}

    def equal(self, first: Item, second: Item) -> bool:
        # Words are looked at first: they are known from other questions.
        return self._of_words(first) == self._of_words(second) and self._length(first) == self._length(second)

    def _of_words(self, item: Item) -> list[int]:
        words = item.question.split()
        for word in words:
            if word not in self._words:
                self._words[word] = len(spell(self.model.tokenizer, f" {word}"))
        return [self._words[word] for word in words]

    def _length(self, item: Item) -> int:
        if item not in self._prompts:
            self._prompts[item] = len(encode(self.model, self.task, item, self.style, max_new_tokens=1))
        return self._prompts[item]
