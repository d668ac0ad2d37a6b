"""What a training of the recall laboratory shows, in sentences written from its numbers by rules."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion_labs.recall.result import RecallSummary, Spectrum

APART = 0.05
"""Accuracies and probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""
TIE = "With α near .5 τ and ȳ tie: judge by probability and loss, not by accuracy."


def findings(summary: RecallSummary) -> list[Finding]:
    """The full model, the two phases, and what replacing each central matrix does."""
    first, *others = phases(summary)
    two_phases = Finding("Two phases", (first,), tuple(others))
    return [_full(summary), two_phases, *(_cut(summary, matrix) for matrix in summary.central)]


def _full(summary: RecallSummary) -> Finding:
    full, noise = summary.full, summary.recipe.noise
    sentences = [
        f"Accuracy: {wording.percent(full.clean_accuracy)} of {wording.counted(summary.questions.clean, 'question')}.",
        f"Loss on noisy sequences: {full.noisy_loss:.3f} nats, of a model that knows ȳ at least {floor(summary)}.",
    ]
    if summary.own_answers is not None:
        clean = summary.own_answers.clean
        sentences.append(
            f"Own answers: on clean sequences ȳ is q at {wording.percent(clean.trigger)} of the questions, τ at"
            f" {wording.percent(clean.noise)}. So a perfect model gives τ {clean.noise:.3f}."
        )
    if abs(noise - 0.5) < APART:
        sentences.append(TIE)
    headline = (
        f"On clean sequences the full model gives the noise token τ {full.p_noise:.3f} (α in training: {noise:g}) and"
        f" the answer ȳ {full.p_correct:.3f}."
    )
    return Finding("The full model", (headline,), tuple(sentences))


def floor(summary: RecallSummary) -> str:
    """The least loss on noisy sequences."""
    least = summary.floor + 0.0  # never −0
    if summary.own_answers is None:
        return f"H(α) = {least:.3f}"
    return f"{least:.3f}: H(α), but 0 at the {wording.percent(summary.own_answers.noisy.noise)} where ȳ is τ"


def phases(summary: RecallSummary) -> list[str]:
    """When the feed-forwards learn that τ follows q, and when attention recalls; at least one sentence."""
    attention, untrained = summary.phases.attention, summary.phases.untrained
    if not summary.recipe.steps:
        return ["Nothing was trained: all numbers are those of random weights."]
    recall = f"attention has not put half of its mass on ȳ by step {summary.recipe.steps:,}"
    if attention is not None:
        recall = f"attention has more than half of its mass on ȳ from step {attention:,} on"
    if not summary.training[-1].margins:
        return [f"The model has no feed-forward; {recall}."]
    sentences = []
    if learned := summary.phases.learned:
        first = min(learned.values())
        names = [name for name, step in learned.items() if step == first]
        verb = "prefers" if len(names) == 1 else "prefer"
        steps = {name: wording.DASH if step is None else f"{step:,}" for name, step in summary.phases.margins.items()}
        since = "; ".join(
            f"{name} {step}" for name, step in (steps | dict.fromkeys(untrained, "untrained, by chance")).items()
        )
        sentences += [
            f"{wording.listed(names)} {verb} τ after q from step {first:,} on; {recall}.",
            f"Each trigger margin stays positive from step: {since}.",
        ]
    else:
        sentences.append(f"No feed-forward comes to prefer τ after q by itself; {recall}.")
    if untrained and not learned:
        sentences.append(f"{wording.listed(untrained)} preferred τ after q before training already, by chance.")
    return sentences


def _cut(summary: RecallSummary, matrix: str) -> Finding:
    full = summary.full
    (deleted,), (without,) = summary.rows(matrix, "deletion"), summary.rows(matrix, "drop-top")
    headline = (
        f"Without {matrix}, p(τ) on clean sequences goes from {full.p_noise:.3f} to {deleted.p_noise:.3f} and accuracy"
        f" from {wording.percent(full.clean_accuracy)} to {wording.percent(deleted.clean_accuracy)}."
    )
    sentences = [
        f"Loss on noisy sequences: {full.noisy_loss:.3f} to {deleted.noisy_loss:.3f} nats.",
        *_beside_random(summary, matrix),
        *_spectrum(summary.spectra.get(matrix)),
        f"Without its largest component alone: p(τ) {without.p_noise:.3f}, accuracy"
        f" {wording.percent(without.clean_accuracy)}.",
    ]
    return Finding(f"Cutting {matrix}", (headline,), tuple(sentences))


def _beside_random(summary: RecallSummary, matrix: str) -> list[str]:
    """Where keeping the top leaves less or more of p(τ) than every random projection, and clearly than their mean."""
    less, more, compared = [], [], 0
    for row in summary.rows(matrix, side="top"):
        if drawn := summary.drawn(matrix, row.rank, "p_noise"):
            compared += 1
            if row.p_noise < min(drawn.least, drawn.mean - APART):
                less.append(wording.keep(row.keep or 0.0))
            if row.p_noise > max(drawn.most, drawn.mean + APART):
                more.append(wording.keep(row.keep or 0.0))
    sentences = [
        f"Keeping the top {wording.listed(shares)} leaves {how} of p(τ) than random projections of the same rank."
        for shares, how in ((less, "less"), (more, "more"))
        if shares
    ]
    if compared and not sentences:
        return [
            "Keeping the top leaves about as much of p(τ) as random projections of the same rank: no choice of"
            " components."
        ]
    return sentences


def _spectrum(spectrum: Spectrum | None) -> list[str]:
    """Whether training has reached the top of a matrix's spectrum, and whether the top writes τ."""
    if spectrum is None:
        return []
    sentences = [
        f"Its largest singular value was {spectrum.before:.2f} before training, {spectrum.values[0]:.2f} after"
        f"{'' if spectrum.grown else ': hardly more'}."
    ]
    if spectrum.noise is not None:
        sentences.append(f"Its first left singular vector has a cosine of {spectrum.noise:.2f} with τ.")
    return sentences
