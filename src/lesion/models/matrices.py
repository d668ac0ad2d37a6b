"""Matrices: one named weight matrix of a block, always seen as [out, in] whatever its storage."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.pytorch_utils import Conv1D

from lesion.errors import LesionError
from lesion.models.build import has_own_forward
from lesion.models.families import Entry
from lesion.models.quantised import FULL_PRECISION

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
        packed: whether a quantised storage holds it, which computes with it but has no numbers to read or to edit.
        called: whether a pass runs through the module; else some code takes its weight (`dt_proj` of Mamba).
    """

    name: str
    address: str
    shape: tuple[int, int]
    storage: Storage
    parameter: str
    module: nn.Module = field(repr=False)
    attribute: str = field(repr=False)
    packed: bool = False
    called: bool = True

    @property
    def device(self) -> torch.device:
        """Where the module that holds the matrix lies."""
        held = getattr(self.module, self.attribute, None)
        here = [held] if isinstance(held, Tensor) else [*self.module.parameters(), *self.module.buffers()]
        return here[0].device if here else torch.device("cpu")

    @property
    def stored_as(self) -> str:
        """The dtype of the parameter in memory; of a packed one the class of its tensor or of its module."""
        held = getattr(self.module, self.attribute, None)
        if not isinstance(held, Tensor):
            return type(self.module).__name__
        plain = type(held) in (Tensor, nn.Parameter) or held.dtype not in FLOATS
        return str(held.dtype).removeprefix("torch.") if plain else type(held).__name__

    def refuse_packed(self) -> None:
        """Refuse to read or edit the weights of a quantised storage."""
        if self.packed:
            raise LesionError(
                f"{self.address} is stored packed ({self.stored_as}), so its weights cannot be edited. Edit places "
                f"instead, such as 3×0 or 3.mlp×0.5; or {FULL_PRECISION}."
            )

    @property
    def tensor(self) -> Tensor:
        """The whole parameter in which the matrix lies, as it is now (a move may replace it)."""
        self.refuse_packed()
        tensor: Tensor = getattr(self.module, self.attribute)
        if tensor.is_meta:
            raise LesionError(
                f"The values of {self.address} ({self.parameter}) are not in memory: the model was loaded "
                "with parts of it offloaded. Load it with a device_map that keeps every block on a device."
            )
        if type(tensor) not in (Tensor, nn.Parameter) or tensor.dtype not in FLOATS:
            raise LesionError(
                f"{self.address} was quantised after the model was loaded ({self.stored_as}), so its weights cannot be"
                " edited. Quantise a copy of the network, or load the model in float32, bfloat16 or float16."
            )
        if type(self.module) in (nn.Linear, Conv1D) and has_own_forward(self.module):
            raise LesionError(
                f"The module of {self.address} has a forward of its own in place of that of its class, so its weights"
                " may not be what it computes with. Take that away first (del module.forward)."
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
        """Overwrite the values in the model; what `read()` gave is put back bit for bit."""
        if tuple(values.shape) != self.shape:
            raise LesionError(
                f"{self.address} is {self.shape[0]} × {self.shape[1]} (out × in); values of shape "
                f"{' × '.join(map(str, values.shape))} cannot be written to it."
            )
        view = self.view()
        with torch.no_grad():
            view.copy_(values.reshape(view.shape))


def packed_shape(module: nn.Module) -> tuple[int, int] | None:
    """(out, in) of a linear module with a quantised storage; None of any other module.

    Some packages put weights of a class of their own into a plain linear module, some a module of their own in its
    place, and some unpack the weights but quantise them anew in every pass (compressed-tensors).
    """
    shape = tuple(getattr(module, name, None) for name in ("out_features", "in_features"))
    if not all(isinstance(size, int) for size in shape):
        return None
    weight = getattr(module, "weight", None)
    plain = type(weight) is nn.Parameter and weight.dtype in FLOATS and tuple(weight.shape) == shape
    return None if plain and not hasattr(module, "quantization_scheme") else (int(shape[0]), int(shape[1]))  # type: ignore[arg-type]


def weights_in(module: nn.Module) -> int:
    """How many weights a module has; of a quantised storage those that it stands for."""
    count = sum(parameter.numel() for parameter in module.parameters())
    for part in module.modules():
        if (shape := packed_shape(part)) is not None:
            own = part.named_parameters(recurse=False)
            count += shape[0] * shape[1] - sum(p.numel() for name, p in own if name != "bias")
    return count


class MisfitError(Exception):
    """A block is not built as its plan says. `dissect` turns it into a note; it does not reach the person."""


def _find(block: nn.Module, path: str, quantised: bool) -> tuple[nn.Module, str, tuple[int, int] | None]:
    """The module that owns a parameter of a block, its name there, and (out, in) where its storage is packed."""
    try:
        parent, attribute = block.get_submodule(path), "weight"
    except AttributeError:
        head, _, attribute = path.rpartition(".")
        try:
            parent = block.get_submodule(head)
        except AttributeError:
            raise MisfitError(f"it has no {path}") from None
    packed = packed_shape(parent) if quantised and attribute == "weight" else None
    if packed is None and not isinstance(getattr(parent, attribute, None), nn.Parameter):
        raise MisfitError(f"it has no parameter at {path}")
    return parent, attribute, packed


def _refuse_storage(owner: nn.Module, tensor: Tensor, parameter: str) -> None:
    """Weights that are not plain numbers in [out, in] cannot be seen as matrices."""
    packed = isinstance(owner, nn.Linear) and tuple(tensor.shape) != (owner.out_features, owner.in_features)
    if packed or tensor.dtype not in FLOATS:
        raise LesionError(
            f"{parameter} is stored as {str(tensor.dtype).removeprefix('torch.')} of shape "
            f"{tuple(tensor.shape)} in a {type(owner).__name__}: a quantised or packed storage, which lesion "
            "cannot edit, and its configuration has no quantization_config. Load the model in float32, bfloat16 or "
            "float16."
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


def lay_out(
    entry: Entry, block: nn.Module, prefix: str, branch: str, config: PreTrainedConfig, quantised: bool = False
) -> list[Matrix]:
    """The matrices that lie in one parameter of a block, by an entry of its plan.

    `prefix` is the dotted name of the block in the network, `branch` the address of the branch (`3.attention`),
    `config` the text configuration (head counts and sizes), and `quantised` whether it names a quantised storage.
    """
    owner, attribute, packed = _find(block, entry.path, quantised)
    # A path may end in the parameter itself (fused experts) or in the module that holds it as its weight.
    end = entry.path if entry.path.rpartition(".")[2] == attribute else f"{entry.path}.{attribute}"
    parameter, transposed, experts = f"{prefix}.{end}", False, 0
    if packed is not None:
        rows, columns = packed
    else:
        tensor: Tensor = getattr(owner, attribute)
        _refuse_storage(owner, tensor, parameter)
        stacked = any("*" in name for name in entry.names)
        if tensor.dim() != (3 if stacked else 2):
            raise MisfitError(f"{entry.path} has {tensor.dim()} axes")
        transposed = isinstance(owner, Conv1D) or entry.transposed
        experts = len(tensor) if stacked else 0
        rows, columns = reversed(tensor.shape[-2:]) if transposed else tensor.shape[-2:]
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
    for expert in range(experts) if experts else [None]:
        start = 0
        for pattern, count in zip(entry.names, counts, strict=True):
            name = pattern.replace("*", str(expert))
            storage = Storage(kind, start, start + count, groups, transposed, expert)
            own = (groups * count, int(columns))
            where = (storage, parameter, owner, attribute, packed is not None, entry.called)
            matrices.append(Matrix(name, f"{branch}.{name}", own, *where))
            start += count
    return matrices
