"""Contrasts: probability and rank of given tokens right after a prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import Edit
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.engine import Request, Response
from lesion.engines.memory import halve, ran_out
from lesion.engines.prefill import TOKENS, prefill
from lesion.engines.work import Work
from lesion.models.load import Model
from lesion.tasks.task import Answer


def look_up(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
) -> Iterator[Response]:
    """For each request the log-probability and the rank of each of its tokens after its prompt; nothing is generated.

    One pass over the prompts, shared between the edits of one prompt. When memory runs out, the batch size is halved.

    Raises:
        LesionError: memory does not suffice at a batch size of 1.
    """
    ordered = deque(sorted(requests, key=lambda r: (-len(r.prompt), r.prompt, column[r.edit])))
    while ordered:
        # Sorted by length, so the first is the longest.
        rows = max(1, min(TOKENS // len(ordered[0].prompt), work.batch_size * 4))
        taken = [ordered.popleft() for _ in range(min(rows, len(ordered)))]
        try:
            found = _look_up(model, gates, taken, table, column, padding, work)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            halve(work, model, error)
            ordered.extendleft(reversed(taken))
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
) -> list[Response]:
    columns = torch.tensor([column[request.edit] for request in requests])
    prompts = [request.prompt for request in requests]
    found = prefill(model, gates, prompts, table.select(columns), padding)
    work.prompt += found.token_steps
    return [_answer(model, request, found.logits[row, -1]) for row, request in enumerate(requests)]


def _answer(model: Model, request: Request, logits: Float[Tensor, " vocabulary"]) -> Response:
    """What the logits right after a prompt say of the tokens that were asked for.

    Log-probabilities are those of a float64 softmax. The rank of a token is 1 + the number of tokens with a strictly
    greater logit, so that equal logits share the better rank.
    """
    tokens = torch.tensor(request.tokens, device=logits.device)
    scores = tuple(logits.double().log_softmax(-1)[tokens].tolist())
    largest, best = logits.max(-1)
    if not (bool(largest.isfinite()) and bool(logits[tokens].isfinite().all())):
        return Response(request.key, Answer("", 0, "nonfinite", scores))
    ranks = tuple((1 + (logits > logits[tokens, None]).sum(-1)).tolist())
    text = model.tokenizer.decode([int(best)])
    return Response(request.key, Answer(text, 0, "stop", scores, ranks), (int(best),))
