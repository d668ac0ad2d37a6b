"""Invariance: is the importance of layers the same in a base and its children, over its training, and between tasks?

The claim of Nepal et al. (2025): the layers that mathematics depends on are made in pre-training and stay through
instruction tuning, distillation and reinforcement learning, and recall depends on them far less. `invariance` compares
the profiles of a layer study: between the variants of a family, between checkpoints and the end of their training, and
between the tasks of one model, as the share of its accuracy that each task loses at the layers critical for the first.
The verdict corrects over the pairs of the base and its children alone, the tables over all pairs of the family, task
and kind.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from lesion.core.values import alike, with_corrected
from lesion.edits.edit import BASELINE
from lesion.edits.place import UNITS, Unit
from lesion.report.values import Estimate
from lesion.statistics.agreement import Agreement, Profile, agreement, joint_overlap, overlap, profile
from lesion.statistics.critical import SHARE
from lesion.statistics.paired import Contrast
from lesion.studies.ablation.invariance.families import families
from lesion.studies.ablation.invariance.judged import RULE, THRESHOLDS, verdict
from lesion.studies.ablation.invariance.result import (
    FAR,
    FLOOR,
    Axis,
    BetweenTasks,
    Family,
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
    Subject,
    Word,
    axes,
)
from lesion.studies.ablation.study import Study

if TYPE_CHECKING:
    from lesion.studies.ablation.result import AblationSummary


FEWEST = 3
"""Of fewer layers no order is worth a comparison."""
SUBJECTS: dict[Subject, tuple[str, ...]] = {
    "mathematics": ("arithmetic", "gsm8k", "svamp", "math500"),
    "recall": ("atlas", "triviaqa", "facts"),
    "reading": ("reading", "race"),
}
"""What a task asks for, by a word of its name."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One model on one task under the unit and factor that are compared.

    Attributes:
        layers: of its cells.
        harmless: layers that are beyond doubt not critical: even the upper end of their drop is too small.
        profile: None where there are fewer than `FEWEST` cells.
        chance: the accuracy of guessing, in 0…1.
    """

    skill: Skill
    items: int
    layers: tuple[int, ...]
    harmless: tuple[int, ...]
    profile: Profile | None
    chance: float = 0.0


def read(
    study: Study,
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    unit: Unit,
    factor: float,
    names: set[str],
) -> dict[tuple[str, str], Measured]:
    """By model and task what was measured of the models named, where there are any cells.

    Items are resampled alike in all models of a task, and independently of other tasks.
    """
    frames = dict(iter(answers.groupby(["model_name", "task"], sort=False)))
    places = {choice.name: place for place, choice in enumerate(study.tasks)}
    measured = {}
    for model, result in summary.results:
        cells = result.of(unit, factor) if model in names else ()
        if not cells:
            continue
        layers, ordered = tuple(cell.layer for cell in cells), None
        if len(cells) >= FEWEST:
            ids = list(items["item"][items["task"] == result.task])
            table = frames[model, result.task].pivot(index="edit", columns="item", values="correct")
            right = table.loc[[str(BASELINE), *(cell.edit for cell in cells)], ids].to_numpy(dtype=bool)
            ordered = profile(right, layers, len(study.tasks) * study.seed + places[result.task])
        accuracy = result.baseline.accuracy.value or 0.0
        skill = Skill(
            model=model,
            accuracy=accuracy,
            able=(result.baseline.accuracy.low or 0.0) > max(FLOOR, result.guessing),
            critical=[cell.layer for cell in cells if cell.critical],
            reliability=ordered.reliability if ordered else None,
        )
        spared = (cell for cell in cells if not cell.critical)
        harmless = tuple(
            cell.layer for cell in spared if cell.drop.high is not None and cell.drop.high < SHARE * result.skill
        )
        measured[model, result.task] = Measured(skill, result.items, layers, harmless, ordered, result.guessing)
    return measured


def subject(task: str) -> Subject | None:
    """What a task asks for, as far as its name tells: `primer:arithmetic`, `fewshot:4:gsm8k`."""
    words = re.split(r"[^a-z0-9]+", task.lower())
    return next((subject for word in words for subject, known in SUBJECTS.items() if word in known), None)


def between(model: str, by_task: Mapping[str, Measured], level: float, seed: int = 0) -> list[BetweenTasks]:
    """One entry per pair of tasks that the model has answered and can do, mathematics first.

    `word` is "holds" where b loses, beyond doubt, less than `FAR` of what a loses at the layers that are critical for
    a, "does not hold" where it loses more beyond doubt, else "cannot tell". The items of two tasks are drawn
    independently; within a task the baseline and all layers are drawn together. `seed` is that of the permutations.
    """
    ordered = sorted(by_task, key=lambda task: subject(task) != "mathematics")  # stable: else as the study names them
    entries = []
    for a, b in itertools.combinations(ordered, 2):
        first, second = by_task[a], by_task[b]
        if first.profile is None or second.profile is None or first.layers != second.layers:
            continue
        if not (first.skill.able and second.skill.able):
            continue
        order = agreement(first.profile, second.profile, level, seed)
        critical, others = first.skill.critical, set(second.skill.critical)
        alone = [layer for layer in critical if layer not in others]
        with np.errstate(invalid="ignore", divide="ignore"):
            lost_a = _lost(first.profile, critical, first.chance)
            lost_b = _lost(second.profile, critical, second.chance)
            difference, ratio = _contrast(lost_a - lost_b, level), _contrast(lost_b / lost_a, level)
        words: dict[Word, bool] = {"holds": ratio.high < FAR, "does not hold": ratio.low > FAR, "cannot tell": True}
        entries.append(
            BetweenTasks(
                model=model,
                a=a,
                b=b,
                rho=Estimate(value=order.rho, p=order.p),
                true=true(order),
                ceiling=order.ceiling,
                layers=critical,
                critical_shared=[layer for layer in critical if layer in others],
                relative_a=lost_a[0],
                relative_b=lost_b[0],
                alone_a=_lost(first.profile, alone, first.chance)[0],
                alone_b=_lost(second.profile, alone, second.chance)[0],
                difference=Estimate.of(difference),
                ratio=Estimate.of(ratio),
                word=next(word for word, so in words.items() if so),
            )
        )
    return entries


def true(order: Agreement) -> Estimate:
    """The rank correlation of the true profiles, with its interval."""
    return Estimate(value=order.corrected, low=order.low, high=order.high)


def _lost(profile: Profile, layers: Sequence[int], chance: float) -> Float[np.ndarray, " estimate_and_draws"]:
    """The share of the accuracy above chance that is lost, on average over layers: as measured, then under every draw.

    NaN where there are no layers.
    """
    places = [profile.layers.index(layer) for layer in layers]
    if not places:
        return np.full(1 + len(profile.drawn), np.nan)
    drawn = profile.drawn[:, places].mean(axis=1) / (profile.drawn_baseline - chance)
    return np.concatenate([[profile.drops[places].mean() / (profile.baseline - chance)], drawn])


def _contrast(values: Float[np.ndarray, " estimate_and_draws"], level: float) -> Contrast:
    """The estimate with the numbers between which `level` of the draws lie, without those that are not a number."""
    known = values[1:][~np.isnan(values[1:])]
    if not known.size:
        return Contrast(float(values[0]), math.nan, math.nan)
    return Contrast(float(values[0]), *map(float, np.quantile(known, [(1 - level) / 2, (1 + level) / 2])))


def invariance(
    study: Study,
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    blocks: Mapping[str, int],
    distances: Mapping[str, float] | None = None,
) -> Invariance | None:
    """How far the models of each family agree; None where no two models of the study belong to one family.

    Of the edits of the study, heads left out, those of whole blocks at factor 0 are compared where there are any, else
    the first unit and factor. A model and task without complete answers is left out until it has them. `blocks` is the
    number of blocks by model name; `distances`: of models from their base.
    """
    units = [unit for unit in study.edits.unit if unit in UNITS]
    if not units:
        return None  # heads of models that were trained apart have no common numbering
    unit: Unit = "block" if "block" in units else units[0]
    factor = 0.0 if 0.0 in study.edits.factor else study.edits.factor[0]
    members = families(study.models, blocks, distances)
    if not members:
        return None
    names = {member.model for family in members for member in family.members}
    measured = read(study, summary, answers, items, unit, factor, names)
    return Invariance(
        unit=unit,
        factor=factor,
        level=study.level,
        thresholds=THRESHOLDS,
        rule=RULE,
        families=[_family(study, family, measured) for family in members],
    )


def _family(study: Study, family: Family, measured: Mapping[tuple[str, str], Measured]) -> FamilyResult:
    by_task: dict[str, dict[str, Measured]] = {}
    for choice in study.tasks:
        names = [member.model for member in family.members if (member.model, choice.name) in measured]
        if names:
            by_task[choice.name] = {name: measured[name, choice.name] for name in names}
    tasks = [_task(study, family, task, own) for task, own in by_task.items()]
    across = []
    for member in family.finished:
        own = {task: of_task[member.model] for task, of_task in by_task.items() if member.model in of_task}
        across += between(member.model, own, study.level, study.seed)
    notes = [
        f"{member.model} was trained from {member.parent}, not from this family's base: the verdict leaves it out."
        for member in family.finished
        if member.parent is not None
    ]
    depths = sorted({member.blocks for member in family.members if member.blocks})
    if len(depths) > 1:
        notes.append(
            f"The models have {', '.join(map(str, depths[:-1]))} and {depths[-1]} blocks: layers are compared between "
            "models of equal depth only."
        )
    return FamilyResult(
        **dict(family), notes=notes, tasks=tasks, between_tasks=across, verdict=verdict(family, tasks, across)
    )


def _task(study: Study, family: Family, task: str, own: Mapping[str, Measured]) -> FamilyTask:
    joined = _joined(family, own)
    return FamilyTask(
        task=task,
        subject=subject(task),
        items=next(iter(own.values())).items,
        layers=sorted({layer for each in own.values() for layer in each.layers}),
        skills=[each.skill for each in own.values()],
        pairs=_pairs(study, joined, own),
        overlaps=[_overlap(a, b, kind, own) for a, b, kind in joined],
        joint=_joint(family, own),
        onset=[onset for axis in axes(family.members) for onset in onsets(axis, own)],
    )


def onsets(axis: Axis, own: Mapping[str, Measured]) -> list[Onset]:
    """Per layer the first checkpoint from which on it is critical at all later ones, where the model is able.

    A model that cannot do a task has nothing to lose, so nothing is critical at such a checkpoint: the onset then
    says when the skill came. `able_from` tells the two apart: it is the first checkpoint from which on the model is
    able at all later ones. There are none before the end of the training has answered.
    """
    members = [member for member in (*axis.checkpoints, axis.end) if member.model in own]
    if not members or members[-1] is not axis.end:
        return []
    measured = [own[member.model] for member in members]
    steps = [None, *(member.step for member in members)]
    moments: dict[int | None, tuple[str | None, int | None, int | None]] = {None: (None, None, None)}
    moments |= {place: (member.model, member.step, steps[place]) for place, member in enumerate(members)}
    _, able_from, able_after = moments[_since([each.skill.able for each in measured])]
    entries = []
    for layer in measured[-1].layers:
        critical = [layer in each.skill.critical for each in measured]
        model, step, after = moments[_since([so and e.skill.able for so, e in zip(critical, measured, strict=True)])]
        at = [each.step for each, so in zip(members, critical, strict=True) if so and each.step is not None]
        entries.append(
            Onset(
                source=axis.end.source, layer=layer, step=step, model=model, after=after, able_from=able_from,
                able_after=able_after, critical_at=at,
            )
        )  # fmt: skip
    return entries


def _since(holds: Sequence[bool]) -> int | None:
    """The place from which on it holds everywhere; None where it does not hold at the last."""
    at_the_end = sum(1 for _ in itertools.takewhile(bool, reversed(holds)))
    return len(holds) - at_the_end if at_the_end else None


def _joined(family: Family, own: Mapping[str, Measured]) -> list[tuple[str, str, Kind]]:
    """The pairs of models to compare: all variants of equal depth, the base first; checkpoints with their end."""
    kinds: dict[Kind, list[tuple[Member, Member]]] = {
        "variant": list(itertools.combinations(family.finished, 2)),
        "time": [(checkpoint, axis.end) for axis in axes(family.members) for checkpoint in axis.checkpoints],
    }
    return [
        (a.model, b.model, kind)
        for kind, pairs in kinds.items()
        for a, b in pairs
        if a.model in own and b.model in own and a.blocks == b.blocks and _common(own[a.model], own[b.model])
    ]


def _common(first: Measured, second: Measured) -> tuple[int, ...]:
    """The layers of which both have a profile; none where they are too few to compare."""
    if first.profile is None or second.profile is None:
        return ()
    layers = tuple(layer for layer in first.profile.layers if layer in second.profile.layers)
    return layers if len(layers) >= FEWEST else ()


def _pairs(study: Study, joined: Sequence[tuple[str, str, Kind]], own: Mapping[str, Measured]) -> list[Pair]:
    rows = []
    for a, b, kind in joined:
        layers = _common(own[a], own[b])
        first, second = (each.at(layers) for name in (a, b) if (each := own[name].profile) is not None)
        order = agreement(first, second, study.level, study.seed)
        same = {name: getattr(order, name) for name in ("p_least", "ceiling", "same_top", "top_share", "top_two")}
        rho = Estimate(value=order.rho, p=order.p)  # without p where a profile ranks nothing
        rows.append(Pair(a=a, b=b, kind=kind, rho=rho, true=true(order), **same))
    return [pair for pairs in alike(rows, "kind") for pair in with_corrected(pairs, "rho")]


def _overlap(a: str, b: str, kind: Kind, own: Mapping[str, Measured]) -> Overlap:
    common = set(_common(own[a], own[b]))
    first, second = ([layer for layer in own[model].skill.critical if layer in common] for model in (a, b))
    both = overlap(len(common), first, second)
    changed: dict[str, list[int]] = {}
    if own[a].skill.able and own[b].skill.able:
        changed["lost"] = sorted(set(first) & set(own[b].harmless))
        changed["gained"] = sorted(set(second) & set(own[a].harmless))
    return Overlap(a=a, b=b, kind=kind, first=first, second=second, **vars(both), **changed)


def _joint(family: Family, own: Mapping[str, Measured]) -> Joint | None:
    if family.base is None or family.base not in own:
        return None
    base = own[family.base]
    children = [
        child.model
        for child in family.children
        if child.model in own
        and child.blocks == family.members[0].blocks
        and own[child.model].skill.able
        and _common(base, own[child.model]) == base.layers
    ]
    # By their places among the layers that were ablated, which need not be all.
    sets = [[base.layers.index(layer) for layer in own[model].skill.critical] for model in (family.base, *children)]
    together = joint_overlap(len(base.layers), sets[0], sets[1:])
    return Joint(
        base=family.base,
        children=children,
        kept_by_all=[base.layers[place] for place in together.shared],
        shared=sum(len(set(base.skill.critical) & set(own[child].skill.critical)) for child in children),
        expected=together.expected,
        p=together.p,
        p_least=together.p_least,
    )
