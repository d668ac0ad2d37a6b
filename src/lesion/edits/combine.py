"""Combine: one edit file made of two by the algebra of what they select, without the model or with it."""

from __future__ import annotations

from pathlib import Path

from lesion.edits.artefact import save_edit, write_edit
from lesion.edits.edit import ScaleParameters, of_weights
from lesion.edits.editfile import EditFile, MadeFor
from lesion.edits.recipes import ALGEBRA
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model


def combined(
    first: EditFile,
    second: EditFile,
    word: str,
    path: Path | str,
    *,
    factor: float | None = None,
    model: Model | None = None,
) -> Path:
    """Write the edit that selects what is in `first` minus, and, or in `second`.

    Args:
        first, second: two edits, each of one selection, for the same model.
        word: `minus`, `and` or `or`.
        path: of the file to write; one that exists is overwritten.
        factor: of the new edit; needed where the two differ in theirs.
        model: the model that they were made for; without it, how much is selected is not counted.

    Raises:
        UsageError: the edits are for different models, have several parts or different factors, or there is no such
            word.
        LesionError: nothing or everything would be selected, or the file cannot be written.
    """
    if word not in ALGEBRA:
        raise UsageError(f"Two edits are combined by minus, and, or; not by '{word}'.")
    mine, yours = _only(first), _only(second)
    if first.model.fingerprint != second.model.fingerprint:
        raise UsageError(
            f"{first.path} was made for {first.model.name} (fingerprint {first.model.fingerprint}) and {second.path} "
            f"for {second.model.name} (fingerprint {second.model.fingerprint}); only edits of one model can be "
            "combined."
        )
    if factor is None:
        if mine.factor != yours.factor:
            raise UsageError(
                f"{first.path} multiplies by {mine.factor:g} and {second.path} by {yours.factor:g}; say with --factor "
                "by what the new edit does."
            )
        factor = mine.factor
    if word == "minus" and mine.selection == yours.selection:
        raise LesionError(f"{first.path} and {second.path} select the same; nothing would be left.")
    selection = ALGEBRA[word](mine.selection, yours.selection)
    if model is not None:
        for file in (first, second):
            file.fit(model)  # refuses another model
        return save_edit(path, ScaleParameters(selection, factor), model)
    known = {**first.thresholds, **second.thresholds}
    edit = ScaleParameters(selection.with_thresholds(known), factor)
    matrices = {**first.model.matrices, **second.model.matrices}
    touched = {address: matrix for address, matrix in matrices.items() if selection.touches(address)}
    if not touched:
        raise LesionError(f"{first.path} and {second.path} have no matrix in common; nothing would be selected.")
    made = first.model
    return write_edit(path, edit, MadeFor(made.name, made.fingerprint, made.family, made.dtype, touched), None)


def _only(file: EditFile) -> ScaleParameters:
    parts = of_weights(file.edit)
    if len(parts) != 1:
        raise UsageError(f"{file.path} holds {len(parts)} edits in one; only single ones can be combined.")
    return parts[0]
