"""Scoring: log-probabilities of choices or of tokens after a prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE
from lesion.engines.answers import ENTRIES, chosen, contrasted, looked_up
from lesion.engines.engine import Request, Response
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.prefill import rows_to_score
from lesion.engines.transformers.prefixes import Prefix, Prefixes, RequestColumn, alike
from lesion.models.load import Model

Row = tuple[tuple[int, ...], int]
"""Tokens that are read, and the column of the edit that they are read under."""


def scored(prefixes: Prefixes, requests: Sequence[RequestColumn]) -> Iterator[Response]:
    """Answer requests with choices or tokens: passes over prompts, shared by the edits of a prompt; nothing generated.

    The score of a choice is the float64 sum of its tokens' log-probabilities in nats. When memory runs out, prefixes
    are given up, then the batch size is halved. Between two responses no place is edited.
    """
    yield from _in_passes(prefixes, [entry for entry in requests if entry[0].choices], _choices)
    single = [entry for entry in requests if entry[0].tokens and not entry[0].choices]
    yield from _in_passes(prefixes, single, _contrasts)


def _in_passes(
    prefixes: Prefixes,
    requests: Sequence[RequestColumn],
    answer: Callable[[Prefixes, Sequence[RequestColumn]], list[Response]],
) -> Iterator[Response]:
    def order(entry: RequestColumn) -> tuple[int, int, tuple[int, ...], int]:
        request, column = entry
        return prefixes.of(request, column).rank, -_length(request), request.prompt, column

    ordered = deque(sorted(requests, key=order))
    while ordered:
        # Whole requests, as many as fit; sorted by length, so of those that begin alike the first is the longest.
        longest = rows_to_score(prefixes.model, _length(ordered[0][0]), len(prefixes.of(*ordered[0])))
        most = min(longest, prefixes.work.batch_size * 4)
        together = alike(prefixes.of(*entry) for entry in islice(ordered, most))
        taken = [ordered.popleft()]
        rows = _rows(taken[0][0])
        while len(taken) < together and rows + _rows(ordered[0][0]) <= most:
            taken.append(ordered.popleft())
            rows += _rows(taken[-1][0])
        try:
            responses = answer(prefixes, taken)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            if not prefixes.give_up():
                halve(prefixes.work, prefixes.model, error)
            ordered = deque(sorted([*taken, *ordered], key=order))
            continue
        yield from responses


def _length(request: Request) -> int:
    return len(request.prompt) + max(map(len, request.choices), default=0)


def _rows(request: Request) -> int:
    return len(request.choices) or 1


@torch.inference_mode()
def _choices(prefixes: Prefixes, requests: Sequence[RequestColumn]) -> list[Response]:
    # A row is a prompt and a choice but for its last token, whose log-probability is read at the one before it. Choices
    # of one request that differ in that token alone share a row: of single tokens, all.
    rows: dict[Row, Prefix] = {}
    for request, column in requests:
        for choice in request.choices:
            rows.setdefault(((*request.prompt, *choice[:-1]), column), prefixes.of(request, column))
    kept = max(len(choice) for request, _ in requests for choice in request.choices)
    columns = [column for _, column in rows]
    computed = prefixes.prefill([prompt for prompt, _ in rows], list(rows.values()), columns, kept=kept)
    prefixes.gates.assign_everywhere(BASELINE)
    logits = {row: computed.computed[place] for row, place in zip(rows, computed.places.tolist(), strict=True)}
    return [scored_by(entry, logits, prefixes.model) for entry in requests]


def scored_by(entry: RequestColumn, logits: Mapping[Row, Float[Tensor, "kept vocabulary"]], model: Model) -> Response:
    """The response to a request with choices or tokens, by the logits of the last positions of its rows."""
    request, column = entry

    def before(choice: Sequence[int]) -> Tensor:
        return logits[(*request.prompt, *choice[:-1]), column][-len(choice) :]

    scores = [score(before(choice), choice) for choice in request.choices]
    values = [value for value, _ in scores]
    if not request.tokens:
        return chosen(request, values, [greedy for _, greedy in scores], model)
    # Looked up where the first choice begins, or any token would: behind the prompt.
    behind = before(request.choices[0] if request.choices else (0,))[:1]
    (lookup,) = looked_up(behind, [request.tokens], forbidden=[request.decoding.forbidden])
    return contrasted(request, lookup, model, values)


def score(logits: Float[Tensor, "length vocabulary"], choice: Sequence[int]) -> tuple[float, bool]:
    """Summed log-probability in nats of a choice's tokens by the logits before each, and whether each is the best."""
    ids = torch.tensor(choice, device=logits.device)
    # A part at a time: as float64 all logits of a text, twice, would be hundreds of megabytes.
    size = max(1, ENTRIES // logits.shape[-1])
    parts = list(zip(logits.split(size), ids.split(size), strict=True))
    values = [rows.double().log_softmax(-1).gather(1, tokens[:, None]) for rows, tokens in parts]
    best = [rows.argmax(-1) == tokens for rows, tokens in parts]
    return float(torch.cat(values).sum()), bool(torch.cat(best).all())


@torch.inference_mode()
def _contrasts(prefixes: Prefixes, requests: Sequence[RequestColumn]) -> list[Response]:
    begins = [prefixes.of(*entry) for entry in requests]
    computed = prefixes.prefill([request.prompt for request, _ in requests], begins, [column for _, column in requests])
    prefixes.gates.assign_everywhere(BASELINE)
    tokens = [request.tokens for request, _ in requests]
    forbidden = [request.decoding.forbidden for request, _ in requests]
    lookups = looked_up(computed.computed[:, -1], tokens, computed.places, forbidden)
    return [contrasted(request, lookup, prefixes.model) for (request, _), lookup in zip(requests, lookups, strict=True)]
