"""Edits of units of which a block has several: heads, key-value groups, neurons, experts and matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lesion.arguments import shown, validated
from lesion.edits.edit import SCALES, Edit, Scale, parts
from lesion.edits.place import InnerUnit, Part, Unit
from lesion.edits.replace import Replace
from lesion.errors import UsageError

if TYPE_CHECKING:  # an edit of units need not wait for torch
    from lesion.models.anatomy import Anatomy
    from lesion.models.units import Site

MOST = 10**9
NUMBERED = re.compile(
    r"(?P<layer>[0-9]{1,9})\.(?:attention\.(?P<inner>head|group)|mlp\.(?P<outer>neuron|expert))\.(?P<number>[0-9]{1,9})"
)
MATRIX_NAME = re.compile(r"(?:attention|mlp)(?:\.[A-Za-z0-9_-]+)+")
# What is nearly the address of a numbered unit is not taken for that of a matrix.
_NEARLY = re.compile(r"(?:attention|mlp)\.(?:heads?|groups?|neurons?|experts?)(?:\.[0-9]+)?")


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
    unit: ClassVar[InnerUnit] = "head"

    def __init__(self, layer: int, head: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "head", _counted(head, "head"))


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
    unit: ClassVar[InnerUnit] = "group"

    def __init__(self, layer: int, group: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "group", _counted(group, "group"))


@validated
@dataclass(frozen=True, init=False)
class ScaleNeuron(Scale):
    """Multiply what one neuron of an MLP writes to the residual stream, at the input of the MLP's last matrix.

    An MLP adds Σ_j a_j w_j + b, where a_j is the activation of neuron j (of a gated MLP act(gate_j) · up_j) and w_j its
    column of the last matrix (Geva et al. 2021, section 2): a_j is multiplied, and the bias b stays.

    Args:
        layer: index of the block, from 0.
        neuron: number of the neuron, from 0.
        factor: any finite number.

    Raises:
        UsageError: layer or neuron is no whole number from 0, or the factor is no finite number.
    """

    neuron: int = 0
    unit: ClassVar[InnerUnit] = "neuron"

    def __init__(self, layer: int, neuron: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "neuron", _counted(neuron, "neuron"))


@validated
@dataclass(frozen=True, init=False)
class ScaleExpert(Scale):
    """Multiply what one expert of a mixture adds to its block: its routing weight, wherever the router chose it.

    The router chooses as before: the weights of the other experts are not normalised anew, and no other expert takes
    the place of a removed one. The mixture adds Σ_e p_e expert_e(x) over the chosen experts e; p_e is multiplied.

    Args:
        layer: index of the block, from 0.
        expert: number of the expert, from 0.
        factor: any finite number.

    Raises:
        UsageError: layer or expert is no whole number from 0, or the factor is no finite number.
    """

    expert: int = 0
    unit: ClassVar[InnerUnit] = "expert"

    def __init__(self, layer: int, expert: int, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        object.__setattr__(self, "expert", _counted(expert, "expert"))


@validated
@dataclass(frozen=True, init=False)
class ScaleMatrix(Scale):
    """Multiply one weight matrix, f · W x + b; its bias stays.

    Rows of a batch may scale a plain matrix, or a part of a fused one, each by its own factor. Matrices of experts and
    routers are multiplied in the weights.

    Args:
        layer: index of the block, from 0.
        matrix: its name within the block: `mlp.up`, `attention.q`.
        factor: any finite number.

    Raises:
        UsageError: the layer is no whole number from 0, the name is not one of a matrix, or the factor is no finite
            number.
    """

    matrix: str = ""
    unit: ClassVar[InnerUnit] = "matrix"

    def __init__(self, layer: int, matrix: str, factor: float | int = 0.0) -> None:
        super().__init__(layer, factor)
        if not is_matrix_name(matrix):
            raise UsageError(f"{shown(matrix)} is not the name of a matrix in a block; write BRANCH.NAME, as mlp.up.")
        object.__setattr__(self, "matrix", matrix)


def is_matrix_name(name: str) -> bool:
    """Whether text can name a matrix within a block; what is nearly a numbered unit (`mlp.expert`) cannot."""
    return MATRIX_NAME.fullmatch(name) is not None and _NEARLY.fullmatch(name) is None


NumberedEdit = ScaleHead | ScaleGroup | ScaleNeuron | ScaleExpert
UnitEdit = NumberedEdit | ScaleMatrix
NUMBERED_EDITS: dict[Unit, type[NumberedEdit]] = {
    "head": ScaleHead,
    "group": ScaleGroup,
    "neuron": ScaleNeuron,
    "expert": ScaleExpert,
}
_NOUNS = {"head": "query heads", "group": "key-value groups", "neuron": "neurons", "expert": "experts"}


def scaling(unit: Unit, layer: int, factor: float, part: Part | None = None) -> Scale:
    """The edit of a unit of a block; `part` says which one of several."""
    if unit == "matrix":
        return ScaleMatrix(layer, str(part), factor)
    if unit in NUMBERED_EDITS:
        return NUMBERED_EDITS[unit](layer, int(part or 0), factor)
    return SCALES[unit](layer, factor)


def part_of(edit: object) -> Part | None:
    """Which unit of its block an edit multiplies or replaces; None of a block or branch."""
    if isinstance(edit, Replace):
        return edit.head
    if not isinstance(edit, UnitEdit):
        return None
    part: Part = getattr(edit, edit.unit)
    return part


def scale_at(address: str, factor: float) -> UnitEdit | None:
    """The edit of a unit with this address; None where it is not one of a unit of which a block has several."""
    if (match := NUMBERED.fullmatch(address)) is not None:
        return NUMBERED_EDITS[match["inner"] or match["outer"]](int(match["layer"]), int(match["number"]), factor)  # type: ignore[index]
    layer, _, name = address.partition(".")
    if layer.isdecimal() and layer.isascii() and len(layer) < 10 and is_matrix_name(name):
        return ScaleMatrix(int(layer), name, factor)
    return None


def _counted(number: int, what: str) -> int:
    if not 0 <= number < MOST:
        raise UsageError(f"{'An' if what == 'expert' else 'A'} {what} is counted from 0; {shown(number)} is not one.")
    return number


def of_units(edit: Edit) -> tuple[UnitEdit | Replace, ...]:
    """What of an edit multiplies units of which a block has several, or replaces heads."""
    return tuple(
        part
        for part in parts(edit)
        if isinstance(part, UnitEdit) or (isinstance(part, Replace) and part.head is not None)
    )


def site_of(part: UnitEdit | Replace, anatomy: Anatomy) -> tuple[Site, Sequence[int]]:
    """Where an edit multiplies units or replaces a head, and which numbers of it: of a group several heads."""
    if isinstance(part, ScaleMatrix):
        from lesion.models.units import site_of_matrix  # needs torch, as whoever has an anatomy does

        return site_of_matrix(anatomy.matrix(part.address)), (0,)
    if isinstance(part, ScaleGroup):
        heads = anatomy.heads(part.layer)
        _refuse_absent(part, heads.groups, anatomy)
        return heads, heads.of_group(part.group)
    if isinstance(part, ScaleHead | Replace):
        site: Site = anatomy.heads(part.layer)
    else:
        site = anatomy.neurons(part.layer) if isinstance(part, ScaleNeuron) else anatomy.experts(part.layer)
    _refuse_absent(part, site.count, anatomy)
    number: int = getattr(part, part.unit)
    return site, (number,)


def how_many(unit: Unit, layer: int, anatomy: Anatomy) -> int:
    """How many heads, groups, neurons or experts a block has."""
    if unit in ("head", "group"):
        heads = anatomy.heads(layer)
        return heads.groups if unit == "group" else heads.count
    return (anatomy.neurons(layer) if unit == "neuron" else anatomy.experts(layer)).count


def _refuse_absent(part: NumberedEdit | Replace, there: int, anatomy: Anatomy) -> None:
    if getattr(part, part.unit) >= there:
        nearest = f"{part.address.rpartition('.')[0]}.{there - 1}{str(part).removeprefix(part.address)}"
        raise UsageError(
            f"There is no {part.address}: block {part.layer} of {anatomy.name} has {there} {_NOUNS[part.unit]}, 0 to"
            f" {there - 1}; write {nearest}, for example."
        )
