"""Heat: the style class of a cell whose colour says how large its number is."""

from __future__ import annotations

import math

STEPS = 20
"""Colour steps of the page's style sheet on each side of zero."""


def heat_class(value: float | None, full: float = 1.0, fullest: int = STEPS) -> str:
    """The style class of a number: `k0`…`k20` from 0 up to `full`, `g1`…`g20` below 0, `none` if there is none.

    Args:
        value: the number.
        full: the number that has the fullest colour, as all beyond it have.
        fullest: colour step of `full`; less than 20 keeps text legible on it.
    """
    if value is None or not math.isfinite(value):
        return "none"
    step = max(-fullest, min(fullest, round(fullest * value / full)))
    return f"g{-step}" if step < 0 else f"k{step}"


def agreement_class(value: float | None) -> str:
    """The style class of a rank correlation or another share of 1, with legible text: `k0`…`k16`, `g1`…`g16`."""
    return heat_class(value, fullest=16)
