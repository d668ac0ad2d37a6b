"""The report of an overlay: per model, profiles of several studies over one axis of blocks, and their agreement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lesion.atomic import replace
from lesion.report import browser, wording
from lesion.report.files import plain_json, rendered, spreadsheet, writing
from lesion.report.heat import agreement_class
from lesion.studies.overlay import charts as overlay_charts
from lesion.studies.overlay import figures as overlay_figures
from lesion.studies.overlay import findings as overlay_prose
from lesion.studies.overlay.summary import Correlation, Of, recalled

SIZES = overlay_charts.SIZES


def write(folder: Path, summary: Mapping[str, Any]) -> Path:
    """Write `report.html`, `summary.json`, `overlay.csv`, `correlations.csv` and `figures/overlay-N.png`, each whole.

    Args:
        folder: made if it is not there; files of an earlier overlay are replaced.
        summary: from `lesion.studies.overlay.summary.summarise`, or its `summary.json` read back.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the summary is not one of an overlay, or the folder cannot be written.
    """
    text = page(summary)
    models = recalled(summary).models
    drawn = [overlay_figures.stack(of) for of in models]
    with writing(Path(folder), "overlay") as place:
        for number, png in enumerate(drawn):
            replace(place / "figures" / (f"overlay-{number}.png" if number else "overlay.png"), png)
        replace(place / "overlay.csv", spreadsheet(table(summary)))
        replace(place / "correlations.csv", spreadsheet(pairs(summary)))
        replace(place / "summary.json", plain_json(summary))
        html = place / "report.html"
        replace(html, text)
    return html


def page(summary: Mapping[str, Any]) -> str:
    """The text of `report.html`: no request leaves it; names of models and tasks are never parsed.

    Raises:
        LesionError: the summary is not one of an overlay.
    """
    found = recalled(summary)
    study = dict(summary.get("study") or {})
    names = [of.model for of in found.models]
    return rendered(
        "overlay.html.jinja",
        dict(browser.NOTHING),
        title=f"Studies of {wording.listed(names) if len(names) < 4 else f'{len(names)} models'}, laid over each other",
        version=study.get("version") or "",
        findings=overlay_prose.findings(found.models),
        models=[_drawn(of) for of in found.models],
        folders=found.folders,
        notes=found.notes,
        rho=overlay_prose.rho,
        heat_class=agreement_class,
        kinds=overlay_charts.KINDS,
    )


def table(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per model, profile and block: what `overlay.csv` holds; values as fractions, NMI or nats."""
    columns = ["model", "kind", "label", "source", "unit", "block", "value", "low", "high", "critical"]
    rows = [
        (of.model, p.kind, p.label, p.source, p.unit, block, *numbers, block in p.critical)
        for of in recalled(summary).models
        for p in of.profiles
        for block in p.blocks
        for numbers in [p.at(block) or ()]
    ]
    return pd.DataFrame(rows, columns=columns)


def pairs(summary: Mapping[str, Any]) -> pd.DataFrame:
    """One row per model and pair of profiles: what `correlations.csv` holds."""
    columns = ["model", "a", "b", "blocks", "rho", "p", "p_corrected", "beyond_depth"]
    rows = [(of.model, *vars(one).values()) for of in recalled(summary).models for one in of.correlations]
    return pd.DataFrame(rows, columns=columns)


def text_tables(summary: Mapping[str, Any]) -> RenderableType:
    """The findings and, per model, the pairs of different studies, for a terminal."""
    parts: list[RenderableType] = []
    models = recalled(summary).models
    findings = overlay_prose.findings(models)
    for of in models:
        shown = Table(box=box.SIMPLE_HEAD, show_edge=False)
        shown.add_column("profile", overflow="fold", ratio=3)
        shown.add_column("with", overflow="fold", ratio=3)
        for name in ("blocks", "ρ", "p", "corrected", "beyond depth"):
            shown.add_column(name, justify="right", no_wrap=True)
        for one in overlay_prose.tested(of)[:12]:
            numbers = (wording.p_value(one.p), wording.p_value(one.p_corrected), overlay_prose.rho(one.beyond_depth))
            shown.add_row(Text(one.a), Text(one.b), str(one.blocks), overlay_prose.rho(one.rho), *numbers)
        said = [text for its in findings if its.subject == of.model for text in (*its.headline, *its.sentences)]
        if shown.row_count or said:
            parts += [Text(of.model, style="bold"), *([shown] if shown.row_count else []), Text()]
            parts += [*map(Text, said), Text()]
    names = {of.model for of in models}
    for finding in findings:
        if finding.subject not in names:
            parts += [Text(finding.subject, style="bold"), *map(Text, (*finding.headline, *finding.sentences)), Text()]
    return Group(*parts)


def _drawn(of: Of) -> dict[str, Any]:
    ranked = [profile for profile in of.profiles if profile.ranked]
    known = {frozenset((one.a, one.b)): one for one in of.correlations}

    def at(a: str, b: str) -> Correlation | None:
        return known.get(frozenset((a, b)))

    return {
        "of": of,
        "legend": overlay_charts.legend(of),
        "rows": [
            (profile, overlay_charts.UNITS[profile.unit], [overlay_charts.chart(of, profile, size) for size in SIZES])
            for profile in of.profiles
        ],
        "ranked": ranked,
        "cells": [[at(a.label, b.label) for b in ranked[:index]] for index, a in enumerate(ranked)],
        "pairs": overlay_prose.tested(of),
    }
