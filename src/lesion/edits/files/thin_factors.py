"""Thin: what truncations keep as two thin factors a matrix, in one file beside the checkpoint they were written to.

A matrix [out, in] of which k components are kept is the product of `ADDRESS.left` [out, k] and `ADDRESS.right`
[k, in]: k · (out + in) parameters in place of out · in. The file lies in the folder `lesion` of the checkpoint, where
nobody who loads every safetensors file beside the weights comes upon it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save_file

from lesion.edits.cuts import Cut
from lesion.edits.edit import Truncate
from lesion.edits.files.truncated import Truncated
from lesion.errors import UsageError

NAME = Path("lesion") / "factors.safetensors"
KEY = "lesion"


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
    """Write the factors of truncated matrices in the dtype of the checkpoint, counts in the metadata; gives NAME."""
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
    save_file(tensors, folder / NAME, metadata={"format": "pt", KEY: json.dumps(counts)})
    return NAME
