"""What a layer study in progress has not measured yet."""

from __future__ import annotations

from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.studies.ablation.analyses.groups import answered
from lesion.studies.ablation.claims import places
from lesion.studies.ablation.material import Material


def missing(material: Material) -> list[str]:
    """A sentence per gap; none when the study is complete."""
    summary, items = material.summary, material.items
    counts = answered(material.answers) if not material.answers.empty else {}
    scored = {(model.model, text.task) for model in summary.models for text in model.texts}
    scored |= {
        (model, result.task) for model, result in summary.results if any(cell.part is not None for cell in result.cells)
    }
    tasks = [] if items.empty else [str(task) for task in items["task"].unique()]
    planned = [(model.model, task) for model in summary.models for task in tasks if (model.model, task) not in scored]
    measured = {(curve.model, curve.task) for curve in material.curves}
    gaps = [f"{model} on {task}: no cut measured in full." for model, task in planned if (model, task) not in measured]
    for curve in material.curves:
        where = f"{curve.model} on {curve.task}"
        if curve.stopped:
            if not curve.finished:
                gaps.append(f"{where}: not decided after {curve.items:,} of {curve.drawn:,} items.")
            continue
        how = "" if curve.factor == 0 else f", {wording.changed(curve.factor)}"
        if curve.missing:
            gaps.append(f"{where}: {places(curve.unit, curve.missing)}{how} not measured.")
        edits = {str(BASELINE): "the unedited model"}
        edits |= {cell.edit: places(curve.unit, [cell.layer]) + how for cell in curve.cells}
        for edit, place in edits.items():
            n = counts.get((curve.model, curve.task, edit), curve.items if not counts else 0)
            if 0 < n < curve.items:
                gaps.append(f"{where}: {place}: {n} of {wording.counted(curve.items, 'item')}.")
    return list(dict.fromkeys(gaps))
