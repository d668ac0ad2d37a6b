"""Weights edited in place: entries multiplied and proved to have moved, matrices truncated, all put back to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.cuts import refuse_both
from lesion.edits.edit import Compose, Edit, ScaleParameters, Truncate
from lesion.edits.selections.selection import check_extent, refuse_unknown_matrices
from lesion.edits.spectra import on_random_subspace, spectra
from lesion.edits.table import tabulate
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import not_finite_in
from lesion.models.load import Model
from lesion.models.matrices import Matrix
from lesion.models.owner import Hold, held

# The share of the selected weights that has to move, or an edit is refused.
MOVED = 0.99
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Effect:
    """What an edit did to one matrix.

    Attributes:
        selected: weights in the selection, or in any of several.
        nonzero: of these, those that ought to move: not 0, and under factors whose product is not 1.
        moved: of these, those with another value in the matrix's dtype.
        before, after: Σ|w| over `selected`, unedited and edited, float64.
        dtype: of the matrix, `bfloat16`.
    """

    address: str
    selected: int
    nonzero: int
    moved: int
    before: float
    after: float
    dtype: str = ""


def scaled(
    weight: Float[Tensor, "out in"], changes: Sequence[tuple[Bool[Tensor, "out in"], float]], address: str
) -> tuple[Float[Tensor, "out in"], Effect]:
    """A matrix with its selected entries multiplied (a copy), and what that did to it.

    Factors on one entry are multiplied in float64, and the product with the entry is rounded once to the dtype of the
    matrix. Factor 0 gives 0, also for an entry that is not finite. An entry that is 0, or whose factors have the
    product 1, keeps its bits.
    """
    selected = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
    for mask, _ in changes:
        selected |= mask.to(weight.device)
    at = _flat(selected)
    old = weight.reshape(-1)[at]
    factor = torch.ones(old.shape, dtype=torch.float64, device=weight.device)
    for mask, value in changes:
        factor = torch.where(mask.to(weight.device).reshape(-1)[at], factor * value, factor)
    wide = old.double()
    due = (wide != 0) & (factor != 1)
    product = _rounded_once(torch.where(factor == 0, 0.0, wide * factor), weight.dtype)
    new = torch.where(due, product, old)
    edited = weight.clone(memory_format=torch.contiguous_format)
    edited.view(-1)[at] = new
    effect = Effect(
        address,
        selected=len(old),
        nonzero=int(due.sum()),
        moved=int((due & (new != old)).sum()),
        before=float(wide.abs().sum()),
        after=float(new.double().abs().sum()),
        dtype=str(weight.dtype).removeprefix("torch."),
    )
    return edited, effect


def _flat(mask: Bool[Tensor, "out in"]) -> Int[Tensor, " n"]:
    """Where a mask is True, counted row after row: faster to read and write by than the mask."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.flatten().nonzero().flatten()


def _rounded_once(values: Float[Tensor, " n"], dtype: torch.dtype) -> Float[Tensor, " n"]:
    """Float64 rounded to the nearest value of another dtype, to even at a tie.

    Torch rounds float64 to half precision by way of float32, twice. Rounded to odd in between (towards 0, the last bit
    set where anything was lost; Boldo and Melquiond 2008), the second rounding is the only one.
    """
    if dtype.itemsize > 2:
        return values.to(dtype)
    single = values.float()
    bits = single.view(torch.int32)
    bits = bits - (single.double().abs() > values.abs()).int()
    odd = torch.where(single.double() == values, single.view(torch.int32), bits | 1)
    return torch.where(values.isnan(), single, odd.view(torch.float32)).to(dtype)


def check_effects(edit: Edit | str, effects: Sequence[Effect], name: str, total: int | None = None) -> float:
    """The factor that an edit has achieved, Σ|w| after ÷ Σ|w| before over everything selected (so never negative).

    Args:
        edit: or its text, for messages, as `name`, the model's.
        effects: of every matrix that it touches.
        total: how many weights could have been selected; None where it need not be checked.
    """
    selected, due, moved = (sum(getattr(e, key) for e in effects) for key in ("selected", "nonzero", "moved"))
    before, after = math.fsum(e.before for e in effects), math.fsum(e.after for e in effects)
    if selected == 0:
        raise LesionError(f"{edit} selects no weight of {name}; nothing would be edited.")
    if selected == total:
        raise LesionError(f"{edit} selects every weight that {name} has; choose a smaller selection.")
    if not math.isfinite(before):
        where = next(e.address for e in effects if not math.isfinite(e.before))
        raise LesionError(f"{edit} selects weights of {where} of {name} that are not finite; the model is broken.")
    if not math.isfinite(after):
        bad = next(e for e in effects if not math.isfinite(e.after))
        raise LesionError(
            f"{edit} makes weights of {bad.address} of {name} larger than {bad.dtype} can hold; use a smaller factor."
        )
    if due == 0:
        why = "all of them are 0" if before == 0 else "the factor is 1"
        raise LesionError(f"{edit} changes none of the {selected:,} selected weights of {name}: {why}.")
    if moved < MOVED * due:
        dtypes = sorted({e.dtype for e in effects if e.moved < e.nonzero and e.dtype})
        raise LesionError(
            f"{edit}{f' in {dtypes[0]}' if dtypes else ''} moves {moved:,} of {due:,} selected weights of {name} that "
            f"are not 0; at least 99 % have to move, or the edit is not what it says. {_remedy(dtypes)}"
        )
    return after / before


