"""The invariance of a layer study as sections of its page: families of models, their curves, agreement, and time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lesion.errors import LesionError
from lesion.report.views import Line, Summary, View, lines
from lesion.studies.ablation.invariance import charts as invariance_charts
from lesion.studies.ablation.invariance import figures as invariance_figures
from lesion.studies.ablation.invariance import over_time as invariance_time
from lesion.studies.ablation.invariance import tables as invariance_tables

Entry = Mapping[str, Any]


def sections(summary: Summary, level: float) -> list[dict[str, Any]]:
    """What the page shows of every family; [] where the summary has no invariance.

    Args:
        summary: of a layer study, perhaps with `invariance` as `lesion.studies.ablation.invariance.summary` tells it.
        level: of the intervals.

    Raises:
        LesionError: the part is not of that form.
    """
    try:
        told = summary.get("invariance") or {}
        return [_family(entry, view, level) for entry, view in _families(told, summary)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise LesionError(
            f"The invariance in the summary is not what a study wrote ({type(error).__name__}: {error}). "
            "Run the study again on the same folder: what was answered is kept."
        ) from error


def pngs(summary: Summary, level: float) -> dict[str, bytes]:
    """The figures as PNG by file name: `invariance-FAMILY-TASK.png`, over training `invariance-time-FAMILY-TASK.png`.

    Raises:
        LesionError: the invariance in the summary is not of the form that a study writes.
    """
    sections(summary, level)  # refuses what cannot be drawn
    found: dict[str, bytes] = {}

    def add(name: str, png: bytes) -> None:
        found[invariance_charts.unlike(name, found)] = png

    for entry, view in _families(summary.get("invariance") or {}, summary):
        names = labels(entry)
        for task in entry["tasks"]:
            where = f"{slug(entry['family'])}-{slug(task['task'])}"
            drawn = invariance_figures.curves(entry, task, view, names, level)
            if drawn is not None:
                add(f"invariance-{where}", drawn)
            for axis in invariance_time.axes(entry, task, names):
                add(f"invariance-time-{where}", invariance_figures.time(axis, task["task"]))
    return found


def labels(family: Entry) -> dict[str, str]:
    """What each model of a family is called in its charts: by variant, or by name where variants do not tell it."""
    members = family["members"]
    finished = [member for member in members if member.get("step") is None]
    variants = [member.get("variant") for member in finished]
    found = {}
    for member in members:
        variant = member.get("variant")
        if member.get("step") is not None:
            found[member["model"]] = f"step {int(member['step']):,}"
        elif variant and variants.count(variant) == 1:
            found[member["model"]] = str(variant)
        else:
            found[member["model"]] = str(member["model"])
    return found


def slug(name: str) -> str:
    """The name as a part of a file's name: letters, digits, `.`, `-` and `_`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:60] or "unnamed"


def _families(told: Entry, summary: Summary) -> list[tuple[Entry, View]]:
    """Every family with the lines of its finished models, as the page draws lines."""
    if not told:
        return []
    unit, factor = told.get("unit", "block"), float(told.get("factor", 0.0))
    every = [line for line in lines(summary) if (line.unit, line.factor) == (unit, factor)]
    return [(entry, _view(entry, every, unit, factor)) for entry in told["families"]]


def _view(family: Entry, every: Sequence[Line], unit: Any, factor: float) -> View:
    names = labels(family)
    finished = [member["model"] for member in family["members"] if member.get("step") is None]
    ours = [
        Line(**{**vars(line), "label": names[model]})
        for model in finished
        for line in every
        if line.model == model and line.points
    ]
    found = {layer for line in ours for layer in (*line.missing, *(point.layer for point in line.points))}
    tasks = dict.fromkeys(line.task for line in ours)
    return View(
        unit=unit,
        factor=factor,
        slug=slug(family["family"]),
        panels={task: tuple(line for line in ours if line.task == task) for task in tasks},
        labels=tuple(names[model] for model in finished),
        layers=tuple(sorted(found)),
    )


def _family(entry: Entry, view: View, level: float) -> dict[str, Any]:
    names = labels(entry)
    verdict = entry.get("verdict") or {}
    word = str(verdict.get("word") or "cannot tell")
    # The first sentence is the verdict; what it rests on follows.
    lead, stop, rest = str(verdict.get("text") or "").partition(". ")
    lead += stop.strip()
    tasks = entry["tasks"]
    return {
        "name": entry["family"],
        "base": entry.get("base"),
        "word": word,
        "badge": invariance_tables.BADGES.get(word, ""),
        "lead": lead,
        "text": rest,
        "reasons": [str(reason) for reason in verdict.get("reasons") or ()],
        "words": [
            (name, str(one), invariance_tables.BADGES.get(str(one), ""))
            for name, one in (verdict.get("by_task") or {}).items()
        ],
        "across": verdict.get("between"),
        "across_badge": invariance_tables.BADGES.get(str(verdict.get("between")), ""),
        "notes": [str(note) for note in entry.get("notes") or ()],
        "curves": invariance_charts.curves(entry, view, names, level),
        "legend": invariance_charts.legend(view),
        "by_depth": invariance_charts.depths_differ(entry),
        "layers": list(view.layers),
        "strips": [
            (task["task"], invariance_tables.strip(entry, task, names)) for task in tasks if len(view.labels) > 1
        ],
        "matrices": [found for task in tasks if (found := invariance_tables.matrix(entry, task, names)) is not None],
        "overlaps": [
            (
                task["task"],
                [
                    invariance_tables.overlap(o, names)
                    for o in task["overlaps"]
                    if o.get("kind", "variant") == "variant"
                ],
            )
            for task in tasks
        ],
        "joint": [sentence for task in tasks if (sentence := invariance_tables.joint(task, names))],
        "axes": [(task["task"], axis) for task in tasks for axis in invariance_time.axes(entry, task, names)],
        "between": [invariance_tables.between(one, names) for one in entry.get("between_tasks") or ()],
    }
