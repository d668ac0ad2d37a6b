"""One by one: every request alone in its passes, without a cache, as the network computes it by its own code.

For networks whose rows cannot share a batch as this engine shares them: with a state other than keys and values
(state-space, linear and chunked attention, convolutions), keys that blocks share, or no cache at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE, Edit
from lesion.edits.gates import Gates
from lesion.engines.answers import chosen, contrasted, generated, looked_up
from lesion.engines.checking import longest_answer
from lesion.engines.endings import StopStrings, closing_of
from lesion.engines.engine import Request, Response, Work
from lesion.engines.transformers.batch import next_tokens
from lesion.engines.transformers.memory import halve, ran_out
from lesion.engines.transformers.scoring import score
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.models.load import Model


def answered(
    model: Model,
    gates: Gates,
    requests: Sequence[Request],
    by_row: Mapping[Edit, Edit],
    stops: Mapping[str, StopStrings],
    ends: Collection[int],
    work: Work,
) -> Iterator[Response]:
    """Answer requests in their order. Between two responses no place is edited.

    Args:
        by_row: of every edit, what of it gates make.
        stops: by the keys of requests.
        ends: tokens that end an answer.

    Raises:
        LesionError: memory does not suffice.
    """
    work.batch_size = 1
    for request in requests:
        gates.assign_everywhere(by_row[request.edit])
        try:
            if request.tokens:
                logits, forbidden = _logits(model, request.prompt, work)[-1:], [request.decoding.forbidden]
                (lookup,) = looked_up(logits, [request.tokens], forbidden=forbidden)
                whole = [value for value, _ in _scores(model, request, work)]
                response = contrasted(request, lookup, model, whole)
            elif request.choices:
                scores = _scores(model, request, work)
                response = chosen(request, [value for value, _ in scores], [best for _, best in scores], model)
            else:
                response = _generated(model, request, stops[request.key], ends, work)
        except RuntimeError as error:
            if ran_out(error):
                halve(work, model, error)
            raise
        finally:
            gates.assign_everywhere(BASELINE)
        yield response


@torch.inference_mode()
def _logits(model: Model, tokens: Sequence[int], work: Work) -> Float[Tensor, "length vocabulary"]:
    work.prompt += len(tokens)
    logits: Tensor = model.network(input_ids=torch.tensor([list(tokens)], device=model.device), use_cache=False).logits
    return logits[0]


def _generated(model: Model, request: Request, stop: StopStrings, ends: Collection[int], work: Work) -> Response:
    limit = longest_answer(model, request)
    row = ActiveRequest(request, 0, 0, limit, ends, stop, closing=closing_of(model.tokenizer, request))
    finish = None
    while finish is None:
        logits = _logits(model, (*request.prompt, *row.generated), work)
        (token,), (finite,) = next_tokens(logits[-1:], [(row, 0)])
        finish = row.say(token, finite)
    return generated(request, row.generated, finish, stop, ends, model)


def _scores(model: Model, request: Request, work: Work) -> list[tuple[float, bool]]:
    """Of each choice its log-probability, and whether it is what would be said."""
    passes: dict[tuple[int, ...], Tensor] = {}  # choices that differ in their last token share one
    scores = []
    for choice in request.choices:
        tokens = (*request.prompt, *choice[:-1])
        if tokens not in passes:
            passes[tokens] = _logits(model, tokens, work)
        scores.append(score(passes[tokens][-len(choice) :], choice))
    return scores
