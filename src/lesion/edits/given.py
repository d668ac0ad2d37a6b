"""The edit that a person means for a model, in whatever form it was given: a value, text, a file, or several."""

from __future__ import annotations

from lesion.arguments import several
from lesion.edits.edit import Compose, Edit, EditLike, Single, as_edit, composed, path_of
from lesion.edits.files.artefact import EditFile, read_edit
from lesion.models.load import Model


def edit_for(model: Model, given: EditLike) -> Edit:
    """The edit that is meant.

    Args:
        model: what it is for; files are fitted to it (`EditFile.fit`).
        given: an edit; its text form (`lesion.parse`); the path of an `.edit` file; what `read_edit` gave; or several
            of these, which are composed.
    """
    if isinstance(given, Single | Compose):
        return given
    if isinstance(given, EditFile):
        return given.fit(model)
    file = path_of(given)
    if file is not None:
        return read_edit(file).fit(model)
    edits = several(given)
    return as_edit(given) if edits is None else composed([edit_for(model, edit) for edit in edits])
