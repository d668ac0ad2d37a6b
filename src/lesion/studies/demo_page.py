"""The report of a demo: the findings and the main picture of several studies of the same models, one chapter each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lesion.atomic import replace
from lesion.report import browser
from lesion.report.files import rendered, writing
from lesion.report.finding import Finding
from lesion.report.trials import evaluation
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.drift import charts as drift_charts
from lesion.studies.drift import findings as drift_prose
from lesion.studies.drift import reading as drift_read
from lesion.studies.isolation import findings as isolation_prose
from lesion.studies.isolation.report import tradeoffs
from lesion.studies.overlay import charts as overlay_charts
from lesion.studies.overlay import findings as overlay_prose
from lesion.studies.overlay.summary import recalled
from lesion.studies.truncation import findings as truncation_prose
from lesion.studies.truncation.result import TruncationSummary


@dataclass(frozen=True)
class Panel:
    """A picture with its heading: `charts` are the same picture for a narrow and for a wide place."""

    title: str
    charts: tuple[Markup, Markup]
    legend: tuple[tuple[Markup, str], ...] = ()


@dataclass(frozen=True)
class Chapter:
    """What one study adds to the story.

    Attributes:
        title: the question that it answers.
        how: in a sentence or two, how it was asked.
        found: what it found, a finding a model or family.
        panels: its main pictures.
        page: the study's own page, relative to that of the story.
    """

    title: str
    how: str
    found: tuple[Finding, ...]
    panels: tuple[Panel, ...]
    page: str


def layers(summary: Mapping[str, Any], page: str) -> Chapter:
    """A layer study of the families: which blocks a skill hangs on, in base and children."""
    level = float((summary.get("study") or {}).get("level") or 0.95)
    families = invariance.sections(summary, level)
    found = [
        Finding(family["name"], (family["lead"],), (family["text"],) if family["text"] else ()) for family in families
    ]
    panels = [
        Panel(f"{family['name']}, {curve['task']}", tuple(curve["drawn"]), tuple(family["legend"]))
        for family in families
        for curve in family["curves"]
    ]
    return Chapter(
        "Which blocks does each skill hang on, and are they the same in base and children?",
        "Each block in turn is switched off, and the model answers the same items as before. Filled and numbered:"
        " critical.",
        tuple(found),
        tuple(panels),
        page,
    )


def drift(summary: Mapping[str, Any], page: str) -> Chapter:
    """A drift study: how far the tokens' clusters are from those of layer 0."""
    study = drift_read.found(summary)
    narrow, wide = drift_charts.SIZES
    axis = "NMI with the clusters of the reference"
    panels = [
        Panel(
            drift_prose.family_title(family),
            (
                drift_charts.chart(family, "nmi", axis, narrow, null=True, rows=True),
                drift_charts.chart(family, "nmi", axis, wide, null=True, rows=True),
            ),
            (*drift_charts.legend(family), *drift_charts.keys(family)),
        )
        for family in study.families
        if any(model.curve.along("nmi") for model in family.models)
    ]
    return Chapter(
        "Do tokens leave their first clusters, and does the curve bend or step at the critical blocks?",
        "The hidden states of prompts and the models' own solutions are clustered at every layer; the curve is how much"
        " those clusters still tell about the clusters of layer 0. Layer l is the output of block l − 1.",
        # What cannot be told has no headline: it stands on the study's page.
        tuple(finding for finding in drift_prose.findings(study) if finding.headline),
        tuple(panels),
        page,
    )


def isolation(summary: Mapping[str, Any], page: str) -> Chapter:
    """An isolation: the weights that a skill needs and its controls do not."""
    found = evaluation(summary)
    panels = [
        Panel(f"{figure['skill'].name} against {control.name}", (small, large), tuple(figure["legend"]))
        for figure in (tradeoffs(found) if found is not None else ())
        for control, small, large in figure["panels"]
    ]
    return Chapter(
        "Which single weights does arithmetic need that other skills do not?",
        "Forward passes on texts of each task tell which weights matter to it; those of arithmetic alone are cut,"
        " beside random ones, as many in every matrix.",
        tuple(isolation_prose.findings(found, dict(summary.get("isolation") or {}))),
        tuple(panels),
        page,
    )


def truncation(summary: TruncationSummary, page: str) -> Chapter:
    """A search for a truncation that makes the model better."""
    return Chapter(
        "Does removing a part of a matrix's spectrum make the model better?",
        "Truncations are tried on validation items; the best is tested on items that the search never saw.",
        tuple(truncation_prose.findings(summary)),
        (),
        page,
    )


def overlay(summary: Mapping[str, Any], page: str) -> Chapter:
    """What all studies say of a model's blocks, over one axis: pictures of the model that most studies looked at."""
    models = recalled(summary).models
    most = max(models, key=lambda of: len({profile.kind for profile in of.profiles}))
    panels = []
    for profile in most.profiles:
        narrow, wide = (overlay_charts.chart(most, profile, size) for size in overlay_charts.SIZES)
        title = f"{profile.label} ({overlay_charts.UNITS[profile.unit]})"
        panels.append(Panel(title, (narrow, wide)))
    told = [finding for of, finding in zip(models, overlay_prose.findings(models), strict=True) if of is most]
    return Chapter(
        "Do the methods point at the same blocks?",
        "Every study gives each block a number; here they stand over one axis, and ranks are compared over blocks.",
        tuple(told),
        tuple(panels),
        page,
    )


def write(folder: Path, title: str, chapters: Sequence[Chapter], version: str) -> Path:
    """Write the story as `report.html` into a folder; the pages of the studies are beside it.

    Raises:
        LesionError: the folder cannot be written.
    """
    text = rendered("story.html.jinja", dict(browser.NOTHING), title=title, version=version, chapters=list(chapters))
    with writing(Path(folder), "demo") as place:
        html = place / "report.html"
        replace(html, text)
    return html
