"""The text and the JSON form of edits: written by `str(edit)` and `to_json`, read back here; one spelling of each."""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lesion.arguments import LongText, validated
from lesion.edits.edit import (
    BASELINE,
    MATRIX,
    SCALES,
    Compose,
    Edit,
    Scale,
    ScaleParameters,
    Single,
    Truncate,
    composed,
    number,
    parts,
)
from lesion.edits.place import Unit
from lesion.edits.replace import ADDRESS, Replace, place_of
from lesion.edits.units import part_of, scale_at
from lesion.errors import UsageError
from lesion.plain import short

if TYPE_CHECKING:
    from lesion.edits.reference import Reference
    from lesion.edits.selections.selection import Selection

_LONGEST_RANGE = 10_000
_LIST = re.compile(r"[0-9]{1,9}(?:\s*,\s*[0-9]{1,9})+(?:\.(?:attention|mlp))?")
_RANGE = re.compile(r"(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})(?P<unit>\.(?:attention|mlp)(?:\.[A-Za-z0-9_-]+)*)?")
# Not the sign of an exponent, as in 3×1e+06; a digest may end in the same letters.
_PLUS = re.compile(r"(?:(?<![0-9.][eE])|(?<=@[0-9a-f]{16}))\+")
_SELECTION = re.compile(r"(?P<label>[A-Za-z0-9._-]{1,80})@(?P<digest>[0-9a-f]{16})")
_TRUNCATION = re.compile(
    rf"(?P<address>{MATRIX.pattern})\s+(?P<side>(?!x\s)[a-z]+)(?:\s+(?P<draw>[0-9]{{1,9}})(?=\s))?\s+(?P<keep>\S+)"
)
_ARROW = re.compile("→|->")
_REPLACEMENT = re.compile(r"(?P<kind>[a-z]+)(?:\s+(?P<draw>[0-9]{1,9}))?@(?P<digest>[0-9a-f]{16})")
_NONE: Mapping[str, Selection] = {}
_NO_REFERENCES: Mapping[str, Reference] = {}


def _scale(address: str, factor: float) -> Scale | None:
    match = ADDRESS.fullmatch(address)
    if match is None:
        return scale_at(address, factor)
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
            f"'{short(text)}' names a reference of contributions, which text alone does not hold, so that lesion"
            " evaluate takes no replaced contributions. A layer study makes its own references and evaluates them:"
            f" lesion ablate MODEL --task TASK{' --unit head' if '.head.' in text else ''} --replace mean,resample. In"
            " Python lesion.applied and model.generate take lesion.Replace(ADDRESS, KIND, reference), and"
            " lesion.parse(text, references={digest: reference}) reads the text."
        )
    return references[digest]


def _replacements(piece: str, references: Mapping[str, Reference]) -> list[Single]:
    """The edits of a piece with an arrow in it: `23→mean@DIGEST`."""
    place, _, rest = (text.strip() for text in _ARROW.sub("→", piece).partition("→"))
    addresses = _addresses(place)
    match = _REPLACEMENT.fullmatch(rest)
    if match is None or place == "":
        raise UsageError(
            f"'{short(piece)}' is not an edit; write ADDRESS→KIND@DIGEST with the digest of a reference, for example"
            " 23→mean@0123456789abcdef, 23.mlp→resample 3@0123456789abcdef or"
            " 23.attention.head.4→mean@0123456789abcdef."
        )
    for address in addresses:
        place_of(address)  # refuses what cannot be replaced
    reference = _reference(match["digest"], piece, references)
    return [Replace(address, match["kind"], reference, int(match["draw"] or 0)) for address in addresses]


