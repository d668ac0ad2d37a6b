"""Scoring: the log-probability of each choice after its prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lesion.edits.edit import Edit
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.engine import Request
from lesion.engines.memory import halve, ran_out
from lesion.engines.prefill import TOKENS, prefill
from lesion.engines.work import Work
from lesion.models.load import Model


def score(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
) -> Iterator[tuple[Request, tuple[float, ...]]]:
    """For each request the summed log-probability, in nats, of every choice given the prompt.

    A choice is scored token by token in one pass over prompt and choice; sums are float64, whatever the model's dtype.
    When memory runs out, the batch size is halved.

    Raises:
        LesionError: memory does not suffice at a batch size of 1.
    """
    ordered = deque(sorted(requests, key=lambda r: (-_length(r), r.prompt, column[r.edit])))
    while ordered:
        # Whole requests, as many as fit; sorted by length, so the first is the longest.
        rows_at_most = max(1, min(TOKENS // _length(ordered[0]), work.batch_size * 4))
        taken = [ordered.popleft()]
        rows = len(taken[0].choices)
        while ordered and rows + len(ordered[0].choices) <= rows_at_most:
            taken.append(ordered.popleft())
            rows += len(taken[-1].choices)
        try:
            scores = _score(model, gates, taken, table, column, padding, work)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            halve(work, model, error)
            ordered.extendleft(reversed(taken))
            continue
        yield from zip(taken, scores, strict=True)


def _length(request: Request) -> int:
    return len(request.prompt) + max(map(len, request.choices))


@torch.inference_mode()
def _score(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
) -> list[tuple[float, ...]]:
    pairs = [(request, choice) for request in requests for choice in request.choices]
    columns = torch.tensor([column[request.edit] for request, _ in pairs])
    longest = max(len(choice) for _, choice in pairs)
    found = prefill(
        model,
        gates,
        [(*request.prompt, *choice) for request, choice in pairs],
        table.select(columns),
        padding,
        kept=longest + 1,
    )
    work.prompt += found.token_steps
    scores = iter(
        [
            float(
                found.logits[row, -len(choice) - 1 : -1]
                .double()
                .log_softmax(-1)
                .gather(1, _ids(choice, found.logits))
                .sum()
            )
            for row, (_, choice) in enumerate(pairs)
        ]
    )
    return [tuple(next(scores) for _ in request.choices) for request in requests]


def _ids(choice: Sequence[int], like: Tensor) -> Tensor:
    return torch.tensor(choice, device=like.device)[:, None]
