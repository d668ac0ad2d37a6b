"""What a `.edit` file holds: made of an edit, and read back with distrust, since a file may come from anybody.

What follows from the edit is worked out anew and compared with what the file states; what does not is checked by type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from lesion.edits.cuts import cuts, refuse_both
from lesion.edits.edit import Edit, of_places, of_spectra, of_weights
from lesion.edits.files.edit_file import Address, EditFile, MadeFor, MatrixValues, inputs_of, label_of, mapped
from lesion.edits.selections.controls import Matched, Random
from lesion.edits.selections.inputs import Inputs, Provenance, Text
from lesion.edits.selections.listed import Columns, Listed
from lesion.edits.selections.neurons import LAPE
from lesion.edits.selections.selection import Both, Count, Either, Selection, Thresholds, Without
from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
from lesion.edits.text import from_json, to_json
from lesion.errors import LesionError
from lesion.plain import short


def contents(edit: Edit, model: MadeFor, selected: Sequence[Count]) -> tuple[dict[str, object], dict[str, Tensor]]:
    """The header of an edit whose selections are fixed, but for the day and the version of lesion, and its vectors."""
    inputs = inputs_of(edit)
    tensors = {f"{source.digest}/{name}": vector for source in inputs for name, vector in source.tensors().items()}
    for share in (share for part in of_weights(edit) for share in part.selection.top_shares()):
        if share.thresholds is not None:
            tensors[f"thresholds/{share.digest}"] = _flat(share.thresholds, model.matrices)
    header: dict[str, object] = {
        # Format 1 holds no truncations: files without them can be read by an older lesion.
        "version": 2 if of_spectra(edit) else 1,
        "label": label_of(edit),
        "edit": to_json(edit),
        "recipes": {
            part.selection.digest: part.selection.recipe(lambda given: given.digest) for part in of_weights(edit)
        },
        "model": asdict(model),
        "inputs": [{"digest": source.digest, **source.header()} for source in inputs],
        "selected": [
            {"block": c.block, "matrix": c.matrix, "selected": c.selected, "total": c.total} for c in selected
        ],
        **({"truncated": _truncated(edit, model.matrices)} if of_spectra(edit) else {}),
    }
    return header, tensors


def _flat(thresholds: Thresholds, matrices: Mapping[str, MatrixValues]) -> Tensor:
    """All thresholds of a top share one after the other, in the order of the matrices that it touches."""
    known = [thresholds[address] for address in matrices if address in thresholds]
    return torch.cat([torch.as_tensor(cut, dtype=torch.float64).cpu().reshape(-1) for cut in known])


def _truncated(edit: Edit, matrices: Mapping[str, MatrixValues]) -> list[dict[str, object]]:
    """What a header says of an edit's truncations for people to read; it follows from the edit and the matrices."""
    shapes = {address: matrix.shape for address, matrix in matrices.items()}
    every = [(part, cuts([part], shapes)[0]) for part in of_spectra(edit)]
    return [
        {
            "address": part.address,
            "keep": part.keep,
            "side": part.side,
            "rank": cut.rank,
            "kept": cut.kept,
            "parameters_dense": cut.dense,
            "parameters_factors": cut.thin,
        }
        for part, cut in every
    ]


def understood(header: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, data: bytes) -> EditFile:
    """The edit that a header of any JSON values and its vectors describe."""
    model = _typed(MadeFor, header["model"])
    inputs = {entry["digest"]: _observed(entry, tensors, model) for entry in header["inputs"]}
    selections = {digest: from_recipe(recipe, inputs) for digest, recipe in header["recipes"].items()}
    edit = from_json(header["edit"], selections)
    _need((of_weights(edit) or of_spectra(edit)) and not of_places(edit).edits, "it is not an edit of weights")
    refuse_both(of_weights(edit), of_spectra(edit), model.name)
    _need_matrices(edit, model)
    thresholds = {
        share.digest: _parted(share, tensors[name], model.matrices)
        for selection in selections.values()
        for share in selection.top_shares()
        if (name := f"thresholds/{share.digest}") in tensors
    }
    counts = tuple(map(_count, header["selected"]))
    fixed = mapped(edit, lambda selection: selection.with_thresholds(thresholds))
    anew, vectors = contents(fixed, model, counts)
    for key, value in anew.items():
        _need(_text(value) == _text(header.get(key)), f"its {key} is not what follows from its edit")
    _need(vectors.keys() == tensors.keys(), "it has vectors that nothing uses, or too few")
    return EditFile(
        edit,
        label_of(edit),
        model,
        counts,
        _typed(Text, header["made"]),
        _typed(Text, header["lesion"]),
        header["content"],
        path,
        thresholds,
        data,
    )


