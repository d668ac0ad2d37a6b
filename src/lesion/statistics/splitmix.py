"""SplitMix64 (Steele, Lea and Flood 2014): random numbers that belong to a key and a place, alike on every device."""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor

# As signed numbers: the golden gamma, and the two multipliers of the mixing function.
GAMMA, FIRST, SECOND = (number - (1 << 64) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mixed(numbers: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """The mixing function of SplitMix64, `mix64variant13`: products of int64 wrap around as those of uint64 do."""
    numbers = (numbers ^ shifted(numbers, 30)) * FIRST
    numbers = (numbers ^ shifted(numbers, 27)) * SECOND
    return numbers ^ shifted(numbers, 31)


def shifted(numbers: Int[Tensor, "*shape"], by: int) -> Int[Tensor, "*shape"]:
    """Shifted to the right as unsigned numbers are: zeros come in."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)
