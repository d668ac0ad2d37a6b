"""Measuring one item: what every place writes towards the gold tokens, and what is lost without it.

Everything is teacher-forced: the model reads the prompt and the gold solution, and each gold token is judged at the
position before it. One clean pass gives the lens, the direct effects and the block influence; the total effects are
rows of few passes, each row from the block on that its edit changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.activations.readout import Readout
from lesion.core.values import Value
from lesion.edits.edit import BASELINE, Scale
from lesion.edits.gates import Gates, gated
from lesion.edits.table import tabulate
from lesion.engines.transformers.memory import ran_out
from lesion.engines.transformers.prefill import prefill, rows_to_score
from lesion.errors import LesionError
from lesion.studies.effects.clean_pass import clean_pass, final

LOGITS = 1 << 25
"""Logits of one pass, over its rows, at most."""


@dataclass(frozen=True)
class Text:
    """An item as a model reads it.

    Attributes:
        prompt, gold: token ids of the prompt, and of what is right to say after it; each at least one.
        tempting: the token that tempts in the place of the first gold token; None: the mean over the vocabulary is
            what the gold logits are compared with.
    """

    prompt: tuple[int, ...]
    gold: tuple[int, ...]
    tempting: int | None = None

    @property
    def read(self) -> tuple[int, ...]:
        """What the model reads: all but the last gold token."""
        return (*self.prompt, *self.gold[:-1])


class Measured(Value):
    """All numbers of one item: means over its gold tokens.

    Logits are those of the gold tokens minus the mean logit over the vocabulary, or minus that of the tempting token,
    before any softcap. Log-probabilities are in nats.

    Attributes:
        tokens: how many gold tokens there are; read: tokens of the text.
        lens, log_rank, top: per layer (0: what enters block 0; l: after block l − 1; the last one is the whole model)
            the log-probability of the gold tokens, the logarithm of their rank, from 1, and the share of them that are
            the most probable one.
        logit: of the whole model.
        embedding, offset: the parts of it that come from what enters block 0, and from the biases of norm and head.
        direct: by place (`3`, `3.attention`), what it adds to the logit through the frozen final norm.
        total: by place, by how much the logit is lower when the place is switched off.
        frozen: by place, the same with the scale that the final norm has in the whole model. `direct` minus this is
            what later blocks make up for, this minus `total` what the norm does.
        loss: by place, by how much the log-probability is lower then.
        influence: per block, 1 − cosine of its input and its output, mean over the tokens of the text.
    """

    tokens: int
    read: int
    lens: tuple[float, ...]
    log_rank: tuple[float, ...]
    top: tuple[float, ...]
    logit: float
    embedding: float
    offset: float
    direct: dict[str, float]
    total: dict[str, float]
    frozen: dict[str, float]
    loss: dict[str, float]
    influence: tuple[float, ...]


def measure(readout: Readout, text: Text, edits: Sequence[Scale], rows: int | None = None) -> Measured:
    """All numbers of one item.

    Args:
        readout: of the model.
        text: the item.
        edits: every place that is measured, switched off.
        rows: the most edits of one pass; by default as many as share it best.

    Raises:
        LesionError: a stream, a contribution or a logit is not finite or cannot be read, attention and MLP of a block
            do not add up to what the block adds, or memory does not suffice for one row.
    """
    model, kept = readout.model, len(text.gold)
    passed = clean_pass(readout, text.read, kept, branches=any(edit.unit != "block" for edit in edits))
    last = passed.streams[-1][-kept:]
    frozen = readout.norm.frozen(last, model.name)
    gold = torch.tensor(text.gold, device=last.device)
    against = None if text.tempting is None else torch.full_like(gold, text.tempting)
    directions, head_bias = readout.directions(gold, against)

    def direct(contribution: Float[Tensor, "tokens width"]) -> float:
        return float((frozen(contribution[-kept:]) * directions).sum(-1).mean())

    layers = [*(readout.raw(stream[-kept:]) for stream in passed.streams[:-1]), passed.raw]
    scores = [_score(readout, raw, text) for raw in layers]
    return Measured(
        tokens=kept,
        read=len(text.read),
        lens=[score.log_probability for score in scores],
        log_rank=[score.log_rank for score in scores],
        top=[score.top for score in scores],
        logit=scores[-1].logit,
        embedding=direct(passed.streams[0]),
        offset=float(((frozen.norm.offset * directions).sum(-1) + head_bias).mean()),
        direct={edit.address: direct(passed.contribution(edit)) for edit in edits},
        **_lost(readout, text, edits, scores[-1], lambda left: direct(last - left), rows),
        influence=[_influence(before, after) for before, after in pairwise(passed.streams)],
    )


@dataclass(frozen=True)
class _Score:
    """Means over the gold tokens of a text."""

    logit: float
    log_probability: float
    log_rank: float
    top: float


def _score(readout: Readout, raw: Float[Tensor, "kept vocabulary"], text: Text, under: str = "") -> _Score:
    """Scores of the gold tokens by what the head gives at the positions before them; `under` ends the complaint."""
    raw = raw.double()
    if not bool(raw.isfinite().all()):
        raise LesionError(
            f"Logits of {readout.model.name} are not finite{under}; load the model in bfloat16 or float32."
        )
    gold = torch.tensor(text.gold, device=raw.device)[:, None]
    own = raw.gather(1, gold)[:, 0]
    other = raw.mean(1) if text.tempting is None else raw[:, text.tempting]
    higher = (raw > own[:, None]).sum(1).double()
    return _Score(
        logit=float(((own - other) * readout.factor).mean()),
        log_probability=float(readout.behind(raw).log_softmax(-1).gather(1, gold).mean()),
        log_rank=float((higher + 1).log().mean()),
        top=float((higher == 0).double().mean()),
    )


def _influence(before: Float[Tensor, "tokens width"], after: Float[Tensor, "tokens width"]) -> float:
    """1 − cosine, mean over tokens (block influence: Men et al. 2024, arXiv 2403.03853, eq. 1); summed in float64."""
    before, after = before.double(), after.double()
    return float((1 - (before * after).sum(-1) / (before.norm(dim=-1) * after.norm(dim=-1))).mean())


def _lost(
    readout: Readout,
    text: Text,
    edits: Sequence[Scale],
    clean: _Score,
    gone: Callable[[Tensor], float],
    rows: int | None,
) -> dict[str, dict[str, float]]:
    """What is lost when each place is switched off: `total`, `frozen` and `loss` of `Measured`.

    Rows of neighbouring blocks run together, so that they share what lies below.
    """
    model, kept = readout.model, len(text.gold)
    waiting = sorted(edits, key=lambda edit: edit.layer)
    vocabulary = readout.head.weight.shape[0]
    rows = rows or max(1, min(rows_to_score(model, len(text.read)), LOGITS // (kept * vocabulary)))
    total, frozen, loss = {}, {}, {}
    with gated(model) as gates, torch.inference_mode():
        while waiting:
            try:
                results = _under(readout, gates, text, waiting[:rows])
            except RuntimeError as error:
                if not ran_out(error) or rows == 1:
                    raise
                rows //= 2
                continue
            for edit, left, raw in zip(waiting, *results, strict=False):
                score = _score(readout, raw, text, f" with {edit.address} switched off")
                total[edit.address] = clean.logit - score.logit
                frozen[edit.address] = gone(left.to(raw.device))
                loss[edit.address] = clean.log_probability - score.log_probability
            waiting = waiting[rows:]
    return {"total": total, "frozen": frozen, "loss": loss}


def _under(readout: Readout, gates: Gates, text: Text, edits: Sequence[Scale]) -> tuple[Tensor, Tensor]:
    """The last streams and what the head gives, [edits, kept, …], at the positions before the gold tokens."""
    kept, table = len(text.gold), tabulate(edits, readout.model.anatomy)
    with final(readout.model, readout.module) as ended:
        passed = prefill(readout.model, gates, [text.read] * len(edits), table, text.read[0], kept=kept)
    gates.assign_everywhere(BASELINE)
    streams, raw = (each[:, -kept:].index_select(0, passed.places.to(each.device)) for each in ended)
    return streams, raw
