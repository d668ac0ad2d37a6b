"""Contrasts: probability and rank of given tokens right after a prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE, Edit
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.counters import Work
from lesion.engines.engine import Request, Response
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.prefill import prefill, rows_to_score
from lesion.engines.transformers.prefixes import Prefix, Prefixes, alike
from lesion.models.load import Model
from lesion.tasks.task import Answer

# Logits that are looked at together, rows × vocabulary: what a processor keeps near.
ENTRIES = 1 << 20


def look_up(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
    prefixes: Prefixes,
) -> Iterator[Response]:
    """For each request the log-probability and the rank of each of its tokens after its prompt; nothing is generated.

    One pass over the prompts, shared between the edits of one prompt, after one over what many prompts begin with. When
    memory runs out, the batch size is halved.

    Raises:
        LesionError: memory does not suffice at a batch size of 1.
    """

    def begins(request: Request) -> Prefix:
        return prefixes.of(request, column[request.edit])

    def in_order(these: Iterable[Request]) -> deque[Request]:
        return deque(sorted(these, key=lambda r: (begins(r).rank, -len(r.prompt), r.prompt, column[r.edit])))

    ordered = in_order(requests)
    while ordered:
        # Sorted by length, so of those that begin alike the first is the longest.
        most = min(rows_to_score(model, len(ordered[0].prompt), len(begins(ordered[0]))), work.batch_size * 4)
        taken = [ordered.popleft() for _ in range(alike(map(begins, islice(ordered, most))))]
        try:
            found = _look_up(model, gates, taken, table, column, padding, work, prefixes)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            if not prefixes.give_up():
                halve(work, model, error)
            ordered = in_order([*taken, *ordered])
            continue
        yield from found


@torch.inference_mode()
def _look_up(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
    prefixes: Prefixes,
) -> list[Response]:
    columns = [column[request.edit] for request in requests]
    prompts = [request.prompt for request in requests]
    begun = prefixes.begun([prefixes.of(*one) for one in zip(requests, columns, strict=True)], columns)
    found = prefill(model, gates, prompts, table.select(torch.tensor(columns)), padding, begun=begun)
    gates.assign_everywhere(BASELINE)
    work.prompt += found.token_steps
    # A part at a time: all logits of a large vocabulary as float64 would not fit beside the logits themselves.
    size = max(1, ENTRIES // found.computed.shape[-1])
    texts: dict[int, str] = {}
    responses: list[Response] = []
    for start in range(0, len(requests), size):
        logits = found.computed[:, -1].index_select(0, found.places[start : start + size])
        responses += _answers(model, requests[start : start + size], logits, texts)
    return responses


def _answers(
    model: Model, requests: Sequence[Request], logits: Float[Tensor, "rows vocabulary"], texts: dict[int, str]
) -> Iterator[Response]:
    """What the logits right after each prompt say of the tokens that were asked for.

    Log-probabilities are those of a float64 softmax. The rank of a token is 1 + the number of tokens with a strictly
    greater logit, so that equal logits share the better rank.

    Args:
        model: whose tokenizer writes the most probable token.
        requests: one per row.
        logits: of the last position.
        texts: of tokens that were written already.
    """
    width = max(len(request.tokens) for request in requests)
    padded = [(*request.tokens, *request.tokens[:1] * (width - len(request.tokens))) for request in requests]
    tokens = torch.tensor(padded, device=logits.device)
    scores = logits.double().log_softmax(-1).gather(1, tokens)
    of_tokens = logits.gather(1, tokens)
    ranks = torch.stack([1 + (logits > one[:, None]).sum(-1) for one in of_tokens.unbind(1)], 1)
    largest, best = logits.max(-1)
    finite = largest.isfinite() & of_tokens.isfinite().all(-1)
    rows = zip(requests, scores.tolist(), ranks.tolist(), best.tolist(), finite.tolist(), strict=True)
    for request, row_scores, row_ranks, token, is_finite in rows:
        count = len(request.tokens)
        told = tuple(row_scores[:count])
        if not is_finite:
            yield Response(request.key, Answer("", 0, "nonfinite", told))
            continue
        if token not in texts:
            texts[token] = model.tokenizer.decode([token])
        yield Response(request.key, Answer(texts[token], 0, "stop", told, tuple(row_ranks[:count])), (token,))
