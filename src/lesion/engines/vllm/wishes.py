"""What a request wants of a worker of vLLM: tokens to look up, draws of sampled answers; and scores from lookups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.engines.answers import Lookup, chosen, contrasted
from lesion.engines.engine import Request, Response
from lesion.engines.sampling import sample
from lesion.models.load import Model

Settings = tuple[float, float, int]
"""Temperature, top_p and noise key (`lesion.engines.sampling.noise_key`) of a sampled answer."""


@dataclass(frozen=True)
class Wish:
    """What a request wants of a worker, as it travels in `extra_args`.

    Attributes:
        prompt: tokens of its prompt; an answer begins behind them.
        first: the first position whose logits are looked up; they belong to the token after it.
        targets: for `first` and each position after it, the tokens to look up there; empty for answers.
        draw: of an answer that is sampled; empty where it is greedy.
        forbidden: tokens that cannot follow the prompt.
    """

    number: int
    column: int
    prompt: int
    first: int = 0
    targets: tuple[tuple[int, ...], ...] = ()
    draw: Settings | tuple[()] = ()
    forbidden: tuple[int, ...] = ()

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Wish:
        """The wish that `asdict` wrote; tuples may have become lists."""
        vectors = {name: tuple(plain[name]) for name in ("draw", "forbidden")}
        return cls(**{**plain, "targets": tuple(map(tuple, plain["targets"])), **vectors})


@dataclass(frozen=True)
class Draw:
    """A row of logits whose next token is drawn, and the position of that token in its answer, from 0."""

    row: int
    position: int
    draw: Settings


def draw(logits: Float[Tensor, "rows vocabulary"], draws: Sequence[Draw]) -> None:
    """Leave of each of these rows the token that is drawn, as the only one that is possible."""
    rows = torch.tensor([each.row for each in draws], device=logits.device)
    settings = torch.tensor([each.draw[:2] for each in draws], dtype=torch.float64, device=logits.device)
    noise = torch.tensor([(each.draw[2], each.position) for each in draws], device=logits.device)
    tokens = sample(logits.index_select(0, rows), *settings.T, *noise.T)
    logits.index_fill_(0, rows, float("-inf"))
    logits[rows, tokens] = 0.0


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
