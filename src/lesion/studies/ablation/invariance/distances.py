"""Distances: how far training, or noise in its place, has moved the weights of a model from its base."""

from __future__ import annotations

from lesion.core.run import Run
from lesion.core.study_file import ModelChoice
from lesion.edits.files.perturbed import distance
from lesion.errors import LesionError
from lesion.studies.ablation.invariance.result import BASE
from lesion.studies.ablation.study import Study


def from_base(study: Study, run: Run, chosen: ModelChoice) -> float | None:
    """‖W − base‖ / ‖base‖ of a model whose family has a base in the study, read from the two checkpoints.

    None of a base itself, of a model without a family, and, with a note that says why, where the two cannot be
    compared: other tensors, a revision, or a model that was handed over loaded.
    """
    family, variant = chosen.lineage
    bases = [other for other in study.models if other.lineage == (family, BASE)]
    if family is None or variant == BASE or len(bases) != 1:
        return None
    base = bases[0]
    if run.loaded.get(chosen.name) or run.loaded.get(base.name) or chosen.revision or base.revision:
        return None
    try:
        return distance(base.source, chosen.source)
    except LesionError as error:
        run.watcher.note(f"How far {chosen.name} lies from {base.name} is not known: {error}")
        return None
