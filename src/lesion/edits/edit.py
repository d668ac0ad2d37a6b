"""Edits: values that say what to change in a model. `apply.py` makes them so and takes them back."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from lesion.arguments import LongText, several, shown, validated
from lesion.brief import LONGEST, described
from lesion.edits.replace import ADDRESS, Replace
from lesion.errors import UsageError
from lesion.plain import short

if TYPE_CHECKING:  # an edit of blocks need not wait for torch
    from lesion.edits.reference import Reference
    from lesion.edits.selections.selection import Selection
    from lesion.models.load import Model

Unit = Literal["block", "attention", "mlp"]
UNITS: tuple[Unit, ...] = ("block", "attention", "mlp")
Side = Literal["top", "bottom"]
EditLike = Any
"""What may stand wherever an edit is taken: an edit, its text form, or several of these (`as_edit`); where the model
is known, also the path of an `.edit` file, and what `read_edit` gave (`lesion.edits.given.edit_for`)."""
# The number of a block in text form has at most nine digits.
MOST_BLOCKS = 10**9
_LONGEST_RANGE = 10_000


def _number(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


@validated
@dataclass(frozen=True)
class Scale:
    """What `ScaleBlock`, `ScaleAttention` and `ScaleMlp` share: a block, counted from 0, and a finite factor.

    Factor 0 removes the contribution, 1 changes nothing.

    Raises:
        UsageError: the layer is no whole number from 0, or the factor is no finite number.
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
        """The place in text form: `23`, `23.attention` or `23.mlp`."""
        return str(self.layer) if self.unit == "block" else f"{self.layer}.{self.unit}"

    def __str__(self) -> str:
        return f"{self.address}×{_number(self.factor)}"


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
        return described(self, repr(self.selection), f"factor={_number(self.factor)}")

    def __str__(self) -> str:
        return f"{self.selection.text}×{_number(self.factor)}"


@validated
@dataclass(frozen=True)
class Truncate:
    """Replace one matrix by a part of its spectrum (LASER, Sharma et al. 2023): W = Σ_i σ_i u_i v_iᵀ, some i kept.

    Kept are ⌊keep · min(out, in)⌋ components, in exact decimals: those of the largest singular values, or with side
    `bottom` of the smallest. Keep 0 removes the matrix, keep 1 leaves it bit-identical. A bias stays as it is.
    Truncations of one matrix keep what all of them keep.

    Raises:
        UsageError: keep is not in [0, 1], the side is not one, or the address cannot be one of a matrix.
    """

    address: str
    keep: float | int
    side: Side = "top"

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise UsageError(f"keep is a fraction of the rank, from 0 to 1, not {shown(self.keep)}.")
        if _MATRIX.fullmatch(self.address) is None:
            raise UsageError(f"'{self.address}' is not the address of a matrix; write BLOCK.BRANCH.NAME, as 3.mlp.up.")
        object.__setattr__(self, "keep", float(self.keep) + 0.0)

    def kept(self, rank: int) -> tuple[int, int]:
        """First component kept and the one after the last, of `rank` in the order of falling singular values."""
        count = int(Fraction(str(float(self.keep))) * rank)
        return (0, count) if self.side == "top" else (rank - count, rank)

    def __str__(self) -> str:
        return f"{self.address} {self.side} {_number(self.keep)}"


@validated
@dataclass(frozen=True, eq=False)
class Compose:
    """Several edits at once, in order. Factors on the same place multiply; `Compose(())` is the baseline.

    Nested compositions are flattened, and a composition of one edit equals that edit: they have one text form, and so
    one key among stored answers.

    Raises:
        UsageError: one of them is no edit (see `as_edit`).
    """

    edits: tuple[EditLike, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "edits", tuple(part for edit in self.edits for part in parts(as_edit(edit))))

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
    if isinstance(given, Path):
        return given.expanduser()
    named = isinstance(given, str) and (given.strip().endswith(".edit") or "/" in given)
    return Path(given.strip()).expanduser() if named else None


def as_edit(given: EditLike) -> Edit:
    """The edit that is meant, where no model is known.

    Args:
        given: an edit; its text form (see `parse`); or several of these, which are composed.

    Raises:
        UsageError: it is no edit, an empty list, or of a file.
    """
    if isinstance(given, Single | Compose):
        return given
    file = given.path if isinstance(given, ReadEdit) else path_of(given)
    if file is not None:
        raise UsageError(f"{file} is made for a model first: give lesion.read_edit({str(file)!r}).fit(model).")
    if isinstance(given, str):
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
    """Several edits as one; a single one as it is.

    Raises:
        UsageError: there is none.
    """
    if not edits:
        raise UsageError("No edit is given in an empty list; BASELINE, or 'baseline', is the model as it is.")
    return edits[0] if len(edits) == 1 else Compose(tuple(edits))