@validated
def parse(
    text: LongText, selections: Mapping[str, Selection] = _NONE, references: Mapping[str, Reference] = _NO_REFERENCES
) -> Edit:
    """The edit whose text form is `text`: the inverse of `str(edit)`. `x`, `X` and `*` may stand for `×` after an
    address, and `->` for `→`.

    Args:
        text: `23×0`, `23.mlp×0.5`, a head `23.attention.head.4×0`, a neuron
            `23.mlp.neuron.17×0`, an expert `23.mlp.expert.2×0`, a matrix `23.mlp.up×0.5`, a range `0-3×0`, a weight
            `11.mlp.down[507,1229]×0`, `23.mlp.up top 0.01`, `23.mlp.up random 3 0.01`, `LABEL@DIGEST×0`,
            `23→mean@DIGEST`, `23.mlp→resample 3@DIGEST`, `23.attention.head.4→mean@DIGEST`, several joined by `+`, or
            `baseline`.
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
        return [Truncate(match["address"], keep, side, int(match["draw"] or 0))]
    # A label may hold an x, and so may an address (`mlp.expert.2`); there the last one counts.
    times = "×" if "@" in piece else r"(?<=\])\s*[×xX*]" if "]" in piece else "[×xX*](?=[^×xX*]*$)"
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
        end, _, unit = last.partition(".")
        each = [f"{layer}{f'.{unit}' if unit else ''}×{number(factor)}" for layer in (*layers, end)]
        raise UsageError(f"'{short(piece)}' lists several blocks; join edits with +: {short(' + '.join(each))}.")
    raise UsageError(
        f"'{short(piece)}' is not an edit; write ADDRESS×FACTOR, for example 23×0, 0-3×0, 23.mlp×0.5,"
        " 23.mlp.up×0.5 or 23.attention.head.4×0, or MATRIX SIDE KEEP, for example 23.mlp.up top 0.01."
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
        drawn = {"draw": edit.draw} if edit.side == "random" else {}
        return {"truncate": edit.address, "keep": edit.keep, "side": edit.side, **drawn}
    if isinstance(edit, Replace):
        return {"replace": edit.address, "kind": edit.kind, "draw": edit.draw, "reference": edit.reference.digest}
    return {"scale": edit.address, "factor": edit.factor}


def from_json(
    value: Any, selections: Mapping[str, Selection] = _NONE, references: Mapping[str, Reference] = _NO_REFERENCES
) -> Edit:
    """The edit that `to_json` wrote; `selections` and `references` are those that it may name, by digest."""
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
        if set(value) - {"draw"} == {"truncate", "keep", "side"}:
            return Truncate(value["truncate"], value["keep"], value["side"], value.get("draw", 0))
        if set(value) == {"scale", "factor"}:
            edit = _scale(value["scale"], value["factor"])
            if edit is not None:
                return edit
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    raise UsageError(f"This is not an edit in JSON form: {reprlib.repr(value)}.")


ORDER: tuple[Unit, ...] = ("block", "attention", "group", "head", "mlp", "expert", "neuron", "matrix")
Place = tuple[int, int, int, str]
"""Block, unit in this order, number of the head, group, expert or neuron, and name of the matrix."""


def simplified(edit: Edit) -> Edit:
    """The same change with every place named once, in order, and without what changes nothing.

    Factors on one place are multiplied. An edit with a selection of weights stays as it is: selections are made on the
    unedited weights, and their order may matter.

    Example:
        >>> str(simplified(lesion.parse("4×0.5 + 3×0 + 4×0.5 + 2×1")))
        '3×0 + 4×0.25'
    """
    single = list(parts(edit))
    if any(isinstance(part, ScaleParameters) for part in single):
        return edit
    scaled: dict[Place, list[Scale]] = {}
    others: dict[str, Single] = {}
    for part in single:
        if isinstance(part, Scale):
            scaled.setdefault(_order(part), []).append(part)
        elif not (isinstance(part, Truncate) and part.keep == 1):
            others.setdefault(str(part), part)
    together = [scaled[place] for place in sorted(scaled)]
    scales = [replace(own[0], factor=math.prod(float(part.factor) for part in own)) for own in together]
    kept: list[Single] = [scale for scale in scales if scale.factor != 1]
    kept += [others[text] for text in sorted(others)]
    return composed(kept) if kept else BASELINE


def _order(part: Scale) -> Place:
    which = part_of(part)
    named = isinstance(which, str)
    return part.layer, ORDER.index(part.unit), 0 if named else int(which or 0), str(which) if named else ""
