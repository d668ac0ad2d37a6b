"""Schedule: the optimizer, the learning rate at every step, and the luck of every step, as functions of the step."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch
from jaxtyping import Int
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

BETAS = (0.9, 0.999)


def seed_all(seed: int, step: int) -> None:
    """Seed Python's, NumPy's and PyTorch's generators with a number that depends on both."""
    number = int.from_bytes(hashlib.sha256(f"{seed}|{step}".encode()).digest()[:4], "little")
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def rate(step: int, steps: int, warmup: float, *, falls: bool = True) -> float:
    """The learning rate at a step, counted from 0, as a fraction of its peak.

    It rises linearly over the share `warmup` of the steps; then it falls linearly to 0 at the end, or stays.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return 1 - (step - rising) / max(1, steps - rising) if falls else 1.0


def optimizer_of(parameters: list[nn.Parameter], learning_rate: float) -> AdamW:
    """AdamW on the parameters, without weight decay."""
    return AdamW(parameters, lr=learning_rate, betas=BETAS, weight_decay=0.0, fused=True)


def schedule_of(
    optimizer: torch.optim.Optimizer, begun: int, steps: int, warmup: float, *, falls: bool = True
) -> LambdaLR:
    """The schedule from step `begun` on."""
    return LambdaLR(optimizer, lambda done: rate(min(begun + done, steps), steps, warmup, falls=falls))


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
