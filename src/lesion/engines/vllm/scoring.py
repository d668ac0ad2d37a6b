"""Requests that generate nothing, on vLLM: the positions to look at, and the response from what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lesion.engines.answers import Lookup, chosen, contrasted
from lesion.engines.engine import Request, Response
from lesion.models.load import Model


@dataclass(frozen=True)
class Look:
    """One prompt to compute, and the tokens to look up at position `first` and at each one after it, to the end, and
    those that have no probability there.
    """

    tokens: tuple[int, ...]
    first: int
    targets: tuple[tuple[int, ...], ...]
    forbidden: tuple[int, ...] = ()


def looks(request: Request) -> tuple[Look, ...]:
    """The prompts that a request with choices or tokens needs.

    Choices that differ in their last token alone share a prompt: that token is looked up at the one before it.
    """
    first = len(request.prompt) - 1
    tokens = (Look(request.prompt, first, (request.tokens,), request.decoding.forbidden),) if request.tokens else ()
    last: dict[tuple[int, ...], dict[int, None]] = {}
    for choice in request.choices:
        last.setdefault(choice[:-1], {})[choice[-1]] = None
    choices = (
        Look((*request.prompt, *start), first, (*((token,) for token in start), tuple(ends)))
        for start, ends in last.items()
    )
    return (*tokens, *choices)


def scored(request: Request, lookups: Sequence[Sequence[Lookup]], model: Model) -> Response:
    """The response to a request with choices or tokens, from what was looked up per look and position."""
    wanted = looks(request)
    begin = 1 if request.tokens else 0
    places = {look.tokens[len(request.prompt) :]: place for place, look in enumerate(wanted) if place >= begin}
    scores, greedy = [], []
    for choice in request.choices:
        place = places[choice[:-1]]
        at = [*(0 for _ in choice[:-1]), wanted[place].targets[-1].index(choice[-1])]
        scores.append(math.fsum(lookup.scores[index] for lookup, index in zip(lookups[place], at, strict=True)))
        greedy.append(all(lookup.best == token for lookup, token in zip(lookups[place], choice, strict=True)))
    if request.tokens:
        return contrasted(request, lookups[0][0], model, scores)
    return chosen(request, scores, greedy, model)
