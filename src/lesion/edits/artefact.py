"""Artefact: an edit of weights as one small file, `NAME.edit`, that another person can read, check and apply.

The file holds the vectors from which the selection follows and the thresholds on the model that it was made for, not a
mask; its header says in plain JSON what it selects, from which data and for which weights (`container.py` has the
bytes).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.container import decode, encode, read_bytes, write_bytes
from lesion.edits.edit import Compose, Edit, ScaleParameters, from_json, of_places, of_weights, to_json
from lesion.edits.inputs import Inputs
from lesion.edits.recipes import cuts, from_recipe, with_thresholds
from lesion.edits.selection import Count, Selection, Thresholds, count
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.matrices import Matrix

SUFFIX = ".edit"
_LABEL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_MATRIX = re.compile(r"head|[0-9]{1,9}\.(attention|mlp)\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
LONGEST_NAME = 1000
CHUNK = 1 << 22  # entries hashed at a time


def values_digest(weight: Float[Tensor, "out in"]) -> str:
    """16 hexadecimal digits of the values of a matrix: SHA-256 over them as float32, row after row.

    A matrix in half precision and the same one loaded in float32 have one digest.
    """
    digest = hashlib.sha256()
    rows = max(1, CHUNK // max(1, weight.shape[1]))
    for start in range(0, weight.shape[0], rows):
        part = weight[start : start + rows].detach().float().cpu().contiguous()
        digest.update(part.numpy().data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class MatrixValues:
    """One matrix of the model that an edit was made for: its shape (out, in), and the digest of its values."""

    shape: tuple[int, int]
    values: str


@dataclass(frozen=True)
class MadeFor:
    """The model that an edit was made for.

    Attributes:
        name: as it was typed.
        fingerprint: of its weights as they were loaded.
        family: its architecture.
        dtype: in which it was loaded, `float32`.
        matrices: those that the edit touches, by address.
    """

    name: str
    fingerprint: str
    family: str
    dtype: str
    matrices: Mapping[str, MatrixValues]


@dataclass(frozen=True, eq=False)
class EditFile:
    """An edit as it was read from a file.

    Attributes:
        edit: the edit, its selections as recipes: right for any model, slower than fixed ones.
        label: a short name, safe in file names.
        model: the model that it was made for.
        selected: how much of every matrix is selected on that model; None where that was not counted.
        made: the day, `2026-11-20`.
        lesion: the version of the package that wrote it.
        content: SHA-256 of the file with these digits as zeros.
        path: where it was read.
        thresholds: on that model, by the digest of a top share.
        data: the bytes of the file.
    """

    edit: Edit
    label: str
    model: MadeFor
    selected: tuple[Count, ...] | None
    made: str
    lesion: str
    content: str
    path: Path
    thresholds: Mapping[str, Thresholds] = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that tell this file from another."""
        return self.content[:16]

    @property
    def selections(self) -> dict[str, Selection]:
        """The selections of the edit by digest, each once."""
        return {part.selection.digest: part.selection for part in of_weights(self.edit)}

    @property
    def inputs(self) -> tuple[Inputs, ...]:
        """Everything observed that the edit was made from, each once."""
        return _inputs(self.edit)

    @property
    def factors(self) -> tuple[float, ...]:
        """The factor of every part."""
        return tuple(float(part.factor) for part in of_weights(self.edit))

    def fixed(self) -> Edit:
        """The edit with the thresholds of the model that it was made for: for those very weights only."""
        return _mapped(self.edit, lambda selection: with_thresholds(selection, self.thresholds))

    def with_factor(self, factor: float) -> EditFile:
        """The same selections under another factor.

        Raises:
            UsageError: the factor is not finite.
        """
        parts = tuple(ScaleParameters(part.selection, factor) for part in of_weights(self.edit))
        return replace(self, edit=parts[0] if len(parts) == 1 else Compose(parts))

    def fit(self, model: Model, force: bool = False) -> Edit:
        """The edit for a model: with its thresholds where the weights are those that it was made for.

        Args:
            model: whose fingerprint, or whose matrices as far as the edit touches them, must be those it was made for.
            force: take other weights of the same shapes too; the selection is then made anew on them.

        Raises:
            LesionError: the model is another one (without `force`), or its matrices have other shapes.
        """
        if model.fingerprint == self.model.fingerprint:
            return self.fixed()
        mine = {address: matrix.shape for address, matrix in model.anatomy.scored.items()}
        self.refuse_misfits(mine, model.name)
        if all(
            values_digest(model.anatomy.scored[address].read()) == matrix.values
            for address, matrix in self.model.matrices.items()
        ):
            return self.fixed()
        if not force:
            raise LesionError(
                f"The edit {self.label} was made for {self.model.name} (fingerprint {self.model.fingerprint}), and "
                f"{model.name} (fingerprint {model.fingerprint}) has other weights. Give that model, or have the "
                "selection made anew on these weights with --force."
            )
        return self.edit

    def refuse_misfits(self, shapes: Mapping[str, tuple[int, int]], name: str) -> None:
        """Refuse a model whose matrices do not have the shapes of those that the edit touches.

        Raises:
            LesionError: naming the first matrix that is missing or differs.
        """
        for address, matrix in self.model.matrices.items():
            have = shapes.get(address)
            if have != matrix.shape:
                there = "has no such matrix" if have is None else f"has one of {have[0]:,} × {have[1]:,}"
                raise LesionError(
                    f"The edit {self.label} does not fit {name}: it changes {address} ({matrix.shape[0]:,} × "
                    f"{matrix.shape[1]:,}, out × in), and {name} {there}. It was made for {self.model.name} "
                    f"(fingerprint {self.model.fingerprint})."
                )


