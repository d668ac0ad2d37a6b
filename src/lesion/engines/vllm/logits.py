"""What a request wants of a worker, and draws of sampled answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.engines.sampling import sample

Settings = tuple[float, float, int]
"""Temperature, top_p and noise key (`lesion.engines.sampling.noise_key`) of a sampled answer."""


@dataclass(frozen=True)
class Wish:
    """What a request wants of a worker, as it travels in `extra_args`.

    Attributes:
        number: of the request.
        column: of its edit.
        prompt: tokens of its prompt; an answer begins behind them.
        first: the first position whose logits are looked up; they belong to the token after it.
        targets: for `first` and each position after it, the tokens to look up there; empty for answers.
        draw: of an answer that is sampled; empty where it is greedy.
        forbidden: tokens that cannot follow the prompt.
    """

    number: int
    column: int
    prompt: int
    first: int = 0
    targets: tuple[tuple[int, ...], ...] = ()
    draw: Settings | tuple[()] = ()
    forbidden: tuple[int, ...] = ()

    def plain(self) -> dict[str, object]:
        """As plain numbers and lists."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Wish:
        """The wish that `plain` wrote; tuples may have become lists."""
        vectors = {name: tuple(plain[name]) for name in ("draw", "forbidden")}
        return cls(**{**plain, "targets": tuple(map(tuple, plain["targets"])), **vectors})


@dataclass(frozen=True)
class Draw:
    """A row of logits whose next token is drawn, and the position of that token in its answer, from 0."""

    row: int
    position: int
    draw: Settings


def draw(logits: Float[Tensor, "rows vocabulary"], draws: Sequence[Draw]) -> None:
    """Leave of each of these rows the token that is drawn, as the only one that is possible."""
    rows = torch.tensor([each.row for each in draws], device=logits.device)
    settings = torch.tensor([each.draw[:2] for each in draws], dtype=torch.float64, device=logits.device)
    noise = torch.tensor([(each.draw[2], each.position) for each in draws], device=logits.device)
    tokens = sample(logits.index_select(0, rows), *settings.T, *noise.T)
    logits.index_fill_(0, rows, float("-inf"))
    logits[rows, tokens] = 0.0
