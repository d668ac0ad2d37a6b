"""Requests that generate nothing, on vLLM: which positions are looked at, and what a request makes of what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lesion.engines.engine import Request, Response
from lesion.models.load import Model
from lesion.tasks.task import Answer


@dataclass(frozen=True)
class Look:
    """One prompt to compute, and the tokens to look up at its last positions.

    Attributes:
        tokens: ids.
        first: the first position looked at.
        targets: the tokens to look up at `first` and at each position after it, to the end.
    """

    tokens: tuple[int, ...]
    first: int
    targets: tuple[tuple[int, ...], ...]


def looks(request: Request) -> tuple[Look, ...]:
    """The prompts that a request with choices or tokens needs.

    The last token of a choice is told by the one before it, so that choices which differ in that token alone share a
    prompt: of single tokens, all.
    """
    first = len(request.prompt) - 1
    if request.tokens:
        return (Look(request.prompt, first, (request.tokens,)),)
    last: dict[tuple[int, ...], dict[int, None]] = {}
    for choice in request.choices:
        last.setdefault(choice[:-1], {})[choice[-1]] = None
    return tuple(
        Look((*request.prompt, *start), first, (*((token,) for token in start), tuple(ends)))
        for start, ends in last.items()
    )


def chosen(request: Request, found: Sequence[Sequence[Mapping[str, Any]]], model: Model) -> Response:
    """The choice with the largest summed log-probability.

    Args:
        request: with choices.
        found: per look and position, what `lesion.engines.vllm.logits.looked_up` gives.
        model: whose tokenizer writes the choice.
    """
    wanted = looks(request)
    places = {look.tokens[len(request.prompt) :]: place for place, look in enumerate(wanted)}
    scores, greedy = [], []
    for choice in request.choices:
        place = places[choice[:-1]]
        at = [*(0 for _ in choice[:-1]), wanted[place].targets[-1].index(choice[-1])]
        scores.append(math.fsum(one["scores"][index] for one, index in zip(found[place], at, strict=True)))
        greedy.append(all(one["best"] == token for one, token in zip(found[place], choice, strict=True)))
    if not np.isfinite(scores).all():
        return Response(request.key, Answer("", 0, "nonfinite", tuple(scores)))
    ids = request.choices[int(np.argmax(scores))]
    text = model.tokenizer.decode(ids).strip()
    return Response(request.key, Answer(text, 0, "stop", tuple(scores), greedy=tuple(greedy)), ids)


def contrasted(request: Request, found: Mapping[str, Any], model: Model) -> Response:
    """Log-probability and rank of each of the tokens that were asked for, and the most probable token.

    Args:
        request: with tokens.
        found: what `lesion.engines.vllm.logits.looked_up` gives for the last position of the prompt.
        model: whose tokenizer writes the token.
    """
    scores = tuple(found["scores"])
    if not found["finite"]:
        return Response(request.key, Answer("", 0, "nonfinite", scores))
    best = int(found["best"])
    return Response(
        request.key, Answer(model.tokenizer.decode([best]), 0, "stop", scores, tuple(found["ranks"])), (best,)
    )
