"""The edits that a person means for a checkpoint, in whatever form they were given, each as that of an edit file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from lesion.arguments import several
from lesion.edits.apply import applied
from lesion.edits.edit import (
    Compose,
    Edit,
    EditLike,
    Scale,
    ScaleParameters,
    Single,
    as_edit,
    of_places,
    parts,
    path_of,
)
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.selection import LONGEST_LABEL
from lesion.edits.selections.topk import Magnitude
from lesion.errors import UsageError
from lesion.models.load import Model

SAME = 1e-3
"""Two logits that differ by a smaller share of the largest are the same."""
TOKENS = 16


def edit_files(given: EditLike, model: Callable[[], Model]) -> list[EditFile]:
    """The edits that are meant.

    Args:
        given: an edit, its text form, the path of an `.edit` file, what `read_edit` gave, or several of these.
        model: loads the model that they are for; called where one is no file.

    Raises:
        UsageError: one is no edit, or cannot be written as weights; or there is none.
        LesionError: a file is damaged, or the model cannot be loaded.
    """
    one = isinstance(given, EditFile | Single | Compose) or several(given) is None
    each_given = [given] if one else several(given) or []
    if not each_given:
        raise UsageError("Give at least one edit: an .edit file, or text such as 3×0 or 3.mlp.up top 0.1 (--edit).")
    loaded: list[Model] = []
    files = []
    for each in each_given:
        file = path_of(each)
        if isinstance(each, EditFile) or file is not None:
            files.append(each if isinstance(each, EditFile) else read_edit(file or ""))
            continue
        edit = as_edit(each)
        loaded = loaded or [model()]
        files.append(_as_file(edit, loaded[0]))
    return files


def _as_file(edit: Edit, model: Model) -> EditFile:
    """An edit as if it had been saved for a model and read again, under its own text as its label."""
    with tempfile.TemporaryDirectory() as folder:
        file = read_edit(save_edit(Path(folder) / "meant.edit", as_weights(edit, model), model))
    label = file.label
    if of_places(edit).edits:
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", str(edit).replace("×", "x")).strip("-")[:LONGEST_LABEL]
    return replace(file, label=label, path=Path(f"{label}.edit"))


def as_weights(edit: Edit, model: Model) -> Edit:
    """An edit with its scaled blocks and branches as multiplied weights: the last matrix of each branch.

    That is the same where a branch adds to the residual stream what its last matrix gives, without a bias or a norm
    behind it, and for a whole block with factor 0 alone. It is tried on a few tokens.

    Raises:
        UsageError: it is not the same on this model, or the edit names a place that the model does not have.
    """
    places = of_places(edit)
    if not places.edits:
        return edit
    written = Compose(tuple(_weights_of(part, model) if isinstance(part, Scale) else part for part in parts(edit)))
    ids = torch.arange(TOKENS, device=model.device)[None] % model.network.get_input_embeddings().num_embeddings
    with torch.inference_mode():
        with applied(model, places):
            wanted = model.network(ids).logits.float()
        with applied(model, Compose(tuple(_weights_of(part, model) for part in places.edits))):
            got = model.network(ids).logits.float()
    if not torch.allclose(got, wanted, rtol=0, atol=SAME * float(wanted.abs().max())):
        raise UsageError(
            f"'{places}' cannot be written into the weights of {model.name}: a bias, a norm or a factor between 0 and 1"
            " of a whole block stands in the way. Write branches (3.mlp×0.5) or a factor of 0, or keep the edit as"
            " text, which lesion evaluate and lm_eval --model lesion take."
        )
    return written


def _weights_of(part: Scale, model: Model) -> ScaleParameters:
    """The last matrices of the branches of a place, multiplied; of a branch of experts those of every expert."""
    block = model.anatomy.block(part.layer)
    branches = [branch for branch in block.branches if part.unit in ("block", branch.name)]
    if not branches or (part.unit == "block" and len(branches) < 2):
        raise UsageError(f"{model.name} does not show which matrices end {part.address}; '{part}' cannot be written.")
    last = [(branch, [*branch.matrices][-1].rpartition(".")[2]) for branch in branches]
    named = [(leaf, name, matrix) for branch, leaf in last for name, matrix in branch.matrices.items()]
    addresses = [matrix.address for leaf, name, matrix in named if name.rpartition(".")[2] == leaf]
    return ScaleParameters(Magnitude(1.0, tuple(addresses)), part.factor)
