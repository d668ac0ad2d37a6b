"""Edits of weights on vLLM: made on the network that lies here, and handed to the workers as whole matrices."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.edits.edit import Compose, Edit, ScaleParameters, Truncate
from lesion.edits.table import tabulate, with_scaled_weights
from lesion.edits.weights import written
from lesion.engines.vllm.slices import HEAD
from lesion.errors import LesionError, UsageError
from lesion.models import anatomy
from lesion.models.anatomy import Block
from lesion.models.load import Model
from lesion.models.matrices import Matrix

if TYPE_CHECKING:
    from lesion.engines.vllm.engine import VllmEngine

Place = tuple[int, str]


@contextmanager
def edited_on(
    engine: VllmEngine, weights: Sequence[ScaleParameters], truncations: Sequence[Truncate]
) -> Iterator[None]:
    """The workers' weights edited inside the `with`, and put back exactly, whatever happens in it.

    The network that lies here is edited too meanwhile: it is where edited matrices are computed.
    """
    model = engine.model
    places = list(dict.fromkeys(place_of(model, matrix) for matrix in touched(model, weights, truncations)))
    with written(model, weights, truncations):
        if not places:
            yield
            return
        wanted = [(int(block), str(path)) for block, path in engine.calls("slices.wanted", list(map(list, places)))[0]]
        tensors = {f"{block}:{path}": _whole(model, block, path) for block, path in wanted}
        room = _in_memory(sum(tensor.nbytes for tensor in tensors.values()))
        with tempfile.TemporaryDirectory(prefix="lesion-", dir=room) as folder:
            file = Path(folder) / "matrices.safetensors"
            save_file(tensors, file)
            del tensors
            try:
                results = engine.calls("slices.write", str(file))
                file.unlink()
                if not any(changed or packed for changed, packed in results):
                    raise LesionError(
                        f"The weights that vLLM has of {model.name} did not change when edited ones were written; use"
                        f" --engine transformers."
                    )
                yield
            finally:
                if not engine.closed:
                    engine.calls("slices.restore")


def without_matrices(edit: Edit, model: Model) -> Edit:
    """The same edit, with scaled matrices as multiplied weights."""
    return with_scaled_weights(edit, model.anatomy, lambda _: False)


def touched(model: Model, weights: Sequence[ScaleParameters], truncations: Sequence[Truncate]) -> list[Matrix]:
    """The matrices that edits of weights change."""
    kept = tabulate([Compose(tuple(truncations))], model.anatomy).kept
    return [
        matrix
        for address, matrix in model.anatomy.scored.items()
        if any(edit.selection.touches(address) for edit in weights)
        or (address in kept and kept[address][0].tolist() != [0, min(matrix.shape)])
    ]


def place_of(model: Model, matrix: Matrix) -> Place:
    """The block of a matrix, and the path within the block of the module that holds it; refuses those of experts."""
    layer = model.anatomy.layer_of(matrix.address)
    if matrix.address == anatomy.HEAD:
        return HEAD, ""
    if matrix.storage.expert is None and matrix.attribute == "weight":
        return layer, _path(model.anatomy.block(layer), matrix.module)
    raise UsageError(
        f"{matrix.address} of {model.name} is one of many in {matrix.parameter}, which vLLM keeps in another way; edit"
        f" its weights with --engine transformers."
    )


def tails_of(model: Model) -> list[dict[str, str]]:
    """Of every block, the paths within it of the modules that end attention and MLP; of a branch with several, none."""
    return [
        {branch.name: _path(block, branch.tail) for branch in block.branches if not branch.beside}
        for block in model.anatomy.blocks
    ]


def _path(block: Block, wanted: nn.Module) -> str:
    return next(path for path, module in block.module.named_modules() if module is wanted)


def _whole(model: Model, block: int, path: str) -> Float[Tensor, "out in"]:
    module = (
        model.network.get_output_embeddings()
        if block == HEAD
        else model.anatomy.block(block).module.get_submodule(path)
    )
    weight: Any = module.weight
    return (weight.T if isinstance(module, Conv1D) else weight).detach().cpu().contiguous().clone()


def _in_memory(size: int) -> str | None:
    """Where a file costs no disk, on systems that have such a place with room for so many bytes."""
    place = "/dev/shm"
    return place if os.access(place, os.W_OK) and shutil.disk_usage(place).free > 2 * size else None
