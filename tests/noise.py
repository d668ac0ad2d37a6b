"""Noise on the logits of every network: what another processor, another kernel or another batch would do.

Sums of floats depend on the order in which a kernel adds: two machines differ in the last bits, and so do two batches
on one machine. Nothing that a study reports may depend on that. `LESION_TEST_LOGIT_NOISE=1e-6 pytest` shows it: every
test must pass. Tests marked `same_bits` run without noise: they compare one computation with itself, in batches of one
shape, and say why it must give the same bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_scale = 0.0


def disturb(scale: float, seed: int = 0) -> None:
    """Add normal noise of standard deviation `scale` to all logits that any transformers network gives from now on.

    Not while a network trains: training is repeated as it was, and not compared with another computation. No two calls
    draw the same noise.
    """
    global _scale
    _scale = scale
    if not scale:
        return
    generator = torch.Generator().manual_seed(seed)

    def call(network: nn.Module, *args: Any, **kwargs: Any) -> Any:
        output = nn.Module.__call__(network, *args, **kwargs)
        logits = None if network.training or not _scale else getattr(output, "logits", None)
        if isinstance(logits, Tensor) and logits.is_floating_point():
            noise = _scale * torch.randn(logits.shape, generator=generator, dtype=torch.float64)
            output.logits = (logits.double() + noise.to(logits.device)).to(logits.dtype)
        return output

    PreTrainedModel.__call__ = call  # type: ignore[method-assign]


@contextmanager
def undisturbed() -> Iterator[None]:
    """No noise within."""
    global _scale
    scale, _scale = _scale, 0.0
    try:
        yield
    finally:
        _scale = scale
