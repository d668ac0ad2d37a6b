"""The report of a memory, in reading order."""

from __future__ import annotations

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.plain import visible
from lesion.report.blocks import Block, Facts, Figure, Findings, Folded, Page, Panel, Prose, Section, entries
from lesion.report.finding import Finding
from lesion_labs.memory import charts, tables
from lesion_labs.memory import findings as prose
from lesion_labs.memory.result import MemorySummary

READING = (
    "Logits of input i are W_U W W_E e_i with frozen codes; W is trained from zero by full-batch gradient descent on"
    " the expected cross-entropy. The target is f*(i) with probability 1 − α and one common class with probability α.",
    "With α below one half the argmax of the full memory is right already: truncation then changes probability and"
    " loss. At one half it ties.",
    "A truncation shows something about the spectrum only where it does better than a random projection of the same"
    " rank and than keeping nothing.",
    "The gradient compares one association with another. All recall associations together are a larger gradient than"
    " one of them.",
)
TRAINING = (
    "Spectrum: singular values of W against the step (logarithmic); the noise lies where the left singular vectors hold"
    " most of the common class's code. Predictions: mean probabilities that the full memory gives to f*(i) and to the"
    " common class."
)
TRUNCATION = (
    "Clean accuracy, probability of the common class, and −log p of f* against the number of components of W kept."
    " Keeping the smallest drops the largest. Random: projected onto as many random directions of W's own range, mean"
    " with a band from the lowest to the highest draw. Bars: cuts through equal singular values, where chance decides"
    " which are kept. Equal logits are chosen among at random."
)


FIRST_STEP = (
    "Noisy in-context recall at zero weights and uniform attention: the gradient of the feed-forward from the trigger q"
    " to the noise token τ, and of the attention-value matrix from a token to itself (recall) and to τ; each over its"
    " mean towards the other tokens."
)


class MemoryResult(StudyResult[MemorySummary]):
    """An associative memory with noise: its training, truncations, the sweep over sizes, and the first step."""

    SUMMARY, TABLE, TEXT = MemorySummary, tables.truncations, tables.text

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def page(self) -> Page:
        summary = self.summary
        study = summary.study
        findings: list[Block] = [Findings(tuple(prose.findings(summary)))]
        if summary.notes:
            findings.append(Prose(items=summary.notes, title="Notes", quiet=False))
        panels = (
            Panel((charts.spectrum_chart(summary),), "Spectrum of W", charts.spectrum_legend(summary)),
            Panel((charts.probability_chart(summary),), "What the full memory predicts", charts.probability_legend()),
        )
        training = Figure("training", panels, TRAINING)
        values = entries(study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"}))
        reading = Prose(items=READING, title="How to read this", quiet=False)
        return Page(
            title=visible(
                study.title or f"An associative memory of {study.classes} classes with noise {study.noise:g}"
            ),
            eyebrow="associative memory",
            sections=(
                Section("Findings", "Findings", tuple(findings)),
                Section("Training", "The spectrum over training", (training,)),
                _truncation(summary),
                *([_sizes(summary)] if summary.sizes else []),
                _first_step(summary),
                Section("Study", "The study", (Facts(values), reading)),
            ),
            version=summary.version,
            approximate=summary.approximate or "",
        )


def _truncation(summary: MemorySummary) -> Section:
    panels = tuple(
        Panel((charts.truncation_chart(summary, measure),), heading)
        for measure, (heading, _) in charts.MEASURES.items()
    )
    figure = Figure("truncation", panels, TRUNCATION, charts.TRUNCATION_LEGEND, small=True, columns=3)
    numbers = Folded("The numbers", (tables.truncations(summary),))
    return Section("Truncation", "What is left when part of the spectrum is kept", (figure, numbers))


def _sizes(summary: MemorySummary) -> Section:
    figures = []
    for codes in dict.fromkeys(size.codes for size in summary.sizes):
        panels = (Panel((charts.ratio_chart(summary, codes, noise),), f"α = {noise:g}") for noise in summary.noises)
        caption = (
            f"{codes.capitalize()} codes: σ of the noise over the largest other σ over training, both axes logarithmic;"
            f" one input per class. Above the dotted line the noise is on top; what is below {charts.FOOT:g} stands at"
            " the foot."
        )
        caption += " Bands go from the lowest to the highest draw of codes." if codes == "gaussian" else ""
        legend = charts.ratio_legend(summary, codes)
        figures.append(Figure(f"sizes-{codes}", tuple(panels), caption, legend, small=True, columns=3))
    label = "Every size: when the noise changed sides, and what dropping one component does"
    every = Folded(label, (tables.cuts(summary),))
    blocks: tuple[Block, ...] = (tables.places(summary, tables.first_and_last), every, *figures)
    return Section("Sizes", "Which side holds the noise, at which sizes", blocks)


def _first_step(summary: MemorySummary) -> Section:
    step = summary.first_step
    panels = tuple(
        Panel((charts.signal_chart(step, trigger),), f"{name[0].upper()}{name[1:]}")
        for trigger, name in charts.TRIGGERS.items()
    )
    caption = (
        f"Both axes logarithmic. Lines: exact, for orthonormal codes. Marks: means over batches of {step.batch:,}"
        f" sequences with gaussian codes of width {step.width}; bars from the lowest to the highest batch."
    )
    figure = Figure("first-step", panels, caption, charts.SIGNAL_LEGEND, small=True, columns=3)
    about = Prose((f"{FIRST_STEP} α = {step.noise:g}, {step.length} tokens.",))
    everything = Folded("Signals and what stands around them", (tables.levels(summary),))
    title = "What the first gradient step learns, against the vocabulary"
    return Section("First step", title, (about, figure, tables.powers(summary), everything))
