"""The report of an isolation and of its evaluation: one self-contained page, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lesion.atomic import replace
from lesion.edits.edit import BASELINE
from lesion.report import browser, trials, wording
from lesion.report.evidence import ALPHA
from lesion.report.files import finite, plain_json, rendered, spreadsheet, writing
from lesion.report.heat import heat_class
from lesion.report.trials import Asked, Effect, Evaluation
from lesion.studies.isolation import curves, distribution, sweeps, tradeoff
from lesion.studies.isolation import figures as isolation_figures
from lesion.studies.isolation import findings as isolation_prose
from lesion.studies.isolation import tables as evaluation_tables
from lesion.studies.isolation.sweeps import Along
from lesion.studies.isolation.tables import text_tables as text_tables

SIZES = ((400, 300), (560, 380))  # width and height of a panel in SVG units, on a phone and with room
TEXT = ("data", "role", "style", "samples", "repeat", "texts", "tokens", "cut")
UNTOLD = ("title", "approximate")
"""Entries of the study that the page tells elsewhere."""
MOST_MAPS, MOST_PICTURES = 48, 16
"""At most so many distributions are drawn in the page, and as PNG files; the CSV file has them all."""


def write(
    folder: Path, summary: Mapping[str, Any], answers: pd.DataFrame | None = None, items: pd.DataFrame | None = None
) -> Path:
    """Write `report.html`, `summary.json`, the tables as CSV and `figures/*.png` into a folder, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: what `summary.json` holds: any of `isolation`, `evaluation`, `study` and `notes`.
        answers: columns model_name, edit (the key of stored answers), task, item, text, tokens, finish, correct,
            parsed; without them the page has no item browser.
        items: columns task, item, question, gold, group.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary does not have the form that a study writes, or the folder cannot be written.
    """
    isolation = summary.get("isolation") or {}
    text = page(summary, answers, items)
    tables = {
        "selections.csv": evaluation_tables.selections(summary) if isolation.get("selections") else None,
        "overlap.csv": evaluation_tables.overlap(summary) if isolation.get("overlap") else None,
        "evaluation.csv": evaluation_tables.cells(summary) if summary.get("evaluation") else None,
    }
    maps = distribution.first(distribution.distributions(isolation), MOST_PICTURES)
    drawn = isolation_figures.drawn(trials.evaluation(summary), maps, curves.overlaps(isolation))
    with writing(Path(folder), "isolation") as found:
        for name, png in drawn.items():
            replace(found / "figures" / name, png)
        for name, table in tables.items():
            if table is not None:
                replace(found / name, spreadsheet(table))
        replace(found / "summary.json", plain_json(summary))
        html = found / "report.html"
        replace(html, text)
    return html


def page(
    summary: Mapping[str, Any],
    answers: pd.DataFrame | None = None,
    items: pd.DataFrame | None = None,
    budget: int = browser.BUDGET,
) -> str:
    """The text of `report.html`: no request leaves it; texts of models and tasks are never parsed.

    Args:
        summary: as for `write`.
        answers: as for `write`.
        items: as for `write`.
        budget: characters of questions and answers that the item browser carries at most.

    Raises:
        LesionError: the summary does not have the form that a study writes.
    """
    isolation = dict(summary.get("isolation") or {})
    study = dict(summary.get("study") or {})
    found = trials.evaluation(summary)
    overlaps = curves.overlaps(isolation)
    distributions = distribution.distributions(isolation)
    level = float(study.get("level") or 0.95)
    return rendered(
        "isolation.html.jinja",
        _carried(found, answers, items, budget),
        title=study.get("title") or _title(isolation, found),
        eyebrow="evaluation of edits" if not isolation else "isolation of a skill",
        version=study.get("version") or "",
        level=f"{100 * level:g} %",
        approximate=wording.approximate(study),
        findings=isolation_prose.findings(found, isolation),
        found=found,
        tradeoffs=[] if found is None else tradeoffs(found),
        sweeps=[] if found is None else _sweeps(found),
        distributions=distributions,
        maps=distribution.first(distributions, MOST_MAPS),
        share=distribution.share,
        heat_class=heat_class,
        consistency=_consistency(overlaps) if overlaps else None,
        rows=[] if found is None else _rows(found),
        nonfinite=found is not None and any(effect.nonfinite for _, effect in _rows(found)),
        broken=[]
        if found is None
        else [(task, edit) for task in found.tasks for edit in found.tried if edit.key in task.broken],
        choice=None if found is None or not found.choice else _choice(found.choice),
        name_of=lambda key: found.edits[key].name if found is not None and key in found.edits else key,
        coverage=_coverage(isolation),
        texts=[dict.fromkeys(TEXT) | dict(entry) for entry in isolation.get("texts") or ()],
        several_models=answers is not None and not answers.empty and answers["model_name"].nunique() > 1,
        details=_details(study, isolation, found),
        notes=summary.get("notes") or [],
        signed=wording.signed,
        above_chance=trials.ABOVE_CHANCE,
        alpha=ALPHA,
    )


def _carried(
    found: Evaluation | None, answers: pd.DataFrame | None, items: pd.DataFrame | None, budget: int
) -> dict[str, Any]:
    """What the item browser reads: the baseline and every edit that is no random control, on tasks with answers."""
    if found is None or answers is None or items is None or answers.empty or items.empty:
        return dict(browser.NOTHING)
    names = [task.name for task in found.tasks if not task.scored]
    labels = {str(BASELINE): "unedited"} | {edit.key: edit.name for edit in found.tried}
    wanted = answers[answers["task"].isin(names) & answers["edit"].isin(labels)]
    said = browser.said(wanted)
    models = list(dict.fromkeys(model for model, _, _ in said))
    cells = [
        browser.Cell(model, task.name, key, _with_drop(label, task, key), said[model, task.name, key])
        for model in models
        for task in found.tasks
        for key, label in labels.items()
        if (model, task.name, key) in said
    ]
    shown = [name for name in names if any(cell.task == name for cell in cells)]
    return browser.bundled(cells, models, shown, items, budget) if cells else dict(browser.NOTHING)


def _with_drop(label: str, task: Asked, key: str) -> str:
    effect = task.effects.get(key)
    return label if effect is None or effect.change is None else f"{label}, drop {wording.points(effect.change)}"


def tradeoffs(found: Evaluation) -> list[dict[str, Any]]:
    """One figure per skill and direction (pruning, boosting), with a panel per control that was asked."""
    figures = []
    for skill in found.skills:
        for regime, edits in sweeps.regimes(found.tried).items():
            series, boost = sweeps.paths(edits), regime == "boost"
            controls = sweeps.comparable(found, skill, edits)
            panels = [
                (control, *(tradeoff.panel(found, series, skill, control, size, boost=boost) for size in SIZES))
                for control in controls
            ]
            if panels:
                legend = curves.legend(found, series)
                drawn = {"skill": skill, "boost": boost, "legend": legend, "panels": panels}
                figures.append(drawn | {"guessed": _guessed([skill, *controls])})
    return figures


def _sweeps(found: Evaluation) -> list[dict[str, Any]]:
    """Accuracy along the share kept and along the factor, where at least one series has two places."""
    figures = []
    ways: tuple[Along, ...] = ("keep", "factor")
    for along in ways:
        series = sweeps.swept(found.tried, along)
        tasks = [
            task
            for task in found.tasks
            if any(edit.key in task.effects for one in series for stop in one.stops for edit in stop.edits)
        ]
        panels = [(task, *(curves.panel(found, series, task, along, size) for size in SIZES)) for task in tasks]
        if panels:
            drawn = {"along": along, "legend": curves.legend(found, series), "panels": panels}
            figures.append(drawn | {"guessed": _guessed(tasks)})
    return figures


def _guessed(tasks: Sequence[Asked]) -> bool:
    """Whether a line of chance is drawn in any of the tasks' panels."""
    return any(task.guessed is not None for task in tasks)