def _mapped(edit: Edit, change: Any) -> Edit:
    parts = tuple(replace(part, selection=change(part.selection)) for part in of_weights(edit))
    return parts[0] if len(parts) == 1 else Compose(parts)


def _inputs(edit: Edit) -> tuple[Inputs, ...]:
    found = {inputs.digest: inputs for part in of_weights(edit) for inputs in part.selection.inputs}
    return tuple(found.values())


def label_of(edit: Edit) -> str:
    """The label of an edit of weights: that of its selection, or those of several joined by `_with_`."""
    return "_with_".join(part.selection.label for part in of_weights(edit))[:80]


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
    fixed = _mapped(edit, lambda selection: selection.fixed(model))
    if selected is None:
        selected = count(reduce(lambda a, b: a | b, (part.selection for part in of_weights(fixed))), model)
    return write_edit(path, fixed, describe(fixed, model), selected)


def write_edit(path: Path | str, edit: Edit, model: MadeFor, selected: Sequence[Count] | None) -> Path:
    """Write an edit whose selections are fixed, with what is known of the model it is for; see `save_edit`.

    Raises:
        LesionError: the file cannot be written.
    """
    from importlib.metadata import version

    inputs = _inputs(edit)
    tensors = {f"{one.digest}/{name}": vector for one in inputs for name, vector in one.tensors().items()}
    for part in of_weights(edit):
        for share in cuts(part.selection):
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
    return write_bytes(Path(path), encode(header, tensors))


def _flat(share: Any, matrices: Iterable[str]) -> Tensor:
    """All thresholds of a top share one after the other, in the order of the matrices that it touches."""
    known = [share.thresholds[address] for address in matrices if address in share.thresholds]
    return torch.cat([torch.as_tensor(cut, dtype=torch.float64).cpu().reshape(-1) for cut in known])


def read_edit(path: Path | str) -> EditFile:
    """Read an edit that `save_edit` wrote, with distrust: it may come from anybody.

    Raises:
        UsageError: there is no such file.
        LesionError: it is no edit, is cut short or was changed, is of a later version, or does not hold together.
    """
    path = Path(path)
    data = read_bytes(path)
    header, tensors = decode(data, str(path))
    try:
        return _understood(header, tensors, path, data)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError, LesionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise LesionError(f"{path} does not hold together as an edit: {reason.rstrip('.')}.") from error


