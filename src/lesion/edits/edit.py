"""Edits: values that say what to change in a model. `apply.py` makes them so and takes them back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from lesion.arguments import several, shown, validated
from lesion.edits.place import Unit, address
from lesion.edits.replace import Replace
from lesion.errors import UsageError
from lesion.files import named
from lesion.plain import short
from lesion.reprs import LONGEST, described

if TYPE_CHECKING:  # an edit of blocks need not wait for torch
    from lesion.edits.selections.selection import Selection
    from lesion.models.load import Model

Side = Literal["top", "bottom", "random"]
MatchedIn = Literal["count", "magnitude", "importance"]
"""What random controls of a selection of weights share with it (`selections/controls.py`)."""
EditLike = Any
"""What may stand wherever an edit is taken: an edit, its text form, or several of these (`as_edit`); where the model
is known, also the path of an `.edit` file, and what `read_edit` gave (`lesion.edits.files.artefact.edit_for`)."""
# The number of a block in text form has at most nine digits.
MOST_BLOCKS = 10**9
MATRIX = re.compile(r"head|[0-9]{1,9}(?:\.[A-Za-z0-9_-]+)+")
"""The address of a matrix, such as `3.mlp.up`."""


def number(value: float) -> str:
    """A factor or share in the text of an edit: short where that is the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@validated
@dataclass(frozen=True)
class Scale:
    """What `ScaleBlock`, `ScaleAttention`, `ScaleMlp` and edits of inner units (`units.py`) share.

    A block, counted from 0, and a finite factor.
    Factor 0 removes the contribution, 1 changes nothing.
    """

    layer: int
    factor: float | int = 0.0
    unit: ClassVar[Unit]

    def __post_init__(self) -> None:
        if not 0 <= self.layer < MOST_BLOCKS:
            raise UsageError(f"A layer is counted from 0; {shown(self.layer)} is not one.")
        object.__setattr__(self, "factor", float(self.factor) + 0.0)  # 0 and -0.0 are one edit

    @property
    def address(self) -> str:
        """The place in text form, as `address` gives it."""
        return address(self.layer, self.unit, getattr(self, self.unit, None))

    def __str__(self) -> str:
        return f"{self.address}×{number(self.factor)}"


class ScaleBlock(Scale):
    """Multiply what one block adds to the residual stream: h + factor · (block(h) − h).

    Factor 0 is the zero ablation of Nepal et al. (2025, Fig. 4): the block becomes the identity. Zeroing every weight
    and bias of its attention and MLP is the same function wherever no norm stands on the residual stream itself.
    """

    unit = "block"


class ScaleAttention(Scale):
    """Multiply what the attention of one block adds to the residual stream.

    Where a norm stands between the attention and the stream (Gemma, OLMo 2), the normed output is multiplied.
    """

    unit = "attention"


class ScaleMlp(Scale):
    """Multiply what the MLP (or the experts) of one block adds to the residual stream."""

    unit = "mlp"


SCALES: dict[Unit, type[Scale]] = {"block": ScaleBlock, "attention": ScaleAttention, "mlp": ScaleMlp}


@validated
@dataclass(frozen=True)
class ScaleParameters:
    """Multiply the weights of a selection: W_ij · factor where selected, W_ij elsewhere.

    Factor 0 prunes, 1 changes nothing. Selections are made on the unedited weights, also when several are composed;
    factors on one weight multiply, and the product is rounded once to the dtype of the weights.

    Raises:
        UsageError: what is given is no selection, or the factor is no finite number.
    """

    selection: Selection
    factor: float | int = 0.0

    def __post_init__(self) -> None:
        from lesion.edits.selections.selection import Selection  # needs torch, as whoever has a selection does

        given: object = self.selection
        if not isinstance(given, Selection):
            raise UsageError(
                f"ScaleParameters multiplies the weights of a selection, such as Magnitude(0.01), not of "
                f"{shown(given)}."
            )
        object.__setattr__(self, "factor", float(self.factor) + 0.0)  # 0 and -0.0 are one edit

    def __repr__(self) -> str:
        return described(self, repr(self.selection), f"factor={number(self.factor)}")

    def __str__(self) -> str:
        return f"{self.selection.text}×{number(self.factor)}"