def with_factor(edit: Edit, factor: float) -> Edit:
    """An edit with another factor in every part.

    Raises:
        UsageError: the factor is not finite, or the edit truncates a matrix or replaces a contribution, which have no
            factor.
    """
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


_LIST = re.compile(r"[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})+(?:\.(?:attention|mlp))?")
_RANGE = re.compile(r"(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})(?P<unit>\.attention|\.mlp)?")
# Not the sign of an exponent, as in 3×1e+06; a digest may end in the same letters.
_PLUS = re.compile(r"(?:(?<![0-9.][eE])|(?<=@[0-9a-f]{16}))\+")
_SELECTION = re.compile(r"(?P<label>[A-Za-z0-9._-]{1,80})@(?P<digest>[0-9a-f]{16})")
_MATRIX = re.compile(r"head|[0-9]{1,9}(?:\.[A-Za-z0-9_-]+)+")
_TRUNCATION = re.compile(rf"(?P<address>{_MATRIX.pattern})\s+(?P<side>[a-z]+)\s+(?P<keep>\S+)")
_ARROW = re.compile("→|->")
_REPLACEMENT = re.compile(r"(?P<kind>[a-z]+)(?:\s+(?P<draw>[0-9]{1,9}))?@(?P<digest>[0-9a-f]{16})")
_NONE: Mapping[str, Selection] = {}
_NO_REFERENCES: Mapping[str, Reference] = {}


def _scale(address: str, factor: float) -> Scale | None:
    match = ADDRESS.fullmatch(address)
    if match is None:
        return None
    unit: Unit = match["unit"] or "block"  # type: ignore[assignment]
    return SCALES[unit](int(match["layer"]), factor)


def _addresses(name: str) -> list[str]:
    """The addresses of a range of blocks, as `0-3.mlp`; of anything else itself."""
    match = _RANGE.fullmatch(name)
    if match is None:
        return [name]
    first, last = int(match["first"]), int(match["last"])
    if last < first:
        raise UsageError(f"'{short(name)}' is no range of blocks; write the first and then the last, as 0-3.")
    if last - first >= _LONGEST_RANGE:
        raise UsageError(f"'{short(name)}' is a range of more than {_LONGEST_RANGE:,} blocks.")
    return [f"{layer}{match['unit'] or ''}" for layer in range(first, last + 1)]


