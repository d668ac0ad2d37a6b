"""The search for a truncation the way it was published, written naively: what lesion's search is measured against.

For every cell of the grid the matrix is decomposed again, its approximation is written in place, all items go through
the whole network one batch after another, and the old weights are copied back (Sharma et al. 2023: the randomised
decomposition, two power iterations, as many components as are kept; others use the exact one). Kinder than the original
in three things: the model stays loaded, items are batched, and logits are worked out at the last position only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import Truncate
from lesion.engines.transformers.prefill import pad_left
from lesion.models.load import Model

How = Literal["randomised", "svd"]


@dataclass(frozen=True)
class Question:
    """One item as both contestants get it: the ids of its prompt, and the id of the right token."""

    prompt: tuple[int, ...]
    right: int


@dataclass(frozen=True)
class Seconds:
    """Time by the wall and by the processor, which other programs on the machine disturb less."""

    wall: float = 0.0
    cpu: float = 0.0

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall + other.wall, self.cpu + other.cpu)

    def __mul__(self, count: float) -> Seconds:
        return Seconds(self.wall * count, self.cpu * count)


@dataclass(frozen=True)
class Told:
    """What one cell said, and where its seconds went.

    Attributes:
        accuracy: share of items whose most probable token is the right one.
        gold: mean log-probability of the right token, nats.
        decomposing: what the decomposition, the approximation and its writing took.
        evaluating: what all else took.
    """

    accuracy: float
    gold: float
    decomposing: Seconds
    evaluating: Seconds


def approximation(weight: Float[Tensor, "out in"], rank: int, how: How) -> Float[Tensor, "out in"]:
    """The approximation of a matrix by so many components."""
    if rank == 0:
        return torch.zeros_like(weight)
    if how == "randomised":
        left, values, right = torch.svd_lowrank(weight, q=rank, niter=2)
        return (left * values) @ right.mT
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    approximated: Tensor = (left[:, :rank] * values[:rank]) @ right[:rank]
    return approximated


@torch.inference_mode()
def evaluate(model: Model, questions: Sequence[Question], batch: int) -> tuple[float, float]:
    """Accuracy, and mean log-probability of the right token, one padded batch after another."""
    right, golds = 0, 0.0
    for start in range(0, len(questions), batch):
        part = questions[start : start + batch]
        tokens, mask = pad_left([question.prompt for question in part], 0)
        logits = model.network(
            input_ids=tokens.to(model.device),
            attention_mask=mask.long().to(model.device),
            position_ids=(mask.long().cumsum(1) - 1).clamp(min=0).to(model.device),
            use_cache=False,
            logits_to_keep=1,
        ).logits[:, -1]
        wanted = torch.tensor([question.right for question in part], device=logits.device)
        golds += float(logits.log_softmax(-1).gather(1, wanted[:, None]).sum())
        right += int((logits.argmax(-1) == wanted).sum())
    return right / len(questions), golds / len(questions)


@torch.inference_mode()
def cell(model: Model, edit: Truncate, questions: Sequence[Question], batch: int, how: How) -> Told:
    """One cell of the search, from nothing."""
    matrix = model.anatomy.matrix(edit.address)
    weight: Tensor = matrix.module.weight  # type: ignore[assignment]
    if weight.shape != matrix.shape:
        raise SystemExit(f"{edit.address} is not the whole weight of a linear; the naive way knows nothing else.")
    began = clock(model)
    before = weight.clone()
    _, rank = edit.kept(min(weight.shape))
    weight.copy_(approximation(weight, rank, how))
    written = clock(model)
    accuracy, gold = evaluate(model, questions, batch)
    weight.copy_(before)
    return Told(accuracy, gold, written - began, clock(model) - written)


def fastest(model: Model, questions: Sequence[Question], sizes: Sequence[int]) -> int:
    """The batch size with the shortest time of two, each tried after a warm-up."""
    evaluate(model, questions, sizes[0])
    times: dict[int, float] = {}
    for size in [*sizes, *sizes]:
        began = clock(model)
        evaluate(model, questions, size)
        times[size] = min(times.get(size, float("inf")), (clock(model) - began).cpu)
    print("  batch sizes tried, CPU seconds:", {size: round(seconds, 3) for size, seconds in times.items()}, flush=True)
    return min(times, key=times.__getitem__)


def clock(model: Model) -> Seconds:
    """Now, after everything that was asked of the device is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return Seconds(time.perf_counter(), time.process_time())
