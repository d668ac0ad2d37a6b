"""Units of which a block has several: heads, neurons and experts; how many there are, and where they are multiplied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import nn

from lesion.models.matrices import Matrix

if TYPE_CHECKING:  # its library takes seconds to load
    from transformers import PreTrainedConfig

OUTPUT = "o"
"""The matrix of an attention that reads its query heads side by side, by the convention of families.toml."""
ENDS = ("down", "out")
"""The matrix that ends an MLP, by the same convention: it reads one neuron with each of its columns."""
WHOLE = ("Linear", "Conv1D", "expert slice")
"""Storages in which all that the module gives, or an expert of it, is of one matrix."""


@dataclass(frozen=True)
class InMatrix:
    """A site at one matrix."""

    matrix: Matrix

    @property
    def layer(self) -> int:
        """The block in which it lies."""
        return _layer(self.matrix)

    @property
    def address(self) -> str:
        """The matrix."""
        return self.matrix.address


@dataclass(frozen=True)
class Slices(InMatrix):
    """Equal slices of the input of one matrix; slice n is read by its columns n · size to (n + 1) · size.

    A head is such a slice, a neuron one of size 1, and the whole input is a single one.

    Attributes:
        matrix: whose module is given all slices side by side: [..., count · size].
    """

    count: int
    size: int


@dataclass(frozen=True)
class Heads(Slices):
    """The query heads of one attention, at the input of its output matrix; `size` is that of the values.

    Attributes:
        groups: key-value heads; query heads g · count / groups to (g + 1) · count / groups read key-value head g.
    """

    groups: int

    @classmethod
    def of(cls, matrix: Matrix, count: int, groups: int) -> Heads:
        """So many heads in so many groups, side by side in the input of a matrix."""
        return cls(matrix, count, matrix.shape[1] // count, groups)

    def of_group(self, group: int) -> range:
        """The query heads that read one key-value head."""
        share = self.count // self.groups
        return range(group * share, (group + 1) * share)


@dataclass(frozen=True)
class OutputPart(InMatrix):
    """What one matrix gives, of a module that holds several of them (fused q, k and v, or gate and up)."""

    count: ClassVar[int] = 1


@dataclass(frozen=True)
class Experts:
    """The experts of one MLP that a router chooses among; a shared expert, which every token goes through, is none.

    Attributes:
        outputs: the last matrix of each expert.
        side_by_side: whether each is given all tokens, one expert after the other, times the router's weights.
    """

    outputs: tuple[Matrix, ...]
    side_by_side: bool = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.outputs)

    @property
    def module(self) -> nn.Module:
        """The module of all experts: given hidden states [tokens, width], the numbers of the experts that the router
        chose [tokens, chosen] and their weights [tokens, chosen]; or, side by side, [experts · tokens, width].
        """
        return self.outputs[0].module

    @property
    def layer(self) -> int:
        """The block in which they lie."""
        return _layer(self.outputs[0])

    @property
    def address(self) -> str:
        """The MLP."""
        return f"{self.layer}.mlp"


Site = Slices | OutputPart | Experts
"""Where units are multiplied: `count` numbers a row."""


def _layer(matrix: Matrix) -> int:
    return int(matrix.address.partition(".")[0])


def heads_of(matrices: Mapping[str, Matrix], config: PreTrainedConfig) -> Heads | None:
    """The heads of an attention with these matrices, of a family in the table; None where they do not come out even."""
    matrix, query, key = (matrices.get(name) for name in (OUTPUT, "q", "k"))
    count = getattr(config, "num_attention_heads", None)
    if matrix is None or query is None or key is None or not isinstance(count, int) or count < 1:
        return None
    # Not what the configuration says: an architecture without groups may have a number of them there.
    groups, rest = divmod(count * key.shape[0], query.shape[0])
    even = matrix.shape[1] % count == 0 and rest == 0 and groups > 0 and count % groups == 0
    return Heads.of(matrix, count, groups) if even else None


def neurons_of(matrices: Mapping[str, Matrix]) -> Slices | None:
    """The neurons of an MLP with these matrices, of a family in the table; None where it has experts."""
    matrix = next((matrices[name] for name in ENDS if name in matrices), None)
    return None if matrix is None else Slices(matrix, matrix.shape[1], 1)


def experts_of(matrices: Mapping[str, Matrix], side_by_side: bool = False) -> Experts | None:
    """The experts of an MLP with these matrices; None where none lie in one parameter, as the table says of them."""
    last = {matrix.storage.expert: matrix for matrix in matrices.values() if matrix.storage.expert is not None}
    return Experts(tuple(last[number] for number in sorted(last)), side_by_side) if last else None


def site_of_matrix(matrix: Matrix) -> Slices | OutputPart:
    """Where a whole matrix is multiplied: at its input; of several in one module at its part of the output."""
    return Slices(matrix, 1, matrix.shape[1]) if matrix.storage.kind in WHOLE else OutputPart(matrix)
