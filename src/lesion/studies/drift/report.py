"""The report of a drift study: one self-contained page, tables and figures beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lesion.atomic import replace
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.files import finite, plain_json, rendered, spreadsheet, writing
from lesion.studies.drift import charts as drift_charts
from lesion.studies.drift import figures as drift_figures
from lesion.studies.drift import findings as drift_prose
from lesion.studies.drift import tables as drift_tables
from lesion.studies.drift import token_tables as drift_tokens
from lesion.studies.drift.charts import SIZES, SMALL
from lesion.studies.drift.reading import found
from lesion.studies.drift.tables import text_tables as text_tables
from lesion.studies.drift.values import Curve, Drifts, Family, Followed

MOST_ROWS = 1500
"""The table in the page has at most so many rows; `drift.csv` has them all."""
UNTOLD = ("title", "layers", "identity", "approximate")
"""Entries of the study that the page tells elsewhere, or that say nothing to a reader."""
CHECKS = {"cosine": "Cosine", "cka": "CKA"}


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html`, `summary.json`, the tables as CSV and the figures as PNG, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: what a drift study found, or its `summary.json` read back.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary does not have the form that a study writes, or the folder cannot be written.
    """
    text = page(summary)
    study = found(summary)
    tables, figures = drift_tables.csv(study), drift_figures.figures(study)
    with writing(Path(folder), "drift") as place:
        for name, png in figures.items():
            replace(place / "figures" / name, png)
        for name, table in tables.items():
            replace(place / name, spreadsheet(table))
        replace(place / "summary.json", plain_json(summary))
        html = place / "report.html"
        replace(html, text)
    return html


def page(summary: Mapping[str, Any]) -> str:
    """The text of `report.html`: no request leaves it; texts of models and tasks are never parsed.

    Raises:
        LesionError: the summary does not have the form that a drift study writes.
    """
    study = found(summary)
    rows = [(model, curve, layer) for model in study.models for curve in _curves(model) for layer in curve.layers]
    return rendered(
        "drift.html.jinja",
        dict(browser.NOTHING),
        title=visible(str(study.study.get("title") or _title(study))),
        version=study.study.get("version") or "",
        level=f"{100 * study.level:g}{wording.SPACE}%",
        approximate=wording.approximate(study.study),
        study=study,
        findings=drift_prose.findings(study),
        by_model=drift_prose.by_model(study),
        drawn=[_drawn(study, family) for family in study.families if any(m.curve.along("nmi") for m in family.models)],
        shapes=[(model, curve) for model in study.models for curve in _curves(model) if curve.shape],
        panels=[one for family in study.families if (one := _panels(study, family))["panels"]],
        followed=[model for model in study.models if model.tokens or model.classes or model.flow],
        rows=rows[:MOST_ROWS],
        many=len(rows),
        details=_details(study),
        bar=drift_tokens.share_bar,
        shown=drift_tokens.shown,
        token_text=drift_tokens.token_text,
        shape_cell=drift_tables.shape_cell,
        signed=drift_tables.signed,
        size=drift_tables.size,
        plain=drift_charts.plain,
        layer_name=drift_charts.layer_name,
    )


def _curves(model: Followed) -> list[Curve]:
    """All curves of a model in the order of their numbers of clusters."""
    return sorted([model.curve, *model.others], key=lambda curve: curve.clusters or 0)


def _title(study: Drifts) -> str:
    """The title of a study that has none of its own."""
    models = study.models[0].name if len(study.models) == 1 else wording.counted(len(study.models), "model")
    task = study.study.get("task")
    return f"Representation drift of {models}" + (f" on {task}" if task else "")


def _drawn(study: Drifts, family: Family) -> dict[str, Any]:
    """A family's large chart, narrow and wide, with its legend."""
    return {
        "name": drift_prose.family_title(family),
        "legend": drift_charts.legend(family),
        "keys": drift_charts.keys(family),
        "charts": [
            drift_charts.chart(family, "nmi", f"NMI with layer {study.reference}", size, null=True, rows=True)
            for size in SIZES
        ],
    }


def _panels(study: Drifts, family: Family) -> dict[str, Any]:
    """A family's small charts: other numbers of clusters, measures without clusters, and labels of the tokens."""
    found: list[tuple[str, Markup]] = []

    def add(name: str, measure: str, axis: str, *, null: bool = False, clusters: int | None = None) -> None:
        chosen = drift_charts.drawn if clusters is None else drift_charts.under(clusters)
        of_models = [curve for model in family.models if (curve := chosen(model))]
        if any(curve.along(measure) for curve in of_models):
            found.append((name, drift_charts.chart(family, measure, axis, SMALL, chosen, null=null)))

    for clusters in study.numbers_of_clusters:
        add(f"NMI, {clusters} clusters", "nmi", "NMI", null=True, clusters=clusters)
    for measure, name in CHECKS.items():
        add(f"{name} with layer {study.reference}", measure, name)
    for label in study.labellings:
        add(f"NMI with {label}", label, "NMI", null=True)
    return {"name": family.name, "legend": drift_charts.legend(family), "panels": found}


def _details(study: Drifts) -> list[tuple[str, str]]:
    """The study's own entries, for whoever wants to repeat it."""
    told = [(str(name).replace("_", " "), _plain(value)) for name, value in study.study.items() if name not in UNTOLD]
    positions = [count for model in study.models for count in model.positions]
    if positions:
        low, high = min(positions), max(positions)
        told.append(("tokens of a run", f"{low:,}" if low == high else f"{low:,} to {high:,}"))
    return [(name, visible(value)) for name, value in told if value]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_plain, value))
    return str(finite(value))
