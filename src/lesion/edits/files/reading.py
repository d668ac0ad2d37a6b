"""Reading: what a `.edit` file says, checked piece by piece before anything of it is believed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lesion.edits.cuts import cuts, refuse_both
from lesion.edits.edit import Edit, of_places, of_spectra, of_weights
from lesion.edits.files.edit_file import EditFile, MadeFor, MatrixValues, inputs_of, label_of
from lesion.edits.selections.inputs import Inputs
from lesion.edits.selections.recipes import from_recipe
from lesion.edits.selections.selection import Count
from lesion.edits.selections.topk import Wanda
from lesion.edits.text import from_json, to_json

_LABEL = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_MATRIX = re.compile(r"head|[0-9]{1,9}\.(attention|mlp)\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
LONGEST_NAME = 1000


def _need(holds: object, reason: str) -> None:
    if not holds:
        raise ValueError(reason)


def _text(value: Any, what: str) -> str:
    _need(isinstance(value, str) and len(value) <= LONGEST_NAME, f"its {what} is not a short text")
    # A name is shown on terminals and pages; what moves the cursor or turns the writing round does not belong there.
    _need(value.isprintable(), f"its {what} holds control characters")
    return str(value)


def understood(header: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, data: bytes) -> EditFile:
    """The edit that a header of any JSON values and its vectors describe."""
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
    _need((of_weights(edit) or of_spectra(edit)) and not of_places(edit).edits, "it is not an edit of weights")
    _need(to_json(edit) == header["edit"], "its edit is named after another selection, or written in another way")
    _need(label == label_of(edit), "its label is not that of its edit")
    _need({part.selection.digest for part in of_weights(edit)} == set(selections), "it has recipes that nothing uses")
    _need({observation.digest for observation in inputs_of(edit)} == set(inputs), "it has inputs that nothing uses")
    shares = {share.digest: share for selection in selections.values() for share in selection.top_shares()}
    thresholds = {}
    for name in tensors:
        if name.startswith("thresholds/"):
            share = shares.get(name.removeprefix("thresholds/"))
            if share is None:
                raise ValueError(f"{name} belongs to no selection")
            thresholds[name.removeprefix("thresholds/")] = _parted(share, tensors[name], model.matrices)
    for observation in inputs.values():
        for address, reader in observation.readers.items():
            _need(_MATRIX.fullmatch(address), f"'{address[:40]}' is not the address of a matrix")
            known = model.matrices.get(address)
            fits = known is None or len(observation.sums[reader].norms) == known.shape[1]
            _need(fits, f"the vector of {address} has another length than its matrix")
    _need(not of_spectra(edit) or header["version"] >= 2, "its format knows no truncations")
    for part in of_spectra(edit):
        _need(part.address in model.matrices, f"it does not say what {part.address} of its model is")
    refuse_both(of_weights(edit), of_spectra(edit), model.name)
    stated = header.get("truncated", [])
    _need(stated == truncated(edit, model.matrices), "what it says of its truncations is not what they are")
    touched = {part.address for part in of_spectra(edit)}
    for address in model.matrices:
        touches = address in touched or any(selection.touches(address) for selection in selections.values())
        _need(touches, f"nothing touches {address}")
    for selection in selections.values():
        for observation in selection.inputs:
            unknown = [a for a in observation.readers if selection.touches(a) and a not in model.matrices]
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


def truncated(edit: Edit, matrices: Mapping[str, MatrixValues]) -> list[dict[str, object]]:
    """What a header says of an edit's truncations for people to read; it follows from the edit and the matrices."""
    shapes = {address: matrix.shape for address, matrix in matrices.items()}
    facts: list[dict[str, object]] = []
    for part in of_spectra(edit):
        (cut,) = cuts([part], shapes)
        facts.append(
            {
                "address": part.address,
                "keep": part.keep,
                "side": part.side,
                "rank": cut.rank,
                "kept": cut.kept,
                "parameters_dense": cut.dense,
                "parameters_factors": cut.thin,
            }
        )
    return facts


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
    observed: dict[str, Inputs] = {}
    unused = {name for name in tensors if not name.startswith("thresholds/")}
    for header in headers:
        digest = header["digest"]
        _need(isinstance(digest, str) and _DIGEST.fullmatch(digest), "inputs have no digest")
        own = {name.removeprefix(f"{digest}/"): name for name in tensors if name.startswith(f"{digest}/")}
        inputs = Inputs.from_parts(header, {short: tensors[name] for short, name in own.items()})
        for key, sums in inputs.sums.items():
            _need(_MATRIX.fullmatch(key), f"'{key[:40]}' is not the address of a matrix")
            for vector in (sums.norms, sums.norms if sums.squares is None else sums.squares):
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
        _need(digest not in observed, f"the inputs {digest} stand in it twice")
        observed[digest] = inputs
        unused -= {own[name] for name in own if name in inputs.tensors()}
    _need(not unused, f"the vectors {', '.join(sorted(unused)[:3])} belong to nothing")
    return observed


def _parted(share: Wanda, flat: Tensor, matrices: Mapping[str, MatrixValues]) -> dict[str, Tensor]:
    """What `artefact._flat` joined, by address: one number for a matrix, or one for each of its rows."""
    touched = [address for address in matrices if share.touches(address)]
    sizes = [matrices[address].shape[0] if share.per == "row" else 1 for address in touched]
    _need(flat.dtype == torch.float64 and flat.dim() == 1 and len(flat) == sum(sizes), "it has other thresholds")
    _need(bool((flat >= 0).all()) and bool(flat.isfinite().all()), "a threshold is not a finite number from 0 on")
    parts = dict(zip(touched, flat.split(sizes), strict=True))
    return {a: part.clone() if share.per == "row" else part[0].clone() for a, part in parts.items()}


def _counts(value: Any) -> tuple[Count, ...] | None:
    if value is None:
        return None
    counts = []
    for entry in value:
        block, matrix = entry["block"], entry["matrix"]
        selected, total = entry["selected"], entry["total"]
        address = matrix if block is None else f"{block}.{matrix}"
        _need(isinstance(address, str) and _MATRIX.fullmatch(address), "it counts in something that is no matrix")
        _need(type(selected) is int and type(total) is int and 0 <= selected <= total, f"{address} is counted wrong")
        counts.append(Count(address, block, matrix, selected, total))
    return tuple(counts)
