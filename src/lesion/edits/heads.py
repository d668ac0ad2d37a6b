"""Edits of attention heads: factors on what a query head, or a key-value group of them, writes to the stream."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lesion.arguments import shown, validated
from lesion.edits.edit import SCALES, Edit, HeadUnit, Scale, Unit, parts
from lesion.errors import UsageError

if TYPE_CHECKING:  # an edit of heads need not wait for torch
    from lesion.models.anatomy import Anatomy

MOST_HEADS = 10**9
ADDRESS = re.compile(r"(?P<layer>[0-9]{1,9})\.attention\.(?P<unit>head|group)\.(?P<number>[0-9]{1,9})")


@validated
@dataclass(frozen=True, init=False)
class ScaleHead(Scale):
    """Multiply what one query head writes to the residual stream, at the input of the attention's output matrix.

    Attention adds W_O [head_0; head_1; …] + b: a head is multiplied before W_O mixes it with the others (Michel et al.
    2019, section 2.3), so the bias b stays. Factor 0 removes the head. A norm behind W_O (Gemma, OLMo 2) norms what the
    other heads give.

    Args:
        layer: index of the block, from 0.
        head: number of the query head, from 0.
        factor: any finite number.

    Raises:
        UsageError: layer or head is no whole number from 0, or the factor is no finite number.
    """

    head: int = 0
    unit: ClassVar[HeadUnit] = "head"

    def __init__(self, layer: int, head: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "head", _counted(head, "head"))

    @property
    def address(self) -> str:
        """The head in text form: `23.attention.head.4`."""
        return f"{self.layer}.attention.head.{self.head}"


@validated
@dataclass(frozen=True, init=False)
class ScaleGroup(Scale):
    """Multiply what the query heads of one key-value group write to the residual stream, each as `ScaleHead` does.

    Args:
        layer: index of the block, from 0.
        group: number of the key-value head that these query heads read, from 0.
        factor: any finite number.

    Raises:
        UsageError: layer or group is no whole number from 0, or the factor is no finite number.
    """

    group: int = 0
    unit: ClassVar[HeadUnit] = "group"

    def __init__(self, layer: int, group: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "group", _counted(group, "group"))

    @property
    def address(self) -> str:
        """The group in text form: `23.attention.group.1`."""
        return f"{self.layer}.attention.group.{self.group}"


HeadEdit = ScaleHead | ScaleGroup
HEAD_EDITS: dict[HeadUnit, type[HeadEdit]] = {"head": ScaleHead, "group": ScaleGroup}


def scaling(unit: Unit, layer: int, factor: float, number: int | None = None) -> Scale:
    """The edit of a unit of a block; `number` is that of the head or group."""
    if unit in ("head", "group"):
        return HEAD_EDITS[unit](layer, number or 0, factor)
    return SCALES[unit](layer, factor)


def number_of(edit: object) -> int | None:
    """The number of the head or group that an edit multiplies; None of a block or branch."""
    return edit.head if isinstance(edit, ScaleHead) else edit.group if isinstance(edit, ScaleGroup) else None


def _counted(number: int, what: str) -> int:
    if not 0 <= number < MOST_HEADS:
        raise UsageError(f"A {what} is counted from 0; {shown(number)} is not one.")
    return number


def of_heads(edit: Edit) -> tuple[HeadEdit, ...]:
    """What of an edit multiplies heads."""
    return tuple(part for part in parts(edit) if isinstance(part, HeadEdit))


def query_heads(part: HeadEdit, anatomy: Anatomy) -> Sequence[int]:
    """The query heads that an edit multiplies.

    Raises:
        UsageError: the model has no such block, head or group, or its heads are not known.
    """
    heads = anatomy.heads(part.layer)
    number, there = (part.head, heads.count) if isinstance(part, ScaleHead) else (part.group, heads.groups)
    if number >= there:
        what = "query heads" if isinstance(part, ScaleHead) else "key-value groups"
        nearest = type(part)(part.layer, there - 1, part.factor)
        raise UsageError(
            f"There is no {part.address}: block {part.layer} of {anatomy.name} has {there} {what}, 0 to {there - 1};"
            f" write {nearest}, for example."
        )
    return (part.head,) if isinstance(part, ScaleHead) else heads.of_group(part.group)
