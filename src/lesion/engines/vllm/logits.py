"""What a worker reads off the logits: log-probabilities and ranks, draws of sampled answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.engines.sampling import sample

# Logits that are looked at together, rows × vocabulary: what a processor keeps near.
ENTRIES = 1 << 20


@dataclass(frozen=True)
class Wish:
    """What a request wants of a worker, as it travels in `extra_args`.

    Attributes:
        number: of the request.
        column: of its edit.
        prompt: tokens of its prompt; an answer begins behind them.
        first: position whose logits are looked up first; what they tell is the token after it.
        targets: for `first` and each position after it, the tokens to look up there; empty for answers.
        draw: temperature, top_p and noise key (`lesion.engines.sampling.noise_key`) of an answer that is sampled; empty
            where it is greedy.
    """

    number: int
    column: int
    prompt: int
    first: int = 0
    targets: tuple[tuple[int, ...], ...] = ()
    draw: tuple[float, float, int] | tuple[()] = ()

    def plain(self) -> dict[str, Any]:
        """As plain numbers and lists."""
        return {
            "number": self.number,
            "column": self.column,
            "prompt": self.prompt,
            "first": self.first,
            "targets": [list(tokens) for tokens in self.targets],
            "draw": list(self.draw),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Wish:
        """The wish that `plain` wrote."""
        targets = tuple(tuple(tokens) for tokens in plain["targets"])
        numbers = {key: int(plain[key]) for key in ("number", "column", "prompt", "first")}
        return cls(**numbers, targets=targets, draw=tuple(plain["draw"]))


def looked_up(logits: Float[Tensor, "positions vocabulary"], targets: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Per position the log-probability and rank of its targets, the most probable token, and whether all is finite.

    Log-probabilities are those of a float64 softmax. The rank of a token is 1 + the number of tokens with a strictly
    greater logit, so that equal logits share the better rank.
    """
    found: list[dict[str, Any]] = []
    # A part at a time: all logits of a large vocabulary as float64 would not fit beside the logits themselves.
    size = max(1, ENTRIES // logits.shape[-1])
    for start in range(0, len(logits), size):
        found += _looked_up(logits[start : start + size], targets[start : start + size])
    return found


def _looked_up(logits: Float[Tensor, "positions vocabulary"], targets: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    width = max(map(len, targets))
    padded = [(*tokens, *[tokens[0]] * (width - len(tokens))) for tokens in targets]
    tokens = torch.tensor(padded, device=logits.device)
    scores = logits.double().log_softmax(-1).gather(1, tokens).tolist()
    of_tokens = logits.gather(1, tokens)
    ranks = torch.stack([1 + (logits > one[:, None]).sum(-1) for one in of_tokens.unbind(1)], 1).tolist()
    largest, best = logits.max(-1)
    finite = (largest.isfinite() & of_tokens.isfinite().all(-1)).tolist()
    return [
        {"scores": row[:count], "ranks": rank[:count], "best": token, "finite": one}
        for row, rank, token, one, count in zip(scores, ranks, best.tolist(), finite, map(len, targets), strict=True)
    ]


@dataclass(frozen=True)
class Draw:
    """A row of logits whose next token is drawn.

    Attributes:
        row: of the logits.
        position: of the token in its answer, from 0.
        draw: as in `Wish`.
    """

    row: int
    position: int
    draw: tuple[float, float, int]


def draw(logits: Float[Tensor, "rows vocabulary"], draws: Sequence[Draw]) -> None:
    """Leave of each of these rows the token that is drawn, as the only one that is possible."""
    rows = torch.tensor([one.row for one in draws], device=logits.device)
    settings = torch.tensor([one.draw[:2] for one in draws], dtype=torch.float64, device=logits.device)
    noise = torch.tensor([(one.draw[2], one.position) for one in draws], device=logits.device)
    tokens = sample(logits.index_select(0, rows), *settings.T, *noise.T)
    logits.index_fill_(0, rows, float("-inf"))
    logits[rows, tokens] = 0.0
