"""Artefact: an edit of weights as one small file, `NAME.edit`, that another person can read, check and apply.

The file holds the vectors from which the selection follows and the thresholds on the model that it was made for, not a
mask; its header says in plain JSON what it selects, from which data and for which weights (`container.py` has the
bytes, `reading.py` the checks).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor

from lesion.edits.container import decode, encode, read_bytes, write_bytes
from lesion.edits.edit import Edit, of_places, of_weights, to_json
from lesion.edits.editfile import EditFile, MadeFor, MatrixValues, inputs_of, label_of, mapped
from lesion.edits.reading import understood
from lesion.edits.selection import Count, count
from lesion.edits.shares import Wanda
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import values_digest
from lesion.models.load import Model
from lesion.models.matrices import Matrix

__all__ = ["SUFFIX", "EditFile", "describe", "read_edit", "save_edit", "write_edit"]

SUFFIX = ".edit"


def describe(edit: Edit, model: Model) -> MadeFor:
    """The model that an edit is made for, with the digests of every matrix that the edit touches."""
    scored: dict[str, Matrix] = {
        address: matrix
        for address, matrix in model.anatomy.scored.items()
        if any(part.selection.touches(address) for part in of_weights(edit))
    }
    return MadeFor(
        model.name,
        model.fingerprint,
        model.anatomy.family,
        str(model.dtype).removeprefix("torch."),
        {address: MatrixValues(matrix.shape, values_digest(matrix.read())) for address, matrix in scored.items()},
    )


def save_edit(path: Path | str, edit: Edit, model: Model, *, selected: Sequence[Count] | None = None) -> Path:
    """Keep an edit of weights as a file.

    Args:
        path: of the file; `.edit` is its usual ending. One that exists is overwritten, whole or not at all.
        edit: one `ScaleParameters`, or several composed.
        model: on which it was made; its weights are read, and must be unedited.
        selected: how much of every matrix is selected, where it was counted already (`selection.count`).

    Returns:
        The path.

    Raises:
        UsageError: the edit scales blocks or branches, which text holds as well, or changes nothing at all.
        LesionError: its selection is empty or everything on this model, or the file cannot be written.
    """
    parts = of_weights(edit)
    if of_places(edit).edits or not parts:
        raise UsageError(
            f"A file keeps an edit of weights, and '{edit}' is {'partly ' if parts else ''}one of blocks; keep that "
            "as text."
        )
    fixed = mapped(edit, lambda selection: selection.fixed(model))
    if selected is None:
        selected = count(reduce(lambda a, b: a | b, (part.selection for part in of_weights(fixed))), model)
    return write_edit(path, fixed, describe(fixed, model), selected)


def write_edit(path: Path | str, edit: Edit, model: MadeFor, selected: Sequence[Count] | None) -> Path:
    """Write an edit whose selections are fixed, with what is known of the model it is for; see `save_edit`.

    Raises:
        LesionError: the file cannot be written.
    """
    inputs = inputs_of(edit)
    tensors = {f"{one.digest}/{name}": vector for one in inputs for name, vector in one.tensors().items()}
    for part in of_weights(edit):
        for share in part.selection.top_shares():
            if share.thresholds is not None:
                tensors[f"thresholds/{share.digest}"] = _flat(share, model.matrices)
    header = {
        "lesion": version("lesion"),
        "label": label_of(edit),
        "edit": to_json(edit),
        "recipes": {
            part.selection.digest: part.selection.recipe(lambda given: given.digest) for part in of_weights(edit)
        },
        "model": {**asdict(model), "matrices": {a: asdict(matrix) for a, matrix in model.matrices.items()}},
        "inputs": [{"digest": one.digest, **one.header()} for one in inputs],
        "selected": None
        if selected is None
        else [{"block": c.block, "matrix": c.matrix, "selected": c.selected, "total": c.total} for c in selected],
        "made": datetime.now(UTC).date().isoformat(),
    }
    data = encode(header, tensors)
    # What could not be read again must not be written.
    _read(data, Path(path))
    return write_bytes(Path(path), data)


def _flat(share: Wanda, matrices: Iterable[str]) -> Tensor:
    """All thresholds of a top share one after the other, in the order of the matrices that it touches."""
    thresholds = share.thresholds or {}
    known = [thresholds[address] for address in matrices if address in thresholds]
    return torch.cat([torch.as_tensor(cut, dtype=torch.float64).cpu().reshape(-1) for cut in known])


def read_edit(path: Path | str) -> EditFile:
    """Read an edit that `save_edit` wrote, with distrust: it may come from anybody.

    Raises:
        UsageError: there is no such file.
        LesionError: it is no edit, is cut short or was changed, is of a later version, or does not hold together.
    """
    return _read(read_bytes(Path(path)), Path(path))


def _read(data: bytes, path: Path) -> EditFile:
    header, tensors = decode(data, str(path))
    try:
        return understood(header, tensors, path, data)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError, LesionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise LesionError(f"{path} does not hold together as an edit: {reason.rstrip('.')}.") from error
