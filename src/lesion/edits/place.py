"""Places: the units of a block that edits change, and their addresses."""

from __future__ import annotations

from typing import Literal

BlockUnit = Literal["block", "attention", "mlp"]
"""What a block has one of, itself included."""
InnerUnit = Literal["head", "group", "neuron", "expert", "matrix"]
"""What a block has several of (`units.py`)."""
Unit = Literal[BlockUnit, InnerUnit]
UNITS: tuple[Unit, ...] = ("block", "attention", "mlp")
"""Those of which every block has one at most."""
Part = int | str
"""Which unit of a block is meant: the number of a head, group, neuron or expert, or the name of a matrix."""
_BRANCHES: dict[str, str] = {"head": "attention", "group": "attention", "neuron": "mlp", "expert": "mlp"}


def address(layer: int, unit: Unit, part: Part | None = None) -> str:
    """The place in text form: `23`, `23.mlp`, `23.attention.head.4`, `23.mlp.up`; `part`: which of several units."""
    if part is None:
        return str(layer) if unit == "block" else f"{layer}.{unit}"
    return f"{layer}.{part}" if unit == "matrix" else f"{layer}.{_BRANCHES[unit]}.{unit}.{part}"


def within(inner: str, outer: str) -> bool:
    """Whether a place is a part of another, by their addresses: `3.mlp.up` of `3.mlp` and of `3`, not of itself."""
    return inner.startswith(f"{outer}.")
