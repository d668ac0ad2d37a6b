"""Studies of the memory laboratory, as tests write them."""

from typing import Any

import numpy as np

from lesion_labs.memory.model import Codes
from lesion_labs.memory.study import MemoryStudy


def memory(
    classes: int = 20,
    inputs: int | None = None,
    width: int = 128,
    noise: float = 0.6,
    codes: str = "orthonormal",
    **more: Any,
) -> MemoryStudy:
    """A study from its first keys."""
    return MemoryStudy.make(classes=classes, inputs=inputs, width=width, noise=noise, codes=codes, **more)


def weight(of_codes: Codes, coefficients: np.ndarray) -> np.ndarray:
    """W = W_Uᵀ A W_Eᵀ, [width, width]."""
    return of_codes.outputs.T @ coefficients @ of_codes.inputs.T
