"""To prove that edits act while a model decodes (`core.proofs`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from lesion.atomic import keep
from lesion.core.proofs import FILE, Proof, Proofs, State
from lesion.edits.edit import BASELINE, Edit
from lesion.engines.checking import ends_of
from lesion.engines.engine import Decoding, Engine, Request, Response
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.plain import short
from lesion.report.values import Number, known

TOKENS = 8
"""Of the answer at the end of which an edit is looked for."""
FINE, COARSE = 1e-4, 0.1
"""Smallest difference that rounding does not make, in nats: in float32, and in half precision or quantised."""
ROUNDING, COARSE_ROUNDING = 10, 2
"""So many times what rounding makes of the unedited model, a difference must be; likewise."""


def prove(folder: Path, name: str, engine: Engine, model: Model, prompt: Sequence[int], edits: Sequence[Edit]) -> None:
    """Prove of edits that they act while a model decodes, as far as it has not been done in the folder of the study."""
    known = Proofs.of(folder) or Proofs(models={})
    proofs = dict(known.models.get(name, {}))
    done = {str(BASELINE), *(text for text, proof in proofs.items() if proof.state != "lost")}
    fresh = [edit for edit in dict.fromkeys(edits) if str(edit) not in done]
    if not fresh:
        return
    proofs |= dict(_proved(engine, model, tuple(prompt), fresh))
    keep(folder / FILE, Proofs(models={**known.models, name: proofs}).model_dump_json(indent=1) + "\n")
    lost = [text for text, proof in proofs.items() if proof.state == "lost"]
    if lost and _is_exact(model):
        apart = _apart(proofs[lost[0]].decoded, proofs[lost[0]].read)
        raise LesionError(
            f"{short(lost[0], 80)} does not act as it should while {name} decodes: at the last token, log-probabilities"
            f" are {apart:.2g} nats from those of the same text read under the edit"
            f"{f'; {len(lost) - 1} further edits likewise' if len(lost) > 1 else ''}. Nothing that this engine answers"
            " under edits can be trusted; `lesion verify MODEL` says more, and another --engine may do it right."
        )


def _proved(
    engine: Engine, model: Model, prompt: tuple[int, ...], edits: Sequence[Edit]
) -> Iterator[tuple[str, Proof]]:
    decoding = Decoding(max_new_tokens=TOKENS, forbidden=tuple(sorted(ends_of(model))))  # one token is decoded at least
    asked = {str(edit): edit for edit in (BASELINE, *edits)}
    decoded = _answers(engine, (Request(text, prompt, edit, decoding, traced=True) for text, edit in asked.items()))
    spoken = {key: each for key, each in decoded.items() if each.last and each.answer.finish != "nonfinite"}
    looked: list[Request] = []
    for text, response in spoken.items():
        before, tokens = (*prompt, *response.token_ids[:-1]), tuple(token for token, _ in response.last)
        looked.append(Request(f"read {text}", before, asked[text], tokens=tokens))
        looked.append(Request(f"unedited {text}", before, tokens=tokens))
    scores = {key: response.answer.scores for key, response in _answers(engine, looked).items()}
    least, times, share = (FINE, ROUNDING, 0.1) if _is_exact(model) else (COARSE, COARSE_ROUNDING, 0.5)
    for text, response in decoded.items():
        said = tuple(score for _, score in response.last)
        read, unedited = scores.get(f"read {text}", ()), scores.get(f"unedited {text}", ())
        if text == str(BASELINE):
            least = max(least, times * _apart(said, read))
            continue
        state: State = "unseen"
        if response.answer.finish == "nonfinite":
            said, read, unedited, state = (), (), (), "acts"
        elif _apart(said, read) > max(least, share * _apart(said, unedited)):
            state = "lost"
        elif _apart(said, unedited) > least:
            state = "acts"
        yield text, Proof(decoded=said, read=read, unedited=unedited, state=state)


def _answers(engine: Engine, requests: Iterable[Request]) -> dict[str, Response]:
    """The responses by their keys, in the order of the requests."""
    waiting = list(requests)
    responses = {response.key: response for response in engine.answer(waiting)}
    return {request.key: responses[request.key] for request in waiting}


def _apart(one: Sequence[Number], other: Sequence[Number]) -> float:
    """How far apart two lists of log-probabilities are (root mean square); infinite where one is not finite."""
    pairs = list(zip(map(known, one), map(known, other), strict=False))
    squares = [math.inf if a is None or b is None else (a - b) ** 2 for a, b in pairs]
    return math.sqrt(sum(squares) / len(squares)) if squares else 0.0


def _is_exact(model: Model) -> bool:
    """Whether its numbers are rounded so finely that two orders of computing differ little."""
    return model.dtype in (torch.float32, torch.float64) and model.quantisation is None
