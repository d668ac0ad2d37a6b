"""Anatomy: any decoder as blocks, their attention and MLP branches, and the named matrices in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn
from transformers import PreTrainedModel

from lesion.errors import UsageError, nearest
from lesion.models.matrices import Matrix


@dataclass(frozen=True, eq=False)
class Branch:
    """The attention or the MLP of a block: one of the two things the block adds to the residual stream.

    Attributes:
        name: `attention` or `mlp`.
        tail: the module whose output (the first element, where it is a tuple) is exactly what the branch adds to the
            residual stream, a norm inside the branch included. Its last axis is the stream; OPT's is [rows · length,
            hidden], all others' [rows, length, hidden].
        matrices: the weight matrices by name, in the order in which they are used.
    """

    name: str
    tail: nn.Module
    matrices: Mapping[str, Matrix]


@dataclass(frozen=True, eq=False)
class Block:
    """One decoder layer.

    Attributes:
        index: counted from 0.
        module: the module that takes hidden states [rows, length, hidden] from the residual stream (first argument)
            and gives them back (its output, or the first element of it).
        attention, mlp: the two branches; None where an unknown architecture does not show which one it is.
    """

    index: int
    module: nn.Module
    attention: Branch | None
    mlp: Branch | None

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches that there are."""
        return tuple(branch for branch in (self.attention, self.mlp) if branch is not None)

    @property
    def matrices(self) -> dict[str, Matrix]:
        """Every matrix of the block by its name within it: `attention.q`, `mlp.up`."""
        return {f"{b.name}.{name}": matrix for b in self.branches for name, matrix in b.matrices.items()}


@dataclass(frozen=True, eq=False)
class Anatomy:
    """A decoder taken apart.

    Attributes:
        name: the model's name, for messages.
        family: the entry of families.toml, or the architecture's own name where it is unknown.
        known: False when the anatomy was found by structure alone, not by the table.
        blocks: the decoder layers in order.
        uncovered: (parameter name, reason) for every parameter in which no matrix lies, tied names once.
        tied: groups of parameter names that share one tensor.
        notes: sentences on what an edit of this model cannot or does not do.
    """

    name: str
    family: str
    known: bool
    blocks: tuple[Block, ...]
    uncovered: tuple[tuple[str, str], ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    _matrices: dict[str, Matrix] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for block in self.blocks:
            self._matrices.update({matrix.address: matrix for matrix in block.matrices.values()})

    @property
    def matrices(self) -> Mapping[str, Matrix]:
        """Every matrix by address, block after block."""
        return self._matrices

    def block(self, index: int) -> Block:
        """The block with this index.

        Raises:
            UsageError: there is none.
        """
        if not 0 <= index < len(self.blocks):
            raise UsageError(f"there is no block {index}: {self.name} has blocks 0 to {len(self.blocks) - 1}.")
        return self.blocks[index]

    def matrix(self, address: str) -> Matrix:
        """The matrix at an address such as `3.mlp.up`.

        Raises:
            UsageError: there is none; the message names the nearest ones.
        """
        if (found := self._matrices.get(address)) is not None:
            return found
        first, _, _ = address.partition(".")
        if first.isdecimal():
            block = self.block(int(first))
            known = [matrix.address for matrix in block.matrices.values()]
            close = nearest(address, known) or (f" (block {first} has {', '.join(known[:12])})" if known else "")
        else:
            close = nearest(address, self._matrices)
        raise UsageError(f"there is no matrix '{address}' in {self.name}{close}.")


def dissect(network: PreTrainedModel, name: str) -> Anatomy:
    """The anatomy of a network."""
    raise NotImplementedError