def _remedy(dtypes: Sequence[str]) -> str:
    if not dtypes:
        return "Use a factor further from 1."
    # Half the spacing of values just above a power of two, the widest in proportion: what is farther is never lost.
    half = max(torch.finfo(getattr(torch, dtype)).eps for dtype in dtypes) / 2
    # Two digits, rounded up.
    unit = 10.0 ** (math.floor(math.log10(half)) - 1)
    step = math.ceil(half / unit) * unit
    wider = "" if {"float32", "float64"} & set(dtypes) else ", or have the weights in float32"
    return f"Use a factor at least as far from 1 as {1 + step:.10g} or {1 - step:.10g}{wider}."


@contextmanager
def written(
    model: Model, edits: Sequence[ScaleParameters], truncations: Sequence[Truncate] = ()
) -> Iterator[tuple[Effect, ...]]:
    """The model with its weights edited in place inside the `with`, and put back bit for bit; gives the effects of
    scaling.

    Every selection is made on the weights as they are on entry (one that was fixed keeps its thresholds). Nested, the
    inner edits therefore select among edited weights. Kept meanwhile: the values that changed, and where they stood.
    """
    if not (edits or truncations):
        yield ()
        return
    for edit in edits:
        refuse_unknown_matrices(edit.selection, model)
    total = sum(matrix.shape[0] * matrix.shape[1] for matrix in model.anatomy.scored.values())
    touched = {
        address: matrix
        for address, matrix in model.anatomy.scored.items()
        if any(edit.selection.touches(address) for edit in edits)
    }
    kept = tabulate([Compose(tuple(truncations))], model.anatomy).kept
    drawn = {part.address: part.draw for part in truncations if part.side == "random"}
    refuse_both(edits, truncations, model.name)
    refuse_shared({*touched, *kept}, model)
    effects: list[Effect] = []
    apart: list[list[Effect]] = [[] for _ in edits]
    with held(model, "an edit of weights", edits=True) as hold:
        hold.refuse_copies(model.network)
        for address, matrix in touched.items():
            with torch.inference_mode():
                weight = matrix.read()
                masks = [edit.selection.mask(address, weight) for edit in edits]
                edited, effect = scaled(
                    weight, [(mask, edit.factor) for mask, edit in zip(masks, edits, strict=True)], address
                )
                effects.append(effect)
                for alone, mask, edit in zip(apart, masks, edits, strict=True):
                    alone.append(effect if len(edits) == 1 else scaled(weight, [(mask, edit.factor)], address)[1])
            _exchange(matrix, weight, edited, hold)
            del weight, edited, masks
        for address, interval in kept.items():
            matrix = model.anatomy.matrix(address)
            start, stop = interval[0].tolist()
            with torch.inference_mode():
                weight = matrix.read()
                if (start, stop) != (0, min(matrix.shape)):
                    if address in drawn:
                        edited = on_random_subspace(weight, stop - start, f"{address} {drawn[address]}")
                    else:
                        edited = spectra(model).of(address, weight).kept(weight, start, stop)
                    if (broken := not_finite_in(address, edited)) is not None:
                        raise LesionError(
                            f"Edited, {broken} of {model.name} would not be finite: values are larger than"
                            f" {matrix.stored_as} can hold. Load the model in float32 or bfloat16."
                        )
                    _exchange(matrix, weight, edited, hold)
        for edit, alone in zip(edits, apart, strict=True):
            check_extent(edit.selection, sum(e.selected for e in alone), total, model.name)
            check_effects(edit, alone, model.name)
        if len(edits) > 1:
            check_effects(Compose(tuple(edits)), effects, model.name)
        yield tuple(effects)


def _exchange(matrix: Matrix, weight: Tensor, edited: Tensor, hold: Hold) -> None:
    """Write what changed, having noted how it is put back."""
    bits = BITS[weight.dtype.itemsize]
    changed = weight.view(bits) != edited.view(bits)
    places = _noted(changed)
    hold.on_end(_put_surely, matrix, places, weight[changed])
    _put(matrix, places, edited[changed])


def refuse_shared(edited: set[str], model: Model) -> None:
    """Refuse to edit a matrix whose memory is another's too: in blocks that are one module, or repeated."""
    seen: dict[tuple[object, ...], str] = {}
    for address, matrix in model.anatomy.scored.items() if edited else ():
        if matrix.packed:
            continue
        place = (matrix.tensor.device, matrix.tensor.data_ptr(), matrix.storage)
        first = seen.setdefault(place, address)
        if first != address and edited & {first, address}:
            raise UsageError(
                f"{first} and {address} of {model.name} are one parameter; no edit can part them. Edit other"
                " matrices, or whole blocks (lesion ablate)."
            )


def _noted(changed: Bool[Tensor, "out in"]) -> Tensor:
    """Places in a matrix in the smaller of two forms: the mask itself, or the flat indices as int32."""
    size = changed.numel()
    if int(changed.sum()) * 4 >= size or size >= 2**31:
        return changed
    return changed.flatten().nonzero().flatten().int()


@torch.inference_mode()
def _put(matrix: Matrix, places: Tensor, values: Float[Tensor, " changed"]) -> None:
    view = matrix.view()
    if places.dtype != torch.bool:
        mask = torch.zeros(matrix.shape, dtype=torch.bool, device=places.device)
        mask.view(-1)[places.long()] = True
        places = mask
    # The view of an interleaved storage has one axis more; the rows of the matrix are in its order.
    view[places.reshape(view.shape).to(view.device)] = values.to(view)  # moved or cast meanwhile


def _put_surely(matrix: Matrix, places: Tensor, values: Float[Tensor, " changed"]) -> None:
    try:
        _put(matrix, places, values)
    except BaseException:  # Ctrl-C while weights are put back must not leave some of them edited
        _put(matrix, places, values)
        raise
