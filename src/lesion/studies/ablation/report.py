"""The report of a study: one self-contained page, and the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from lesion.atomic import replace
from lesion.core.cost import beside
from lesion.report import browser, charts, figures, wording
from lesion.report.files import HERE as HERE
from lesion.report.files import finite, plain_json, rendered, spreadsheet, writing
from lesion.report.heat import heat_class
from lesion.report.views import Line, Summary, View, drop_scale, lines, views
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import groups, sensitivity, tables
from lesion.studies.ablation import screen_report as screen
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.invariance import tables as invariance_tables

NARROW, WIDE = 400, 640  # widths of a panel in SVG units, on a phone or beside others, and with room


def write(folder: Path, summary: dict[str, Any], answers: pd.DataFrame, items: pd.DataFrame) -> Path:
    """Write `report.html`, `layers.csv`, `summary.json` and `figures/*.png` into a folder, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: what `summary.json` holds: models → tasks → baseline and layers, `study` and `notes`. A
            task's optional `planned` names the layers that a study in progress will have, `invariance` how far models
            of one family agree.
        answers: columns model_name, edit (text form), task, item, text, tokens, finish, correct, parsed.
        items: columns task, item, question, gold, group.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary is not one of a study, or the folder cannot be written.
    """
    table = tables.layers(summary)
    text = page(beside(summary, folder), answers, items)
    drawn = invariance.pngs(summary, _level(summary))
    with writing(Path(folder), "layers") as found:
        for view in views(summary):
            replace(found / "figures" / f"accuracy-{view.slug}.png", figures.accuracy(view, _level(summary)))
            replace(found / "figures" / f"drop-{view.slug}.png", figures.heat(view))
        for name, png in drawn.items():
            replace(found / "figures" / name, png)
        replace(found / "layers.csv", spreadsheet(table))
        replace(found / "summary.json", plain_json(summary))
        html = found / "report.html"
        replace(html, text)
    return html


def page(summary: Summary, answers: pd.DataFrame, items: pd.DataFrame, budget: int = browser.BUDGET) -> str:
    """The text of `report.html`: no request leaves it; texts of models and tasks are never parsed.

    Args:
        summary: as for `write`.
        answers: as for `write`.
        items: as for `write`.
        budget: characters of questions and answers that the item browser carries at most.

    Raises:
        LesionError: the summary is not one of a study.
    """
    level = _level(summary)
    every = lines(summary)
    of_views = views(summary)
    study = dict(summary.get("study") or {})
    return rendered(
        "page.html.jinja",
        browser.data(every, answers, items, budget),
        title=study.get("title") or _title(every),
        version=study.get("version") or "",
        details=_details(study, every),
        notes=summary.get("notes") or [],
        findings=prose.findings(of_views),
        missing=prose.missing(of_views, groups.answered(answers), _asked(summary, items)),
        rule=wording.rule(study),
        approximate=wording.approximate(study),
        level=f"{100 * level:g} %",
        views=[_drawn(view, level) for view in of_views],
        first_lines=_first_of_each_task(every),
        lines=every,
        several_models=len({line.model for line in every}) > 1,
        nonfinite=any(point.nonfinite for line in every for point in line.points),
        several_edits=len({(line.unit, line.factor) for line in every}) > 1,
        breakdowns=groups.breakdowns(every, answers, items, level),
        marked_places=prose.marked_places,
        numbers=charts.numbers,
        heat_class=heat_class,
        families=invariance.sections(summary, level),
        told=summary.get("invariance") or {},
        stopped=prose.stopped(summary),
        call=wording.call(any(line.stopped for line in every)),
        decided=prose.decided(summary),
        interval="confidence sequence" if any(line.stopped for line in every) else "Wilson interval",
        sensitivities=sensitivity.sensitivities(summary),
        sensitivity_sentences=sensitivity.sentences(summary),
        screens=screen.screens(summary),
        screen_sentences=screen.sentences(summary),
        rho=invariance_tables.rho,
        limits=invariance_tables.limits,
    )


def _level(summary: Summary) -> float:
    return float((summary.get("study") or {}).get("level") or 0.95)


def _drawn(view: View, level: float) -> dict[str, Any]:
    roomy = len(view.panels) <= 2

    def panel(task: str, width: int, height: int) -> Markup:
        return charts.panel(view, task, charts.Frame(view.layers, width, height), level)

    return {
        "view": view,
        "name": _view_name(view),
        "full": drop_scale(view.lines),
        "roomy": roomy,
        "panels": {
            task: {
                "narrow": panel(task, NARROW, 270),
                "wide": panel(task, WIDE, 300) if roomy else None,
                "items": sorted({wording.of_drawn(line.fewest, line.items, line.drawn) for line in of_task}),
            }
            for task, of_task in view.panels.items()
        },
        "legend": [(charts.swatch(view, label), label) for label in view.labels],
        "critical": charts.critical_swatch(),
        "undecided": charts.undecided_swatch()
        if any(point.decided == "open" for line in view.lines for point in line.points)
        else "",
    }


def _view_name(view: View) -> str:
    place = "one block" if view.unit == "block" else f"the {wording.UNIT_NAMES[view.unit]} of one block"
    if view.factor is None:
        return f"{place} scaled at a time"
    how = "switched off" if view.factor == 0 else f"scaled by {view.factor:g}"
    return f"{place} {how} at a time"


def _first_of_each_task(every: Sequence[Line]) -> list[tuple[Line, list[Line]]]:
    """Per model and task, its first line, which stands for the baseline, and all its lines."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in every:
        found.setdefault((line.model, line.task), []).append(line)
    return [(of_task[0], of_task) for of_task in found.values()]


def _details(study: Mapping[str, Any], every: Sequence[Line]) -> list[tuple[str, str]]:
    """The study's own entries and what follows from the lines, for whoever wants to repeat it."""
    told = [(str(name), _plain(value)) for name, value in study.items() if name not in ("title", "rule", "approximate")]
    told.append(("models", ", ".join(dict.fromkeys(line.model for line in every))))
    tasks = dict.fromkeys(
        f"{line.task} (items: {wording.of_drawn(line.fewest, line.items, line.drawn)})"
        if line.stopped
        else f"{line.task} ({wording.counted(line.items, 'item')})"
        for line in every
    )
    told.append(("tasks", ", ".join(tasks)))
    edits = dict.fromkeys(
        f"{wording.UNIT_NAMES[line.unit]} × {line.factor:g} on layers "
        f"{wording.layer_runs(point.layer for point in line.points) or 'none yet'}"
        for line in every
    )
    told.append(("edits", "; ".join(edits)))
    return told


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(finite(value), ensure_ascii=False)


def _title(every: Sequence[Line]) -> str:
    """The title of a study that has none of its own."""
    models = list(dict.fromkeys(line.model for line in every))
    if not models:
        return "Layer ablation"
    return f"Layer ablation of {wording.listed(models) if len(models) < 4 else f'{len(models)} models'}"


def _asked(summary: Summary, items: pd.DataFrame) -> list[tuple[str, str]]:
    """Every model of the summary with every task that items were drawn from."""
    tasks = [] if items.empty else [str(task) for task in items["task"].unique()]
    return [(model["model"], task) for model in summary["models"] for task in tasks]
