"""Matrices written into a worker of vLLM: each its own slice of a fused and split storage, and put back exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from lesion.engines.vllm.hooks import Layer, renamed
from lesion.errors import LesionError

HEAD = -1
# Parameters of a checkpoint that vLLM keeps as one: its name, and its word for the part.
FUSED: dict[str, tuple[str, str | int]] = {
    "q_proj": ("qkv_proj", "q"),
    "k_proj": ("qkv_proj", "k"),
    "v_proj": ("qkv_proj", "v"),
    "gate_proj": ("gate_up_proj", 0),
    "up_proj": ("gate_up_proj", 1),
}
# Random inputs by which a repacked matrix is tried, and how far what it gives may be off, in roundings.
TRIALS, ROUNDINGS = 4, 64.0


class Slices:
    """The linear modules of a worker's model, by the block and path that a matrix has in the checkpoint.

    On a CPU vLLM packs a weight for its kernels and throws the plain one away (its shape is [0]) or keeps it unused.
    Such a module gets a new weight and is packed anew, from all parameters that are fused in it; what it had is laid
    aside and put back as it is.
    """

    def __init__(self, model: nn.Module, layers: Sequence[Layer], name: str) -> None:
        self.model = model
        self.layers = layers
        self.name = name
        self._back: list[Callable[[], None]] = []

    def wanted(self, places: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """The parameters, [block (−1: the head), path], that must be written together with these, and these."""
        together: dict[tuple[int, str], None] = {}
        for block, path in places:
            module, part = self._module(block, path)
            stem, _, last = path.rpartition(".")
            if part is None or not _packed(module):
                together[block, path] = None
                continue
            for other, (fused, _) in FUSED.items():
                if fused == FUSED[last][0]:
                    together[block, f"{stem}.{other}" if stem else other] = None
        return [list(place) for place in together]

    def write(self, file: str) -> list[int]:
        """Write every matrix of a safetensors file, whose names are `BLOCK:PATH`; [out, in], whole.

        Gives how many entries of this worker's plain weights changed, and how many weights were packed; a packed matrix
        is tried instead: it must give what the plain one gives.
        """
        if self._back:
            raise LesionError("Weights are edited already; they must be restored before the next edit.")
        by_module: dict[nn.Module, list[tuple[str | int | None, str]]] = {}
        changed = packed = 0
        with safe_open(file, framework="pt") as tensors, torch.inference_mode():
            for key in tensors.keys():  # noqa: SIM118, it is no dict
                block, path = key.split(":", 1)
                module, part = self._module(int(block), path)
                by_module.setdefault(module, []).append((part, key))
            for module, parts in by_module.items():
                matrices = [(part, tensors.get_tensor(key)) for part, key in parts]
                if _packed(module):
                    self._repack(module, matrices)
                    packed += 1
                else:
                    changed += self._overwrite(module, matrices)
        return [changed, packed]

    def restore(self) -> None:
        """Put everything back that `write` has changed."""
        with torch.inference_mode():
            while self._back:
                self._back.pop()()

    def _module(self, block: int, path: str) -> tuple[nn.Module, str | int | None]:
        """The module that holds a parameter, and which part of it this is; None for all of it."""
        if block == HEAD:
            heads = [m for name, m in self.model.named_modules() if name.rpartition(".")[2] == "lm_head"]
            if len(heads) == 1 and hasattr(heads[0], "weight"):
                return heads[0], None
            raise LesionError(f"vLLM keeps the output head of {self.name} in a way that is not known here.")
        layer = self.layers[block].module
        stem, _, last = (path := renamed(layer, path)).rpartition(".")
        known = {name: module for name, module in layer.named_modules() if hasattr(module, "weight")}
        if path in known:
            return known[path], None
        if last in FUSED:
            fused, part = FUSED[last]
            whole = f"{stem}.{fused}" if stem else fused
            if whole in known:
                return known[whole], part
        raise LesionError(
            f"vLLM keeps {path} of block {block} of {self.name} in a way that is not known here, so it cannot be"
            f" edited; use --engine transformers."
        )

    def _overwrite(self, module: nn.Module, matrices: Sequence[tuple[str | int | None, Tensor]]) -> int:
        weight: Any = module.weight
        kept = weight.data.clone()
        self._back.append(lambda: weight.data.copy_(kept))
        _load(weight, matrices)
        return int((weight.data != kept).sum())

    def _repack(self, module: nn.Module, matrices: Sequence[tuple[str | int | None, Tensor]]) -> None:
        had: dict[str, object] = {"weight": module.weight, "cpu_linear": module.cpu_linear}

        def put_back() -> None:
            for key, value in had.items():
                setattr(module, key, value)

        self._back.append(put_back)
        weight = _empty_like_new(module)
        _load(weight, matrices)
        plain = weight.data.clone()
        method: Any = module.quant_method
        method.process_weights_after_loading(module)
        _try(module, plain, self.name)


def _packed(module: nn.Module) -> bool:
    """Whether the module computes by something made of its weight when that was loaded."""
    return hasattr(module, "cpu_linear")


def _empty_like_new(module: nn.Module) -> Any:
    """Give a module whose weight was thrown away or is not used a weight as it had before it was loaded."""
    layer: Any = module
    if not hasattr(layer, "output_partition_sizes") and not hasattr(layer, "input_size_per_partition"):
        # The head: it keeps its plain weight.
        fresh = torch.nn.Parameter(torch.empty_like(layer.weight), requires_grad=False)
        for key, value in vars(layer.weight).items():
            setattr(fresh, key, value)
        layer.weight = fresh
        return fresh
    sizes = getattr(layer, "output_partition_sizes", None) or [layer.output_size]
    layer.quant_method.create_weights(
        layer=layer,
        input_size_per_partition=getattr(layer, "input_size_per_partition", layer.input_size),
        output_partition_sizes=sizes,
        input_size=layer.input_size,
        output_size=layer.output_size,
        params_dtype=layer.params_dtype,
        weight_loader=layer.weight_loader_v2 if hasattr(layer, "weight_loader_v2") else layer.weight_loader,
    )
    layer.update_param_tp_status()
    layer.weight.requires_grad_(False)
    return layer.weight


def _load(weight: Any, matrices: Sequence[tuple[str | int | None, Tensor]]) -> None:
    for part, matrix in matrices:
        if part is None:
            weight.weight_loader(weight, matrix)
        else:
            weight.weight_loader(weight, matrix, part)


def _try(module: nn.Module, plain: Tensor, name: str) -> None:
    states = torch.randn(TRIALS, plain.shape[1], generator=torch.Generator().manual_seed(0)).to(plain.dtype)
    linear: Any = module.cpu_linear
    got = linear(states, module.weight, None).double()
    expected = states.double() @ plain.double().T
    scale = states.double().abs() @ plain.double().abs().T
    if bool(((got - expected).abs() > ROUNDINGS * torch.finfo(plain.dtype).eps * scale + 1e-30).any()):
        raise LesionError(f"vLLM's packed weights of {name} do not give what was written; use --engine transformers.")
