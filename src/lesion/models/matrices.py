"""Matrices: one named weight matrix of a block, always seen as [out, in] whatever its storage."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.errors import LesionError


@dataclass(frozen=True)
class Storage:
    """Where a matrix lies inside the parameter that holds it.

    The parameter is read in this order: pick the expert (first axis of a 3-D parameter), transpose (GPT-2's Conv1D
    stores [in, out]), split the rows into `groups` equal groups (GPT-NeoX keeps q, k and v of one head together:
    one group a head), and take the rows `start` to `stop` of every group.

    Attributes:
        kind: in words, for people: `Linear`, `Conv1D`, `fused rows`, `interleaved per head` or `expert slice`.
        start, stop: rows within a group.
        groups: number of groups of rows; 1 unless interleaved.
        transposed: whether the parameter is stored [in, out].
        expert: index on the first axis, or None for a 2-D parameter.
    """

    kind: str
    start: int
    stop: int
    groups: int = 1
    transposed: bool = False
    expert: int | None = None


@dataclass(frozen=True, eq=False)
class Matrix:
    """One weight matrix.

    Attributes:
        name: its name within the branch: `q`, `up`, `expert5.up`, `shared.down`.
        address: its name within the model: `3.attention.q`, `3.mlp.expert5.up`.
        shape: (out, in).
        storage: where it lies inside its parameter.
        parameter: dotted name of the parameter that holds it, as in the network's state dict.
    """

    name: str
    address: str
    shape: tuple[int, int]
    storage: Storage
    parameter: str
    _owner: nn.Module = field(repr=False)
    _attribute: str = field(repr=False)

    @property
    def owner(self) -> Tensor:
        """The whole parameter in which the matrix lies, as it is now (a move to another device replaces it).

        Raises:
            LesionError: its values are not in memory (left on disk, or swapped out by accelerate).
        """
        tensor: Tensor = getattr(self._owner, self._attribute)
        if tensor.is_meta:
            raise LesionError(
                f"The values of {self.address} ({self.parameter}) are not in memory: the model was loaded with parts "
                "of it offloaded. Load it with a device_map that keeps every block on a device."
            )
        return tensor

    def view(self) -> Float[Tensor, "..."]:
        """The matrix sharing memory with its parameter: writing to it writes to the model.

        [out, in] wherever strides allow it; [groups, out / groups, in] where rows are interleaved per head, in the
        order of the rows of `read()`.
        """
        tensor = self.owner.detach()
        if self.storage.expert is not None:
            tensor = tensor[self.storage.expert]
        if self.storage.transposed:
            tensor = tensor.T
        if self.storage.groups == 1:
            return tensor[self.storage.start : self.storage.stop]
        return tensor.unflatten(0, (self.storage.groups, -1))[:, self.storage.start : self.storage.stop]

    def read(self) -> Float[Tensor, "out in"]:
        """A copy of the values, in the dtype and on the device of the parameter."""
        return self.view().reshape(self.shape).clone(memory_format=torch.contiguous_format)

    def write(self, values: Float[Tensor, "out in"]) -> None:
        """Overwrite the values in the model; what `read()` gave is put back bit for bit.

        Raises:
            LesionError: the shape is not that of the matrix.
        """
        if tuple(values.shape) != self.shape:
            raise LesionError(
                f"{self.address} is {self.shape[0]} × {self.shape[1]} (out × in); values of shape "
                f"{' × '.join(map(str, values.shape))} cannot be written to it."
            )
        view = self.view()
        with torch.no_grad():
            view.copy_(values.reshape(view.shape))
