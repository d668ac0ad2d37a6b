"""What a training of the recall laboratory shows, in sentences written from its numbers by rules."""

from __future__ import annotations

from lesion.labs.recall.result import RecallSummary, Spectrum
from lesion.report import wording
from lesion.report.finding import Finding

APART = 0.05
"""Accuracies and probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""
TIE = "With α near .5 the best guess is a tie between τ and ȳ: judge by probability and loss, not by accuracy."


def findings(summary: RecallSummary) -> list[Finding]:
    """The full model, the two phases, and what replacing each central matrix does."""
    first, *others = phases(summary)
    two_phases = Finding("Two phases", (first,), tuple(others))
    return [_full(summary), two_phases, *(_cut(summary, matrix) for matrix in summary.central)]


def _full(summary: RecallSummary) -> Finding:
    full, noise = summary.full, summary.recipe.noise
    close = "close" if abs(full.p_noise - noise) < APART else "not close"
    headline = (
        f"On clean sequences the full model gives the noise token τ a probability of {full.p_noise:.3f} ({close} to the"
        f" α of {noise:g} in training) and the right answer ȳ {full.p_correct:.3f}."
    )
    sentences = [
        f"Accuracy on clean sequences: {wording.percent(full.clean_accuracy)} of"
        f" {wording.counted(summary.questions.clean, 'question')}.",
        f"Loss on noisy sequences: {full.noisy_loss:.3f} nats; {floor(summary)}.",
    ]
    if summary.own_answers is not None:
        clean = summary.own_answers.clean
        sentences.append(
            f"Own answers: ȳ may be q or τ. Of the questions on clean sequences, {wording.percent(clean.trigger)}"
            f" come from runs of q, where q is right; at {wording.percent(clean.noise)} τ is right. So a perfect model"
            f" gives τ a mean probability of {clean.noise:.3f}; one that never predicts τ is at most"
            f" {wording.percent(1 - clean.noise)} right."
        )
    if abs(noise - 0.5) < APART:
        sentences.append(TIE)
    return Finding("The full model", (headline,), tuple(sentences))


def floor(summary: RecallSummary) -> str:
    """The least loss on noisy sequences, as a clause."""
    least = summary.floor + 0.0  # never −0
    if summary.own_answers is None:
        return f"for a model that knows ȳ, the least is H(α) = {least:.3f}"
    certain = wording.percent(summary.own_answers.noisy.noise)
    zero = f"0 at the {certain} of the questions where ȳ is τ"
    return f"for a model that knows ȳ, the least is {least:.3f}: H(α), but {zero}"


def phases(summary: RecallSummary) -> list[str]:
    """When the feed-forwards learn that τ follows q, and when attention recalls; at least one sentence."""
    attention, untrained = summary.phases.attention, summary.phases.untrained
    if not summary.recipe.steps:
        return ["Nothing was trained: all numbers are those of random weights."]
    recall = f"attention has not put half of its mass on ȳ by step {summary.recipe.steps:,}"
    if attention is not None:
        recall = f"attention has more than half of its mass on ȳ from step {attention:,} on"
    if not summary.training[-1].margins:
        return [f"The model has no feed-forward; {recall} (measured on clean sequences)."]
    sentences = []
    if learned := summary.phases.learned:
        first = min(learned.values())
        names = [name for name, step in learned.items() if step == first]
        verb = "prefers" if len(names) == 1 else "prefer"
        steps = {name: wording.DASH if step is None else f"{step:,}" for name, step in summary.phases.margins.items()}
        since = "; ".join(f"{name} {step}" for name, step in (steps | dict.fromkeys(untrained, "untrained")).items())
        sentences += [
            f"{wording.listed(names)} {verb} τ after q from step {first:,} on; {recall}.",
            f"Step from which on each trigger margin stays positive: {since}.",
        ]
    else:
        verb, when = ("comes to prefer", "during training") if untrained else ("prefers", "at the end")
        sentences.append(f"No feed-forward {verb} τ after q by itself {when}; {recall} (measured on clean sequences).")
    if untrained:
        sentences.append(f"{wording.listed(untrained)} preferred τ after q before training already, by chance.")
    return sentences


def _cut(summary: RecallSummary, matrix: str) -> Finding:
    full = summary.full
    (deleted,), (without,) = summary.rows(matrix, "deletion"), summary.rows(matrix, "drop-top")
    headline = (
        f"Without {matrix}, p(τ) on clean sequences goes from {full.p_noise:.3f} to {deleted.p_noise:.3f} and accuracy"
        f" from {wording.percent(full.clean_accuracy)} to {wording.percent(deleted.clean_accuracy)}."
    )
    dropped = f"leaves p(τ) at {without.p_noise:.3f}"
    if without.p_noise < full.p_noise - APART:
        accuracy = wording.percent(without.clean_accuracy)
        dropped = f"brings p(τ) to {without.p_noise:.3f} and accuracy to {accuracy}"
    sentences = [
        f"The loss on noisy sequences goes from {full.noisy_loss:.3f} to {deleted.noisy_loss:.3f} nats: with noise,"
        f" {matrix} {'helps' if deleted.noisy_loss > full.noisy_loss else 'does not help'}.",
        *_beside_random(summary, matrix),
        *_spectrum(summary.spectra.get(matrix)),
        f"Dropping its largest component alone {dropped}.",
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
            "Keeping the top leaves about as much of p(τ) as random projections of the same rank: partial deletion,"
            " not a choice of components."
        ]
    return sentences


def _spectrum(spectrum: Spectrum | None) -> list[str]:
    """Whether training has reached the top of a matrix's spectrum, and whether the top writes τ."""
    if spectrum is None:
        return []
    sentences = [
        f"Its largest singular value is {spectrum.values[0]:.2f}, and was {spectrum.before:.2f} before training:"
        f" {'what was learned is on top' if spectrum.grown else 'hardly more'}."
    ]
    if spectrum.noise is not None:
        cosine = f"a cosine of {spectrum.noise:.2f} with the direction of τ"
        sentences.append(f"Its first left singular vector has {cosine}.")
    return sentences
