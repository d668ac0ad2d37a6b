"""Scoring: log-probabilities of choices or of tokens after a prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE
from lesion.engines.answers import chosen, contrasted, looked_up
from lesion.engines.engine import Request, Response
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.prefill import rows_to_score
from lesion.engines.transformers.prefixes import Prefix, Prefixes, RequestColumn, alike


def scored(prefixes: Prefixes, requests: Sequence[RequestColumn]) -> Iterator[Response]:
    """Answer requests with choices or tokens: passes over prompts, shared by the edits of a prompt; nothing generated.

    The score of a choice is the float64 sum of its tokens' log-probabilities in nats. When memory runs out, prefixes
    are given up, then the batch size is halved. Between two responses no place is edited.

    Raises:
        LesionError: memory does not suffice at a batch size of 1.
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
    prompts: dict[tuple[tuple[int, ...], int], int] = {}
    begins: list[Prefix] = []
    places: list[list[int]] = []
    for request, column in requests:
        places.append([])
        for choice in request.choices:
            row = prompts.setdefault(((*request.prompt, *choice[:-1]), column), len(prompts))
            begins += [prefixes.of(request, column)] * (row == len(begins))
            places[-1].append(row)
    kept = max(len(choice) for request, _ in requests for choice in request.choices)
    computed = prefixes.prefill([prompt for prompt, _ in prompts], begins, [column for _, column in prompts], kept=kept)
    prefixes.gates.assign_everywhere(BASELINE)
    responses = []
    for (request, _), its_places in zip(requests, places, strict=True):
        scores, greedy = [], []
        for place, choice in zip(its_places, request.choices, strict=True):
            value, is_greedy = score(computed.computed[computed.places[place], -len(choice) :], choice)
            scores.append(value)
            greedy.append(is_greedy)
        if request.tokens:  # looked up where the first choice begins: behind the prompt
            behind = computed.computed[computed.places[its_places[0]], -len(request.choices[0])]
            (lookup,) = looked_up(behind[None], [request.tokens], forbidden=[request.decoding.forbidden])
            responses.append(contrasted(request, lookup, prefixes.model, scores))
        else:
            responses.append(chosen(request, scores, greedy, prefixes.model))
    return responses


def score(logits: Float[Tensor, "length vocabulary"], choice: Sequence[int]) -> tuple[float, bool]:
    """Summed log-probability in nats of a choice's tokens by the logits before each, and whether each is the best."""
    ids = torch.tensor(choice, device=logits.device)
    value = float(logits.double().log_softmax(-1).gather(1, ids[:, None]).sum())
    return value, bool((logits.argmax(-1) == ids).all())


@torch.inference_mode()
def _contrasts(prefixes: Prefixes, requests: Sequence[RequestColumn]) -> list[Response]:
    begins = [prefixes.of(*entry) for entry in requests]
    computed = prefixes.prefill([request.prompt for request, _ in requests], begins, [column for _, column in requests])
    prefixes.gates.assign_everywhere(BASELINE)
    tokens = [request.tokens for request, _ in requests]
    forbidden = [request.decoding.forbidden for request, _ in requests]
    lookups = looked_up(computed.computed[:, -1], tokens, computed.places, forbidden)
    return [contrasted(request, lookup, prefixes.model) for (request, _), lookup in zip(requests, lookups, strict=True)]
