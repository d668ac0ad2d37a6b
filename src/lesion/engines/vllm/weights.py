"""Edits of weights on vLLM: made on the network that lies here, and handed to the workers as whole matrices.

The effect guard: before a sweep counts, an edit must be shown to change answers, and to leave nothing behind. An engine
that keeps running between edits can fool in two ways: the edit does nothing, or it is still there afterwards. Each
looks like a finding.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.edits.edit import BASELINE, Compose, ScaleBlock, ScaleParameters, Truncate
from lesion.edits.table import tabulate
from lesion.edits.weights import written
from lesion.engines.engine import Request
from lesion.engines.vllm.jobs import Job
from lesion.engines.vllm.slices import HEAD
from lesion.errors import LesionError, UsageError
from lesion.models import anatomy
from lesion.models.anatomy import Block
from lesion.models.load import Model
from lesion.models.matrices import Matrix

if TYPE_CHECKING:
    from lesion.engines.vllm.engine import VllmEngine

# Prompts, their length and what is generated after them.
PROMPTS, LENGTH, NEW = 4, 256, 16

TokenAnswers = tuple[tuple[int, ...], ...]


@runtime_checkable
class Trial(Protocol):
    """A control edit on an engine, and what the engine says to prompts with it and without."""

    def edited(self) -> AbstractContextManager[None]:
        """The control edit is made as edits of a study are, and taken back at the end of the `with`."""
        ...

    def answers(self, prompts: Sequence[tuple[int, ...]], *, edited: bool) -> TokenAnswers:
        """Greedy answers to the prompts, under the control edit or not."""
        ...


def probes(requests: Sequence[Request], context: int) -> tuple[tuple[int, ...], ...]:
    """Prompts to try an engine with, of the requests' tokens."""
    length = max(1, min(LENGTH, context - NEW))
    wanted = PROMPTS * length
    tokens: list[int] = []
    for request in requests:
        tokens += request.prompt
        if len(tokens) >= wanted:
            break
    while 0 < len(tokens) < wanted:
        tokens += tokens
    return tuple(tuple(tokens[start : start + length]) for start in range(0, wanted, length)) if tokens else ()


def prove(trials: Sequence[Trial], prompts: Sequence[tuple[int, ...]], what: str) -> None:
    """Show that edits take hold on an engine, and that the baseline comes back."""
    if not prompts:
        return
    for trial in trials:
        before = trial.answers(prompts, edited=False)
        with trial.edited():
            under = trial.answers(prompts, edited=True)
        after = trial.answers(prompts, edited=False)
        if before != after:
            differing = sum(answer != other for answer, other in zip(before, after, strict=True))
            raise LesionError(
                f"The effect guard stops this study, {what}: after a control edit was taken back,"
                f" {differing} of {len(prompts)} answers are not those of the unedited model any more."
                f" Start again with --engine transformers."
            )
        if before != under:
            return
    raise LesionError(
        f"The effect guard stops this study, {what}: not one of {len(prompts)} answers changed under a control edit"
        f" that silences whole parts of the model. Edits do not take hold; use --engine transformers."
    )


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
    with written(model, weights, truncations):
        with handed(engine, [place_of(model, matrix) for matrix in touched(model, weights, truncations)]):
            yield


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


@contextmanager
def handed(engine: VllmEngine, places: Sequence[Place], zero: bool = False) -> Iterator[None]:
    """The workers have the weights of the network here, or zeros, at these places; theirs come back afterwards."""
    distinct = list(dict.fromkeys(places))
    if not distinct:
        yield
        return
    wanted = [(int(block), str(path)) for block, path in engine.calls("lesion_wanted", list(map(list, distinct)))[0]]
    tensors = {f"{block}:{path}": _whole(engine.model, block, path) for block, path in wanted}
    if zero:
        tensors |= {f"{block}:{path}": torch.zeros_like(tensors[f"{block}:{path}"]) for block, path in distinct}
    room = _in_memory(sum(tensor.nbytes for tensor in tensors.values()))
    with tempfile.TemporaryDirectory(prefix="lesion-", dir=room) as folder:
        file = Path(folder) / "matrices.safetensors"
        save_file(tensors, file)
        del tensors
        try:
            results = engine.calls("lesion_write", str(file))
            file.unlink()
            if not any(changed or packed for changed, packed in results):
                raise LesionError(
                    f"The weights that vLLM has of {engine.model.name} did not change when edited ones were written;"
                    f" use --engine transformers."
                )
            yield
        finally:
            if not engine.closed:
                engine.calls("lesion_restore")


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


@dataclass(frozen=True, eq=False)
class ControlEdit:
    """Blocks silenced by gates, or matrices that write to the stream zeroed (a `Trial`)."""

    engine: VllmEngine
    silenced: Compose = BASELINE
    zeroed: Sequence[Place] = ()

    @contextmanager
    def edited(self) -> Iterator[None]:
        """Hand zeros to the workers as edited weights are; silenced blocks come with each prompt."""
        if not self.zeroed:
            yield
            return
        with handed(self.engine, self.zeroed, zero=True):
            yield

    def answers(self, prompts: Sequence[tuple[int, ...]], *, edited: bool) -> TokenAnswers:
        """Greedy answers."""
        jobs = [Job(prompt, NEW, self.engine.column(self.silenced) if edited else 0) for prompt in prompts]
        for _ in self.engine.jobs.run(jobs):
            pass
        return tuple(tuple(job.generated) for job in jobs)


def trials_of_places(engine: VllmEngine) -> list[ControlEdit]:
    """The block in the middle, and all of them."""
    blocks = range(len(engine.model.anatomy.blocks))
    return [
        ControlEdit(engine, Compose(tuple(ScaleBlock(layer, 0.0) for layer in layers)))
        for layers in ([len(blocks) // 2], blocks)
    ]


def trials_of_weights(engine: VllmEngine) -> list[ControlEdit]:
    """What the branches of the first block write to the stream, and those of all blocks; experts left out."""
    of_blocks = (
        [
            place_of(engine.model, list(branch.matrices.values())[-1])
            for branch in block.branches
            if branch.matrices and all(matrix.storage.expert is None for matrix in branch.matrices.values())
        ]
        for block in engine.model.anatomy.blocks
    )
    last = [places for places in of_blocks if places]
    if not last:
        raise LesionError(
            f"{engine.model.name} has no block by which it could be shown that edits of weights take hold."
        )
    return [ControlEdit(engine, zeroed=places) for places in (last[0], [place for places in last for place in places])]
