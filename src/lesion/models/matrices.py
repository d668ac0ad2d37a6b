"""Matrices: one named weight matrix of a block, always seen as [out, in] whatever its storage."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from lesion.errors import LesionError
from lesion.models.families import Entry

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Storage:
    """Where a matrix lies inside the parameter that holds it.

    The parameter is read in this order: pick the expert (first axis of a 3-D parameter), transpose (GPT-2's Conv1D
    stores [in, out]), split the rows into `groups` equal groups (GPT-NeoX keeps q, k and v of one head together: one
    group a head), and take the rows `start` to `stop` of every group.

    `kind` is in words: `Linear`, `Conv1D`, `fused rows`, `fused columns`, `interleaved per head` or `expert slice`.
    """

    kind: str
    start: int
    stop: int
    groups: int = 1
    transposed: bool = False
    expert: int | None = None

    def view(self, tensor: Float[Tensor, "*stored"]) -> Float[Tensor, "*shape"]:
        """The matrix inside a parameter, sharing its memory: [out, in], or [groups, out / groups, in]."""
        if self.expert is not None:
            tensor = tensor[self.expert]
        if self.transposed:
            tensor = tensor.T
        if self.groups == 1:
            return tensor[self.start : self.stop]
        return tensor.unflatten(0, (self.groups, -1))[:, self.start : self.stop]


@dataclass(frozen=True, eq=False)
class Matrix:
    """One weight matrix.

    Attributes:
        name: its name within the branch: `q`, `up`, `expert5.up`, `shared.down`.
        address: its name within the model: `3.attention.q`, `3.mlp.expert5.up`.
        shape: (out, in).
        storage, parameter: where it lies, inside which parameter of the network's state dict.
        module, attribute: the module that owns this parameter, and its name there.
    """

    name: str
    address: str
    shape: tuple[int, int]
    storage: Storage
    parameter: str
    module: nn.Module = field(repr=False)
    attribute: str = field(repr=False)

    @property
    def tensor(self) -> Tensor:
        """The whole parameter in which the matrix lies, as it is now (a move may replace it).

        Raises:
            LesionError: its values are not in memory (left on disk, or swapped out by accelerate).
        """
        tensor: Tensor = getattr(self.module, self.attribute)
        if tensor.is_meta:
            raise LesionError(
                f"The values of {self.address} ({self.parameter}) are not in memory: the model was loaded "
                "with parts of it offloaded. Load it with a device_map that keeps every block on a device."
            )
        return tensor

    @property
    def bias(self) -> str | None:
        """The name in `module` of the bias that is added to what the matrix gives; None where there is none."""
        name = "bias" if self.attribute == "weight" else f"{self.attribute}_bias"  # the latter of stacked experts
        return name if isinstance(getattr(self.module, name, None), nn.Parameter) else None

    def view(self) -> Float[Tensor, "*shape"]:
        """The matrix sharing memory with its parameter; [groups, out / groups, in] if rows are interleaved per head."""
        return self.storage.view(self.tensor.detach())

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


class MisfitError(Exception):
    """A block is not built as its plan says. `dissect` turns it into a note; it does not reach the person."""


def _find(block: nn.Module, path: str) -> tuple[nn.Module, str]:
    """The module that holds the parameter at a path, and the parameter's name in it."""
    try:
        parent, attribute = block.get_submodule(path), "weight"
    except AttributeError:
        head, _, attribute = path.rpartition(".")
        try:
            parent = block.get_submodule(head)
        except AttributeError:
            raise MisfitError(f"it has no {path}") from None
    if not isinstance(getattr(parent, attribute, None), nn.Parameter):
        raise MisfitError(f"it has no parameter at {path}")
    return parent, attribute


def _refuse_storage(owner: nn.Module, tensor: Tensor, parameter: str) -> None:
    """Weights that are not plain numbers in [out, in] cannot be seen as matrices."""
    packed = isinstance(owner, nn.Linear) and tuple(tensor.shape) != (owner.out_features, owner.in_features)
    if packed or tensor.dtype not in FLOATS:
        raise LesionError(
            f"{parameter} is stored as {str(tensor.dtype).removeprefix('torch.')} of shape "
            f"{tuple(tensor.shape)} in a {type(owner).__name__}: a quantised or packed storage, which lesion "
            "cannot edit. Load the model in float32, bfloat16 or float16."
        )


def _row_counts(entry: Entry, rows: int, config: PreTrainedConfig) -> list[int]:
    """How many rows of a group belong to each matrix of an entry."""
    if set(entry.names) == {"q", "k", "v"}:
        # A head size of its own need not be hidden_size / heads; grouped queries have fewer rows of k and v.
        heads = int(config.num_attention_heads)
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        pairs = getattr(config, "num_key_value_heads", None) or heads
        counts = {"q": heads * size, "k": pairs * size, "v": pairs * size}
        if entry.layout == "head":
            counts = dict.fromkeys("qkv", size)
        sizes = [counts[name] for name in entry.names]
    else:
        sizes = [rows // len(entry.names)] * len(entry.names)
    if sum(sizes) != rows:
        raise MisfitError(f"{entry.path} has {rows} rows, its parts {' + '.join(entry.names)} need {sum(sizes)}")
    return sizes


def lay_out(entry: Entry, block: nn.Module, prefix: str, branch: str, config: PreTrainedConfig) -> list[Matrix]:
    """The matrices that lie in one parameter of a block, by an entry of its plan.

    `prefix` is the dotted name of the block in the network, `branch` the address of the branch (`3.attention`), and
    `config` the text configuration (head counts and sizes).

    Raises:
        MisfitError: the parameter is not there or has another shape than the plan implies.
        LesionError: the weights are quantised or packed.
    """
    owner, attribute = _find(block, entry.path)
    tensor: Tensor = getattr(owner, attribute)
    # A path may end in the parameter itself (fused experts) or in the module that holds it as its weight.
    end = entry.path if entry.path.rpartition(".")[2] == attribute else f"{entry.path}.{attribute}"
    parameter = f"{prefix}.{end}"
    _refuse_storage(owner, tensor, parameter)
    experts = any("*" in name for name in entry.names)
    if tensor.dim() != (3 if experts else 2):
        raise MisfitError(f"{entry.path} has {tensor.dim()} axes")
    transposed = isinstance(owner, Conv1D)
    rows, columns = tensor.shape[-2:] if not transposed else (tensor.shape[1], tensor.shape[0])
    groups = int(config.num_attention_heads) if entry.layout == "head" else 1
    if rows % groups:
        raise MisfitError(f"{entry.path} has {rows} rows, which {groups} heads do not divide")
    counts = _row_counts(entry, rows // groups, config)
    if experts:
        kind = "expert slice"
    elif entry.layout == "head":
        kind = "interleaved per head"
    elif len(entry.names) > 1:
        kind = "fused columns" if transposed else "fused rows"
    else:
        kind = "Conv1D" if transposed else "Linear"
    matrices = []
    for expert in range(tensor.shape[0]) if experts else [None]:
        start = 0
        for pattern, count in zip(entry.names, counts, strict=True):
            name = pattern.replace("*", str(expert))
            storage = Storage(kind, start, start + count, groups, transposed, expert)
            shape = (groups * count, int(columns))
            matrices.append(Matrix(name, f"{branch}.{name}", shape, storage, parameter, owner, attribute))
            start += count
    return matrices
