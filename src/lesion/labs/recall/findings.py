"""What the numbers of the recall laboratory say, in sentences; nothing that they do not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lesion.labs.recall.rows import Cuts, by_matrix, central
from lesion.report import wording

APART = 0.05
"""Accuracies and probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""

GROWN = 1.1
"""A largest singular value that grew by less than this share is called that of the untrained matrix."""


@dataclass(frozen=True)
class Finding:
    """A subject, what is found, and what else belongs to it."""

    subject: str
    headline: str
    sentences: tuple[str, ...] = ()


def findings(summary: Mapping[str, Any]) -> list[Finding]:
    """The findings of one training."""
    found = by_matrix(summary)
    names = central(list(found))
    return [
        _full(summary),
        Finding("Two phases", phases(summary)[0], tuple(phases(summary)[1:])),
        *(_cut(summary, found[name]) for name in names),
    ]


def _full(summary: Mapping[str, Any]) -> Finding:
    full, noise = summary["full"], summary["noise"]
    near = abs(full["p_noise"] - noise) < APART
    headline = (
        f"Where no noise is, the full model still gives the noise token τ a probability of {full['p_noise']:.3f}"
        f" ({'close to' if near else 'not'} the α of {noise:g} it was trained under), and the right answer ȳ one of"
        f" {full['p_correct']:.3f}."
    )
    sentences = [
        f"Its best guess is right at {wording.percent(full['clean_accuracy'])} of"
        f" {wording.counted(summary['questions']['clean'], 'question')} on clean sequences.",
        f"Its loss on noisy sequences is {full['noisy_loss']:.3f} nats; {floor(summary)}.",
        *_own(summary),
    ]
    if abs(noise - 0.5) < APART:
        sentences.append(
            "With α near .5 the best guess is a tie between τ and ȳ: judge by probability and loss, not by accuracy."
        )
    return Finding("The full model", headline, tuple(sentences))


def floor(summary: Mapping[str, Any]) -> str:
    """What the least loss on noisy sequences is, as a clause."""
    least = summary["floor"] + 0.0  # never −0
    if "own_answers" in summary:
        certain = wording.percent(summary["own_answers"]["noisy"]["noise"])
        return (
            f"once ȳ is known, {least:.3f} would be the least: H(α), but 0 at the {certain} of the questions where ȳ is"
            " τ and nothing is uncertain"
        )
    if summary["recipe"].get("own_answers"):
        return f"once ȳ is known, H(α) = {least:.3f} would be the least, and 0 where ȳ is τ"
    return f"once ȳ is known, H(α) = {least:.3f} would be the least"


def _own(summary: Mapping[str, Any]) -> list[str]:
    """What it means for accuracy and p(τ) that ȳ may be q or τ."""
    if "own_answers" not in summary:
        return []
    clean = summary["own_answers"]["clean"]
    return [
        f"Own answers: ȳ may be q or τ. {wording.percent(clean['trigger'])} of the questions on clean sequences come"
        " from runs of q that answer themselves, where saying q again is right; at"
        f" {wording.percent(clean['noise'])} τ is the right answer. So a model without fault gives τ a mean probability"
        f" of {clean['noise']:.3f}, and one that never says τ has at most {wording.percent(1 - clean['noise'])} right."
    ]


