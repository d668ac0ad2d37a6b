"""Schedule: the optimizer, the learning rate at every step, and the luck of every step, as functions of the step."""

from __future__ import annotations

import hashlib
import math
import random

import numpy as np
import torch
from jaxtyping import Int
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from lesion.errors import UsageError

SCHEDULES = ("linear", "cosine", "constant")
BETAS = (0.9, 0.999)


def seed_all(seed: int, step: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators with a number that depends on both."""
    number = int.from_bytes(hashlib.sha256(f"{seed}|{step}".encode()).digest()[:4], "little")
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def refuse_rate(learning_rate: float, warmup: float) -> None:
    """Refuse with a UsageError a peak rate or a share of warm-up that cannot be."""
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise UsageError(f"The learning rate is a positive number, not {learning_rate}.")
    if not 0 <= warmup < 1:
        raise UsageError(f"The warm-up is a share of the steps, at least 0 and below 1, not {warmup}.")


def rate(step: int, steps: int, warmup: float, schedule: str = "linear") -> float:
    """The learning rate at a step, counted from 0, as a fraction of its peak.

    It rises linearly over the share `warmup` of the steps; then it falls to 0 at the end, linearly or as half a cosine,
    or stays.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    done = (step - rising) / max(1, steps - rising)
    return {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2, "constant": 1.0}[schedule]


def optimizer_of(parameters: list[nn.Parameter], learning_rate: float, weight_decay: float = 0.0) -> AdamW:
    """AdamW on the parameters; weight decay, where there is any, on matrices alone."""
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return AdamW(
        [group for group in groups if group["params"]], lr=learning_rate, betas=BETAS, weight_decay=0.0, fused=True
    )


def schedule_of(
    optimizer: torch.optim.Optimizer, begun: int, steps: int, warmup: float, schedule: str = "linear"
) -> LambdaLR:
    """The schedule from step `begun` on."""
    return LambdaLR(optimizer, lambda done: rate(min(begun + done, steps), steps, warmup, schedule))


def order(count: int, rows: int, steps: int, seed: int, begun: int = 0) -> Int[np.ndarray, " positions"]:
    """The places of what is used from step `begun` on, in order, `rows` a step: every pass in an order of its own.

    Place p of the whole order lies in pass p // count, whose order is a permutation drawn by (seed, pass).
    """
    first, last = begun * rows, steps * rows
    passes = range(first // count, -(-last // count))
    drawn = [np.random.default_rng([seed % 2**64, number]).permutation(count) for number in passes]
    if not drawn:
        return np.empty(0, dtype=np.int64)
    start = first - passes.start * count
    return np.concatenate(drawn)[start : start + last - first]
