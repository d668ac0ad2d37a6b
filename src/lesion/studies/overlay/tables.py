"""The tables of an overlay: blocks of every profile, pairs of profiles; and those of the terminal."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from lesion.plain import visible
from lesion.report import wording
from lesion.report.table import Column, Table
from lesion.report.wording import rho
from lesion.studies.overlay import findings as prose
from lesion.studies.overlay.result import Correlation, ModelProfiles, OverlaySummary

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
    rows = [(model.model, *_pair(pair)) for model in summary.models for pair in model.correlations]
    return Table("correlations", pd.DataFrame(rows, columns=["model", *PAIR]))


def _pair(pair: Correlation) -> tuple[object, ...]:
    return tuple(getattr(pair, name) for name in PAIR)


def tested(model: ModelProfiles) -> Table:
    """The pairs of different studies of a model, the surest first."""
    return Table(
        "",
        pd.DataFrame([_pair(pair) for pair in model.tested], columns=list(PAIR)),
        (
            Column("a", "Profile", number=False),
            Column("b", "With", number=False),
            Column("blocks", "Blocks"),
            Column("rho", "ρ", rho),
            Column("p", "p", wording.p_value),
            Column("p_corrected", "Corrected p", wording.p_value),
            Column("beyond_depth", "Beyond depth", rho),
        ),
        title=model.model,
        caption="p: permutation of blocks. Corrected p: by Holm's method over all pairs of different studies of all"
        " models. Beyond depth: partial rank correlation given the block's number.",
    )


def text_tables(summary: OverlaySummary) -> RenderableType:
    """The findings and, per model, the pairs of different studies, for a terminal."""
    parts: list[RenderableType] = []
    findings = prose.findings(summary.models)
    for model in summary.models:
        own = [text for finding in findings if finding.subject == model.model
               for text in (*finding.headline, *finding.sentences)]  # fmt: skip
        if model.tested:
            parts += [tested(model).terminal(most=MOST), Text()]
        elif own:
            parts.append(_title(model.model))
        parts += [*map(_text, own), Text()] if own else []
    names = {model.model for model in summary.models}
    for finding in findings:
        if finding.subject not in names:
            parts += [_title(finding.subject), *map(_text, (*finding.headline, *finding.sentences)), Text()]
    return Group(*parts)


def _text(sentence: str) -> Text:
    return Text(visible(sentence.replace(wording.SPACE, " ")))


def _title(name: str) -> Text:
    return Text(visible(name), style="bold")