def _need(holds: object, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


def _text(value: Any, what: str) -> str:
    _need(isinstance(value, str) and len(value) <= LONGEST_NAME, f"its {what} is not a short text")
    # A name is shown on terminals and pages; what moves the cursor or turns the writing round does not belong there.
    _need(value.isprintable(), f"its {what} holds control characters")
    return str(value)


def _understood(header: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, data: bytes) -> EditFile:
    label = header["label"]
    _need(isinstance(label, str) and _LABEL.fullmatch(label), "its label is not a plain name")
    model = _made_for(header["model"])
    inputs = _observed(header["inputs"], tensors)
    recipes = header["recipes"]
    selections = {digest: from_recipe(recipe, inputs) for digest, recipe in recipes.items()}
    for digest, selection in selections.items():
        _need(selection.digest == digest, f"the recipe of {digest} is another one's")
        _need(_LABEL.fullmatch(selection.label), "a label is not a plain name")
    edit = from_json(header["edit"], selections)
    _need(of_weights(edit) and not of_places(edit).edits, "it is not an edit of weights")
    _need(to_json(edit) == header["edit"], "its edit is named after another selection")
    _need(label == label_of(edit), "its label is not that of its edit")
    _need({part.selection.digest for part in of_weights(edit)} == set(selections), "it has recipes that nothing uses")
    _need({one.digest for one in _inputs(edit)} == set(inputs), "it has inputs that nothing uses")
    shares = {share.digest: share for selection in selections.values() for share in cuts(selection)}
    thresholds = {}
    for name in tensors:
        if name.startswith("thresholds/"):
            share = shares.get(name.removeprefix("thresholds/"))
            _need(share is not None, f"{name} belongs to no selection")
            thresholds[name.removeprefix("thresholds/")] = _parted(share, tensors[name], model.matrices)
    for one in inputs.values():
        for address, reader in one.readers.items():
            _need(_MATRIX.fullmatch(address), f"'{address[:40]}' is not the address of a matrix")
            known = model.matrices.get(address)
            fits = known is None or len(one.sums[reader].norms) == known.shape[1]
            _need(fits, f"the vector of {address} has another length than its matrix")
    for selection in selections.values():
        for address in model.matrices:
            # What it touches must be listed; that all that is listed is touched, combinations need not keep to.
            _need(any(s.touches(address) for s in selections.values()), f"nothing touches {address}")
        for one in selection.inputs:
            unknown = [a for a in one.readers if selection.touches(a) and a not in model.matrices]
            _need(not unknown, f"it does not say what {unknown[:1]} of its model is")
    return EditFile(
        edit,
        label,
        model,
        _counts(header["selected"]),
        _text(header["made"], "day"),
        _text(header["lesion"], "version of lesion"),
        header["content"],
        path,
        thresholds,
        data,
    )


def _made_for(value: Mapping[str, Any]) -> MadeFor:
    matrices = {}
    for address, entry in value["matrices"].items():
        _need(_MATRIX.fullmatch(address), f"'{address[:40]}' is not the address of a matrix")
        shape, values = entry["shape"], entry["values"]
        sizes = isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and 0 < n < 2**31 for n in shape)
        _need(sizes, f"the shape of {address} is not one")
        _need(isinstance(values, str) and _DIGEST.fullmatch(values), f"the values of {address} have no digest")
        matrices[address] = MatrixValues((shape[0], shape[1]), values)
    fingerprint = _text(value["fingerprint"], "fingerprint")
    _need(_DIGEST.fullmatch(fingerprint), "its fingerprint is not one")
    _need(matrices, "it touches no matrix")
    return MadeFor(
        _text(value["name"], "model"),
        fingerprint,
        _text(value["family"], "family"),
        _text(value["dtype"], "dtype"),
        matrices,
    )