@validated
@dataclass(frozen=True)
class Truncate:
    """Replace one matrix by a part of its spectrum (LASER, Sharma et al. 2023): W = Σ_i σ_i u_i v_iᵀ, some i kept.

    Kept are ⌊keep · min(out, in)⌋ components, in exact decimals: those of the largest singular values, or with side
    `bottom` of the smallest. Keep 0 removes the matrix, keep 1 leaves it bit-identical. A bias stays as it is.
    Truncations of one matrix keep what all of them keep.

    Side `random` is the control in which the spectrum has no part: what is kept is the matrix on a subspace of as many
    dimensions of its shorter side, drawn uniformly by the number `draw`. It stands alone on its matrix.

    Raises:
        UsageError: keep is not in [0, 1], the side is not one, the address cannot be one of a matrix, or there is a
            number of a draw where nothing is drawn.
    """

    address: str
    keep: float | int
    side: Side = "top"
    draw: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise UsageError(f"keep is a fraction of the rank, from 0 to 1, not {shown(self.keep)}.")
        if MATRIX.fullmatch(self.address) is None:
            raise UsageError(f"'{self.address}' is not the address of a matrix; write BLOCK.BRANCH.NAME, as 3.mlp.up.")
        if self.draw < 0 or (self.draw and self.side != "random"):
            raise UsageError(f"A random side has the number of a draw, from 0, not {self.side} {shown(self.draw)}.")
        object.__setattr__(self, "keep", float(self.keep) + 0.0)

    def kept(self, rank: int) -> tuple[int, int]:
        """First component kept and the one after the last, of `rank` in the order of falling singular values; of a
        random side, how many dimensions.
        """
        count = int(Fraction(str(float(self.keep))) * rank)
        return (rank - count, rank) if self.side == "bottom" else (0, count)

    def __str__(self) -> str:
        side = f"random {self.draw}" if self.side == "random" else self.side
        return f"{self.address} {side} {number(self.keep)}"