def phases(summary: Mapping[str, Any]) -> list[str]:
    """When the feed-forwards learn that τ follows q, and when attention recalls; at least one sentence."""
    margins, attention = summary["phases"]["margins"], summary["phases"]["attention"]
    steps = summary["recipe"]["steps"]
    if not steps:
        return ["Nothing is trained: all numbers are those of the untrained model, by the chance of its weights."]
    # In a summary without the names, a margin positive at step 0 is one that nothing was learned for.
    already = summary["phases"].get("untrained", [name for name, step in margins.items() if step == 0])
    learned = {name: step for name, step in margins.items() if step is not None and name not in already}
    recalled = (
        f"attention has more than half of its mass on ȳ from step {attention:,} on"
        if attention is not None
        else f"attention has not put half of its mass on ȳ by step {steps:,}"
    )
    if not summary["training"][-1]["margins"]:
        return [f"There is no feed-forward; {recalled} (measured on clean sequences)."]
    chance = (
        [
            f"{wording.listed(already)} preferred τ behind q before training already, by the chance of the weights, and"
            f" ever since: no step is {'its' if len(already) == 1 else 'theirs'}."
        ]
        if already
        else []
    )
    if not learned:
        which = "No feed-forward comes to prefer" if already else "No feed-forward prefers"
        when = "during training" if already else "at the end"
        return [f"{which} τ behind q by itself {when}; {recalled} (measured on clean sequences).", *chance]
    first = min(learned.values())
    whose = wording.listed([name for name, step in learned.items() if step == first])
    told = [f"{whose} prefer{'s' if ' and ' not in whose else ''} τ behind q from step {first:,} on; {recalled}."]
    told.append(
        "From which step on each trigger margin stays positive: "
        + "; ".join(f"{name} {_since(name, step, already)}" for name, step in margins.items())
        + "."
    )
    told += chance
    return told


def _since(name: str, step: int | None, already: Sequence[str]) -> str:
    if name in already:
        return "untrained"
    return wording.DASH if step is None else f"{step:,}"


def _cut(summary: Mapping[str, Any], cuts: Cuts) -> Finding:
    full, deleted = summary["full"], cuts.deleted
    headline = (
        f"Without {cuts.matrix}, p(τ) on clean sequences goes from {full['p_noise']:.3f} to {deleted['p_noise']:.3f},"
        f" and accuracy from {wording.percent(full['clean_accuracy'])} to {wording.percent(deleted['clean_accuracy'])}."
    )
    sentences = [
        f"The loss on noisy sequences goes from {full['noisy_loss']:.3f} to {deleted['noisy_loss']:.3f} nats:"
        f" where there is noise it {'helps' if deleted['noisy_loss'] > full['noisy_loss'] else 'does not help'}."
    ]
    compared = [(row, cuts.drawn(row["rank"], "p_noise")) for row in cuts.top]
    better = [row for row, drawn in compared if drawn and row["p_noise"] < min(drawn.least, drawn.mean - APART)]
    worse = [row for row, drawn in compared if drawn and row["p_noise"] > max(drawn.most, drawn.mean + APART)]
    if any(drawn for _, drawn in compared):
        for rows, how in ((better, "less"), (worse, "more")):
            if rows:
                keeps = wording.listed([wording.keep(row["keep"]) for row in rows])
                sentences.append(
                    f"Keeping the top {keeps} leaves {how} of p(τ) than random projections of the same rank do."
                )
        if not better and not worse:
            sentences.append(
                "Keeping the top of its spectrum leaves about as much of p(τ) as random projections of the same rank:"
                " this is deletion by degrees, not a choice of components."
            )
    sentences += _spectrum(summary.get("spectra", {}).get(cuts.matrix))
    without = cuts.without_top
    if without["p_noise"] < full["p_noise"] - APART:
        sentences.append(
            f"Dropping its largest component alone brings p(τ) to {without['p_noise']:.3f}"
            f" and accuracy to {wording.percent(without['clean_accuracy'])}."
        )
    else:
        sentences.append(f"Dropping its largest component alone leaves p(τ) at {without['p_noise']:.3f}.")
    return Finding(f"Cutting {cuts.matrix}", headline, tuple(sentences))


def _spectrum(found: Mapping[str, Any] | None) -> list[str]:
    """Whether training has reached the top of a matrix's spectrum, and whether the top writes τ."""
    if found is None:
        return []
    largest, before = found["values"][0], found["before"]
    grown = largest > GROWN * before
    text = f"Its largest singular value is {largest:.2f}, and was {before:.2f} before training"
    told = [f"{text}: " + ("what was learned stands on top." if grown else "hardly more.")]
    if "noise" in found:
        told.append(f"Its first left singular vector has a cosine of {found['noise']:.2f} with the direction of τ.")
    return told
