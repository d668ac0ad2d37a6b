"""The pages of the recall laboratory, in reading order: of a training, and of a study over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, refuse_unfinished
from lesion.outputs import kind_of
from lesion.plain import quoted, visible
from lesion.report import wording
from lesion.report.blocks import Block, Facts, Figure, Findings, Folded, Page, Panel, Prose, Section, entries
from lesion.report.finding import Finding
from lesion.report.table import Table
from lesion_labs.recall import charts, findings, study_findings, tables
from lesion_labs.recall.result import KIND, STUDY_KIND, LanguageFacts, RecallSummary, read
from lesion_labs.recall.study_result import RecallStudySummary

READING = (
    "In each sequence the trigger q is followed by an answer ȳ of its own, or with probability α by the noise token τ"
    " (Chen, Bruna and Bietti 2025). Trained with noise, tested without it.",
    "Truncation keeps the best approximation of a lower rank. A random projection of the same rank shows what less of"
    " the matrix does, whichever part of it is left; deletion is what both tend to.",
    "The loss on noisy sequences shows what a truncation costs where there is noise.",
)
TRAINING = (
    "Against the step (logarithmic). Dotted: α, the least loss on noisy sequences of a model that knows ȳ, and a margin"
    " of 0. Margins are of W_U F(W_E q), for a trigger without position; F1+F2 is what both add along the residual"
    " stream. Masses of the second head are on positions right after a trigger, at the questions. Probes: shares of"
    " tokens or positions for which a matrix by itself prefers the right one."
)
TRUNCATION = (
    "Against the share of the rank that is kept (logarithmic). Random: projections of the same rank, mean with bars"
    " from the lowest to the highest draw. Where the curves of top and random coincide, less of the matrix is what"
    " helps, not which part."
)
STUDY_TRUNCATION = (
    "Against the share of the rank that is kept (logarithmic). Bars: from the lowest to the highest seed; random"
    " projections are first averaged over the draws of a seed."
)
NOISE = (
    "The probability that the full model gives to τ on sequences without noise, against the α in training. Bars: from"
    " the lowest to the highest seed."
)
SEEDS = "One seed is one training. Whether a difference holds over seeds needs a study: lesion run recall-quick."
BRACKETS = "Means over seeds; in brackets the lowest and the highest. A seed has its own weights, tables and sequences."
CELLS = "Each training has a folder of its own in cells; lesion report on it draws its curves."


class RecallResult(StudyResult[RecallSummary | RecallStudySummary]):
    """A training of the recall laboratory and its truncations, or the trainings of a study gathered over seeds."""

    TEXT = tables.text

    @classmethod
    @override
    def recall(cls, folder: Path) -> RecallResult | None:
        kind = kind_of(folder)
        if kind not in (KIND, STUDY_KIND):
            return None
        summary = read(RecallSummary, folder) if kind == KIND else read(RecallStudySummary, folder)
        if summary is None:
            refuse_unfinished(folder, kind)
            return None
        return cls(folder, summary)

    @property
    def table(self) -> pd.DataFrame:
        """A row per replacement of a matrix; in a study per group of seeds, with means and the lowest and highest."""
        if isinstance(self.summary, RecallSummary):
            return tables.truncations(self.summary).frame
        return pd.concat([tables.group(group).frame for group in self.summary.groups], ignore_index=True)

    @override
    def found(self) -> list[Finding]:
        if isinstance(self.summary, RecallSummary):
            return findings.findings(self.summary)
        return [study_findings.finding(group) for group in self.summary.groups]

    @override
    def shown(self) -> Table:
        if isinstance(self.summary, RecallSummary):
            return tables.truncations(self.summary, brief=True)
        return tables.group(self.summary.groups[0], brief=True)

    @override
    def page(self) -> Page:
        summary = self.summary
        if isinstance(summary, RecallSummary):
            title, eyebrow = f"Noisy in-context recall with α = {summary.recipe.noise:g}", "recall laboratory"
            sections = _training(summary)
        else:
            title = visible(summary.study.title or "Noisy in-context recall")
            eyebrow, sections = "recall laboratory, study over seeds", _study(summary)
        return Page(title=title, eyebrow=eyebrow, sections=tuple(sections), version=summary.version)


def _training(summary: RecallSummary) -> list[Section]:
    every = Findings(tuple(findings.findings(summary)))
    sections = [Section("Findings", "Findings", (every, tables.predictions(summary), Prose((SEEDS,))))]
    if panels := charts.training(summary):
        legend = charts.phase_legend(summary.phases)
        caption = f"{TRAINING} Dashed uprights: the two phases." if legend else TRAINING
        figure = Figure("training", tuple(panels), caption, legend, small=True)
        sections.append(Section("Training", "Over training", (figure,)))
    truncated = (
        (f"The model with {matrix} replaced. {TRUNCATION}", charts.truncations(summary, matrix))
        for matrix in summary.central
    )
    unused = ("momentum", "weight_decay") if summary.recipe.optimiser == "adam" else ()
    recipe = {name: value for name, value in asdict(summary.recipe).items() if name not in unused}
    machine, questions = summary.machine, summary.questions
    facts = (
        *entries(recipe),
        ("tables", _language(summary.language)),
        ("questions", f"{questions.clean:,} on clean, {questions.noisy:,} on noisy sequences"),
        ("machine", visible(f"{machine.device} ({machine.name}), torch {machine.torch}, {machine.seconds} s")),
    )
    reading = Prose(items=READING, title="How to read this", quiet=False)
    return [
        *sections,
        *_left(truncated, random=any(row.control == "random" for row in summary.truncated), columns=3),
        Section("Spectra", "What training did to each spectrum", (tables.spectra(summary),)),
        _every([tables.truncations(summary)]),
        Section("Recipe", "The recipe", (Facts(facts), *_notes(summary.notes), reading)),
    ]


def _study(summary: RecallStudySummary) -> list[Section]:
    groups = summary.groups
    every = Findings(tuple(study_findings.finding(group) for group in groups))
    sections = [Section("Findings", "Findings", (every, Prose((BRACKETS,))))]
    if noise := charts.noise(groups):
        panel, legend = noise
        figure = Figure("noise", (panel,), NOISE, legend)
        sections.append(Section("Noise", "Does the full model follow the noise?", (figure,)))
    truncated = (
        (f"{study_findings.group_name(group)}. {STUDY_TRUNCATION}", charts.study_truncations(group)) for group in groups
    )
    every_table = [tables.group(group) for group in groups]
    folded: list[Block] = [Folded(table.title, (table,)) for table in every_table]
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
    facts = Facts(entries({name: value for name, value in study.items() if value != []}))
    return [
        *sections,
        *_left(truncated, random=any(row.control == "random" for group in groups for row in group.truncated)),
        _every(folded if len(groups) > 1 else every_table),
        Section("Study", "The study", (facts, *_notes(summary.notes), Prose((CELLS,)))),
    ]


def _left(truncated: Iterable[tuple[str, Sequence[Panel]]], *, random: bool, columns: int = 2) -> list[Section]:
    """A figure for each caption with its panels; no section where nothing is drawn."""
    legend = charts.truncation_legend(random=random)
    figures = [
        Figure(f"truncation-{number}", tuple(panels), caption, legend, small=columns > 2, columns=columns)
        for number, (caption, panels) in enumerate(truncated, start=1)
        if panels
    ]
    title = "What is left when part of a matrix is kept"
    return [Section("Truncation", title, tuple(figures))] if figures else []


def _every(tables: Sequence[Block]) -> Section:
    return Section("Table", "Every truncation of every matrix", tuple(tables))


def _language(language: LanguageFacts) -> str:
    """Where the tables come from, and which tokens q and τ are; characters stand in quotes, a space is seen then."""
    trigger, noise = (
        quoted(token) if isinstance(token, str) else str(token) for token in (language.trigger, language.noise_token)
    )
    share = wording.percent(language.trigger_share)
    return f"{language.source}; q is {trigger} ({share} of all tokens), τ is {noise}"


def _notes(notes: Sequence[str]) -> list[Block]:
    return [Prose(items=tuple(map(visible, notes)), title="Notes", quiet=False)] if notes else []
