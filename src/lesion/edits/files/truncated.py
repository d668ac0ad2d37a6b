"""Truncated: one matrix of which a part of the spectrum is kept, and what that did to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.cuts import Cut
from lesion.edits.spectra import decompose


@dataclass(frozen=True, eq=False)
class Truncated:
    """A matrix of which a part of the spectrum was kept.

    Attributes:
        moved: weights that have another value.
        energy: Σ σ² kept ÷ that of the whole matrix, which is ‖kept‖² ÷ ‖W‖²; 1 for a matrix of zeros.
        dtype: of the matrix, `bfloat16`.
    """

    cut: Cut
    moved: int
    energy: float
    dtype: str


def truncated(weight: Float[Tensor, "out in"], cut: Cut) -> tuple[Float[Tensor, "out in"], Truncated]:
    """The part of a matrix's spectrum that a cut keeps (a copy, as of `Spectrum.kept`), and what that did to it."""
    # Laid out as a model's matrix is when it is read, so that every sum is taken in the same order.
    weight = weight.clone(memory_format=torch.contiguous_format)
    spectrum = decompose(weight, cut.address)
    edited = spectrum.kept(weight, cut.start, cut.stop)
    squares = spectrum.values**2
    whole = float(squares.sum())
    return edited, Truncated(
        cut,
        int((edited != weight).sum()),
        float(squares[cut.start : cut.stop].sum()) / whole if whole else 1.0,
        str(weight.dtype).removeprefix("torch."),
    )


def counted(cut: Cut) -> str:
    """What two thin factors of a matrix save, in words."""
    sizes = f"two thin factors have {cut.thin:,} parameters in place of {cut.dense:,}"
    if cut.saved > 0:
        return f"{sizes}: {cut.saved:,} saved"
    return f"{sizes}: it does not pay" + (f", they are {-cut.saved:,} more" if cut.saved else "")