def _consistency(overlaps: Sequence[curves.Overlap]) -> dict[str, Any]:
    legend = [(curves.swatch(index, index), label) for index, label in enumerate(curves.labels(overlaps))]
    drawn = {name: curves.consistency(overlaps, size) for name, size in zip(("narrow", "wide"), SIZES, strict=True)}
    return {"legend": legend, "overlaps": overlaps, **drawn}


def _rows(found: Evaluation) -> list[tuple[Asked, Effect]]:
    """The rows of the table: every task under every edit that is no random control; those stand in its columns."""
    return [(task, task.effects[edit.key]) for task in found.tasks for edit in found.tried if edit.key in task.effects]


def _coverage(isolation: Mapping[str, Any]) -> dict[str, Any]:
    """What was not scored, by name; what was, summed up by kind of matrix."""
    entries = isolation.get("coverage") or ()
    kinds: dict[str, list[int]] = {}
    for entry in entries:
        if entry.get("scored"):
            block, _, rest = str(entry["name"]).partition(".")
            kind = distribution.kind_of(rest) if block.isdecimal() and rest else str(entry["name"])
            counted = kinds.setdefault(kind, [0, 0])
            counted[0] += 1
            counted[1] += int(entry.get("weights") or 0)
    return {
        "unscored": [
            {"name": entry["name"], "reason": entry.get("reason") or "", "weights": entry.get("weights")}
            for entry in entries
            if not entry.get("scored")
        ],
        "scored": [(kind, matrices, weights) for kind, (matrices, weights) in kinds.items()],
    }


def _choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The choice with everything that its table names."""
    known = dict.fromkeys(("validation_items", "skill", "rule", "chosen"), "") | dict(choice)
    columns = dict.fromkeys(("edit", "accuracy", "mean_control"))
    return known | {"candidates": [columns | dict(entry) for entry in choice.get("candidates") or ()]}


def _title(isolation: Mapping[str, Any], found: Evaluation | None) -> str:
    """The title of a study that has none of its own."""
    if isolation:
        return f"Where {isolation.get('skill') or 'a skill'} lies in {isolation.get('model') or 'a model'}"
    return f"Edits of {found.model}" if found is not None and found.model else "Edits"


def _details(study: Mapping[str, Any], isolation: Mapping[str, Any], found: Evaluation | None) -> list[tuple[str, str]]:
    """The study's own entries, and those of the isolation and the evaluation that are not tables."""
    told: list[tuple[str, str]] = [(str(name), _plain(value)) for name, value in study.items() if name not in UNTOLD]
    for name in (
        *("model", "fingerprint", "family", "blocks", "skill", "controls", "samples", "repeats"),
        *("seed", "replacement", "disjoint", "dtype"),
    ):
        if isolation.get(name) is not None:
            told.append(
                (name if name != "seed" or "seed" not in study else "seed of the texts", _plain(isolation[name]))
            )
    if found is not None:
        if not isolation:
            told.append(("model", found.model))
        if found.dtype and found.dtype != isolation.get("dtype"):
            told.append(("dtype" if not isolation.get("dtype") else "dtype of the evaluation", _plain(found.dtype)))
        roles = (
            f"{task.name} ({wording.counted(task.items, 'item')}, {task.role or 'no role'})" for task in found.tasks
        )
        told.append(("tasks", ", ".join(roles)))
        told.append(("edits", f"{len(found.tried)}, and {len(found.edits) - len(found.tried)} random controls"))
    return told


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return value if isinstance(value, str) else str(finite(value))
