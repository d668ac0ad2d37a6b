"""Pairs: an item's clean prompt with a corrupted one of the same number of tokens, and the classes of its positions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.studies.patching.study import POSITIONS
from lesion.tasks.continuations import encode_contrast
from lesion.tasks.counterparts import corruptions_of
from lesion.tasks.task import Item, Task

CANDIDATES = 60
"""At most so many corrupted items are tried for an item."""


@dataclass(frozen=True)
class Pair:
    """A clean and a corrupted prompt of the same length.

    Attributes:
        item: id of the item; partner: of the corrupted one.
        clean, corrupted: token ids.
        right: first token of what is right after the clean prompt; tempting: of what is right after the corrupted one.
        texts: the two questions; answers: the two right texts.
    """

    item: str
    partner: str
    clean: tuple[int, ...]
    corrupted: tuple[int, ...]
    right: int
    tempting: int
    texts: tuple[str, str] = ("", "")
    answers: tuple[str, str] = ("", "")

    @cached_property
    def different(self) -> tuple[int, ...]:
        """The positions at which the tokens differ; before the first of them both runs are the same."""
        return tuple(at for at, (a, b) in enumerate(zip(self.clean, self.corrupted, strict=True)) if a != b)

    @cached_property
    def positions(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of every class that is not empty, in the order of `POSITIONS`."""
        first, end, final = self.different[0], len(self.clean) - 1, self.different[-1]
        classes: dict[str, tuple[int, ...]] = {
            "earlier different": tuple(at for at in self.different[:-1] if at != end),
            "last different": (final,) if final != end else (),
            "next": (final + 1,) if final + 1 < end else (),
            "last": (end,),
        }
        known = {at for places in classes.values() for at in places}
        every = tuple(range(first, end + 1))
        classes |= {"between": tuple(at for at in every if at not in known), "all": every}
        return {name: classes[name] for name in POSITIONS if classes[name]}


def pair_of(model: Model, task: Task, item: Item, style: str | None) -> Pair | None:
    """The item with the first corrupted item that fits it; None where none does.

    It fits if its prompt has as many tokens, and the two right answers begin with different tokens, the same ones
    behind either prompt.
    """
    for other in islice(corruptions_of(task, item), CANDIDATES):
        with suppress(_UnfitError):
            clean, first = _encoded(model, task, item, other.gold, style)
            corrupted, second = _encoded(model, task, other, item.gold, style)
            if len(clean) == len(corrupted) and clean != corrupted and first == second[::-1]:
                texts, answers = (item.question, other.question), (item.gold, other.gold)
                return Pair(item.id, other.id, clean, corrupted, *first, texts=texts, answers=answers)
    return None


class _UnfitError(Exception):
    """Two answers cannot be told apart behind a prompt, or it is too long."""


def _encoded(
    model: Model, task: Task, item: Item, tempting: str, style: str | None
) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The prompt of an item and the first tokens of its right answer and of another text behind it."""
    try:
        contrasted = encode_contrast(model, task, replace(item, choices=(item.gold, tempting)), style)
    except UsageError:
        raise
    except LesionError as error:
        raise _UnfitError from error
    return contrasted.prompt, (contrasted.right, contrasted.tempting)
