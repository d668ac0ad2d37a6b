"""Matched random controls of any edit: the same changes, as large, at places drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lesion.edits.edit import Edit, MatchedIn, Scale, ScaleParameters, Single, Truncate, composed, parts
from lesion.edits.replace import Replace
from lesion.edits.selections.controls import Matched, Random, drawing_keys
from lesion.edits.selections.inputs import Inputs
from lesion.edits.table import refuse_unknown_places
from lesion.edits.units import NumberedEdit, how_many, part_of, scaling
from lesion.errors import UsageError
from lesion.models.load import Model

_DRAWS = 50
"""Draws for every control that is asked for, before it is said that there are no more different ones."""


def matched_controls(
    edit: Edit, model: Model, number: int, matched_in: MatchedIn = "count", texts: tuple[Inputs, ...] = ()
) -> list[Edit]:
    """Random controls of an edit, all different.

    Of a selection of weights, as many weights of every matrix are drawn (`Random`); in magnitude, as many of every size
    too, and in importance, as many of every importance to other texts (`Matched`). Scaled or replaced blocks and
    branches, and truncated matrices, move to as many other blocks, in the same order: to blocks that the edit leaves
    alone where there are enough of these, else to any. Factors, branches and shares of the spectrum stay; heads,
    groups, neurons and experts move to ones drawn at random.

    Returns:
        Fewer than `number` where there are no more; none of the baseline, of an edit of the output head's spectrum,
        which has no second, and in magnitude or importance of an edit that does not only select weights.
    """
    if matched_in != "count" and not all(isinstance(part, ScaleParameters) for part in parts(edit)):
        return []
    if all(isinstance(part, Truncate) and _layer(part) is None for part in parts(edit)):
        return []
    refuse_unknown_places(edit, model.anatomy)
    different: dict[str, Edit] = {str(edit): edit}
    for seed in range(_DRAWS * number):
        if len(different) > number:
            break
        control = _drawn(edit, model, seed, matched_in, texts)
        if control is not None:
            different.setdefault(str(control), control)
    return list(different.values())[1:]


def _drawn(edit: Edit, model: Model, seed: int, matched_in: MatchedIn, texts: tuple[Inputs, ...]) -> Edit | None:
    """One control; None where the drawn blocks lack a place of the edit."""
    if matched_in != "count":
        of_texts = texts if matched_in == "importance" else ()
        selections = [part for part in parts(edit) if isinstance(part, ScaleParameters)]
        return composed([replace(part, selection=Matched(part.selection, seed, of_texts)) for part in selections])
    blocks = [block.index for block in model.anatomy.blocks]
    touched = sorted({layer for part in parts(edit) if (layer := _layer(part)) is not None})
    keys = drawing_keys(seed, "blocks", len(blocks))
    order = [blocks[place] for place in keys.argsort()]
    others = [block for block in order if block not in touched]
    drawn = (others if len(others) >= len(touched) else order)[: len(touched)]
    to = dict(zip(touched, sorted(drawn), strict=False))
    try:
        moved = composed([_moved(part, to, seed, model) for part in parts(edit)])
        refuse_unknown_places(moved, model.anatomy)
    except UsageError:
        return None
    return moved


def _moved(part: Single, to: Mapping[int, int], seed: int, model: Model) -> Single:
    if isinstance(part, ScaleParameters):
        return replace(part, selection=Random(part.selection, seed))
    layer = _layer(part)
    if layer is None:
        return part
    if isinstance(part, NumberedEdit):
        count, number = how_many(part.unit, to[layer], model.anatomy), int(part_of(part) or 0)
        # By a permutation of the block's units: those that are cut together stay as many.
        order = drawing_keys(seed, f"{to[layer]} {part.unit}", count).argsort()
        if number >= count:
            raise UsageError(f"Block {to[layer]} has no {part.unit} {number}.")
        return scaling(part.unit, to[layer], part.factor, int(order[number]))
    if isinstance(part, Scale):
        return replace(part, layer=to[layer])
    _, dot, inner = part.address.partition(".")
    return replace(part, address=f"{to[layer]}{dot}{inner}")


def _layer(part: Single) -> int | None:
    """The block of a scaled or replaced place or truncated matrix; None for the output head and for selections."""
    if isinstance(part, Scale | Replace):
        return part.layer
    if isinstance(part, Truncate) and part.address.partition(".")[0].isdecimal():
        return int(part.address.partition(".")[0])
    return None
