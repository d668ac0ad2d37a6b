"""What of an edit the rows of a batch can have each for themselves, and what is written into the weights instead."""

from __future__ import annotations

from torch import nn
from transformers.pytorch_utils import Conv1D

from lesion.edits.edit import Compose, Edit, ScaleParameters, Single, Truncate, of_spectra, of_weights, parts
from lesion.edits.selections.topk import Magnitude
from lesion.edits.units import ScaleMatrix
from lesion.models.anatomy import Anatomy
from lesion.models.matrices import Matrix

Written = tuple[tuple[ScaleParameters, ...], tuple[Truncate, ...]]


def maskable(matrix: Matrix) -> bool:
    """Whether the rows of a batch can each have their own truncation of a matrix.

    They can where it is (a part of) the weight of a plain linear module, which sees every row. Experts see the tokens
    that are routed to them, whatever row they come from: they are truncated in the weights.
    """
    return not _routed(matrix) and type(matrix.module) in (nn.Linear, Conv1D) and matrix.attribute == "weight"


def by_rows(cut: Truncate, anatomy: Anatomy) -> bool:
    """Whether the rows of a batch can each have a truncation: a part of the spectrum of a `maskable` matrix."""
    return cut.side != "random" and maskable(anatomy.matrix(cut.address))


def _routed(matrix: Matrix) -> bool:
    return matrix.storage.expert is not None or matrix.name.startswith("expert")


def scalable(matrix: Matrix) -> bool:
    """Whether the rows of a batch can each scale a matrix by a factor of their own: a packed one too."""
    return maskable(matrix) or (matrix.packed and not _routed(matrix))


def with_scaled_weights(edit: Edit, anatomy: Anatomy) -> Edit:
    """The same edit with matrices that rows of a batch cannot scale as multiplied weights."""
    every: list[Single] = []
    for part in parts(edit):
        if not isinstance(part, ScaleMatrix) or scalable(anatomy.matrix(part.address)):
            every.append(part)
        elif part.factor != 1:
            every.append(ScaleParameters(Magnitude(1.0, (part.address,)), part.factor))
    return Compose(tuple(every))


def in_weights(edit: Edit, anatomy: Anatomy) -> Written:
    """What of an edit is written into the weights, and so is the same for all rows of a batch."""
    edit = with_scaled_weights(edit, anatomy)
    weights, truncations = of_weights(edit), of_spectra(edit)
    if any(part.selection.touches(cut.address) for part in weights for cut in truncations):
        return weights, truncations  # `lesion.edits.weights.written` says what is wrong
    return weights, tuple(cut for cut in truncations if not by_rows(cut, anatomy))