def _observed(headers: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> dict[str, Inputs]:
    """The inputs by digest; every vector is used by one of them, finite and not negative."""
    found: dict[str, Inputs] = {}
    unused = {name for name in tensors if not name.startswith("thresholds/")}
    for header in headers:
        digest = header["digest"]
        _need(isinstance(digest, str) and _DIGEST.fullmatch(digest), "inputs have no digest")
        own = {name.removeprefix(f"{digest}/"): name for name in tensors if name.startswith(f"{digest}/")}
        inputs = Inputs.from_parts(header, {short: tensors[name] for short, name in own.items()})
        for key, sums in inputs.sums.items():
            _need(_MATRIX.fullmatch(key), f"'{key[:40]}' is not the address of a matrix")
            for vector in (sums.norms, sums.squares):
                sound = vector.dtype == torch.float32 and bool(((vector >= 0) & vector.isfinite()).all())
                _need(sound, f"a vector of {key} is not of finite numbers from 0 on")
            _need(type(sums.tokens) is int and sums.tokens >= 0, f"the tokens of {key} are not counted")
            if sums.active is not None:
                sound = sums.active.dtype == torch.int64 and sums.active.shape == sums.norms.shape
                _need(sound and bool((sums.active >= 0).all()), f"the active tokens of {key} are not counted")
        for provenance in inputs.provenance:
            for what in ("model", "fingerprint", "data", "style"):
                _text(getattr(provenance, what), what)
            _need(all(isinstance(item, str) for item in provenance.ids), "the ids of its items are not texts")
            numbers = (provenance.seed, provenance.repeat, provenance.cut)
            _need(all(type(number) is int for number in numbers), "a draw is not numbered")
        _need(inputs.texts >= 0 and inputs.tokens >= 0, "its texts are not counted")
        _need(inputs.digest == digest, f"the inputs {digest} are others")
        _need(digest not in found, f"the inputs {digest} stand in it twice")
        found[digest] = inputs
        unused -= {own[name] for name in own if name in inputs.tensors()}
    _need(not unused, f"the vectors {', '.join(sorted(unused)[:3])} belong to nothing")
    return found


def _parted(share: Any, flat: Tensor, matrices: Mapping[str, MatrixValues]) -> dict[str, Tensor]:
    """What `_flat` joined, by address: one number for a matrix, or one for each of its rows."""
    touched = [address for address in matrices if share.touches(address)]
    sizes = [matrices[address].shape[0] if share.per == "row" else 1 for address in touched]
    _need(flat.dtype == torch.float64 and flat.dim() == 1 and len(flat) == sum(sizes), "it has other thresholds")
    _need(bool((flat >= 0).all()) and bool(flat.isfinite().all()), "a threshold is not a finite number from 0 on")
    parts = dict(zip(touched, flat.split(sizes), strict=True))
    return {a: part.clone() if share.per == "row" else part[0].clone() for a, part in parts.items()}


def _counts(value: Any) -> tuple[Count, ...] | None:
    if value is None:
        return None
    found = []
    for entry in value:
        block, matrix = entry["block"], entry["matrix"]
        selected, total = entry["selected"], entry["total"]
        address = matrix if block is None else f"{block}.{matrix}"
        _need(isinstance(address, str) and _MATRIX.fullmatch(address), "it counts in something that is no matrix")
        _need(type(selected) is int and type(total) is int and 0 <= selected <= total, f"{address} is counted wrong")
        found.append(Count(address, block, matrix, selected, total))
    return tuple(found)


def summed(counts: Sequence[Count]) -> tuple[int, int, float]:
    """Selected, total and their share over several matrices; the share of nothing is NaN."""
    selected, total = sum(c.selected for c in counts), sum(c.total for c in counts)
    return selected, total, selected / total if total else math.nan
