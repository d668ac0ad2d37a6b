"""MathNeuro the way it was published, written naively from its description: what lesion's way is measured against.

One text at a time goes through the whole network; every linear adds |W| · ‖X‖₂ to a float32 matrix of its own (the
released code adds up in the dtype of the model); the top share is taken by `torch.topk`. All of it is done again for
every share, repeat and control set. Kinder than the original: the model stays loaded, and the sums are float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lesion.models.load import Model


@dataclass
class Cell:
    """One cell of the grid: its masks by address, and where its seconds went."""

    masks: dict[str, Bool[Tensor, "out in"]]
    observing: float
    selecting: float


def importance(model: Model, texts: Sequence[Sequence[int]]) -> dict[str, Float[Tensor, "out in"]]:
    """Σ over texts of |W_ij| · ‖X[:, j]‖₂ for every linear of the blocks, float32."""
    sums: dict[str, Tensor] = {}
    handles = []

    def adds(address: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            incoming = args[0].float()
            norms = incoming.reshape(-1, incoming.shape[-1]).norm(dim=0)
            sums[address] += module.get_parameter("weight").abs().float() * norms

        return hook

    for address, matrix in model.anatomy.scored.items():
        if not isinstance(matrix.module, nn.Linear) or matrix.module.weight.shape != matrix.shape:
            raise SystemExit(f"{address} is not the whole weight of a linear; the naive way knows nothing else.")
        sums[address] = torch.zeros(matrix.shape, dtype=torch.float32, device=matrix.module.weight.device)
        handles.append(matrix.module.register_forward_pre_hook(adds(address)))
    try:
        with torch.inference_mode():
            for text in texts:
                model.network(input_ids=torch.tensor([list(text)], device=model.device), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return sums


def top_share(scores: Float[Tensor, "out in"], keep: float) -> Bool[Tensor, "out in"]:
    """The k entries with the largest scores, ties as topk breaks them."""
    flat = scores.flatten()
    mask = torch.zeros_like(flat, dtype=torch.bool)
    mask[torch.topk(flat, max(1, int(keep * len(flat))), sorted=False).indices] = True
    return mask.view(scores.shape)


def cell(model: Model, skill: Sequence[Sequence[int]], control: Sequence[Sequence[int]], keep: float) -> Cell:
    """The selection for one share, one draw of texts and one control set, from nothing."""
    began = clock(model)
    needed, shared = importance(model, skill), importance(model, control)
    observed = clock(model)
    masks = {address: top_share(needed[address], keep) & ~top_share(shared[address], keep) for address in needed}
    return Cell(masks, observed - began, clock(model) - observed)


def clock(model: Model) -> float:
    """Seconds, after everything that was asked of the device is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter()
