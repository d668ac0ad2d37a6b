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

from lesion.threads import sleep_while_waiting

if TYPE_CHECKING:
    from lesion.activations.calibration import calibration
    from lesion.activations.contributions import reference
    from lesion.activations.observation import observe
    from lesion.activations.optimal import optimal_reference
    from lesion.api import result, study
    from lesion.edits.apply import applied
    from lesion.edits.edit import BASELINE, Compose, ScaleAttention, ScaleBlock, ScaleMlp, ScaleParameters, Truncate
    from lesion.edits.files.artefact import read_edit, save_edit
    from lesion.edits.files.checkpoint import apply
    from lesion.edits.files.perturbed import distance, perturb
    from lesion.edits.files.reordering import save_reordered
    from lesion.edits.gates import gated
    from lesion.edits.reference import read_reference
    from lesion.edits.replace import Replace
    from lesion.edits.selections.listed import Listed
    from lesion.edits.selections.neurons import LAPE
    from lesion.edits.selections.random_control import Random
    from lesion.edits.selections.topk import Magnitude, MathNeuro, Wanda
    from lesion.edits.text import parse
    from lesion.edits.units import ScaleExpert, ScaleGroup, ScaleHead, ScaleMatrix, ScaleNeuron
    from lesion.engines.config import EngineChoice
    from lesion.errors import LesionError, UsageError
    from lesion.functions import (
        ablate,
        compare,
        drift,
        effects,
        evaluate,
        interact,
        isolate,
        overlay,
        patch,
        truncate,
        tune,
    )
    from lesion.models.load import Model, load
    from lesion.models.reordered import reordered
    from lesion.progress import Watcher
    from lesion.studies.ablation.report import AblationResult
    from lesion.studies.comparison.report import ComparisonResult
    from lesion.studies.drift.report import DriftResult
    from lesion.studies.effects.report import EffectsResult
    from lesion.studies.interaction.report import InteractionResult
    from lesion.studies.isolation.report import IsolationResult
    from lesion.studies.overlay.report import OverlayResult
    from lesion.studies.patching.report import PatchingResult
    from lesion.studies.truncation.report import TruncationResult
    from lesion.studies.tuning.report import TuningResult
    from lesion.tasks.aligned import aligned
    from lesion.tasks.catalogue import find as find_task
    from lesion.tasks.given import task

sleep_while_waiting()

# Names are imported when they are first used: `lesion --help` need not wait for torch.
_HOME = {
    "ablate": "lesion.functions",
    "AblationResult": "lesion.studies.ablation.report",
    "compare": "lesion.functions",
    "ComparisonResult": "lesion.studies.comparison.report",
    "study": "lesion.api",
    "result": "lesion.api",
    "drift": "lesion.functions",
    "DriftResult": "lesion.studies.drift.report",
    "effects": "lesion.functions",
    "EffectsResult": "lesion.studies.effects.report",
    "evaluate": "lesion.functions",
    "isolate": "lesion.functions",
    "IsolationResult": "lesion.studies.isolation.report",
    "interact": "lesion.functions",
    "InteractionResult": "lesion.studies.interaction.report",
    "overlay": "lesion.functions",
    "OverlayResult": "lesion.studies.overlay.report",
    "patch": "lesion.functions",
    "PatchingResult": "lesion.studies.patching.report",
    "truncate": "lesion.functions",
    "TruncationResult": "lesion.studies.truncation.report",
    "tune": "lesion.functions",
    "TuningResult": "lesion.studies.tuning.report",
    "read_edit": "lesion.edits.files.artefact",
    "save_edit": "lesion.edits.files.artefact",
    "apply": "lesion.edits.files.checkpoint",
    "distance": "lesion.edits.files.perturbed",
    "perturb": "lesion.edits.files.perturbed",
    "reordered": "lesion.models.reordered",
    "save_reordered": "lesion.edits.files.reordering",
    "ScaleParameters": "lesion.edits.edit",
    "read_reference": "lesion.edits.reference",
    "Replace": "lesion.edits.replace",
    "ScaleExpert": "lesion.edits.units",
    "ScaleGroup": "lesion.edits.units",
    "ScaleHead": "lesion.edits.units",
    "ScaleMatrix": "lesion.edits.units",
    "ScaleNeuron": "lesion.edits.units",
    "LAPE": "lesion.edits.selections.neurons",
    "Listed": "lesion.edits.selections.listed",
    "Magnitude": "lesion.edits.selections.topk",
    "MathNeuro": "lesion.edits.selections.topk",
    "Random": "lesion.edits.selections.random_control",
    "Wanda": "lesion.edits.selections.topk",
    "calibration": "lesion.activations.calibration",
    "observe": "lesion.activations.observation",
    "optimal_reference": "lesion.activations.optimal",
    "reference": "lesion.activations.contributions",
    "aligned": "lesion.tasks.aligned",
    "find_task": "lesion.tasks.catalogue",
    "task": "lesion.tasks.given",
    "EngineChoice": "lesion.engines.config",
    "applied": "lesion.edits.apply",
    "gated": "lesion.edits.gates",
    "BASELINE": "lesion.edits.edit",
    "Compose": "lesion.edits.edit",
    "ScaleAttention": "lesion.edits.edit",
    "ScaleBlock": "lesion.edits.edit",
    "ScaleMlp": "lesion.edits.edit",
    "Truncate": "lesion.edits.edit",
    "parse": "lesion.edits.text",
    "LesionError": "lesion.errors",
    "UsageError": "lesion.errors",
    "Watcher": "lesion.progress",
    "Model": "lesion.models.load",
    "load": "lesion.models.load",
}

_AS = {"find_task": "find"}

__all__ = [
    "BASELINE",
    "LAPE",
    "AblationResult",
    "ComparisonResult",
    "Compose",
    "DriftResult",
    "EffectsResult",
    "EngineChoice",
    "InteractionResult",
    "IsolationResult",
    "LesionError",
    "Listed",
    "Magnitude",
    "MathNeuro",
    "Model",
    "OverlayResult",
    "PatchingResult",
    "Random",
    "Replace",
    "ScaleAttention",
    "ScaleBlock",
    "ScaleExpert",
    "ScaleGroup",
    "ScaleHead",
    "ScaleMatrix",
    "ScaleMlp",
    "ScaleNeuron",
    "ScaleParameters",
    "Truncate",
    "TruncationResult",
    "TuningResult",
    "UsageError",
    "Wanda",
    "Watcher",
    "ablate",
    "aligned",
    "applied",
    "apply",
    "calibration",
    "compare",
    "distance",
    "drift",
    "effects",
    "evaluate",
    "find_task",
    "gated",
    "interact",
    "isolate",
    "load",
    "observe",
    "optimal_reference",
    "overlay",
    "parse",
    "patch",
    "perturb",
    "read_edit",
    "read_reference",
    "reference",
    "reordered",
    "result",
    "save_edit",
    "save_reordered",
    "study",
    "task",
    "truncate",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'lesion' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), _AS.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
