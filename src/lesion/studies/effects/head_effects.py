"""What single query heads add to the stream: their columns of the output matrix, and what stands behind it, frozen."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.activations.readout import EXACT, ROUNDED, Frozen, Norm
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.studies.effects.clean_pass import CleanPass


class HeadContributions:
    """What the query heads of one block add to the stream in one pass.

    Attention adds f(W_O [head_0; head_1; …] + b), where f is nothing, or a norm whose scale is frozen as it is in the
    pass (Gemma 2, OLMo 2). So the heads and the part of the bias add up to what the attention adds.

    Args:
        model: which is only read.
        passed: a pass in which the heads of the block were read.
        layer: the block.

    Raises:
        LesionError: what stands behind the output matrix is neither nothing nor a norm, or the matrix is stored packed.
    """

    def __init__(self, model: Model, passed: CleanPass, layer: int) -> None:
        self._heads = model.anatomy.heads(layer)
        self._given, mixed = passed.heads[layer]
        self._matrix = self._heads.matrix.storage.view(self._heads.matrix.tensor)
        self._behind = _behind(model, layer, mixed, passed.branches[f"{layer}.attention"])

    def of(self, head: int) -> Float[Tensor, "tokens width"]:
        """What one head adds, float64."""
        size = self._heads.size
        columns = slice(head * size, (head + 1) * size)
        added = self._given[:, columns].double() @ self._matrix[:, columns].detach().double().T
        return added if self._behind is None else self._behind(added)


def _behind(model: Model, layer: int, mixed: Tensor, added: Tensor) -> Frozen | None:
    tolerance = EXACT if model.dtype == torch.float32 else ROUNDED
    if bool((mixed - added).abs().max() <= tolerance * added.abs().max()):
        return None
    attention = model.anatomy.block(layer).attention
    assert attention is not None
    try:
        return Norm.of(attention.tail, mixed, model.name).frozen(mixed, model.name)
    except (LesionError, RuntimeError, TypeError, ValueError) as error:
        raise LesionError(
            f"Behind the output matrix of {layer}.attention of {model.name} stands something else than a norm, so what"
            " a head adds cannot be told; measure --unit attention."
        ) from error
