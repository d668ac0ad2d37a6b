"""The report of a tuning study: one self-contained page, the table as CSV, and the dot plot as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lesion.atomic import replace
from lesion.core.cost import beside
from lesion.errors import LesionError
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.files import plain_json, rendered, spreadsheet, writing
from lesion.studies.tuning import charts as tuning_charts
from lesion.studies.tuning import figures as tuning_figures
from lesion.studies.tuning import findings as tuning_prose
from lesion.studies.tuning import tables as tuning_tables
from lesion.studies.tuning.tables import text_tables as text_tables


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html`, `summary.json`, `tuning.csv` and `figures/tuning.png`, each whole.

    Args:
        folder: made if it is not there.
        summary: what `run_tuning` found, or its `summary.json` read back.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary does not have the form that a tuning writes, or the folder cannot be written.
    """
    try:
        text, table, drawn = page(beside(summary, folder)), tuning_tables.csv(summary), tuning_figures.dots(summary)
    except (KeyError, TypeError, IndexError) as error:
        raise LesionError(f"This is no summary of a tuning ({error}); run the tuning again.") from error
    with writing(Path(folder), "tuning") as place:
        replace(place / "figures" / "tuning.png", drawn)
        replace(place / "tuning.csv", spreadsheet(table))
        replace(place / "summary.json", plain_json(summary))
        html = place / "report.html"
        replace(html, text)
    return html


def page(summary: Mapping[str, Any]) -> str:
    """The text of `report.html`: no request leaves it; names of models and tasks are never parsed."""
    study = summary["study"]
    changes = [tuning_charts.gains(summary, index) for index in range(len(summary["baseline"]))]
    differences = tuning_charts.differences(summary)
    points = "change of accuracy, points"
    layers = summary["layers"]
    return rendered(
        "tuning.html.jinja",
        dict(browser.NOTHING),
        title=visible(study.get("title") or f"{summary['model']['name']}, tuned on {summary['task']}"),
        version=study.get("version") or "",
        level=f"{100 * study['level']:g}{wording.SPACE}%",
        approximate=wording.approximate(study),
        summary=summary,
        study=study,
        several=len(study["seeds"]) > 1,
        findings=tuning_prose.findings(summary),
        gains=tuning_charts.dots(f"Gains on {summary['task']}", changes[0], points),
        differences=tuning_charts.dots("Critical blocks against others", differences, points) if differences else [],
        controls=[
            (
                visible(task["task"]),
                tuning_charts.dots(f"Change on {task['task']}", rows, points, [o for r in changes[1:] for o in r]),
            )
            for task, rows in zip(summary["baseline"][1:], changes[1:], strict=True)
        ],
        losses=tuning_charts.losses(summary),
        change=tuning_prose.change,
        blocks=tuning_prose.blocks,
        layers=layers,
        details=_details(summary),
    )


def _details(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    study, model = summary["study"], summary["model"]
    rates = ", ".join(f"{rate:g}" for rate in study["learning_rates"])
    found = [
        (
            "model",
            f"{model['name']}, {model['blocks']} blocks, {model['parameters']:,} parameters, {model['fingerprint']}",
        ),
        ("task", str(summary["task"])),
        ("controls", ", ".join(summary["controls"]) or "none"),
        ("budget", str(study["budget"])),
        ("steps × rows", f"{study['steps']:,} × {study['rows']}, from {study['examples']:,} training items"),
        ("learning rates", rates),
        ("chosen on", f"{study['validation_items']:,} held-out training items" if study["validation_items"] else "–"),
        ("seeds", ", ".join(map(str, study["seeds"]))),
        ("test items", ", ".join(f"{one['task']} {one['items']:,}" for one in summary["baseline"])),
        ("seed of the items", str(study["seed"])),
        ("optimiser", "AdamW; the rate rises over a tenth of the steps and falls to 0; loss on answers alone; float32"),
    ]
    if trained := tuning_tables.cost(summary):
        found.append(("seconds of training", trained))
    return [(key, visible(value)) for key, value in found]
