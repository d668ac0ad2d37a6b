"""The edits of a layer study (Nepal et al. 2025; their driver never ran block 0), and the answers to each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from lesion.edits.edit import UNITS, Scale, Unit
from lesion.errors import UsageError
from lesion.studies.ablation.heads import edits_of_block

if TYPE_CHECKING:  # what reads a study need not wait for torch
    from lesion.models.anatomy import Anatomy


def sweep(anatomy: Anatomy, units: Sequence[Unit], layers: Sequence[int], factors: Sequence[float]) -> list[Scale]:
    """One edit per unit, factor and layer, in that order; of heads one per head.

    Raises:
        UsageError: the model has no such block, or no such branch is known in it, or its heads are not known.
    """
    for layer in layers:
        block = anatomy.block(layer)
        for unit in units:
            if unit in UNITS[1:] and getattr(block, unit) is None:
                raise UsageError(
                    f"No {unit} is known in block {layer} of {anatomy.name}; use --unit block, and see"
                    f" `lesion show {anatomy.name}` for what is known."
                )
    return [
        edit
        for unit in units
        for factor in factors
        for layer in layers
        for edit in edits_of_block(anatomy, unit, layer, factor)
    ]


def by_kind(edits: Iterable[Scale]) -> list[list[Scale]]:
    """The edits of each unit and factor: those over which tests are corrected together."""
    kinds: dict[tuple[Unit, float], list[Scale]] = {}
    for edit in edits:
        kinds.setdefault((edit.unit, edit.factor), []).append(edit)
    return list(kinds.values())


def by_edit(answers: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The answers to one task under each edit, indexed by item."""
    return {str(edit): frame.set_index("item") for edit, frame in answers.groupby("edit", sort=False)}


def complete(answers: pd.DataFrame, items: Sequence[str]) -> dict[str, pd.DataFrame]:
    """The answers to these items, in this order, of each edit that has them all; none without items."""
    frames = by_edit(answers) if items else {}
    return {edit: frame.loc[list(items)] for edit, frame in frames.items() if set(items) <= set(frame.index)}
