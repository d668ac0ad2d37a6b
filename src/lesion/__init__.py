"""Lesion studies for language models: find the blocks and weights that a skill depends on, and test it by cutting.

Example:
    >>> import lesion
    >>> model = lesion.load("bundled:llama-base")
    >>> with lesion.applied(model, lesion.ScaleBlock(3, 0.0)):
    ...     model.network(**model.tokenizer("2 + 2", return_tensors="pt"))
    >>> lesion.ablate(model, tasks=["primer:arithmetic"], items=100).table
    >>> lesion.truncate(model, "primer:atlas?form=contrast", matrices="mlp.up").edit
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lesion.api import Result, ablate, study
    from lesion.api_drift import Drifted, drift
    from lesion.api_isolation import Isolated, evaluate, isolate
    from lesion.api_overlay import Overlaid, overlay
    from lesion.api_recall import Recalled
    from lesion.api_truncation import Truncated, truncate
    from lesion.api_tune import Tuned, tune
    from lesion.edits.apply import applied
    from lesion.edits.artefact import read_edit, save_edit
    from lesion.edits.checkpoint import apply_edits
    from lesion.edits.drawing import Random
    from lesion.edits.edit import (
        BASELINE,
        Compose,
        ScaleAttention,
        ScaleBlock,
        ScaleMlp,
        ScaleParameters,
        Truncate,
        parse,
    )
    from lesion.edits.gates import gated
    from lesion.edits.neurons import LAPE
    from lesion.edits.shares import Magnitude, MathNeuro, Wanda
    from lesion.engines.choice import EngineChoice
    from lesion.errors import LesionError, UsageError
    from lesion.methods.calibration import calibration
    from lesion.methods.observation import observe
    from lesion.models.load import Model, load
    from lesion.tasks.catalogue import find as find_task

# Names are imported when they are first used: `lesion --help` need not wait for torch.
_HOME = {
    "ablate": "lesion.api",
    "Result": "lesion.api",
    "study": "lesion.api",
    "drift": "lesion.api_drift",
    "Drifted": "lesion.api_drift",
    "evaluate": "lesion.api_isolation",
    "isolate": "lesion.api_isolation",
    "Isolated": "lesion.api_isolation",
    "overlay": "lesion.api_overlay",
    "Overlaid": "lesion.api_overlay",
    "Recalled": "lesion.api_recall",
    "truncate": "lesion.api_truncation",
    "Truncated": "lesion.api_truncation",
    "tune": "lesion.api_tune",
    "Tuned": "lesion.api_tune",
    "read_edit": "lesion.edits.artefact",
    "save_edit": "lesion.edits.artefact",
    "apply_edits": "lesion.edits.checkpoint",
    "ScaleParameters": "lesion.edits.edit",
    "LAPE": "lesion.edits.neurons",
    "Magnitude": "lesion.edits.shares",
    "MathNeuro": "lesion.edits.shares",
    "Random": "lesion.edits.drawing",
    "Wanda": "lesion.edits.shares",
    "calibration": "lesion.methods.calibration",
    "observe": "lesion.methods.observation",
    "find_task": "lesion.tasks.catalogue",
    "EngineChoice": "lesion.engines.choice",
    "applied": "lesion.edits.apply",
    "gated": "lesion.edits.gates",
    "BASELINE": "lesion.edits.edit",
    "Compose": "lesion.edits.edit",
    "ScaleAttention": "lesion.edits.edit",
    "ScaleBlock": "lesion.edits.edit",
    "ScaleMlp": "lesion.edits.edit",
    "Truncate": "lesion.edits.edit",
    "parse": "lesion.edits.edit",
    "LesionError": "lesion.errors",
    "UsageError": "lesion.errors",
    "Model": "lesion.models.load",
    "load": "lesion.models.load",
}

_AS = {"find_task": "find"}

__all__ = [
    "BASELINE",
    "LAPE",
    "Compose",
    "Drifted",
    "EngineChoice",
    "Isolated",
    "LesionError",
    "Magnitude",
    "MathNeuro",
    "Model",
    "Overlaid",
    "Random",
    "Recalled",
    "Result",
    "ScaleAttention",
    "ScaleBlock",
    "ScaleMlp",
    "ScaleParameters",
    "Truncate",
    "Truncated",
    "Tuned",
    "UsageError",
    "Wanda",
    "ablate",
    "applied",
    "apply_edits",
    "calibration",
    "drift",
    "evaluate",
    "find_task",
    "gated",
    "isolate",
    "load",
    "observe",
    "overlay",
    "parse",
    "read_edit",
    "save_edit",
    "study",
    "truncate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lesion' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), _AS.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
