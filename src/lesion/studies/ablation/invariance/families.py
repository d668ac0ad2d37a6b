"""Which models of a study belong together: families of variants, and checkpoints of one training as a time axis.

A family is what the labels say (`ModelChoice.lineage`). Entries with the same source and different revisions are one
training: those with a step in the name of their revision come first, in the order of their steps; the one without is
its end. A single entry with a revision is a model like any other, pinned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lesion.core.study_file import ModelChoice
from lesion.studies.ablation.invariance.result import Member

BASE = "base"
_STEP = re.compile(r"step[-_ ]?([0-9]+)", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True)
class Axis:
    """One training over time.

    Attributes:
        source: which model was trained.
        checkpoints: by step.
        end: what the training ended in; the last checkpoint where that is not in the study.
    """

    source: str
    checkpoints: tuple[Member, ...]
    end: Member


@dataclass(frozen=True)
class Family:
    """Models that come from one base, or checkpoints of one training.

    Attributes:
        name: as labelled, or the source of the training.
        members: variants with the base first, then checkpoints.
        base: the member labelled base; None where there is none.
        axes: the trainings of which there are checkpoints.
    """

    name: str
    members: tuple[Member, ...]
    base: Member | None
    axes: tuple[Axis, ...]

    @property
    def variants(self) -> tuple[Member, ...]:
        """The members at the end of their training."""
        return tuple(member for member in self.members if member.step is None)

    @property
    def children(self) -> tuple[Member, ...]:
        """The variants that were trained from the base."""
        return tuple(member for member in self.variants if member.variant != BASE and member.parent is None)


def step_of(revision: str | None) -> int | None:
    """The number in the name of a revision: 23 of `step23`, 5000 of `stage1-step5000-tokens21B`; None without one.

    A commit's hash is no step.
    """
    if revision is None or (_COMMIT.fullmatch(revision) and not revision.isdecimal()):
        return None
    number = _STEP.search(revision) or re.search(r"([0-9]+)", revision)
    return int(number[1]) if number else None


def families(models: Sequence[ModelChoice], blocks: Mapping[str, int]) -> list[Family]:
    """The families of at least two models, in the order in which the study names them.

    Args:
        models: of the study.
        blocks: the number of blocks by model name, as far as known.
    """
    sources = [_parted(chosen)[0] for chosen in models]
    groups: dict[tuple[bool, str], list[Member]] = {}
    for chosen, source in zip(models, sources, strict=True):
        family, variant = chosen.lineage
        revision = _parted(chosen)[1]
        # Alone, a revision is the model that is meant, not a moment of its training.
        step = step_of(revision) if sources.count(source) > 1 else None
        member = Member(
            model=chosen.name,
            source=source,
            variant=variant,
            revision=revision,
            step=step,
            parent=chosen.parent,
            blocks=blocks.get(chosen.name),
        )
        groups.setdefault((family is not None, family or source), []).append(member)
    families = (_family(name, members, labelled) for (labelled, name), members in groups.items())
    return [family for family in families if family is not None]


def _parted(chosen: ModelChoice) -> tuple[str, str | None]:
    """Source and revision, also of `SOURCE@REVISION`; an @ in the middle of a path is part of a folder's name."""
    source, _, tag = chosen.source.rpartition("@")
    if chosen.revision is not None or not source or "/" in tag or not tag:
        return chosen.source, chosen.revision
    return source, tag


def _family(name: str, members: Sequence[Member], labelled: bool) -> Family | None:
    over_time = any(member.step is not None for member in members)
    if len(members) < 2 or not (labelled or over_time):
        return None
    axes = []
    for source in dict.fromkeys(member.source for member in members if member.step is not None):
        of_source = [member for member in members if member.source == source]
        checkpoints = sorted(
            (member for member in of_source if member.step is not None), key=lambda member: member.step or 0
        )
        ends = [member for member in of_source if member.step is None]
        if not ends:
            # The last checkpoint stands for the model that the training ended in.
            ends = [checkpoints.pop().model_copy(update={"step": None})]
        if checkpoints:
            axes.append(Axis(source, tuple(checkpoints), ends[0]))
    finished = [
        *(member for member in members if member.step is None),
        *(axis.end for axis in axes if axis.end not in members),
    ]
    bases = [member for member in finished if member.variant == BASE]
    finished.sort(key=lambda member: member not in bases[:1])
    timed = [checkpoint for axis in axes for checkpoint in axis.checkpoints]
    if len(finished) + len(timed) < 2:
        return None
    return Family(name, (*finished, *timed), bases[0] if bases else None, tuple(axes))
