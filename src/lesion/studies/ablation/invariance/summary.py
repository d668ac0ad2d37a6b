"""Invariance: is the importance of layers the same in a base and its children, over its training, and between tasks?

The claim of Nepal et al. (2025): the layers that mathematics depends on are made in pre-training and stay through
instruction tuning, distillation and reinforcement learning, and recall depends on them far less. `invariance` compares
the profiles of a layer study: between the variants of a family, between checkpoints and the end of their training, and
between the tasks of one model. The verdict corrects over the pairs of the base and its children alone, the tables over
all pairs of the family, task and kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from lesion.core.values import Estimate
from lesion.edits.edit import Unit
from lesion.statistics.agreement import Agreement, agreement, joint_overlap, overlap
from lesion.statistics.paired import holm
from lesion.studies.ablation.invariance.families import Axis, Family, families
from lesion.studies.ablation.invariance.model_summary import FEWEST, Measured, read
from lesion.studies.ablation.invariance.onset import onsets
from lesion.studies.ablation.invariance.result import (
    FamilyResult,
    FamilyTask,
    Invariance,
    Joint,
    Kind,
    Member,
    Onset,
    Overlap,
    Pair,
    Skill,
)
from lesion.studies.ablation.invariance.tasks import between, subject, true
from lesion.studies.ablation.invariance.verdict import RULE, THRESHOLDS, verdict
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary

ByModel = Mapping[str, Measured]


def invariance(
    study: Study,
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    blocks: Mapping[str, int] | None = None,
) -> Invariance | None:
    """How far the models of each family agree; None where no two models of the study belong to one family.

    Of the edits of the study, those of whole blocks at factor 0 are compared where there are any, else the first unit
    and factor. A model and task without complete answers is left out until it has them.

    Args:
        study: what is evaluated.
        summary: from `summarise`.
        answers: from `Store.answers`.
        items: from `Store.items`.
        blocks: number of blocks by model name; where all layers are ablated, their number says it.
    """
    unit: Unit = "block" if "block" in study.edits.unit else study.edits.unit[0]
    factor = 0.0 if 0.0 in study.edits.factor else study.edits.factor[0]
    members = families(study.models, dict(_blocks(study, summary), **(blocks or {})))
    names = {member.model for family in members for member in family.members}
    if not members:
        return None
    measured = read(study, summary, answers, items, unit, factor, names)
    return Invariance(
        unit=unit,
        factor=factor,
        level=study.level,
        thresholds=THRESHOLDS,
        rule=RULE,
        families=[_family(study, family, measured) for family in members],
    )


def _blocks(study: Study, summary: AblationSummary) -> dict[str, int]:
    if study.edits.layers != "all":
        return {}
    return {
        model.model: 1 + max(result.planned) for model in summary.models for result in model.tasks[:1] if result.planned
    }


def _family(study: Study, family: Family, measured: Mapping[tuple[str, str], Measured]) -> FamilyResult:
    of_tasks = (_task(study, family, choice.name, measured) for choice in study.tasks)
    tasks = [task for task in of_tasks if task is not None]
    across = []
    for member in family.variants:
        own = {task.task: measured[member.model, task.task] for task in tasks if (member.model, task.task) in measured}
        across += between(member.model, own, study.level, study.seed)
    return FamilyResult(
        family=family.name,
        base=family.base.model if family.base else None,
        members=family.members,
        notes=_notes(family),
        tasks=tasks,
        between_tasks=across,
        verdict=verdict(family, tasks, across),
    )


def _notes(family: Family) -> list[str]:
    notes = [
        f"{member.model} was trained from {member.parent}, not from the base of this family: it is shown, and the "
        "verdict leaves it out."
        for member in family.variants
        if member.parent is not None
    ]
    depths = sorted({member.blocks for member in family.members if member.blocks})
    if len(depths) > 1:
        notes.append(
            f"The models have {', '.join(map(str, depths[:-1]))} and {depths[-1]} blocks: layers are compared between "
            "models of equal depth only; the curves of the others lie beside each other by relative depth."
        )
    return notes


def _task(study: Study, family: Family, task: str, measured: Mapping[tuple[str, str], Measured]) -> FamilyTask | None:
    own = {member.model: measured[member.model, task] for member in family.members if (member.model, task) in measured}
    if not own:
        return None
    joined = _joined(family, own)
    return FamilyTask(
        task=task,
        subject=subject(task),
        items=next(iter(own.values())).result.items,
        layers=sorted({layer for each in own.values() for layer in each.layers}),
        skills=[
            Skill(
                model=model,
                accuracy=each.accuracy,
                able=each.able,
                critical=each.critical,
                reliability=each.profile.reliability if each.profile else None,
            )
            for model, each in own.items()
        ],
        pairs=_pairs(study, joined, own),
        overlaps=[_overlap(a, b, kind, own) for a, b, kind in joined],
        joint=_joint(family, own),
        onset=[onset for axis in family.axes for onset in _onset(axis, own)],
    )


def _onset(axis: Axis, own: ByModel) -> list[Onset]:
    moments = [(member, own[member.model]) for member in (*axis.checkpoints, axis.end) if member.model in own]
    if not moments or moments[-1][0] is not axis.end:
        return []
    return onsets(
        axis.source,
        [member.model for member, _ in moments],
        [member.step for member, _ in moments],
        [each.able for _, each in moments],
        [each.critical for _, each in moments],
        moments[-1][1].layers,
    )


def _joined(family: Family, own: ByModel) -> list[tuple[str, str, Kind]]:
    """The pairs of models to compare: all variants of equal depth, the base first; checkpoints with their end."""
    variants: list[tuple[Member, Member, Kind]] = [
        (a, b, "variant") for a, b in itertools.combinations(family.variants, 2)
    ]
    checkpoints: list[tuple[Member, Member, Kind]] = [
        (checkpoint, axis.end, "time") for axis in family.axes for checkpoint in axis.checkpoints
    ]
    return [
        (a.model, b.model, kind)
        for a, b, kind in variants + checkpoints
        if a.model in own and b.model in own and a.blocks == b.blocks and _common(own[a.model], own[b.model])
    ]


def _common(first: Measured, second: Measured) -> tuple[int, ...]:
    """The layers of which both have a profile; none where they are too few to compare."""
    if first.profile is None or second.profile is None:
        return ()
    layers = tuple(layer for layer in first.profile.layers if layer in second.profile.layers)
    return layers if len(layers) >= FEWEST else ()


def _pairs(study: Study, joined: Sequence[tuple[str, str, Kind]], own: ByModel) -> list[Pair]:
    compared: list[tuple[str, str, Kind, Agreement]] = []
    for a, b, kind in joined:
        first, second = own[a].profile, own[b].profile
        if first is not None and second is not None:
            layers = _common(own[a], own[b])
            compared.append((a, b, kind, agreement(first.at(layers), second.at(layers), study.level, study.seed)))
    corrected: dict[tuple[str, str], float] = {}
    for of_kind in ("variant", "time"):
        # A profile that ranks nothing has no p: there is no test to correct for.
        tested = [(a, b, order.p) for a, b, kind, order in compared if kind == of_kind and not math.isnan(order.p)]
        values = holm(p for _, _, p in tested)
        corrected |= {(a, b): value for (a, b, _), value in zip(tested, values, strict=True)}
    return [
        Pair(
            a=a,
            b=b,
            kind=kind,
            rho=Estimate(value=order.rho, p=order.p, p_corrected=corrected.get((a, b))),
            true=true(order),
            p_least=order.p_least,
            ceiling=order.ceiling,
            same_top=order.same_top,
            top_share=order.top_share,
            top_two=order.top_two,
        )
        for a, b, kind, order in compared
    ]


def _overlap(a: str, b: str, kind: Kind, own: ByModel) -> Overlap:
    common = set(_common(own[a], own[b]))
    first, second = ([layer for layer in own[model].critical if layer in common] for model in (a, b))
    both = overlap(len(common), first, second)
    able = own[a].able and own[b].able
    return Overlap(
        a=a,
        b=b,
        kind=kind,
        first=first,
        second=second,
        shared=both.shared,
        expected=both.expected,
        p=both.p,
        p_least=both.p_least,
        lost=sorted(set(first) & set(own[b].harmless)) if able else (),
        gained=sorted(set(second) & set(own[a].harmless)) if able else (),
    )


def _joint(family: Family, own: ByModel) -> Joint | None:
    """The critical layers of the base against those of all children together."""
    if family.base is None or family.base.model not in own:
        return None
    base = own[family.base.model]
    children = [
        child.model
        for child in family.children
        if child.model in own
        and child.blocks == family.base.blocks
        and own[child.model].able
        and _common(base, own[child.model]) == tuple(base.layers)
    ]
    # By their places among the layers that were ablated, which need not be all.
    sets = [[base.layers.index(layer) for layer in own[model].critical] for model in (family.base.model, *children)]
    together = joint_overlap(len(base.layers), sets[0], sets[1:])
    return Joint(
        base=family.base.model,
        children=children,
        kept_by_all=[base.layers[place] for place in together.shared],
        shared=sum(len(set(base.critical) & set(own[child].critical)) for child in children),
        expected=together.expected,
        p=together.p,
        p_least=together.p_least,
    )