def _need(holds: object, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@cache
def _adapter(kind: Any) -> Any:
    return TypeAdapter(kind)


def _typed(kind: Any, value: object) -> Any:
    """A JSON value as what it should be; 1 is not true, and a text is no number."""
    try:
        return _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{short('.'.join(map(str, first['loc'])))}: {first['msg']}") from error


def _need_matrices(edit: Edit, model: MadeFor) -> None:
    selections = [part.selection for part in of_weights(edit)]
    named = {part.address for part in of_spectra(edit)}
    observed = {address for source in inputs_of(edit) for address in source.readers}
    touched = {a for a in observed | model.matrices.keys() if any(each.touches(a) for each in selections)}
    _need(named | touched == model.matrices.keys(), "the matrices of its model are not those that it touches")


def _observed(entry: Mapping[str, Any], tensors: Mapping[str, Tensor], model: MadeFor) -> Inputs:
    """Inputs whose vectors are finite and not negative, and as long as the matrices are wide."""
    _typed(list[Provenance], entry["provenance"])
    readers = _typed(dict[Address, Address], entry["readers"])
    for number in (entry["texts"], entry["tokens"], *_typed(dict[Address, int], entry["inputs"]).values()):
        _need(number >= 0, "its texts are not counted")
    prefix = f"{entry['digest']}/"
    own = {name.removeprefix(prefix): vector for name, vector in tensors.items() if name.startswith(prefix)}
    inputs = Inputs.from_parts(entry, own)
    for key, sums in inputs.sums.items():
        for vector in (sums.norms, sums.norms if sums.squares is None else sums.squares):
            sound = vector.dtype == torch.float32 and bool(((vector >= 0) & vector.isfinite()).all())
            _need(sound, f"a vector of {key} is not of finite numbers from 0 on")
        if sums.active is not None:
            sound = sums.active.dtype == torch.int64 and sums.active.shape == sums.norms.shape
            _need(sound and bool((sums.active >= 0).all()), f"the active tokens of {key} are not counted")
    for address, reader in readers.items():
        known = model.matrices.get(address)
        fits = known is None or len(inputs.sums[reader].norms) == known.shape[1]
        _need(fits, f"the vector of {address} has another length than its matrix")
    return inputs


def _parted(share: Wanda, flat: Tensor, matrices: Mapping[str, MatrixValues]) -> dict[str, Tensor]:
    """What `_flat` joined, by address: one number for a matrix, or one for each of its rows."""
    touched = [address for address in matrices if share.touches(address)]
    sizes = [matrices[address].shape[0] if share.per == "row" else 1 for address in touched]
    _need(flat.dtype == torch.float64 and flat.dim() == 1 and len(flat) == sum(sizes), "it has other thresholds")
    _need(bool((flat >= 0).all()) and bool(flat.isfinite().all()), "a threshold is not a finite number from 0 on")
    parts = dict(zip(touched, flat.split(sizes), strict=True))
    return {a: part.clone() if share.per == "row" else part[0].clone() for a, part in parts.items()}


def _count(entry: Mapping[str, Any]) -> Count:
    block, matrix, selected, total = (entry[key] for key in ("block", "matrix", "selected", "total"))
    address = _typed(Address, matrix if block is None else f"{block}.{matrix}")
    _need(type(selected) is int and type(total) is int and 0 <= selected <= total, f"{address} is counted wrong")
    return Count.at(address, selected, total)


ALGEBRA: dict[str, type[Either | Both | Without]] = {"or": Either, "and": Both, "minus": Without}
KINDS: dict[str, type[Selection]] = {
    **{kind.kind: kind for kind in (Wanda, MathNeuro, LAPE, Magnitude, Random, Matched, Listed, Columns)},
    **ALGEBRA,
}


def from_recipe(recipe: Any, inputs: Mapping[str, Inputs]) -> Selection:
    """The selection whose `recipe` this is: the inverse of `selection.recipe(lambda inputs: inputs.digest)`."""

    def named(digest: Any) -> Inputs:
        if not isinstance(digest, str) or digest not in inputs:
            raise LesionError(f"A recipe names the inputs {str(digest)[:40]!r}, which are not there.")
        return inputs[digest]

    def part(value: Any) -> Selection:
        return from_recipe(value, inputs)

    def pair(values: Any) -> tuple[Selection, Selection]:
        first, second = values
        return part(first), part(second)

    # What is no name of inputs and no selection is checked by the selection's own arguments.
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("wanda", "mathneuro", "lape"), named),
        **dict.fromkeys(ALGEBRA, pair),
        **dict.fromkeys(("controls", "texts"), lambda digests: tuple(map(named, digests))),
        **dict.fromkeys(("random", "matched"), part),
    }
    try:
        kind = next(kind for kind in KINDS if kind in recipe)
        make = KINDS[kind]
        values = {name: readers.get(key, lambda value: value)(recipe[key]) for key, name in make.RECIPE.items()}
        made = ALGEBRA[kind](*values["parts"]) if kind in ALGEBRA else make(**values)
        if made.recipe(lambda given: given.digest) != recipe:
            raise LesionError(f"A recipe of the kind '{kind}' holds more or less than belongs there.")
    except (StopIteration, TypeError, ValueError, KeyError, AttributeError) as error:
        raise LesionError(f"This is no recipe of a selection: {str(recipe)[:80]}.") from error
    return made
