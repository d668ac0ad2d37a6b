"""Layers in text form: `all`, or numbers and ranges such as `0-3,7`; and places, such as `13.mlp`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from lesion.core.fields import Text
from lesion.core.options import option
from lesion.edits.edit import Scale, parts, path_of, refuse_absent
from lesion.edits.text import parse
from lesion.errors import LesionError, UsageError
from lesion.plain import short

ALL = "all"
_BLOCK = re.compile("[0-9]+")  # of an edit in text form
_PIECE = re.compile(r"^([0-9]{1,6})(?:\s*-\s*([0-9]{1,6}))?$")


def _ranges(layers: str | Sequence[int]) -> list[tuple[int, int]]:
    """The layers as ranges (first, last), sorted, without overlap, touching ones joined."""
    pieces = layers.split(",") if isinstance(layers, str) else [str(int(layer)) for layer in layers]
    ranges: list[tuple[int, int]] = []
    for piece in pieces:
        match = _PIECE.match(piece.strip())
        if match is None:
            raise UsageError(
                f"'{short(piece.strip())}' does not name layers; write all, or numbers and ranges such as 0-3,7."
            )
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise UsageError(f"The range {first}-{last} runs backwards; write {last}-{first}.")
        ranges.append((first, last))
    if not ranges:
        raise UsageError("No layers are named; write all, or numbers and ranges such as 0-3,7.")
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def canonical_layers(layers: str | Sequence[int]) -> str:
    """The one text form of a set of layers: `7,0-2,3` and `[0, 1, 2, 3, 7]` both become `0-3,7`."""
    if isinstance(layers, str) and layers.strip().lower() == ALL:
        return ALL
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in _ranges(layers))


def parse_layers(layers: str | Sequence[int], n_blocks: int, model_name: str) -> list[int]:
    """The layers that are named, in ascending order, each once."""
    text = canonical_layers(layers)
    if text == ALL:
        return list(range(n_blocks))
    ranges = _ranges(text)
    outside = next((max(first, n_blocks) for first, last in ranges if last >= n_blocks), None)
    if outside is not None:
        has = f"blocks 0 to {n_blocks - 1}" if n_blocks > 1 else "block 0 only"
        raise UsageError(f"there is no block {outside}: {model_name} has {has}.")
    return [layer for first, last in ranges for layer in range(first, last + 1)]


def layers_as_text(value: object) -> object:
    """Text or a list of whole numbers, in canonical text form; of a field of a study, whose type refuses the rest."""
    if isinstance(value, list | tuple) and all(type(layer) is int for layer in value):
        value = list(value)
    elif type(value) is int:
        value = [value]
    elif not isinstance(value, str):
        return value
    try:
        return canonical_layers(value)
    except UsageError as error:
        raise ValueError(str(error)) from None


Layers = Annotated[str, BeforeValidator(layers_as_text, json_schema_input_type=str | int | list[int])]
LAYERS = partial(
    option,
    "all",
    help="Blocks: all, or numbers and ranges such as 0-3,7.",
    must="all, text such as 0-3,7, or a list of whole numbers from 0",
)


def refuse_no_edit(edits: Sequence[str], blocks: Mapping[str, int]) -> None:
    """Refuse texts that are no edits, files that are not there and blocks that a model does not have."""
    for text in edits:
        file = path_of(text)
        if file is not None:
            refuse_absent(file)
            continue
        layers = {int(match[0]) for match in map(_BLOCK.match, map(str, parts(parse(text)))) if match}
        for name, count in blocks.items():
            parse_layers(sorted(layers) or ALL, count, name)


def removal(value: str) -> Scale:
    """The edit that removes a place: a block, a branch or an inner unit of a block, by its address."""
    try:
        edit = parse(f"{value}×0")
    except LesionError as error:
        raise ValueError(f"'{short(value)}' names no place; write 23, 23.mlp or 23.attention.head.4.") from error
    if not isinstance(edit, Scale):
        raise ValueError(f"'{short(value)}' is not one place; write 23, 23.mlp or 23.attention.head.4.")
    return edit


Place = Annotated[Text, AfterValidator(lambda value: removal(value).address)]
"""A block, branch or inner unit of a block, by its address."""
