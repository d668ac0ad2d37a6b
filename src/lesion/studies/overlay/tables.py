"""The tables of an overlay: blocks of every profile, pairs of profiles; and those of the terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.table import Column, Table, plain_columns
from lesion.report.wording import rho
from lesion.studies.overlay import findings as prose
from lesion.studies.overlay.result import ModelProfiles, OverlaySummary

PAIR = ("a", "b", "blocks", "rho", "p", "p_corrected", "beyond_depth")
MOST = 12
"""The terminal shows so many of the pairs of a model."""


def blocks(summary: OverlaySummary) -> Table:
    """A row per model, profile and block: `overlay.csv`; values as fractions, NMI or nats."""
    columns = ["model", "kind", "label", "source", "unit", "block", "value", "low", "high", "critical"]
    rows = []
    for model in summary.models:
        for profile in model.profiles:
            where = (model.model, profile.kind, profile.label, profile.source, profile.unit)
            numbers = zip(profile.blocks, profile.values, profile.low, profile.high, strict=True)
            rows += [(*where, block, *values, block in profile.critical) for block, *values in numbers]
    return Table("overlay", pd.DataFrame(rows, columns=columns).astype({"low": float, "high": float}))


def pairs(summary: OverlaySummary) -> Table:
    """A row per model and pair of profiles: `correlations.csv`."""
    rows = [{"model": model.model} | pair.model_dump() for model in summary.models for pair in model.correlations]
    return Table("correlations", pd.DataFrame(rows, columns=["model", *PAIR]))


def tested(model: ModelProfiles) -> Table:
    """The pairs of different studies of a model, the surest first."""
    return Table(
        "",
        pd.DataFrame([pair.model_dump() for pair in model.tested], columns=list(PAIR)),
        (
            *plain_columns(number=False, a="Profile", b="With"),
            Column("blocks", "Blocks"),
            Column("rho", "ρ", rho),
            Column("p", "p", wording.p_value),
            Column("p_corrected", "Corrected p", wording.p_value),
            Column("beyond_depth", "Beyond depth", rho),
        ),
        title=model.model,
        caption="p: permutation of blocks, corrected by Holm's method over all pairs of different studies of all"
        " models. Beyond depth: partial rank correlation given the block's number.",
    )


def text_tables(summary: OverlaySummary) -> RenderableType:
    """The findings and, per model, the pairs of different studies, for a terminal."""
    parts: list[RenderableType] = []
    tables = {model.model: tested(model).terminal(most=MOST) for model in summary.models if model.tested}
    for finding in prose.findings(summary):
        title = Text(visible(finding.subject), style="bold")
        if not finding.sentences and finding.subject not in tables:
            continue  # its headline stands above
        parts += [tables[finding.subject], Text()] if finding.subject in tables else [title]
        parts += [*(Text(visible(sentence.replace(wording.SPACE, " "))) for sentence in finding.sentences), Text()]
    return Group(*parts)
