"""What a layer study in progress has not measured yet."""

from __future__ import annotations

from collections import Counter

from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.blocks import Prose
from lesion.report.parts import Part
from lesion.studies.ablation.analyses.groups import CELL
from lesion.studies.ablation.cell import Curve, manner, named, places
from lesion.studies.ablation.result import Material

MOST = 12
"""So many gaps are named."""


def missing(material: Material) -> list[str]:
    """A sentence per gap; none when the study is complete."""
    summary = material.summary
    scored = {(model.model, text.task) for model in summary.models for text in model.texts}
    scored |= {(curve.model, curve.task) for curve in (*material.curves, *material.maps)}
    tasks = [] if material.items.empty else [str(task) for task in material.items["task"].unique()]
    planned = [(model.model, task) for model in summary.models for task in tasks]
    gaps = [f"{model} on {task}: no cut measured in full." for model, task in planned if (model, task) not in scored]
    counts: Counter[tuple[str, ...]] = Counter()
    if not material.answers.empty:
        each = material.answers.drop_duplicates([*CELL, "item"])
        counts.update(zip(*(each[name].astype(str) for name in CELL), strict=True))
    for curve in material.curves:
        gaps += [f"{curve.model} on {curve.task}: {gap}." for gap in _of_curve(curve, counts)]
    return list(dict.fromkeys(gaps))


def _of_curve(curve: Curve, counts: Counter[tuple[str, ...]]) -> list[str]:
    """The gaps of one curve; `counts`: items answered, by model, task and edit."""
    if stopping := curve.result.stopping:
        return [f"not decided after {curve.items:,} of {stopping.items:,} items"] * (not stopping.finished)
    gaps = [f"{places(curve.unit, curve.missing)}{manner(curve.factor)} not measured"] * bool(curve.missing)
    edits = {str(BASELINE): "the unedited model"}
    edits |= {cell.edit: named([cell]) + manner(curve.factor) for cell in curve.cells}
    for edit, place in edits.items():
        n = counts[curve.model, curve.task, edit]
        if 0 < n < curve.items:
            gaps.append(f"{place}: {n} of {wording.counted(curve.items, 'item')}")
    return gaps


def part(material: Material) -> Part | None:
    """The first gaps of a study in progress; None of a finished one."""
    gaps = missing(material)
    if not gaps:
        return None
    more = [f"… and {len(gaps) - MOST} more."] * (len(gaps) > MOST)
    prose = (Prose(items=(*gaps[:MOST], *more), quiet=False),)
    return Part("This study is not finished", own=prose, short="Missing")
