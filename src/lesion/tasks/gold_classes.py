"""Classes of gold tokens: the part that each token has in a right answer (copied number, result), as its task names it.

Other than the token classes of a drift study, which go by a token's own text: the digit 7 may be copied or calculated.
A task names its classes by an attribute `gold_classes`; it is optional, and tasks without it have `PLAIN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from lesion.tasks.task import Item, Task

FORM, COPIED, OPERATION, RESULT = "form", "copied number", "operation", "result"
NEXT, FINAL = "step or end", "final answer"
OTHER, NUMERAL = "other number", "number in digits"
FIRST, REST = "first token", "rest"
UNKNOWN = "not assigned"
"""The class of all tokens of an item whose tokenizer does not give its text back."""

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_OPERATION = re.compile(r"(?<=[\d%]) ?([-−+*/x×÷·]) ?(?=[$€£]?\.?\d)")
_BEFORE = " \t\n$€£-−"
"""What may stand between `=` and its number; the sign of a negative one too."""
_MARK = "####"
_NEXT = re.compile(rf"(?<=\.)\s+(?:{_MARK})?")
_UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # how the first tokens of a character of several are decoded


@dataclass(frozen=True)
class Span:
    """The characters `start` … `stop` − 1 of a gold text, which are of one class."""

    start: int
    stop: int
    name: str


@dataclass(frozen=True)
class GoldClasses:
    """The classes of a task's gold tokens.

    Attributes:
        names: all of them, in the order in which they are shown.
        spans: where each stands in the `gold_text` of an item; of spans that overlap, the first counts.
        rest: the class of tokens that are in no span.
    """

    names: tuple[str, ...]
    spans: Callable[[Item], Sequence[Span]] = field(repr=False)
    rest: str = FORM


PLAIN = GoldClasses((FIRST, REST), lambda item: (), REST)
"""The first token that is not white space, and all others."""


def gold_text(item: Item) -> str:
    """What is right to say: the gold choice where there are choices, else the solution, else the gold answer."""
    return item.gold if item.choices else item.solution or item.gold


def derivation(item: Item) -> tuple[Span, ...]:
    """The numbers and decisions of a written calculation such as `14+7=21. 21-5=16. #### 16`, also within sentences.

    A number right behind `=` is a result, one behind `####` the final answer. Any other is copied where it stands in
    the question or is an earlier result, and an other number where it does not. What stands behind a step, white space
    or `####`, decides whether another step follows.
    """
    text = gold_text(item)
    end = text.find(_MARK) if _MARK in text else len(text)
    known = set(_NUMBER.findall(item.question))
    spans = []
    for number in _NUMBER.finditer(text):
        if number.start() > end:
            name = FINAL
        elif text[: number.start()].rstrip(_BEFORE).endswith("="):
            name = RESULT
            known.add(number[0])
        else:
            name = COPIED if number[0] in known else OTHER
        spans.append(Span(*number.span(), name))
    spans += [Span(*sign.span(1), OPERATION) for sign in _OPERATION.finditer(text)]
    return (*spans, *(Span(*behind.span(), NEXT) for behind in _NEXT.finditer(text)))


DERIVATION = GoldClasses((FORM, COPIED, OPERATION, RESULT, NEXT, FINAL), derivation)


def whole(name: str) -> GoldClasses:
    """Classes of a task whose gold text is of one class; what stands before it (white space) is form."""
    return GoldClasses((FORM, name), lambda item: (Span(0, len(gold_text(item)), name),))


def classes_of(task: Task) -> GoldClasses:
    """The classes that a task names, or `PLAIN`."""
    return getattr(task, "gold_classes", None) or PLAIN


def classified(tokenizer: Any, ids: Sequence[int], item: Item, classes: GoldClasses) -> tuple[str, ...]:
    """The class of every gold token of an item.

    A token of several characters is of the class of the first span, in the order of `spans`, that has one of its
    characters; white space counts only in a token of nothing else.

    `ids` are those of the gold text as it follows the prompt; its end may be cut off.
    """
    blank = [not _decoded(tokenizer, [token]).strip() for token in ids]
    if classes is PLAIN:
        first = next((place for place, empty in enumerate(blank) if not empty), 0)
        return tuple(FIRST if place == first else REST for place in range(len(ids)))
    text = gold_text(item)
    ends = _ends(tokenizer, ids, text)
    if ends is None:
        return (UNKNOWN,) * len(ids)
    spans = classes.spans(item)
    names = []
    for empty, (start, stop) in zip(blank, pairwise(ends), strict=True):
        shown_places = [at for at in range(start, stop) if empty or not text[at].isspace()]
        if not shown_places and not empty:  # the beginning of a character that a later token ends
            shown_places = [start]
        at_place = (span.name for span in spans if any(span.start <= at < span.stop for at in shown_places))
        names.append(next(at_place, classes.rest))
    return tuple(names)


def _ends(tokenizer: Any, ids: Sequence[int], text: str) -> list[int] | None:
    """Where in a text the first token begins and every token ends; None where the tokens are not that text.

    White space before the first letter of the text may be written otherwise, or not at all.
    """
    prefixes = [_decoded(tokenizer, ids[:count]).rstrip(_UNFINISHED) for count in range(len(ids) + 1)]
    start = len(text) - len(text.lstrip())
    decoded = prefixes[-1].lstrip()
    if not text[start:].startswith(decoded):
        return None
    shift = start - (len(prefixes[-1]) - len(decoded))
    return list(accumulate((max(start, len(prefix) + shift) for prefix in prefixes), max))


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))
