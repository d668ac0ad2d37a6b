"""The report of a drift study, in reading order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, progress_line
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import (
    Block,
    Chapter,
    Figure,
    Findings,
    Opening,
    Page,
    Panel,
    Part,
    Prose,
    Section,
    entries,
    study_section,
)
from lesion.report.files import fragment
from lesion.report.finding import Finding
from lesion.studies.drift import charts, tables, token_drift
from lesion.studies.drift import findings as prose
from lesion.studies.drift.result import BY_TOKEN, CHECKS, DriftSummary, Family

READING = (
    "At every layer the vectors of all tokens are clustered by k-means. The normalised mutual information (NMI) of two"
    " clusterings is 1 where they are the same up to names and near 0 where one tells nothing of the other. Many"
    " clusters of few tokens agree by chance: a layer is told from the null, of shuffled tokens, only above the 97.5 %"
    " quantile over shuffles, where its band ends.",
    "After Nepal et al. (2025), who draw k = 50 over five runs of twenty problems and see an elbow near the critical"
    " layers.",
    "A hinge, the paper's elbow, is where the slope of a line changes; a step is where its level does. Both are fitted"
    " to all runs, each run with a line of its own. A curve that bends slowly has a hinge too, with a wide interval.",
    "Cosine and CKA need no clusters. Where they fall over the same blocks, the drift is not an artefact of k-means;"
    " where they do not, clusters and vectors tell of different things.",
    "No evidence is not evidence of nothing: the interval says what was ruled out.",
)
LEFT = (
    "Clusters of the two layers are matched one to one so that most tokens stay. A token leaves when its cluster is"
    " then not the one matched with its former. k-means alone moves tokens between any two clusterings, so a share is"
    " to be compared with that of all tokens (the vertical line). Open a row to read occurrences that left.",
)


@dataclass(frozen=True)
class DriftResult(StudyResult[DriftSummary]):
    """A drift study: its numbers.

    Attributes:
        evaluated: own solutions generated in this run, without those stored before.
        planned: runs of a model under a number of clusters that the study consists of; 0 where it was not run now.
        measured: of these, how many were clustered now.
        table: one row per model, number of clusters and layer: mean and standard deviation over runs, as `drift.csv`.
            Cosine, CKA and the agreement with labels (columns `nmi with LABEL`) do not depend on the number of clusters
            or are measured under the drawn one alone; in other rows they are missing.
    """

    SUMMARY, TABLE, TEXT = DriftSummary, tables.layers, tables.text_tables

    measured: int = 0

    @property
    def tokens(self) -> pd.DataFrame:
        """One row per model and token type or class between two layers, as `tokens.csv`."""
        return tables.tokens(self.summary).frame

    @override
    def found(self) -> list[Finding]:
        return [*prose.findings(self.summary), *prose.by_model(self.summary)]

    @override
    def page(self) -> Page:
        summary = self.summary
        sections = [Section("Findings", "Findings", tuple(_findings(summary)))]
        if summary.models:
            title = f"How far the clusters are from those of layer {summary.reference}"
            sections.append(Section("Drift", title, tuple(figures(summary))))
            shapes = tables.shapes(summary)
            if len(shapes.frame):
                sections.append(Section("Shapes", "Line, hinge or step", (shapes,)))
            checks = [figure for family in summary.families if (figure := _checks(summary, family)).panels]
            if checks:
                title = "Other numbers of clusters, and measures without clusters"
                sections.append(Section("Checks", title, tuple(checks)))
            sections.append(_tokens(summary))
            sections.append(Section("Layers", "All layers", (tables.layers(summary),)))
        sections.append(_study(summary))
        several = len(summary.models) != 1
        models = wording.counted(len(summary.models), "model") if several else summary.models[0].name
        return Page(
            title=visible(summary.study.title or f"Representation drift of {models} on {summary.study.task.name}"),
            eyebrow="representation drift",
            sections=tuple(sections),
            version=summary.version,
            approximate=summary.approximate or "",
            tables=(tables.tokens(summary), tables.flow(summary)),
            opening=Opening(tuple(prose.lead(summary))),
        )

    @override
    def chapter(self) -> Chapter:
        summary = self.summary
        return Chapter(
            "Do tokens leave their first clusters, and does the curve bend or step at the critical blocks?",
            "The hidden states of prompts and the models' own solutions are clustered at every layer; the curve is how"
            " much those clusters still tell about the clusters of layer 0. Layer l is the output of block l − 1.",
            tuple(finding for finding in prose.findings(summary) if finding.headline),
            tuple(figures(summary)),
            short="Drift",
        )

    @override
    def done(self) -> list[str]:
        return [progress_line("clustered", self.measured, self.planned, " runs")] if self.planned else []


def _findings(summary: DriftSummary) -> list[Block]:
    level = f"{100 * summary.study.level:g}{wording.SPACE}%"
    about = (
        "Layer 0 is what enters block 0, layer l the output of block l − 1: block c stands between the layers c and"
        f" c + 1. Brackets are {level} intervals; ± is one standard deviation between runs."
    )
    return [Findings(tuple(prose.findings(summary)), tuple(prose.by_model(summary))), Prose((about,))]


def figures(summary: DriftSummary) -> list[Figure]:
    """The main figure of every family."""
    runs = wording.counted(summary.study.runs, "run")
    drawn = ", ".join(map(str, sorted({model.clusters for model in summary.models})))
    caption = (
        f"Normalised mutual information of the clusters at each layer (k = {drawn}) with those at layer"
        f" {summary.reference}; bands: ± one standard deviation over {runs}. The rows above: each"
        " model's critical blocks, grey between the layers that they join, and its hinge or step where the curve is not"
        " a straight line."
    )
    axis = f"NMI with layer {summary.reference}"
    return [
        Figure(
            name=_numbered(summary, "drift", family),
            panels=(
                Panel(
                    (charts.places_chart(family), charts.measure_chart(family, "nmi", axis, null=True, places=True)),
                    prose.family_title(family),
                ),
            ),
            caption=caption,
            legend=charts.legend(family, places=True),
        )
        for family in summary.families
    ]


def _numbered(summary: DriftSummary, name: str, family: Family) -> str:
    """The name of a family's figure: with its number where there are several families."""
    return name if len(summary.families) == 1 else f"{name}-{summary.families.index(family) + 1}"


