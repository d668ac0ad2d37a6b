"""Scoring: the log-probability of each choice after its prompt, every row under its own edit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE, Edit
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.counters import Work
from lesion.engines.engine import Request
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.prefill import prefill, rows_to_score
from lesion.engines.transformers.prefixes import Prefix, Prefixes, alike
from lesion.models.load import Model


class Scored(NamedTuple):
    """What is known of a choice: its summed log-probability in nats, and whether greedy decoding would have said it."""

    score: float
    greedy: bool


def score(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    table: Table,
    column: Mapping[Edit, int],
    padding: int,
    work: Work,
    prefixes: Prefixes,
) -> Iterator[tuple[Request, tuple[Scored, ...]]]:
    """For each request the summed log-probability, in nats, of every choice given the prompt, and if it is greedy.

    A choice is scored token by token in one pass over prompt and choice; sums are float64, whatever the model's dtype.
    Between two of them no place is edited.
    When memory runs out, the batch size is halved.

    Raises:
        LesionError: memory does not suffice at a batch size of 1.
    """

    def begins(request: Request) -> Prefix:
        return prefixes.of(request, column[request.edit])

    def in_order(these: Iterable[Request]) -> deque[Request]:
        return deque(sorted(these, key=lambda r: (begins(r).rank, -_length(r), r.prompt, column[r.edit])))

    ordered = in_order(requests)
    while ordered:
        # Whole requests, as many as fit; sorted by length, so of those that begin alike the first is the longest.
        most = min(rows_to_score(model, _length(ordered[0]), len(begins(ordered[0]))), work.batch_size * 4)
        together = alike(map(begins, islice(ordered, most)))
        taken = [ordered.popleft()]
        rows = len(taken[0].choices)
        while len(taken) < together and rows + len(ordered[0].choices) <= most:
            taken.append(ordered.popleft())
            rows += len(taken[-1].choices)
        try:
            scores = _score(model, gates, taken, table, column, padding, work, prefixes)
        except RuntimeError as error:
            if not ran_out(error):
                raise
            if not prefixes.give_up():
                halve(work, model, error)
            ordered = in_order([*taken, *ordered])
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
    prefixes: Prefixes,
) -> list[tuple[Scored, ...]]:
    # A row is a prompt and a choice but for its last token, whose log-probability is told by the one before it. Choices
    # of one request that differ in that token alone share a row: of single tokens, all.
    rows: dict[tuple[tuple[int, ...], int], int] = {}
    begins: list[Prefix] = []
    places: list[list[int]] = []
    for request in requests:
        places.append([])
        for choice in request.choices:
            row = rows.setdefault(((*request.prompt, *choice[:-1]), column[request.edit]), len(rows))
            begins += [prefixes.of(request, column[request.edit])] * (row == len(begins))
            places[-1].append(row)
    columns = [one for _, one in rows]
    begun = prefixes.begun(begins, columns)
    found = prefill(
        model,
        gates,
        [prompt for prompt, _ in rows],
        table.select(torch.tensor(columns)),
        padding,
        kept=max(len(choice) for request in requests for choice in request.choices),
        begun=begun,
    )
    gates.assign_everywhere(BASELINE)
    work.prompt += found.token_steps
    return [
        tuple(
            _told(found.computed[found.places[row], -len(choice) :], choice)
            for row, choice in zip(rows_of_request, request.choices, strict=True)
        )
        for request, rows_of_request in zip(requests, places, strict=True)
    ]


def _told(logits: Float[Tensor, "tokens vocabulary"], choice: Sequence[int]) -> Scored:
    """A choice by the logits at its tokens; the softmax is float64. Of equally probable tokens the first is greedy."""
    ids = torch.tensor(choice, device=logits.device)
    score = logits.double().log_softmax(-1).gather(1, ids[:, None]).sum()
    return Scored(float(score), bool((logits.argmax(-1) == ids).all()))