def _decimal(text: str) -> float:
    """A number in plain ASCII digits, without underscores."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def _parameters(name: str, factor: float, selections: Mapping[str, Selection]) -> ScaleParameters | None:
    if name.endswith("]"):
        from lesion.edits.selections.listed import Listed

        return ScaleParameters(Listed((name,)), factor)
    match = _SELECTION.fullmatch(name)
    if match is None:
        return None
    if match["digest"] not in selections:
        raise UsageError(
            f"'{name}' names a selection of weights, which text alone does not hold; save it with"
            " lesion.save_edit and give the .edit file."
        )
    return ScaleParameters(selections[match["digest"]], factor)


def _reference(digest: str, text: str, references: Mapping[str, Reference]) -> Reference:
    if digest not in references:
        raise UsageError(
            f"'{short(text)}' names a reference of contributions, which text alone does not hold, and so no study takes"
            " it yet; give lesion.Replace(ADDRESS, KIND, reference) to lesion.applied or model.generate, or read the"
            " text with lesion.parse(text, references={digest: reference})."
        )
    return references[digest]


def _replacements(piece: str, references: Mapping[str, Reference]) -> list[Single]:
    """The edits of a piece with an arrow in it: `23→mean@DIGEST`."""
    place, _, rest = (text.strip() for text in _ARROW.sub("→", piece).partition("→"))
    addresses = _addresses(place)
    match = _REPLACEMENT.fullmatch(rest)
    if match is None or not all(map(ADDRESS.fullmatch, addresses)):
        raise UsageError(
            f"'{short(piece)}' is not an edit; write ADDRESS→KIND@DIGEST with the digest of a reference, for example"
            " 23→mean@0123456789abcdef or 23.mlp→resample 3@0123456789abcdef."
        )
    reference = _reference(match["digest"], piece, references)
    return [Replace(address, match["kind"], reference, int(match["draw"] or 0)) for address in addresses]


@validated
def parse(
    text: LongText, selections: Mapping[str, Selection] = _NONE, references: Mapping[str, Reference] = _NO_REFERENCES
) -> Edit:
    """The edit whose text form is `text`: the inverse of `str(edit)`. `x`, `X` and `*` may stand for `×` after an
    address, and `->` for `→`.

    Args:
        text: `23×0`, `23.mlp×0.5`, a range `0-3×0`, a weight `11.mlp.down[507,1229]×0`, `23.mlp.up top 0.01`,
            `LABEL@DIGEST×0`, `23→mean@DIGEST`, `23.mlp→resample 3@DIGEST`, several joined by `+`, or `baseline`.
        selections: by digest, those that the text may name.
        references: by digest, those that the text may name.

    Raises:
        UsageError: the text is not an edit, or names a selection or a reference that is not given.
    """
    if text.strip() == "baseline":
        return BASELINE
    pieces = [piece.strip() for piece in _PLUS.split(text)]
    if len(pieces) > 1 and "" in pieces:
        raise UsageError(f"'{short(text)}' is not an edit; write one on each side of +, for example 23×0 + 23.mlp×0.5.")
    return composed([edit for piece in pieces for edit in _singles(piece, selections, references)])


def _singles(piece: str, selections: Mapping[str, Selection], references: Mapping[str, Reference]) -> list[Single]:
    """The edits of one piece between two `+`: one, or of a range of blocks several."""
    if _ARROW.search(piece):
        return _replacements(piece, references)
    if (match := _TRUNCATION.fullmatch(piece)) is not None:
        try:
            keep = _decimal(match["keep"])
        except ValueError:
            raise UsageError(
                f"'{short(piece)}' keeps '{short(match['keep'])}', which is not a number from 0 to 1."
            ) from None
        side: Any = match["side"]
        return [Truncate(match["address"], keep, side)]
    # A label may hold an x, and so may the address of a weight; that of a block does not.
    times = "×" if "@" in piece else r"(?<=\])\s*[×xX*]" if "]" in piece else "[×xX*]"
    name, *factors = (text.strip() for text in re.split(times, piece))
    try:
        factor = _decimal(factors[0]) if len(factors) == 1 else None
    except ValueError:
        factor = None
    if factor is not None:
        edits = [_parameters(part, factor, selections) or _scale(part, factor) for part in _addresses(name)]
        known: list[Single] = [edit for edit in edits if edit is not None]
        if len(known) == len(edits):
            return known
    if factor is not None and _LIST.fullmatch(name):
        *layers, last = (part.strip() for part in name.split(","))
        number, _, unit = last.partition(".")
        each = [f"{layer}{f'.{unit}' if unit else ''}×{_number(factor)}" for layer in (*layers, number)]
        raise UsageError(f"'{short(piece)}' lists several blocks; join edits with +: {short(' + '.join(each))}.")
    raise UsageError(
        f"'{short(piece)}' is not an edit; write ADDRESS×FACTOR, for example 23×0, 0-3×0 or 23.mlp×0.5,"
        " or MATRIX SIDE KEEP, for example 23.mlp.up top 0.01."
    )


def to_json(edit: Edit) -> dict[str, object]:
    """The edit as plain JSON values: `{"scale": "23.mlp", "factor": 0.0}`, `{"truncate": "23.mlp.up", "keep": 0.01,
    "side": "top"}`, `{"compose": [...]}`; with a selection or a reference only named `{"select": "LABEL@DIGEST",
    "factor": 0.0}`, `{"replace": "23", "kind": "resample", "draw": 0, "reference": "DIGEST"}`.
    """
    if isinstance(edit, Compose):
        return {"compose": [to_json(part) for part in edit.edits]}
    if isinstance(edit, ScaleParameters):
        return {"select": f"{edit.selection.label}@{edit.selection.digest}", "factor": edit.factor}
    if isinstance(edit, Truncate):
        return {"truncate": edit.address, "keep": edit.keep, "side": edit.side}
    if isinstance(edit, Replace):
        return {
            "replace": edit.address,
            "kind": edit.kind,
            "draw": edit.draw,
            "reference": edit.reference.digest,
        }
    return {"scale": edit.address, "factor": edit.factor}


def from_json(
    value: Any, selections: Mapping[str, Selection] = _NONE, references: Mapping[str, Reference] = _NO_REFERENCES
) -> Edit:
    """The edit that `to_json` wrote; `selections` and `references` are those that it may name, by digest.

    Raises:
        UsageError: the value is not the JSON form of an edit, or names a selection or a reference that is not given.
    """
    try:
        if set(value) == {"compose"}:
            return Compose(tuple(from_json(part, selections, references) for part in value["compose"]))
        if set(value) == {"replace", "kind", "draw", "reference"}:
            named = _reference(value["reference"], str(value["replace"]), references)
            return Replace(value["replace"], value["kind"], named, value["draw"])
        if set(value) == {"select", "factor"}:
            scaled = _parameters(value["select"], value["factor"], selections)
            if scaled is not None:
                return scaled
        if set(value) == {"truncate", "keep", "side"}:
            return Truncate(value["truncate"], value["keep"], value["side"])
        if set(value) == {"scale", "factor"}:
            edit = _scale(value["scale"], value["factor"])
            if edit is not None:
                return edit
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise UsageError(f"This is not an edit in JSON form: {reprlib.repr(value)}.")