def _checks(summary: DriftSummary, family: Family) -> Figure:
    """A family's small charts: other numbers of clusters, measures without clusters, and labels of the tokens."""
    panels = [
        Panel((charts.measure_chart(family, "nmi", "NMI", clusters, null=True),), f"NMI, {clusters} clusters")
        for clusters in sorted(summary.study.clusters or ())
        if clusters != summary.study.drawn and any(model.under(clusters) for model in family.models)
    ]
    names = {name: f"{tables.HEADINGS[name]} with layer {summary.reference}" for name in CHECKS}
    names |= {label: f"NMI with {label}" for label in summary.labellings}
    names |= {BY_TOKEN: f"NMI with layer {summary.reference}, by token"}
    for measure, title in names.items():
        if any(model.curve.along(measure) for model in family.models):
            axis = tables.HEADINGS.get(measure, "NMI")
            panels.append(
                Panel((charts.measure_chart(family, measure, axis, null=measure in summary.labellings),), title)
            )
    return Figure(
        name=_numbered(summary, "checks", family),
        panels=tuple(panels),
        caption=f"{family.name}. Cosine: mean over tokens of the cosine between a token's vectors at the two layers;"
        " CKA: linear, centred. NMI with token class and token: of a layer's own clusters with what kind of token, and"
        " which token, each position holds. By token: every occurrence counts as in its token's most common cluster."
        " Grey: what shuffled tokens give.",
        legend=charts.legend(family),
        small=True,
        columns=3,
    )


def _tokens(summary: DriftSummary) -> Section:
    template = Path(__file__).parent / "tokens.html.jinja"
    part = fragment(template, models=summary.models, shown=token_drift.shown, token_text=token_drift.token_text)
    caption = (
        "Intervals take occurrences for independent, which those of one text are not: they are narrower than the doubt"
        " about other texts. All rows: tokens.csv and flow.csv."
    )
    return Section("Tokens", "Which tokens left their cluster", (Prose(LEFT), Part(part), Prose((caption,))))


def _study(summary: DriftSummary) -> Section:
    """The study's own entries, for whoever wants to repeat it; its notes; how to read the page."""
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
    facts = [*entries(study)]
    positions = [run.tokens for model in summary.models for run in model.runs]
    if positions:
        low, high = min(positions), max(positions)
        facts.append(("tokens of a run", f"{low:,}" if low == high else f"{low:,} to {high:,}"))
    return study_section(facts, summary.notes, READING)
