"""The edits that a person means for a checkpoint, in whatever form they were given, each as that of an edit file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    ScaleAttention,
    ScaleMlp,
    ScaleParameters,
    Single,
    as_edit,
    of_places,
    of_replacements,
    parts,
    path_of,
    with_factor,
)
from lesion.edits.files.artefact import read_edit, save_edit
from lesion.edits.files.edit_file import EditFile
from lesion.edits.selections.listed import Columns
from lesion.edits.selections.selection import LONGEST_LABEL, Selection
from lesion.edits.selections.topk import Magnitude
from lesion.edits.units import ScaleExpert, ScaleMatrix, UnitEdit, site_of
from lesion.errors import LesionError, UsageError
from lesion.models.anatomy import Branch
from lesion.models.load import Model, refuse_not_finite
from lesion.models.matrices import Matrix
from lesion.models.units import Experts, Slices

SAME = 1e-3
"""Two logits that differ by a smaller share of the largest are the same."""
TOKENS = 16
KEEP = "keep the edit as text, which lesion evaluate and lm-evaluation-harness (lesion.harness_model) take."


def edit_files(given: EditLike, model: Callable[[], Model], factor: float | None = None) -> list[EditFile]:
    """The edits that are meant; `model` loads the model that they are for, and is called where one is no file."""
    is_single = isinstance(given, EditFile | Single | Compose) or several(given) is None
    each_given = [given] if is_single else several(given) or []
    if not each_given:
        raise UsageError("Give at least one edit: an .edit file, or text such as 3×0 or 3.mlp.up top 0.1 (--edit).")
    loaded: list[Model] = []
    files = []
    for each in each_given:
        file = path_of(each)
        if isinstance(each, EditFile) or file is not None:
            saved = each if isinstance(each, EditFile) else read_edit(file or "")
            files.append(saved if factor is None else saved.with_factor(factor))
            continue
        # Before it is written as weights: 3×0 with factor 0.5 is 3×0.5, not half of what each branch adds.
        edit = as_edit(each) if factor is None else with_factor(as_edit(each), factor)
        loaded = loaded or [model()]
        files.append(_as_file(edit, loaded[0]))
    return files


def _as_file(edit: Edit, model: Model) -> EditFile:
    """An edit as if it had been saved for a model and read again, under its own text as its label."""
    refuse_not_finite(model, model.name)
    with tempfile.TemporaryDirectory() as folder:
        file = read_edit(save_edit(Path(folder) / "meant.edit", as_weights(edit, model), model))
    label = file.label
    if of_places(edit).edits:
        label = re.sub(r"[^A-Za-z0-9._-]+", "-", str(edit).replace("×", "x")).strip("-")[:LONGEST_LABEL]
    biases = bias_factors(of_places(edit), model)
    return replace(file, label=label, path=Path(f"{label}.edit"), biases=biases)


def as_weights(edit: Edit, model: Model) -> Edit:
    """An edit with its scaled blocks and branches as multiplied weights: the last matrix of each branch; of heads and
    neurons the columns of the matrix that read them, of an expert its last matrix, of a matrix all of it.

    With the bias behind that matrix multiplied too (`bias_factors`), this is the same where a branch adds to the
    residual stream what its last matrix gives, without a norm behind it; for a whole block it is so with factor 0,
    where attention and MLP read the same (parallel residual), or where it has one of them alone (Mamba). It is tried on
    a few tokens.
    """
    if replaced := of_replacements(edit):
        raise UsageError(
            f"'{replaced[0]}' puts other contributions in the place of computed ones, for which an ordinary checkpoint"
            " has no parameter; use it in memory with lesion.applied."
        )
    places = of_places(edit)
    if not places.edits:
        return edit
    for part in places.edits:
        own = () if isinstance(part, UnitEdit) else _last(part, model)
        if part.factor == 1 or (own and not any(bool(matrix.read().any()) for matrix in own)):
            why = "the factor is 1" if part.factor == 1 else "the weights that it would multiply are all 0"
            raise UsageError(f"'{part}' changes nothing in {model.name}: {why}; leave it out.")
    written = Compose(tuple(_weights_of(part, model) if isinstance(part, Scale) else part for part in parts(edit)))
    if not _same(places, model):
        raise UsageError(f"'{places}' cannot be written into the weights of {model.name}: {_obstacle(places, model)}")
    return written


def bias_factors(places: Compose, model: Model) -> dict[str, float]:
    """By the address of a last matrix, the factor of the bias added to what it gives; none where it has no bias.

    Heads and neurons are multiplied before the bias is added, and so is what a matrix gives.
    """
    factors: dict[str, float] = {}
    for part in places.edits:
        for matrix in _with_bias(part, model):
            if matrix.bias is not None:
                factors[matrix.address] = factors.get(matrix.address, 1.0) * part.factor
    return factors


def _with_bias(part: Scale, model: Model) -> Sequence[Matrix]:
    if isinstance(part, ScaleExpert):
        return [model.anatomy.experts(part.layer).outputs[part.expert]]
    return () if isinstance(part, UnitEdit) else _last(part, model)


def _same(places: Compose, model: Model) -> bool:
    ids = torch.arange(TOKENS, device=model.device)[None] % model.network.get_input_embeddings().num_embeddings
    as_matrices = Compose(tuple(_weights_of(part, model) for part in places.edits))
    with torch.inference_mode():
        with applied(model, places):
            wanted = model.network(ids).logits.float()
        with applied(model, as_matrices), _biases_multiplied(bias_factors(places, model), model):
            got = model.network(ids).logits.float()
    if not bool(wanted.isfinite().all()):
        raise LesionError(
            f"Under '{places}' the logits of {model.name} are not finite, so that it cannot be tried as an edit of"
            " weights; use a smaller factor."
        )
    return torch.allclose(got, wanted, rtol=0, atol=SAME * float(wanted.abs().max()))


@contextmanager
def _biases_multiplied(factors: Mapping[str, float], model: Model) -> Iterator[None]:
    """The model with biases multiplied inside the `with`, and put back bit for bit."""
    matrices = [model.anatomy.matrix(address) for address in factors]
    biases = [getattr(matrix.module, str(matrix.bias)).data for matrix in matrices]
    # Experts have one row each of one bias.
    own = [
        bias if m.storage.expert is None else bias[m.storage.expert] for m, bias in zip(matrices, biases, strict=True)
    ]
    before = [bias.clone() for bias in own]
    try:
        for bias, factor in zip(own, factors.values(), strict=True):
            bias.mul_(factor)
        yield
    finally:
        for bias, values in zip(own, before, strict=True):
            bias.copy_(values)


def _obstacle(places: Compose, model: Model) -> str:
    """Why scaled places are another function as multiplied weights, and what to do, as sentences."""
    for part in places.edits:
        if _same(Compose((part,)), model):
            continue
        branches = Compose((ScaleAttention(part.layer, part.factor), ScaleMlp(part.layer, part.factor)))
        removes = _same(Compose((replace(part, factor=0.0),)), model)
        if part.unit == "block" and len(_branches(part, model)) == len(branches.edits) and _same(branches, model):
            why = f"the MLP of block {part.layer} would read an attention multiplied by {part.factor:g}, too"
            other = f"block {part.layer} adds something beside what its attention and MLP add"
            zero = " or a factor of 0," if removes else ""
            return f"{why if removes else other}. Write '{branches}' if that is meant,{zero} or {KEEP}"
        norms = [branch for branch in _branches(part, model) if "norm" in type(branch.tail).__name__.lower()]
        if norms:
            instead = "write a factor of 0, or " if removes else ""
            return f"a norm stands behind the last matrix of {part.layer}.{norms[0].name}; {instead}{KEEP}"
        break
    return f"on {TOKENS} tokens, the model with its last matrices multiplied gives other logits; {KEEP}"


def _branches(part: Scale, model: Model) -> Sequence[Branch]:
    whole = part.unit == "block"
    branches = model.anatomy.block(part.layer).branches if whole else [model.anatomy.branch(part.layer, part.unit)]
    if not branches or not all(branch.matrices for branch in branches):
        raise UsageError(
            f"{model.name} does not show which matrices end {part.address}; '{part}' cannot be written; {KEEP}"
        )
    return branches


def _last(part: Scale, model: Model) -> list[Matrix]:
    return [matrix for branch in _branches(part, model) for matrix in branch.ends]


def _weights_of(part: Scale, model: Model) -> ScaleParameters:
    if isinstance(part, UnitEdit):
        return ScaleParameters(_of_unit(part, model), part.factor)
    addresses = tuple(matrix.address for matrix in _last(part, model))
    return ScaleParameters(Magnitude(1.0, addresses), part.factor)


def _of_unit(part: UnitEdit, model: Model) -> Selection:
    """The columns that read heads or a neuron, the last matrix of an expert, or a whole matrix."""
    site, numbers = site_of(part, model.anatomy)
    if isinstance(site, Experts):
        return Magnitude(1.0, (site.outputs[numbers[0]].address,))
    if isinstance(part, ScaleMatrix) or not isinstance(site, Slices):
        return Magnitude(1.0, (site.address,))
    return Columns(site.address, numbers[0] * site.size, (numbers[-1] + 1) * site.size)
