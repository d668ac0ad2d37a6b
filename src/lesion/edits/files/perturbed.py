"""Perturbed: a model with noise as large as what training changed in a child of it, as an ordinary checkpoint.

The control of every comparison of a base with its children: noise of the same norm in the same tensors has the
direction of no training. What such a model shares with its base is kept by anything so small.
"""

from __future__ import annotations

import functools
import hashlib
import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.arguments import validated
from lesion.edits.files.checkpoint import resolve
from lesion.edits.files.folder import as_tensor, copy_others, emerging, refuse_place, rewrite_all
from lesion.errors import LesionError, UsageError
from lesion.models.fingerprint import not_finite_in
from lesion.models.stored import FLOATS, Checkpoint, Entry, inside, survey
from lesion.progress import Silent, Watcher


@dataclass(frozen=True)
class Perturbed:
    """A model that was written.

    Attributes:
        out: its folder.
        distance: ‖child − base‖ / ‖base‖ over all weights.
        achieved: ‖written − base‖ / ‖base‖, after rounding to the stored dtype.
        tensors: how many got noise, of how many there are.
    """

    out: Path
    distance: float
    achieved: float
    tensors: tuple[int, int]


@validated
def distance(base: str | Path, child: str | Path) -> float:
    """‖child − base‖ / ‖base‖, Frobenius norms over all stored weights, summed in float64, a tensor at a time.

    Raises:
        UsageError: there is no such model.
        LesionError: the two do not have the same tensors, or they cannot be read.
    """
    checkpoints = _both(str(base), str(child))
    moved = whole = 0.0
    for name in checkpoints[0].entries:
        first, second = (_read(of, name) for of in checkpoints)
        moved += _square(second - first)
        whole += _square(first)
    return math.sqrt(moved / whole) if whole else math.nan


@validated
def perturb(
    base: str | Path,
    like: str | Path,
    out: Path | str,
    *,
    scale: float | int = 1.0,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> Perturbed:
    """Write a base model with Gaussian noise whose norm in every tensor is `scale` times what a child changed there.

    Files, sharding and dtypes stay. A tensor that the child left as it is stays as it is. Memory: three tensors.

    Args:
        base: `bundled:NAME`, a folder, a GGUF file or a hub id.
        like: the child, with the same tensors.
        out: a folder that does not exist or is empty; it gets its name when everything is written.
        scale: a number above 0.
        seed: of the noise, any integer.
        watcher: who is told how it goes.

    Raises:
        UsageError: the scale is not above 0, or `out` is occupied.
        LesionError: the two do not have the same tensors, the child has the weights of the base, noise that small
            rounds to nothing in the stored dtype, or something cannot be read or written.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise UsageError(f"The noise is so many times as large as the child's change: a number above 0, not {scale}.")
    out, watcher = Path(out), watcher or Silent()
    refuse_place(out)
    source, child = _both(str(base), str(like))
    squares = {"child": 0.0, "written": 0.0, "base": 0.0}
    changed: set[str] = set()

    def add_noise(name: str, tensor: Tensor) -> None:
        weights = tensor.double()
        size = math.sqrt(_square(_read(child, name) - weights))
        squares["base"] += _square(weights)
        squares["child"] += size * size
        if size == 0.0:
            return
        noise = _noise(tensor.shape, seed, name)
        tensor.copy_(weights + noise * (scale * size / math.sqrt(_square(noise))))
        squares["written"] += _square(tensor.double() - weights)
        changed.add(name)

    with emerging(out, watcher.note) as partial, torch.inference_mode():
        floats = [name for name, entry in source.entries.items() if entry.dtype in FLOATS]
        changes = {name: functools.partial(add_noise, name) for name in floats}
        rewrite_all(source, partial, changes, watcher, str(base))
        if not changed:
            raise LesionError(f"{like} has the very weights of {base}, so there is no change to make noise of.")
        if not squares["written"]:
            raise LesionError(
                f"Noise of {scale:g} × the change of {like} rounds to nothing in the stored dtype of {base}; give a"
                " larger --scale, or a base in float32."
            )
        copy_others(source.folder, partial, source, ())
        # Last, so that what is not whole cannot be loaded.
        shutil.copyfile(inside(source.folder, "config.json"), partial / "config.json")
    norm = math.sqrt(squares["base"])
    sizes = [math.sqrt(squares[side]) / norm for side in ("child", "written")]
    return Perturbed(out, sizes[0], sizes[1], (len(changed), len(source.entries)))


def _both(base: str, child: str) -> tuple[Checkpoint, Checkpoint]:
    """Two checkpoints with the same tensors; a tied head may be stored by one of them only."""
    first, second = (survey(resolve(name), name) for name in (base, child))
    for name, entry in first.entries.items():
        there = second.entries.get(name)
        if there is None or there.shape != entry.shape:
            what = "has no such tensor" if there is None else f"has one of {list(there.shape)}"
            raise LesionError(
                f"{base} has the tensor {name} of {list(entry.shape)}, and {child} {what}: the two are not a model and"
                " a child of it with the same architecture."
            )
    return first, second


def _read(checkpoint: Checkpoint, name: str) -> Float[Tensor, "*shape"]:
    entry: Entry = checkpoint.entries[name]
    with inside(checkpoint.folder, entry.shard).open("rb") as file:
        file.seek(entry.start)
        data = bytearray(file.read(entry.stop - entry.start))
    if len(data) != entry.stop - entry.start:
        raise LesionError(f"{checkpoint.folder / entry.shard} is cut short within {name}.")
    tensor = as_tensor(data, entry, name)
    if (broken := not_finite_in(name, tensor)) is not None:
        raise LesionError(
            f"{checkpoint.folder / entry.shard} has values that are not finite, in {broken}, so that no distance from"
            " it can be measured. Get the checkpoint again."
        )
    return tensor.double()


def _square(tensor: Tensor) -> float:
    return float((tensor.double() ** 2).sum())


def _noise(shape: torch.Size, seed: int, name: str) -> Float[Tensor, "*shape"]:
    """Standard normal numbers in float64, decided by the seed and the name of the tensor."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.randn(shape, generator=generator, dtype=torch.float64)
