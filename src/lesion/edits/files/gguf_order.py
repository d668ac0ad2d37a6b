"""GGUF order: a GGUF file written again with its blocks in another order.

All keys and tensors are copied byte for byte, quantised as they are; the number of blocks and the tensors' numbers
change. A factor multiplies the half-precision scales of a quantised tensor, so that its kind of storage stays.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lesion.edits.files.folder import copy_bytes, emerging, refuse_full
from lesion.errors import LesionError
from lesion.models.gguf import ALIGNMENT, MAGIC, Header, Tensor
from lesion.models.order import Order

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_FLOATS: dict[str, Any] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
_SCALES = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"), (0,)),
    **dict.fromkeys(("IQ3_S", "IQ1_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
"""Where the half-precision scales and minima lie in the bytes of a storage block (ggml-common.h of ggml)."""

Factors = Mapping[str, Mapping[int, float]]
"""By a tensor's name, what its copies at new places are multiplied by."""


def refuse_unwritable(header: Header, blocks: int) -> None:
    """Refuse a file that states something of every block, or another number of blocks than the model has.

    Its lists would have to be written anew.
    """
    lists = [key for key, value in header.metadata.items() if isinstance(value, tuple) and len(value) == blocks]
    of_blocks = [key for key in lists if key.startswith(f"{header.architecture}.")]
    if of_blocks or header.blocks != blocks:
        what = f"states {of_blocks[0]} of every block" if of_blocks else f"counts {header.blocks} blocks, not {blocks}"
        raise LesionError(
            f"{header.path} {what}; such a file is not written in another order. Give --out a folder, which gets an"
            " ordinary checkpoint."
        )


def named_by(header: Header, blocks: int, damped: Factors) -> dict[str, Mapping[int, float]]:
    """Factors of parameters, by the names of the file's tensors.

    Raises:
        LesionError: the file has no tensor of a parameter, or one whose storage cannot be multiplied.
    """
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    kinds = {tensor.name: tensor.kind for tensor in header.tensors}
    architectures = {name: number for number, name in MODEL_ARCH_NAMES.items()}
    names = get_tensor_name_map(architectures[header.architecture], blocks)
    factors: dict[str, Mapping[int, float]] = {}
    for parameter, places in damped.items():
        name = names.get_name(parameter, (".weight", ".bias"))
        if (kind := kinds.get(name or "")) is None:
            raise LesionError(
                f"{header.path} has no tensor of its own for {parameter}; leave the factor out, or give --out a folder."
            )
        if kind not in _FLOATS and kind != "BF16" and kind not in _SCALES:
            raise LesionError(
                f"{header.path} stores {name} as {kind}, which lesion cannot multiply; leave the factor out, or give"
                " --out a folder."
            )
        factors[str(name)] = places
    return factors


def save_gguf(
    header: Header, out: Path, order: Order, blocks: int, factors: Factors, note: Callable[[str], None]
) -> None:
    """Write the file `out` of the blocks of a GGUF file in an order.

    Args:
        blocks: how many the file has.
        factors: by the names of its tensors (`named_by`).
        note: is told what a killed run left behind.

    Raises:
        LesionError: the file states something of every block, or has further blocks than it says; a factor is too large
            for half precision; `out` cannot be written, or there is no room for it.
    """
    refuse_unwritable(header, blocks)
    written = _written(header, order, blocks)
    refuse_full(out, sum(tensor.stop - tensor.start for tensor, _, _ in written))
    alignment = int(header.metadata.get("general.alignment", ALIGNMENT))
    with header.path.open("rb") as reading, emerging(out, note, folder=False) as partial:
        with partial.open("wb") as writing:
            head = bytearray(reading.read(header.entries[1]))
            struct.pack_into("<Q", head, len(MAGIC) + 4, len(written))
            at, form = header.numbers[f"{header.architecture}.block_count"]
            struct.pack_into(f"<{form}", head, at, len(order))
            writing.write(head)
            start = 0
            for tensor, name, _ in written:
                writing.write(_described(tensor, name, start))
                start += -(-(tensor.stop - tensor.start) // alignment) * alignment
            for tensor, name, new in written:
                writing.write(bytes(-writing.tell() % alignment))
                reading.seek(tensor.start)
                factor = factors.get(tensor.name, {}).get(new)
                if factor is None:
                    copy_bytes(reading, writing, tensor.stop - tensor.start)
                else:
                    data = np.frombuffer(bytearray(reading.read(tensor.stop - tensor.start)), np.uint8)
                    writing.write(multiplied(data, tensor.kind, factor, name).tobytes())
            writing.write(bytes(-writing.tell() % alignment))


def _written(header: Header, order: Order, blocks: int) -> list[tuple[Tensor, str, int]]:
    """The tensors to write with their new names and the numbers of their new blocks, −1 outside of blocks."""
    written: list[tuple[Tensor, str, int]] = []
    for tensor in header.tensors:
        match = _BLOCK.fullmatch(tensor.name)
        if match is None:
            written.append((tensor, tensor.name, -1))
            continue
        if (number := int(match[1])) >= blocks:
            raise LesionError(
                f"{header.path} has the tensor {tensor.name}, of a block beyond its {blocks}; such a file cannot be put"
                " into another order."
            )
        written += [(tensor, f"blk.{new}.{match[2]}", new) for new, old in enumerate(order) if old == number]
    return written


def _described(tensor: Tensor, name: str, start: int) -> bytes:
    from gguf import GGMLQuantizationType

    text, sizes = name.encode(), tensor.dimensions
    kind = GGMLQuantizationType[tensor.kind].value
    form = f"<Q{len(text)}sI{len(sizes)}QIQ"
    return struct.pack(form, len(text), text, len(sizes), *sizes, kind, start)


def multiplied(data: np.ndarray, kind: str, factor: float, name: str) -> np.ndarray:
    """The bytes of a tensor multiplied by a factor, in their kind of storage.

    Args:
        data: uint8, may be changed.
        name: for the refusal.

    Raises:
        LesionError: a product is too large for the storage.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if kind == "BF16":
        wide = (data.view("<u2").astype("<u4") << 16).view("<f4") * np.float32(factor)
        bits = wide.view("<u4")
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")  # to nearest, ties to even
        finite, data = bool(np.isfinite(wide).all()), rounded.view(np.uint8)
    elif kind in _FLOATS:
        values = data.view(_FLOATS[kind])
        values[:] = values.astype(np.float64) * factor
        finite = bool(np.isfinite(values).all())
    else:
        rows = data.reshape(-1, GGML_QUANT_SIZES[GGMLQuantizationType[kind]][1])
        finite = True
        for place in _SCALES[kind]:
            scales = rows[:, place : place + 2].copy().view("<f2").astype(np.float64) * factor
            with np.errstate(over="ignore"):
                rows[:, place : place + 2] = scales.astype("<f2").view(np.uint8)
            finite = finite and bool((abs(scales) <= np.finfo(np.float16).max).all())
    if not finite:
        raise LesionError(
            f"Multiplied by {factor:g}, {name} would hold values that {kind} cannot; take a smaller factor."
        )
    return data