@validated
@dataclass(frozen=True, eq=False)
class Compose:
    """Several edits at once, in order. Factors on the same place multiply; `Compose(())` is the baseline.

    Nested compositions are flattened, and a composition of one edit equals that edit: they have one text form, and so
    one key among stored answers.

    Raises:
        UsageError: one of them is no edit (see `as_edit`), or a matrix is truncated at random and in another way.
    """

    edits: tuple[EditLike, ...] = ()

    def __post_init__(self) -> None:
        edits = tuple(part for edit in self.edits for part in parts(as_edit(edit)))
        object.__setattr__(self, "edits", edits)
        for drawn in (part for part in edits if isinstance(part, Truncate) and part.side == "random"):
            if any(isinstance(part, Truncate) and part.address == drawn.address and part != drawn for part in edits):
                raise UsageError(f"{drawn.address} is truncated at random and in another way; leave one of them out.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Single | Compose) and tuple(parts(self)) == tuple(parts(other))

    def __hash__(self) -> int:
        return hash(self.edits[0]) if len(self.edits) == 1 else hash(self.edits)

    def __repr__(self) -> str:
        text = f"Compose({self.edits!r})"
        return text if len(text) <= LONGEST else described(self, f"{len(self.edits)} edits: {short(str(self), 200)}")

    def __str__(self) -> str:
        return " + ".join(str(edit) for edit in self.edits) if self.edits else "baseline"


Single = Scale | ScaleParameters | Truncate | Replace
Edit = Single | Compose


@runtime_checkable
class ReadEdit(Protocol):
    """An edit that was read from a file and is not made for a model yet (`lesion.read_edit`)."""

    path: Path

    def fit(self, model: Model) -> Edit:
        """The edit for a model."""
        ...


def path_of(given: EditLike) -> Path | None:
    """The file that is meant: a path, or text that ends in `.edit` or names a folder; None for anything else."""
    is_file = isinstance(given, str) and (given.strip().endswith(".edit") or "/" in given)
    return named(given.strip() if is_file else given, "path of an edit") if is_file or isinstance(given, Path) else None


def as_edit(given: EditLike) -> Edit:
    """The edit that is meant, where no model is known."""
    if isinstance(given, Single | Compose):
        return given
    file = given.path if isinstance(given, ReadEdit) else path_of(given)
    if file is not None:
        raise UsageError(f"{file} is made for a model first: give lesion.read_edit({str(file)!r}).fit(model).")
    if isinstance(given, str):
        from lesion.edits.text import parse

        return parse(given)
    edits = several(given)
    if edits is not None:
        return composed([as_edit(edit) for edit in edits])
    from lesion.edits.selections.selection import Selection

    if isinstance(given, Selection):
        raise UsageError(f"{given.label} says which weights are meant; give ScaleParameters(selection, factor).")
    raise UsageError(
        f"An edit is a value such as ScaleBlock(3, 0.0), its text form such as '3×0', or several of these, not "
        f"{shown(given)}."
    )


def composed(edits: Sequence[Edit]) -> Edit:
    """Several edits as one; a single one as it is."""
    if not edits:
        raise UsageError("No edit is given in an empty list; BASELINE, or 'baseline', is the model as it is.")
    return edits[0] if len(edits) == 1 else Compose(tuple(edits))


def with_factor(edit: Edit, factor: float) -> Edit:
    """An edit with another factor in every part."""
    for part in parts(edit):
        if isinstance(part, Truncate | Replace):
            what = "truncation" if isinstance(part, Truncate) else "replacement"
            raise UsageError(f"{part} is a {what} and has no factor; leave --factor out.")
    with_factors = [part for part in parts(edit) if not isinstance(part, Truncate | Replace)]
    return composed([replace(part, factor=factor) for part in with_factors])


def parts(edit: EditLike) -> Iterator[Single]:
    """The single edits of an edit, in order; refuses what is no edit."""
    if isinstance(edit, Compose):
        for part in edit.edits:
            yield from parts(part)
    elif isinstance(edit, Single):
        yield edit
    else:
        yield from parts(as_edit(edit))


BASELINE = Compose(())


def of_places(edit: Edit) -> Compose:
    """What of an edit scales or replaces what blocks and branches add, and so can differ from row to row of a batch
    (`gates.py`).
    """
    return Compose(tuple(part for part in parts(edit) if isinstance(part, Scale | Replace)))


def of_replacements(edit: Edit) -> tuple[Replace, ...]:
    """What of an edit puts another contribution in the place of a block's or branch's own."""
    return tuple(part for part in parts(edit) if isinstance(part, Replace))


def of_weights(edit: Edit) -> tuple[ScaleParameters, ...]:
    """What of an edit multiplies weights, and so is the same for all rows of a batch (`weights.py`)."""
    return tuple(part for part in parts(edit) if isinstance(part, ScaleParameters))


def of_spectra(edit: Edit) -> tuple[Truncate, ...]:
    """What of an edit truncates matrices, by row of a batch (`gates.py`) or in the weights (`weights.py`)."""
    return tuple(part for part in parts(edit) if isinstance(part, Truncate))


def refuse_absent(path: Path) -> None:
    """Refuse the path of no `.edit` file, naming those that lie there."""
    if path.is_dir():
        inside = sorted(entry.name for entry in path.glob("*.edit"))
        hint = f": it has {', '.join(inside[:5])}" if inside else ""
        raise UsageError(f"{path} is a folder; give an .edit file{hint}.")
    if not path.exists():
        near = sorted(entry.name for entry in path.parent.glob("*.edit")) if path.parent.is_dir() else []
        hint = f" In {path.parent} there are {', '.join(near[:5])}." if near else ""
        raise UsageError(f"There is no file {path}.{hint}")
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give an .edit file.")
