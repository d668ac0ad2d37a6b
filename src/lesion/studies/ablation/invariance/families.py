"""Which models of a study belong together, and how far training, or noise in its place, has moved each from its base.

A family is what the labels say (`ModelChoice.lineage`). Entries with the same source and different revisions are one
training (`--revisions`): those with a step in the name of their revision come first, in the order of their steps; the
one without is its end. A single entry with a revision is a model like any other, pinned.
"""

from __future__ import annotations

import filecmp
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lesion import files
from lesion.core.study_file import ModelChoice
from lesion.errors import LesionError, UsageError, nearest
from lesion.models.source import BUNDLED, CHECKPOINTS, find, revisions
from lesion.plain import some
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
    """The families of at least two models, in the order in which the study names them."""
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


ALL = "all"


def over_time(models: Sequence[str], wanted: str | Sequence[str]) -> tuple[list[str | dict[str, str]], list[str]]:
    """Each model behind its checkpoints, `all` or those named, as entries of a study; and notes on those left out.

    A folder without checkpoints and a bundled model stay as they are, as long as one of the models has some. A
    checkpoint that holds the very weights of its model is left out: the end of the training is there already.
    """
    names = [name.strip() for name in wanted.split(",")] if isinstance(wanted, str) else list(wanted)
    if not names or not all(names):
        raise UsageError("--revisions takes all, or names of checkpoints by commas: step23,step256.")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UsageError(f"--revisions names {twice} twice; name it once.")
    entries: list[str | dict[str, str]] = []
    notes: list[str] = []
    for model in models:
        folder = files.named(model, "model")
        known = revisions(folder) if folder.is_dir() else {}
        for revision in _chosen(model, None if names == [ALL] else names, known):
            if known and _same_weights(known[revision], Path(find(model).place)):
                notes.append(
                    f"{model}@{revision} has the very weights of {model}: it is shown as the end of the training."
                )
            else:
                entries.append({"source": model, "revision": revision})
        entries.append(model)
    if len(entries) + len(notes) == len(models):
        raise UsageError(
            f"--revisions follows a training, and there are no checkpoints of {' or '.join(models)}: those of a folder "
            f"are the models in {CHECKPOINTS}/REVISION below or beside it; `lesion lab lineage --out DIR` keeps them."
        )
    return entries, notes


def _chosen(model: str, named: list[str] | None, known: Mapping[str, Path]) -> list[str]:
    """The checkpoints of a model that are asked for; `named` is None for all."""
    folder = files.named(model, "model").is_dir()
    if not folder and "@" in model:
        raise UsageError(f"{model} names a revision already: give {model.partition('@')[0]} and --revisions.")
    if folder or model.startswith(BUNDLED):
        missing = [name for name in named or () if name not in known]
        if known and missing:
            raise UsageError(
                f"{model} has no revision '{missing[0]}'{nearest(missing[0], known)}. There are: {some([*known], 12)}."
            )
        return [name for name in known if named is None or name in named]
    if named is None:
        raise UsageError(f"Which revisions {model} has is not known here: name them, --revisions step1000,step2000.")
    return named


def _same_weights(checkpoint: Path, model: Path) -> bool:
    files = sorted(file.name for file in checkpoint.glob("*.safetensors"))
    if not files or files != sorted(file.name for file in model.glob("*.safetensors")):
        return False
    return not any(filecmp.cmpfiles(checkpoint, model, files, shallow=False)[1:])
