"""Truncation: which edits a LASER search tries, and how it composes them (Sharma et al. 2023; Chen et al. 2024).

A cell of the grid is one matrix of one block with a part of its spectrum kept. Cells that keep the same components
are the same edit, evaluated once; cells that keep all of them are the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lesion.edits.edit import Side, Truncate
from lesion.errors import UsageError, nearest
from lesion.models.anatomy import Anatomy
from lesion.studies.truncation.result import TruncatedMatrix
from lesion.studies.truncation.study import Sides

ALL = "all"
BRANCHES = ("attention", "mlp")


@dataclass(frozen=True)
class GridCell:
    """One edit of the grid, and its line in the result, before it is evaluated."""

    edit: Truncate
    row: TruncatedMatrix


@dataclass(frozen=True)
class Grid:
    """The cells of a search, and those that were not made since they are the same as another.

    Attributes:
        cells: in the order of layers, matrices, sides and falling keeps.
        merged: for a cell that keeps the same components as another, that other; None: it keeps all of them.
    """

    cells: tuple[GridCell, ...]
    merged: Mapping[Truncate, Truncate | None]


def grid(anatomy: Anatomy, layers: Sequence[int], matrices: Sequence[str], keep: Sequence[float], side: Sides) -> Grid:
    """Every matrix × keep × side of the layers, each different edit once.

    Args:
        anatomy: of the model.
        layers: indices of blocks.
        matrices: `mlp.up`, a whole branch (`mlp`, `attention`), or `all`.
        keep: fractions of the rank.
        side: of the spectrum that is kept; `both` tries one and the other.
    """
    sides: tuple[Side, ...] = ("top", "bottom") if side == "both" else (side,)
    cells: list[GridCell] = []
    merged: dict[Truncate, Truncate | None] = {}
    wanted = _named(anatomy, layers, matrices)
    for layer in layers:
        for name, matrix in anatomy.block(layer).matrices.items():
            if name not in wanted:
                continue
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
                        row = TruncatedMatrix(
                            edit=str(edit), address=matrix.address, layer=layer, matrix=name, keep=fraction,
                            side=kept_side, rank=stop - start, of=rank, saved=saved,
                        )  # fmt: skip
                        cells.append(GridCell(edit, row))
    if not cells:
        raise UsageError(
            "Nothing is left to try: every keep leaves its matrix as it is. Give smaller ones, for example --keep 0.1."
        )
    return Grid(tuple(cells), merged)


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
