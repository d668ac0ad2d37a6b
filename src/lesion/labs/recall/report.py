"""The pages of the recall laboratory, in reading order: of a training, and of a study over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lesion.labs.recall import charts, findings, study_findings, tables
from lesion.labs.recall.recipe import Recipe
from lesion.labs.recall.result import LanguageFacts, RecallSummary
from lesion.labs.recall.study_result import RecallStudySummary
from lesion.plain import quoted, visible
from lesion.report import wording
from lesion.report.blocks import Block, Facts, Figure, Findings, Folded, Page, Prose, Section
from lesion.report.publishing import html, publish

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
    "Against the share of the rank that is kept (logarithmic). Random: the matrix behind a random projection of the"
    " same rank, mean with bars from the lowest to the highest draw. Where the curves of top and random coincide, less"
    " of the matrix is what helps, not which part."
)
STUDY_TRUNCATION = (
    "Against the share of the rank that is kept (logarithmic). Bars: from the lowest to the highest seed; random"
    " projections are first averaged over the draws of a seed."
)
LEFT = "What is left when part of a matrix is kept"
EVERY = "Every truncation of every matrix"


def write(folder: Path, summary: RecallSummary | RecallStudySummary) -> Path:
    """Write `report.html` of a training or of a study and its figures into a folder, each whole.

    Args:
        folder: made if it is not there.
        summary: what `lesion.labs.recall.run.run` or `.study.run_recall` returned.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the folder cannot be written.
    """
    return publish(Path(folder), summary.kind, report(summary))


def page(summary: RecallSummary | RecallStudySummary) -> str:
    """The text of `report.html`."""
    return html(report(summary))


def report(summary: RecallSummary | RecallStudySummary) -> Page:
    """What the page of a training or of a study holds."""
    return _training(summary) if isinstance(summary, RecallSummary) else _study(summary)


def _training(summary: RecallSummary) -> Page:
    note = (
        "One seed is one training. Whether a difference holds over seeds is a question for a study: lesion run"
        " recall-quick."
    )
    every = Findings(tuple(findings.findings(summary)))
    sections = [Section("Findings", "Findings", (every, tables.predictions(summary), Prose((note,))))]
    panels = charts.training(summary)
    if panels:
        legend = charts.phase_legend(summary.phases)
        figure = Figure("training", tuple(panels), _phases_caption(bool(legend)), legend, small=True)
        sections.append(Section("Training", "Over training", (figure,)))
    figures = [
        Figure(
            f"truncation-{number}",
            tuple(panels),
            f"The model with {cuts.matrix} replaced. {TRUNCATION}",
            charts.truncation_legend(random=bool(cuts.random)),
            small=True,
            columns=3,
        )
        for number, cuts in enumerate(summary.central, start=1)
        if (panels := charts.truncations(cuts, summary.full))
    ]
    if figures:
        sections.append(Section("Truncation", LEFT, tuple(figures)))
    sections.append(Section("Spectra", "What training did to each spectrum", (tables.spectra(summary),)))
    sections.append(Section("Table", EVERY, (tables.truncations(summary),)))
    facts = Facts(tuple(_facts(summary)))
    reading = Prose(items=READING, title="How to read this", quiet=False)
    sections.append(Section("Recipe", "The recipe", (facts, *_notes(summary.notes), reading)))
    return Page(
        title=f"Noisy in-context recall with α = {summary.recipe.noise:g}",
        eyebrow="recall laboratory",
        sections=tuple(sections),
        version=summary.version,
    )


def _phases_caption(phases: bool) -> str:
    return f"{TRAINING} Dashed uprights: the two phases." if phases else TRAINING


def _facts(summary: RecallSummary) -> list[tuple[str, str]]:
    machine, questions = summary.machine, summary.questions
    return [
        *((name.replace("_", " "), _plain(value)) for name, value in _used(summary.recipe).items()),
        ("tables", _language(summary.language)),
        ("questions", f"{questions.clean:,} on clean, {questions.noisy:,} on noisy sequences"),
        ("machine", visible(f"{machine.device} ({machine.name}), torch {machine.torch}, {machine.seconds} s")),
    ]


def _used(recipe: Recipe) -> dict[str, Any]:
    """What of a recipe its training used: Adam has neither this momentum nor a weight decay."""
    unused = ("momentum", "weight_decay") if recipe.optimiser == "adam" else ()
    return {name: value for name, value in asdict(recipe).items() if name not in unused}


def _language(language: LanguageFacts) -> str:
    """Where the tables come from, and which tokens q and τ are; characters stand in quotes, a space is seen then."""
    trigger, noise = (
        quoted(token) if isinstance(token, str) else str(token) for token in (language.trigger, language.noise_token)
    )
    share = wording.percent(language.trigger_share)
    return f"{language.source}; q is {trigger} ({share} of all tokens), τ is {noise}"


def _study(summary: RecallStudySummary) -> Page:
    groups = summary.groups
    brackets = (
        "Means over seeds; in brackets the lowest and the highest. A seed is its own weights, tables and sequences."
    )
    every = Findings(tuple(study_findings.finding(group) for group in groups))
    sections = [Section("Findings", "Findings", (every, Prose((brackets,))))]
    noise = charts.noise(groups)
    if noise:
        panel, legend = noise
        caption = (
            "The probability that the full model gives to τ on sequences without noise, against the α in training."
            " Bars: from the lowest to the highest seed."
        )
        figure = Figure("noise", (panel,), caption, legend)
        sections.append(Section("Noise", "Does the full model follow the noise?", (figure,)))
    figures = [
        Figure(
            f"truncation-{number}",
            tuple(panels),
            f"{study_findings.group_name(group)}. {STUDY_TRUNCATION}",
            charts.truncation_legend(random=any(row.control == "random" for row in group.truncated)),
        )
        for number, group in enumerate(groups, start=1)
        if (panels := charts.study_truncations(group))
    ]
    if figures:
        sections.append(Section("Truncation", LEFT, tuple(figures)))
    every_table = [tables.group(group) for group in groups]
    folded: Sequence[Block] = [Folded(table.title, (table,)) for table in every_table]
    sections.append(Section("Table", EVERY, tuple(folded if len(groups) > 1 else every_table)))
    cells = "Each training has a folder of its own in cells; lesion report on it draws its curves."
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
    facts = Facts(tuple((name.replace("_", " "), _plain(value)) for name, value in study.items() if value != []))
    sections.append(Section("Study", "The study", (facts, *_notes(summary.notes), Prose((cells,)))))
    return Page(
        title=visible(summary.study.title or "Noisy in-context recall"),
        eyebrow="recall laboratory, study over seeds",
        sections=tuple(sections),
        version=summary.version,
    )


def _notes(notes: Sequence[str]) -> list[Block]:
    return [Prose(items=tuple(map(visible, notes)), title="Notes", quiet=False)] if notes else []


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return wording.DASH if value is None else visible(str(value))
