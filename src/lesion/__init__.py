"""Lesion studies for language models: find where a skill lives in the weights, prove it by cutting exactly that.

Example:
    >>> import lesion
    >>> model = lesion.load("bundled:llama-base")
    >>> with lesion.applied(model, lesion.ScaleBlock(3, 0.0)):
    ...     model.network(**model.tokenizer("2 + 2", return_tensors="pt"))
    >>> lesion.ablate(model, tasks=["primer:arithmetic"], items=100).table
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lesion.api import Result, ablate, study
    from lesion.edits.apply import applied
    from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, parse
    from lesion.edits.gates import gated
    from lesion.errors import LesionError, UsageError
    from lesion.models.load import Model, load

# Names are imported when they are first used: `lesion --help` need not wait for torch.
_HOME = {
    "ablate": "lesion.api",
    "Result": "lesion.api",
    "study": "lesion.api",
    "applied": "lesion.edits.apply",
    "gated": "lesion.edits.gates",
    "BASELINE": "lesion.edits.edit",
    "Compose": "lesion.edits.edit",
    "ScaleAttention": "lesion.edits.edit",
    "ScaleBlock": "lesion.edits.edit",
    "ScaleMlp": "lesion.edits.edit",
    "parse": "lesion.edits.edit",
    "LesionError": "lesion.errors",
    "UsageError": "lesion.errors",
    "Model": "lesion.models.load",
    "load": "lesion.models.load",
}

__all__ = [
    "BASELINE",
    "Compose",
    "LesionError",
    "Model",
    "Result",
    "ScaleAttention",
    "ScaleBlock",
    "ScaleMlp",
    "UsageError",
    "ablate",
    "applied",
    "gated",
    "load",
    "parse",
    "study",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lesion' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
