"""Artefact: an edit of weights as one small file, `NAME.edit`, that another person can read, check and apply.

The file holds the vectors from which the selection follows and the thresholds on the model that it was made for, not a
mask, and of a truncation which part of the spectrum is kept, not the factors; its header says in plain JSON what it
selects and truncates, from which data and for which weights (`container.py` has the bytes, `reading.py` the checks).
Wherever a person gives an edit, its file is taken too (`edit_for`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import version
from pathlib import Path

from lesion.arguments import several, validated
from lesion.edits.cuts import cuts, refuse_both
from lesion.edits.edit import (
    Compose,
    Edit,
    EditLike,
    Single,
    as_edit,
    composed,
    of_places,
    of_replacements,
    of_spectra,
    of_weights,
    path_of,
)
from lesion.edits.files.container import decode, encode, read_bytes, write_bytes
from lesion.edits.files.edit_file import EditFile, MadeFor, MatrixValues, mapped
from lesion.edits.files.reading import contents, understood
from lesion.edits.selections.selection import Count, count
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import values_digest
from lesion.models.load import Model
from lesion.models.matrices import Matrix

__all__ = ["SUFFIX", "EditFile", "describe", "read_edit", "save_edit"]

SUFFIX = ".edit"


def describe(edit: Edit, model: Model) -> MadeFor:
    """What an edit is made for: the model, with the digests of every matrix that the edit touches."""
    named = {part.address: model.anatomy.matrix(part.address) for part in of_spectra(edit)}
    scored: dict[str, Matrix] = {
        address: matrix
        for address, matrix in model.anatomy.scored.items()
        if address in named or any(part.selection.touches(address) for part in of_weights(edit))
    }
    return MadeFor(
        model.name,
        model.fingerprint,
        model.anatomy.family,
        model.dtype_name,
        {address: MatrixValues(matrix.shape, values_digest(matrix.read())) for address, matrix in scored.items()},
    )


@validated
def save_edit(path: Path | str, edit: Edit, model: Model, *, selected: Sequence[Count] | None = None) -> Path:
    """Keep an edit of weights as a file.

    Args:
        path: `.edit` is the usual ending. A file that exists is overwritten, whole or not at all.
        edit: one `ScaleParameters` or `Truncate`, or several composed.
        model: on which it was made; its weights are read, and must be unedited.
        selected: how much of every matrix is selected, where it was counted already (`selection.count`).

    Raises:
        UsageError: the edit scales blocks or branches, which text holds as well, replaces what they add, or changes
            nothing at all; it truncates a matrix that the model does not have, or one whose weights it multiplies.
        LesionError: its selection is empty or everything on this model, its truncations keep every component, or the
            file cannot be written.
    """
    scaled, truncations = of_weights(edit), of_spectra(edit)
    if replaced := of_replacements(edit):
        raise UsageError(
            f"An .edit file keeps no contributions of other texts, and '{replaced[0]}' takes some; keep the reference"
            " with reference.save(PATH) and the edit as text."
        )
    if of_places(edit).edits or not (scaled or truncations):
        raise UsageError(
            f"A file keeps an edit of weights, and '{edit}' is {'partly ' if scaled or truncations else ''}one of "
            "blocks; keep that as text."
        )
    refuse_both(scaled, truncations, model.name)
    made_for = describe(edit, model)
    shapes = {address: matrix.shape for address, matrix in made_for.matrices.items()}
    if not scaled and all(cut.whole for cut in cuts(truncations, shapes)):
        raise LesionError(f"{edit} keeps every component; nothing of {model.name} would be changed.")
    fixed = mapped(edit, lambda selection: selection.fixed(model))
    if not scaled:
        selected = []
    elif selected is None:
        selected = count(reduce(lambda a, b: a | b, (part.selection for part in of_weights(fixed))), model)
    header, tensors = contents(fixed, made_for, selected)
    made = {"made": datetime.now(UTC).date().isoformat()}
    data = encode({"version": header.pop("version"), "lesion": version("lesion"), **header, **made}, tensors)
    # What could not be read again must not be written.
    _read(data, Path(path))
    return write_bytes(Path(path), data)


@validated
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


def edit_for(model: Model, given: EditLike) -> Edit:
    """The edit that is meant."""
    if isinstance(given, Single | Compose):
        return given
    if isinstance(given, EditFile):
        return given.fit(model)
    file = path_of(given)
    if file is not None:
        return read_edit(file).fit(model)
    edits = several(given)
    return as_edit(given) if edits is None else composed([edit_for(model, edit) for edit in edits])
