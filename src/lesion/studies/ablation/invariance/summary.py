"""Invariance: is the importance of layers the same in a base and its children, over its training, and between tasks?

The claim of Nepal et al. (2025): the layers on which mathematics hangs are made in pre-training and stay through
instruction tuning, distillation and reinforcement learning, and recall hangs on them far less. `invariance` lays the
profiles of a layer study over each other and returns what `summary["invariance"]` holds:

    {"unit", "factor", "level", "thresholds": {name: number}, "rule": text,
     "families": [{"family", "base": model or null, "notes": [text],
       "members": [{"model","variant","revision","step","parent","blocks"}],
       "tasks": [{"task", "subject": "mathematics"|"recall"|"reading"|null, "items", "layers": [...],
         "curves": [{"model","layers","depth","baseline","baseline_low","baseline_high","able",
                     "accuracy","accuracy_low","accuracy_high","drops","low","high","relative","reliability"}],
         "pairs": [{"a","b","kind": "variant"|"time","rho","low","high","p","p_least","p_corrected",
                    "ceiling","corrected","top": {"same","share","two"}}],
         "critical": {model: [layers]},
         "overlaps": [{"a","b","kind","first": [layers],"second": [layers],"shared": [layers],"expected","p","p_least",
                       "lost": [layers],"gained": [layers]}],
         "joint": {"base","children": [models],"kept_by_all": [layers],"shared": count,"expected","p",
                   "p_least"} or null,
         "onset": [{"source","layer","step","model","after","able_from","able_after",
                    "critical_at": [steps]}]}],
       "between_tasks": [{"model","a","b","rho","low","high","p","ceiling","corrected","layers": [of a],
                          "critical_shared": [layers],"relative_a","relative_b","alone_a","alone_b",
                          "difference","difference_low","difference_high","ratio","ratio_low","ratio_high","word"}],
       "verdict": {"word","text","reasons": [text],"by_task": {task: word},"between": word or null}}]}

Lists of a curve run over its `layers`, all numbers lie in 0…1 (drops −1…1), null stands for what cannot be told. Per
layer: `drops` with the paired interval `low`, `high`, `relative` = drop / baseline accuracy, `depth` = layer / (blocks
− 1). `able`: the unedited model's accuracy is above `FLOOR` beyond doubt; one that cannot do a task has none to lose.
Of a pair: `rho` as measured; `low`, `high` the interval of the rank correlation of the true profiles (corrected for
noise, see `invariance_statistics`; so it may lie above `rho`, and is null where it is not measurable), `p` one-sided,
`p_least` the least that ties, or the sizes of the sets, allow, `p_corrected` by Holm over the pairs of the family, task
and kind; the verdict corrects over the pairs of the base and its children alone.
Pairs of kind `time` compare a checkpoint with the end of its training. `lost`: critical in a, and beyond doubt not in
b; `gained`: the other way round. `relative_a`, `relative_b`: share of the accuracy of tasks a and b that is lost, on
average over the layers critical for a; `alone_a`, `alone_b`: over those of them that are not critical for b. Onset:
from `model` on (its `step`; null is the end) a layer is critical at all later checkpoints and the model able; `after`
is the step of the checkpoint before, so it became so between the two; a `model` of null: it is not, at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lesion.edits.edit import Unit
from lesion.statistics.agreement import Agreement, agreement, joint_overlap, overlap
from lesion.statistics.paired import holm
from lesion.studies.ablation.invariance.families import Axis, Family, Member, families
from lesion.studies.ablation.invariance.model_summary import FEWEST, Told, read
from lesion.studies.ablation.invariance.onset import onsets
from lesion.studies.ablation.invariance.tasks import between, subject
from lesion.studies.ablation.invariance.verdict import RULE, THRESHOLDS, verdict
from lesion.studies.ablation.study import Study


def invariance(
    study: Study,
    summary: Mapping[str, Any],
    answers: pd.DataFrame,
    items: pd.DataFrame,
    blocks: Mapping[str, int] | None = None,
) -> dict[str, Any] | None:
    """What `summary["invariance"]` holds; None where no two models of the study belong to one family.

    Of the edits of the study, those of whole blocks at factor 0 are compared where there are any, else the first unit
    and factor. A model and task without complete answers is left out until it has them.

    Args:
        study: what was asked.
        summary: from `summarise`.
        answers: from `Store.answers`.
        items: from `Store.items`.
        blocks: number of blocks by model name; the layers asked for tell it where all were.
    """
    unit: Unit = "block" if "block" in study.edits.unit else study.edits.unit[0]
    factor = 0.0 if 0.0 in study.edits.factor else study.edits.factor[0]
    found = families(study.models, dict(_blocks(study, summary), **(blocks or {})))
    names = {member.model for family in found for member in family.members}
    if not found:
        return None
    told = {key: one for key, one in read(study, summary, answers, items, unit, factor, names).items() if one.layers}
    of_families = [_family(study, family, told) for family in found]
    return {
        "unit": unit,
        "factor": factor,
        "level": study.level,
        "thresholds": THRESHOLDS,
        "rule": RULE,
        "families": of_families,
    }


def _blocks(study: Study, summary: Mapping[str, Any]) -> dict[str, int]:
    if study.edits.layers != "all":
        return {}
    return {
        model["model"]: 1 + max(task["planned"])
        for model in summary["models"]
        for task in model["tasks"][:1]
        if task["planned"]
    }


def _family(study: Study, family: Family, told: Mapping[tuple[str, str], Told]) -> dict[str, Any]:
    tried = [_task(study, family, choice.name, told) for choice in study.tasks]
    tasks = [task for task in tried if task is not None]
    across = [
        entry
        for member in family.variants
        for entry in between(
            member.model,
            {task["task"]: told[member.model, task["task"]] for task in tasks if (member.model, task["task"]) in told},
            study.level,
            study.seed,
        )
    ]
    found: dict[str, Any] = {
        "family": family.name,
        "base": family.base.model if family.base else None,
        "members": [_member(member) for member in family.members],
        "notes": _notes(family),
        "tasks": tasks,
        "between_tasks": [_plain(entry) for entry in across],
    }
    return {**found, "verdict": verdict(family, tasks, found["between_tasks"])}


def _member(member: Member) -> dict[str, Any]:
    return {
        "model": member.model,
        "variant": member.variant,
        "revision": member.revision,
        "step": member.step,
        "parent": member.parent,
        "blocks": member.blocks,
    }


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


def _task(study: Study, family: Family, task: str, told: Mapping[tuple[str, str], Told]) -> dict[str, Any] | None:
    here = {member.model: told[member.model, task] for member in family.members if (member.model, task) in told}
    if not here:
        return None
    blocks = {member.model: member.blocks for member in family.members}
    joined = _joined(family, here)
    return {
        "task": task,
        "subject": subject(task),
        "items": next(iter(here.values())).entry["items"],
        "layers": sorted({layer["layer"] for one in here.values() for layer in one.layers}),
        "curves": [_curve(model, one, blocks[model]) for model, one in here.items()],
        "pairs": _pairs(study, joined, here),
        "critical": {model: one.critical for model, one in here.items()},
        "overlaps": [_overlap(a, b, kind, here) for a, b, kind in joined],
        "joint": _joint(family, here),
        "onset": [entry for axis in family.axes for entry in _onset(axis, here)],
    }


def _onset(axis: Axis, here: Mapping[str, Told]) -> list[dict[str, Any]]:
    moments = [(member, here[member.model]) for member in (*axis.checkpoints, axis.end) if member.model in here]
    if not moments or moments[-1][0] is not axis.end:
        return []
    return onsets(
        axis.source,
        [member.model for member, _ in moments],
        [member.step for member, _ in moments],
        [one.able for _, one in moments],
        [one.critical for _, one in moments],
        [layer["layer"] for layer in moments[-1][1].layers],
    )


def _joined(family: Family, here: Mapping[str, Told]) -> list[tuple[str, str, str]]:
    """The pairs of models to compare: all variants of equal depth, the base first; checkpoints with their end."""
    couples = [(a, b, "variant") for a, b in itertools.combinations(family.variants, 2)]
    couples += [(checkpoint, axis.end, "time") for axis in family.axes for checkpoint in axis.checkpoints]
    return [
        (a.model, b.model, kind)
        for a, b, kind in couples
        if a.model in here and b.model in here and a.blocks == b.blocks and _common(here[a.model], here[b.model])
    ]


def _common(first: Told, second: Told) -> tuple[int, ...]:
    """The layers of which both have a profile; none where they are too few to compare."""
    if first.profile is None or second.profile is None:
        return ()
    layers = tuple(layer for layer in first.profile.layers if layer in second.profile.layers)
    return layers if len(layers) >= FEWEST else ()


def _curve(model: str, one: Told, blocks: int | None) -> dict[str, Any]:
    baseline = one.entry["baseline"]

    def column(name: str) -> list[Any]:
        return [layer[name] for layer in one.layers]

    accuracy = baseline["accuracy"]
    return {
        "model": model,
        "layers": column("layer"),
        "depth": [layer / (blocks - 1) if blocks and blocks > 1 else None for layer in column("layer")],
        "baseline": accuracy,
        "baseline_low": baseline["low"],
        "baseline_high": baseline["high"],
        "able": one.able,
        "accuracy": column("accuracy"),
        "accuracy_low": column("low"),
        "accuracy_high": column("high"),
        "drops": column("drop"),
        "low": column("drop_low"),
        "high": column("drop_high"),
        "relative": [drop / accuracy if accuracy else None for drop in column("drop")],
        "reliability": _number(one.profile.reliability) if one.profile else None,
    }


def _pairs(study: Study, joined: Sequence[tuple[str, str, str]], here: Mapping[str, Told]) -> list[dict[str, Any]]:
    compared: list[tuple[str, str, str, Agreement]] = []
    for a, b, kind in joined:
        first, second = here[a].profile, here[b].profile
        if first is not None and second is not None:
            layers = _common(here[a], here[b])
            compared.append((a, b, kind, agreement(first.at(layers), second.at(layers), study.level, study.seed)))
    corrected: dict[tuple[str, str], float] = {}
    for of_kind in ("variant", "time"):
        # A profile that ranks nothing has no p: there is no test to correct for.
        tested = [(a, b, found.p) for a, b, kind, found in compared if kind == of_kind and not math.isnan(found.p)]
        values = holm(p for _, _, p in tested)
        corrected |= {(a, b): value for (a, b, _), value in zip(tested, values, strict=True)}
    return [
        {
            "a": a,
            "b": b,
            "kind": kind,
            **_agreement(found),
            "p_corrected": corrected.get((a, b)),
            "top": {"same": found.same_top, "share": found.top_share, "two": found.top_two},
        }
        for a, b, kind, found in compared
    ]


def _agreement(found: Agreement) -> dict[str, Any]:
    names = ("rho", "low", "high", "p", "p_least", "ceiling", "corrected")
    return {name: _number(getattr(found, name)) for name in names}


def _overlap(a: str, b: str, kind: str, here: Mapping[str, Told]) -> dict[str, Any]:
    common = set(_common(here[a], here[b]))
    first, second = ([layer for layer in here[model].critical if layer in common] for model in (a, b))
    found = overlap(len(common), first, second)
    able = here[a].able and here[b].able
    return {
        "a": a,
        "b": b,
        "kind": kind,
        "first": first,
        "second": second,
        "shared": list(found.shared),
        "expected": found.expected,
        "p": _number(found.p),
        "p_least": _number(found.p_least),
        "lost": sorted(set(first) & set(here[b].harmless)) if able else [],
        "gained": sorted(set(second) & set(here[a].harmless)) if able else [],
    }


def _joint(family: Family, here: Mapping[str, Told]) -> dict[str, Any] | None:
    """The critical layers of the base against those of all children together."""
    if family.base is None or family.base.model not in here:
        return None
    base = here[family.base.model]
    children = [
        child.model
        for child in family.children
        if child.model in here
        and child.blocks == family.base.blocks
        and here[child.model].able
        and _common(base, here[child.model]) == tuple(layer["layer"] for layer in base.layers)
    ]
    # By their places among the layers that were asked, which need not be all.
    layers = [layer["layer"] for layer in base.layers]
    sets = [[layers.index(layer) for layer in here[model].critical] for model in (family.base.model, *children)]
    found = joint_overlap(len(layers), sets[0], sets[1:])
    shared = sum(len(set(base.critical) & set(here[child].critical)) for child in children)
    return {
        "base": family.base.model,
        "children": children,
        "kept_by_all": [layers[place] for place in found.shared],
        "shared": shared,
        "expected": found.expected,
        "p": _number(found.p),
        "p_least": _number(found.p_least),
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _number(value) if isinstance(value, float) else value for key, value in entry.items()}
