"""Which models of a study belong together, and how far training, or noise in its place, has moved each from its base.

A family is what the labels say (`ModelChoice.lineage`). Entries with the same source and different revisions are one
training: those with a step in the name of their revision come first, in the order of their steps; the one without is
its end. A single entry with a revision is a model like any other, pinned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lesion.core.study_file import ModelChoice
from lesion.errors import LesionError
from lesion.studies.ablation.invariance.result import BASE, Family, Member, axes

if TYPE_CHECKING:  # what reads a study need not wait for torch
    from lesion.core.run import Run
    from lesion.studies.ablation.study import Study

_STEP = re.compile(r"step[-_ ]?([0-9]+)", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def step_of(revision: str | None) -> int | None:
    """The number in the name of a revision: 23 of `step23`, 5000 of `stage1-step5000-tokens21B`; None without one.

    A commit's hash is no step.
    """
    if revision is None or (_COMMIT.fullmatch(revision) and not revision.isdecimal()):
        return None
    number = _STEP.search(revision) or re.search(r"([0-9]+)", revision)
    return int(number[1]) if number else None


def families(
    models: Sequence[ModelChoice], blocks: Mapping[str, int], distances: Mapping[str, float] | None = None
) -> list[Family]:
    """The families of at least two models, in the order in which the study names them.

    Args:
        models: of the study.
        blocks: the number of blocks by model name, as far as known.
        distances: from the base of each family, likewise.
    """
    parted = [_parted(chosen) for chosen in models]
    bases = {
        (chosen.lineage[0], name)
        for chosen in models
        if chosen.lineage[1] == BASE
        for name in (chosen.name, chosen.source)
    }
    sources = [source for source, _ in parted]
    groups: dict[tuple[bool, str], list[Member]] = {}
    for chosen, (source, revision) in zip(models, parted, strict=True):
        family, variant = chosen.lineage
        member = Member(
            model=chosen.name,
            source=source,
            variant=variant,
            revision=revision,
            # Alone, a revision is the model that is meant, not a moment of its training.
            step=step_of(revision) if sources.count(source) > 1 else None,
            # A parent that is the base of the family is said twice, and no other.
            parent=None if (family, chosen.parent) in bases else chosen.parent,
            blocks=blocks.get(chosen.name),
            distance=(distances or {}).get(chosen.name),
        )
        groups.setdefault((family is not None, family or source), []).append(member)
    return [
        family
        for (labelled, name), members in groups.items()
        if labelled or any(member.step is not None for member in members)
        for family in [_family(name, members)]
        if len(family.members) > 1
    ]


def _parted(chosen: ModelChoice) -> tuple[str, str | None]:
    """Source and revision, also of `SOURCE@REVISION`; an @ in the middle of a path is part of a folder's name."""
    source, _, tag = chosen.source.rpartition("@")
    if chosen.revision is not None or not source or "/" in tag or not tag:
        return chosen.source, chosen.revision
    return source, tag


def _family(name: str, members: Sequence[Member]) -> Family:
    """The variants, with the base first, and then the checkpoints of trainings."""
    trainings = axes(members)
    finished = [member for member in members if member.step is None]
    finished += [axis.end for axis in trainings if axis.end not in members]
    base = next((member for member in finished if member.variant == BASE), None)
    finished.sort(key=lambda member: member is not base)
    timed = [checkpoint for axis in trainings for checkpoint in axis.checkpoints]
    return Family(family=name, base=base.model if base else None, members=(*finished, *timed))


def from_base(study: Study, run: Run, chosen: ModelChoice) -> float | None:
    """‖W − base‖ / ‖base‖ of a model whose family has a base in the study, read from the two checkpoints.

    None of a base itself, of a model without a family, and, with a note that says why, where the two cannot be
    compared: other tensors, a revision, or a model that was handed over loaded.
    """
    from lesion.edits.files.perturbed import distance

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
