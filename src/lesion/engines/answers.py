"""Responses of every engine from scored choices and from tokens looked up in the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lesion.engines.engine import Request, Response
from lesion.models.load import Model
from lesion.tasks.task import Answer

# Logits that are looked at together, rows × vocabulary: what a processor keeps near.
ENTRIES = 1 << 20
TRACED = 20
"""Tokens that the response to a traced request has: as many as vLLM says of each by default."""


class Lookup(NamedTuple):
    """What the logits of one position say about some tokens.

    Attributes:
        scores: log-probability of each token in nats, by a float64 softmax.
        ranks: of each token, 1 + the number of tokens with a strictly greater logit: equal logits share the better one.
        best: the most probable token of the vocabulary.
        finite: whether the largest logit and those of the tokens are finite, whatever is forbidden.
    """

    scores: tuple[float, ...]
    ranks: tuple[int, ...]
    best: int
    finite: bool


def looked_up(
    logits: Float[Tensor, "positions vocabulary"],
    targets: Sequence[Sequence[int]],
    places: Int[Tensor, " targets"] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
) -> list[Lookup]:
    """Look up tokens at each position."""
    lookups: list[Lookup] = []
    # A part at a time: all logits of a large vocabulary as float64 would not fit beside the logits themselves.
    size = max(1, ENTRIES // logits.shape[-1])
    for start in range(0, len(targets), size):
        part = slice(start, start + size)
        rows = logits[part] if places is None else logits.index_select(0, places[part])
        lookups += _looked_up(rows, targets[part], () if forbidden is None else forbidden[part])
    return lookups


def without(
    logits: Float[Tensor, "rows vocabulary"], forbidden: Sequence[Sequence[int]]
) -> Float[Tensor, "rows vocabulary"]:
    """The logits, in which the tokens that are forbidden in a row are impossible; a copy where there are any."""
    rows = [row for row, tokens in enumerate(forbidden) for _ in tokens]
    if not rows:
        return logits
    logits = logits.clone()
    logits[rows, [token for tokens in forbidden for token in tokens]] = float("-inf")
    return logits


def _looked_up(
    logits: Float[Tensor, "positions vocabulary"], targets: Sequence[Sequence[int]], forbidden: Sequence[Sequence[int]]
) -> list[Lookup]:
    width = max(map(len, targets))
    padded = [(*tokens, *[tokens[0]] * (width - len(tokens))) for tokens in targets]
    tokens = torch.tensor(padded, device=logits.device)
    finite = logits.amax(-1).isfinite() & logits.gather(1, tokens).isfinite().all(-1)
    logits = without(logits, forbidden)
    scores = logits.double().log_softmax(-1).gather(1, tokens)
    of_tokens = logits.gather(1, tokens)
    ranks = torch.stack([1 + (logits > logit[:, None]).sum(-1) for logit in of_tokens.unbind(1)], 1)
    best = logits.argmax(-1)
    rows = zip(targets, scores.tolist(), ranks.tolist(), best.tolist(), finite.tolist(), strict=True)
    return [
        Lookup(tuple(row_scores[: len(target)]), tuple(row_ranks[: len(target)]), token, is_finite)
        for target, row_scores, row_ranks, token, is_finite in rows
    ]


def most_probable(logits: Float[Tensor, " vocabulary"]) -> tuple[tuple[int, float], ...]:
    """The most probable tokens, `TRACED` of them, with their log-probabilities in nats."""
    values, tokens = logits.double().log_softmax(-1).topk(min(TRACED, logits.shape[-1]))
    return tuple(zip(tokens.tolist(), values.tolist(), strict=True))


def chosen(request: Request, scores: Sequence[float], greedy: Sequence[bool], model: Model) -> Response:
    """The choice with the largest summed log-probability in nats, the first of equal ones; `greedy` as in `Answer`."""
    if not np.isfinite(scores).all():
        return Response(request.key, Answer("", 0, "nonfinite", tuple(scores)))
    ids = request.choices[int(np.argmax(scores))]
    text = model.tokenizer.decode(ids).strip()
    return Response(request.key, Answer(text, 0, "stop", tuple(scores), greedy=tuple(greedy)), ids)


def contrasted(request: Request, lookup: Lookup, model: Model, whole: Sequence[float] = ()) -> Response:
    """Log-probability and rank of each of the request's tokens, and the most probable token as the answer.

    The scores of the request's choices, where it has any, stand behind those of the tokens.
    """
    scores = (*lookup.scores, *whole)
    if not lookup.finite or not np.isfinite(whole).all():
        return Response(request.key, Answer("", 0, "nonfinite", scores))
    text = model.tokenizer.decode([lookup.best])
    return Response(request.key, Answer(text, 0, "stop", scores, tuple(lookup.ranks)), (lookup.best,))
