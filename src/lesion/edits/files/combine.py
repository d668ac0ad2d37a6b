"""Combine: one edit file made of two by the algebra of what they select, without the model or with it.

Truncations have no such algebra; an edit that truncates is joined with one of other matrices, and both are made.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lesion.arguments import validated
from lesion.edits.edit import Compose, Edit, ScaleParameters, of_spectra, of_weights
from lesion.edits.files.artefact import save_edit, write_edit
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.recipes import ALGEBRA
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model


@validated
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

    Where one of them truncates, `or` writes both edits in one, which must be of different matrices.
    """
    if word not in ALGEBRA:
        raise UsageError(f"Two edits are combined by minus, and, or; not by '{word}'.")
    if first.model.fingerprint != second.model.fingerprint:
        raise UsageError(
            f"{first.path} was made for {first.model.name} (fingerprint {first.model.fingerprint}) and {second.path} "
            f"for {second.model.name} (fingerprint {second.model.fingerprint}); only edits of one model can be "
            "combined."
        )
    if of_spectra(first.edit) or of_spectra(second.edit):
        return _joined(first, second, word, path, factor, model)
    mine, yours = _only(first), _only(second)
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
    return write_edit(path, edit, replace(first.model, matrices=touched), None)


def _joined(
    first: EditFile, second: EditFile, word: str, path: Path | str, factor: float | None, model: Model | None
) -> Path:
    which = first if of_spectra(first.edit) else second
    if word != "or":
        raise UsageError(
            f"{which.path} truncates {of_spectra(which.edit)[0].address}, and truncations have no '{word}'; --op or "
            "writes both edits in one."
        )
    if factor is not None:
        raise UsageError(f"{which.path} truncates, and a truncation has no factor; leave --factor out.")
    if both := [address for address in first.model.matrices if address in second.model.matrices]:
        raise UsageError(
            f"{first.path} and {second.path} both edit {both[0]}; only edits of different matrices are joined where "
            "one of them truncates."
        )
    edit: Edit
    if model is not None:
        edit = Compose((first.fit(model), second.fit(model)))
        return save_edit(path, edit, model)
    edit = Compose((first.fixed(), second.fixed()))
    made_for = replace(first.model, matrices={**first.model.matrices, **second.model.matrices})
    return write_edit(path, edit, made_for, None if of_weights(edit) else [])


def _only(file: EditFile) -> ScaleParameters:
    parts = of_weights(file.edit)
    if len(parts) != 1:
        raise UsageError(f"{file.path} holds {len(parts)} edits in one; only single ones can be combined.")
    return parts[0]
