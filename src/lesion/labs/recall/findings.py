"""What a training of the recall laboratory shows, in sentences written from its numbers by rules."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.labs.recall.result import MatrixCuts, RecallSummary, Spectrum
from lesion.report import wording
from lesion.report.finding import Finding

APART = 0.05
"""Accuracies and probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""
TIE = "With α near .5 the best guess is a tie between τ and ȳ: judge by probability and loss, not by accuracy."


def findings(summary: RecallSummary) -> list[Finding]:
    """The full model, the two phases, and what replacing each central matrix does."""
    first, *others = phases(summary)
    return [
        _full(summary),
        Finding("Two phases", (first,), tuple(others)),
        *(_cut(summary, cuts) for cuts in summary.central),
    ]


def _full(summary: RecallSummary) -> Finding:
    full, noise = summary.full, summary.recipe.noise
    near = abs(full.p_noise - noise) < APART
    headline = (
        f"On clean sequences the full model gives the noise token τ a probability of {full.p_noise:.3f}"
        f" ({'close' if near else 'not close'} to the α of {noise:g} in training) and the right answer ȳ"
        f" {full.p_correct:.3f}."
    )
    sentences = [
        f"Accuracy on clean sequences: {wording.percent(full.clean_accuracy)} of"
        f" {wording.counted(summary.questions.clean, 'question')}.",
        f"Loss on noisy sequences: {full.noisy_loss:.3f} nats; {floor(summary)}.",
        *_own_answers(summary),
    ]
    if abs(noise - 0.5) < APART:
        sentences.append(TIE)
    return Finding("The full model", (headline,), tuple(sentences))


def floor(summary: RecallSummary) -> str:
    """The least loss on noisy sequences, as a clause."""
    least = summary.floor + 0.0  # never −0
    if summary.own_answers is None:
        return f"for a model that knows ȳ, the least is H(α) = {least:.3f}"
    certain = wording.percent(summary.own_answers.noisy.noise)
    return (
        f"for a model that knows ȳ, the least is {least:.3f}: H(α), but 0 at the {certain} of the questions where ȳ is"
        " τ and nothing is uncertain"
    )


def _own_answers(summary: RecallSummary) -> list[str]:
    """What it means for accuracy and p(τ) that ȳ may be q or τ."""
    if summary.own_answers is None:
        return []
    clean = summary.own_answers.clean
    return [
        f"Own answers: ȳ may be q or τ. {wording.percent(clean.trigger)} of the questions on clean sequences come from"
        f" runs of q that answer themselves, where q again is right; at {wording.percent(clean.noise)} τ is right. So a"
        f" perfect model gives τ a mean probability of {clean.noise:.3f}, and one that never predicts τ has at most"
        f" {wording.percent(1 - clean.noise)} right."
    ]


def phases(summary: RecallSummary) -> list[str]:
    """When the feed-forwards learn that τ follows q, and when attention recalls; at least one sentence."""
    margins, attention, untrained = summary.phases.margins, summary.phases.attention, summary.phases.untrained
    steps = summary.recipe.steps
    if not steps:
        return ["Nothing was trained: all numbers are those of random weights."]
    recall = (
        f"attention has more than half of its mass on ȳ from step {attention:,} on"
        if attention is not None
        else f"attention has not put half of its mass on ȳ by step {steps:,}"
    )
    if not summary.training[-1].margins:
        return [f"The model has no feed-forward; {recall} (measured on clean sequences)."]
    chance = (
        [
            f"{wording.listed(untrained)} preferred τ after q before training already, by the chance of the weights,"
            f" and ever since: {'its' if len(untrained) == 1 else 'their'} step says nothing."
        ]
        if untrained
        else []
    )
    learned = summary.phases.learned
    if not learned:
        which = "No feed-forward comes to prefer" if untrained else "No feed-forward prefers"
        when = "during training" if untrained else "at the end"
        return [f"{which} τ after q by itself {when}; {recall} (measured on clean sequences).", *chance]
    first = min(learned.values())
    names = [name for name, step in learned.items() if step == first]
    verb = "prefers" if len(names) == 1 else "prefer"
    since = "; ".join(f"{name} {_since(name, step, untrained)}" for name, step in margins.items())
    return [
        f"{wording.listed(names)} {verb} τ after q from step {first:,} on; {recall}.",
        f"Step from which on each trigger margin stays positive: {since}.",
        *chance,
    ]


def _since(name: str, step: int | None, untrained: Sequence[str]) -> str:
    if name in untrained:
        return "untrained"
    return wording.DASH if step is None else f"{step:,}"


def _cut(summary: RecallSummary, cuts: MatrixCuts) -> Finding:
    full, deleted = summary.full, cuts.deleted
    headline = (
        f"Without {cuts.matrix}, p(τ) on clean sequences goes from {full.p_noise:.3f} to {deleted.p_noise:.3f} and"
        f" accuracy from {wording.percent(full.clean_accuracy)} to {wording.percent(deleted.clean_accuracy)}."
    )
    sentences = [
        f"The loss on noisy sequences goes from {full.noisy_loss:.3f} to {deleted.noisy_loss:.3f} nats: with noise,"
        f" {cuts.matrix} {'helps' if deleted.noisy_loss > full.noisy_loss else 'does not help'}.",
        *_beside_random(cuts),
        *_spectrum(summary.spectra.get(cuts.matrix)),
    ]
    without = cuts.without_top
    if without.p_noise < full.p_noise - APART:
        sentences.append(
            f"Dropping its largest component alone brings p(τ) to {without.p_noise:.3f} and accuracy to"
            f" {wording.percent(without.clean_accuracy)}."
        )
    else:
        sentences.append(f"Dropping its largest component alone leaves p(τ) at {without.p_noise:.3f}.")
    return Finding(f"Cutting {cuts.matrix}", (headline,), tuple(sentences))


def _beside_random(cuts: MatrixCuts) -> list[str]:
    """Where keeping the top leaves less or more of p(τ) than every random projection, and clearly than their mean."""
    compared = [(row, drawn) for row in cuts.top if (drawn := cuts.drawn(row.rank, "p_noise")) is not None]
    if not compared:
        return []
    less = [row for row, drawn in compared if row.p_noise < min(drawn.least, drawn.mean - APART)]
    more = [row for row, drawn in compared if row.p_noise > max(drawn.most, drawn.mean + APART)]
    sentences = [
        f"Keeping the top {wording.listed([wording.keep(row.keep or 0.0) for row in rows])} leaves {how} of p(τ) than"
        " random projections of the same rank."
        for rows, how in ((less, "less"), (more, "more"))
        if rows
    ]
    return sentences or [
        "Keeping the top leaves about as much of p(τ) as random projections of the same rank: deletion by degrees, not"
        " a choice of components."
    ]


def _spectrum(spectrum: Spectrum | None) -> list[str]:
    """Whether training has reached the top of a matrix's spectrum, and whether the top writes τ."""
    if spectrum is None:
        return []
    sentences = [
        f"Its largest singular value is {spectrum.values[0]:.2f}, and was {spectrum.before:.2f} before training:"
        f" {'what was learned is on top' if spectrum.grown else 'hardly more'}."
    ]
    if spectrum.noise is not None:
        sentences.append(
            f"Its first left singular vector has a cosine of {spectrum.noise:.2f} with the direction of τ."
        )
    return sentences
