"""Truncation: which edits a LASER search tries, and how it composes them (Sharma et al. 2023; Chen et al. 2024).

A cell of the grid is one matrix of one block with a part of its spectrum kept. Cells that keep the same components
are the same edit, evaluated once; cells that keep all of them are the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lesion.edits.edit import Side, Truncate
from lesion.errors import UsageError, nearest

if TYPE_CHECKING:  # help and wrong options need not wait for torch
    from lesion.models.anatomy import Anatomy

# From nearly all to a four-hundredth of the rank, the range that Sharma et al. search (their section 5).
KEEP = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025)
ALL = "all"
BRANCHES = ("attention", "mlp")
Sides = Literal["top", "bottom", "both"]


@dataclass(frozen=True)
class GridCell:
    """One edit of the grid.

    Attributes:
        edit: what is done.
        layer, matrix: the block, and the name of the matrix within it (`mlp.up`).
        rank: how many components are kept.
        of: how many there are.
        saved: parameters fewer as two thin factors, out · in − rank · (out + in); negative where that does not pay.
    """

    edit: Truncate
    layer: int
    matrix: str
    rank: int
    of: int
    saved: int


@dataclass(frozen=True)
class Grid:
    """The cells of a search, and those that were not made since they are the same as another.

    Attributes:
        cells: in the order of layers, matrices, sides and falling keeps.
        merged: for a cell that keeps the same components as another, that other; None: it keeps all of them.
        matrices: the names of the matrices that are searched, those of experts each for itself.
    """

    cells: tuple[GridCell, ...]
    merged: Mapping[Truncate, Truncate | None]
    matrices: tuple[str, ...]


def grid(anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str], keep: Sequence[float], side: Sides) -> Grid:
    """Every matrix × keep × side of the layers, each different edit once.

    Args:
        anatomy: of the model.
        layers: indices of blocks.
        matrices: `mlp.up`, a whole branch (`mlp`, `attention`), or `all`.
        keep: fractions of the rank.
        side: of the spectrum that is kept; `both` tries one and the other.

    Raises:
        UsageError: no block has a matrix of that name, with the nearest names, or any at all; or nothing is left to
            try.
    """
    sides: tuple[Side, ...] = ("top", "bottom") if side == "both" else (side,)
    cells: list[GridCell] = []
    merged: dict[Truncate, Truncate | None] = {}
    names: dict[str, None] = {}
    wanted = _named(anatomy, layers, matrices)
    for layer in layers:
        for name, matrix in anatomy.block(layer).matrices.items():
            if name not in wanted:
                continue
            names[name] = None
            rank = min(matrix.shape)
            made: dict[tuple[int, int], Truncate] = {}
            for kept_side in sides:
                for fraction in sorted(keep, reverse=True):
                    edit = Truncate(matrix.address, fraction, kept_side)
                    start, stop = edit.kept(rank)
                    kept = (0, 0) if start == stop else (start, stop)
                    if kept == (0, rank):
                        merged[edit] = None
                    elif kept in made:
                        if made[kept] != edit:
                            merged[edit] = made[kept]
                    else:
                        made[kept] = edit
                        saved = matrix.shape[0] * matrix.shape[1] - (stop - start) * sum(matrix.shape)
                        cells.append(GridCell(edit, layer, name, stop - start, rank, saved))
    if not cells:
        raise UsageError(
            "Nothing is left to try: every keep leaves its matrix as it is. Give smaller ones, for example --keep 0.1."
        )
    return Grid(tuple(cells), merged, tuple(names))


def _named(anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str]) -> set[str]:
    """The names of matrices that are meant; every word must mean at least one."""
    there = list(dict.fromkeys(name for layer in layers for name in anatomy.block(layer).matrices))
    if not there:
        raise UsageError(
            f"No matrices are known in these blocks of {anatomy.name} (family {anatomy.family}), so there is none to"
            f" truncate. Its blocks can be scaled all the same: `lesion ablate`."
        )
    meant: set[str] = set()
    for word in matrices:
        names = there if word == ALL else [name for name in there if name == word or name.startswith(f"{word}.")]
        if not names:
            known = [*there, *BRANCHES, ALL]
            raise UsageError(
                f"There is no matrix '{word}' in {anatomy.name}{nearest(word, known)}. There are "
                f"{', '.join(there[:16])}{', …' if len(there) > 16 else ''}; mlp, attention and all name several."
            )
        meant.update(names)
    return meant
