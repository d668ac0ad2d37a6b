"""What a worker reads off the logits: log-probabilities and ranks, draws by an answer's own luck, broken numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lesion.engines.decoding import luck, sample
from lesion.engines.engine import Decoding


@dataclass(frozen=True)
class Wish:
    """What a request wants of a worker, as it travels in `extra_args`.

    Attributes:
        number: of the request.
        column: of its edit.
        prompt: tokens of its prompt; an answer begins behind them.
        first: position whose logits are looked up first; what they tell is the token after it.
        targets: for `first` and each position after it, the tokens to look up there; empty for answers.
        draw: temperature, top_p, seed and limit of an answer that is sampled; empty where it is greedy.
    """

    number: int
    column: int
    prompt: int
    first: int = 0
    targets: tuple[tuple[int, ...], ...] = ()
    draw: tuple[float, float, int, int] | tuple[()] = ()

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
    found = []
    for row, tokens in zip(logits, targets, strict=True):
        chosen = row[list(tokens)]
        largest = row.max()
        found.append(
            {
                "scores": row.double().log_softmax(-1)[list(tokens)].tolist(),
                "ranks": [1 + int((row > one).sum()) for one in chosen],
                "best": int(row.argmax()),
                "finite": bool(largest.isfinite() & chosen.isfinite().all()),
            }
        )
    return found


@dataclass(frozen=True)
class Draw:
    """A row of logits whose next token is drawn.

    Attributes:
        row: of the logits.
        number: of the request.
        step: which of its tokens it is, from 0.
        draw: as in `Wish`.
        prompt: token ids.
    """

    row: int
    number: int
    step: int
    draw: tuple[float, float, int, int]
    prompt: Sequence[int]


class Luck:
    """Draws of the answers that are sampled, by request."""

    def __init__(self) -> None:
        self._draws: dict[int, np.ndarray] = {}

    def draw(self, logits: Float[Tensor, "rows vocabulary"], rows: Sequence[Draw]) -> None:
        """Leave of each of these rows the token that is drawn, as the only one that is possible."""
        where = torch.tensor([row.row for row in rows], device=logits.device)
        settings = []
        for one in rows:
            temperature, top_p, seed, limit = one.draw
            if one.number not in self._draws:
                decoding = Decoding(int(limit), (), temperature, top_p, int(seed))
                self._draws[one.number] = luck(decoding, one.prompt)
            settings.append((temperature, top_p, self._draws[one.number][one.step]))
        numbers = torch.tensor(settings, dtype=torch.float64, device=logits.device)
        tokens = sample(logits.index_select(0, where), *numbers.T)
        logits.index_fill_(0, where, float("-inf"))
        logits[where, tokens] = 0.0

    def forget(self, kept: set[int]) -> None:
        """Let go of the draws of requests that are not at work any more."""
        self._draws = {number: draws for number, draws in self._draws.items() if number in kept}
