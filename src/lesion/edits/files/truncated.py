"""Truncated: one matrix of which a part of the spectrum is kept, what that did to it, and its thin factors.

A matrix [out, in] of which k components are kept is the product of `ADDRESS.left` [out, k] and `ADDRESS.right`
[k, in]: k · (out + in) parameters in place of out · in. Their file lies in the folder `lesion` of the checkpoint, where
nobody who loads every safetensors file beside the weights comes upon it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor

from lesion.edits.cuts import Cut
from lesion.edits.edit import Truncate
from lesion.edits.spectra import decompose
from lesion.errors import UsageError


@dataclass(frozen=True, eq=False)
class Truncated:
    """A matrix of which a part of the spectrum was kept.

    Attributes:
        moved: weights that have another value.
        energy: Σ σ² kept ÷ that of the whole matrix, which is ‖kept‖² ÷ ‖W‖²; 1 for a matrix of zeros.
        dtype: of the matrix, `bfloat16`.
        factors: two thin ones [out, kept] and [kept, in] in that dtype; None unless they were asked for.
    """

    cut: Cut
    moved: int
    energy: float
    dtype: str
    factors: tuple[Float[Tensor, "out kept"], Float[Tensor, "kept in"]] | None = None


def truncated(
    weight: Float[Tensor, "out in"], cut: Cut, factors: bool = False
) -> tuple[Float[Tensor, "out in"], Truncated]:
    """The part of a matrix's spectrum that a cut keeps (a copy, as of `Spectrum.kept`), and what that did to it."""
    # Laid out as a model's matrix is when it is read, so that every sum is taken in the same order.
    weight = weight.clone(memory_format=torch.contiguous_format)
    spectrum = decompose(weight, cut.address)
    edited = spectrum.kept(weight, cut.start, cut.stop)
    squares = spectrum.values**2
    whole = float(squares.sum())
    thin = None
    if factors:
        left, right = spectrum.factors(weight, cut.start, cut.stop)
        thin = left.to(weight.dtype).contiguous(), right.to(weight.dtype).contiguous()
    return edited, Truncated(
        cut,
        int((edited != weight).sum()),
        float(squares[cut.start : cut.stop].sum()) / whole if whole else 1.0,
        str(weight.dtype).removeprefix("torch."),
        thin,
    )


FACTORS = Path("lesion") / "factors.safetensors"


def refuse_nothing(truncations: Sequence[Truncate]) -> None:
    """Refuse to write the factors of no matrix."""
    if not truncations:
        raise UsageError("Thin factors are those of truncated matrices, and no edit truncates one; leave --thin out.")


def counted(cut: Cut) -> str:
    """What two thin factors of a matrix save, in words."""
    sizes = f"two thin factors have {cut.thin:,} parameters in place of {cut.dense:,}"
    if cut.saved > 0:
        return f"{sizes}: {cut.saved:,} saved"
    return f"{sizes}: it does not pay" + (f", they are {-cut.saved:,} more" if cut.saved else "")


def write_factors(folder: Path, truncated: Sequence[Truncated]) -> Path:
    """Write the factors of truncated matrices in the dtype of the checkpoint, counts in the metadata; gives FACTORS."""
    tensors = {}
    counts = {}
    for matrix in truncated:
        cut = matrix.cut
        assert matrix.factors is not None
        tensors[f"{cut.address}.left"], tensors[f"{cut.address}.right"] = matrix.factors
        counts[cut.address] = {
            "shape": list(cut.shape),
            "rank": cut.rank,
            "start": cut.start,
            "stop": cut.stop,
            "kept": cut.kept,
            "parameters_dense": cut.dense,
            "parameters_factors": cut.thin,
            "parameters_saved": cut.saved,
            "energy": matrix.energy,
        }
    save_file(tensors, folder / FACTORS, metadata={"format": "pt", "lesion": json.dumps(counts)})
    return FACTORS
