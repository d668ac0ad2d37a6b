"""What the recall laboratory claims: what cutting a matrix does, beside random projections, and what comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import CHANGE, SHARE, decimals
from lesion.report.rows import p_text, subject
from lesion_labs.recall.result import KEPT, LOSS, Difference, Group, SeedsPhase

APART = 0.05
"""Probabilities closer than this are called equal: learning rates above zero move p(τ) by as much."""


@rule(
    "Without M, the noise token's probability on clean sequences goes from A to B.",
    needs="the full model and the model with the matrix deleted, on the same sequences; ± is between seeds",
)
def what_cutting_does(groups: Sequence[Group]) -> Iterable[Claim]:
    """What deleting the matrix that writes does, and dropping its largest component alone."""
    for group in groups:
        matrix = group.central[-1]  # the other half of an MLP deleted leaves the same model
        full, deleted, without = group.full, group.cut(matrix, "deletion"), group.cut(matrix, "drop-top")
        accuracy = [SHARE.text(measures.clean_accuracy) for measures in (full, deleted, without)]
        noise = [SHARE.text(measures.p_noise) for measures in (full, deleted, without)]
        losses = [LOSS.text(measures.noisy_loss) for measures in (full, deleted)]
        yield Claim(
            (
                f"Without {matrix}, the noise token's probability on clean sequences goes from {noise[0]} to"
                f" {noise[1]}.",
                f"Accuracy goes from {accuracy[0]} to {accuracy[1]}, loss on noisy sequences from {losses[0]} to"
                f" {losses[1]}.",
                f"Without its largest component alone, the probability is {noise[2]} and accuracy {accuracy[2]}.",
            ),
            ((group.recipe, deleted), (group.recipe, without)),
            _subject(group, groups),
        )


@rule(
    "Keeping the top S of M leaves clearly less (more) of the noise than random projections of the same rank.",
    "Keeping the top of M is not shown to differ from random projections of the same rank.",
    "One training cannot tell whether the top of M differs from random projections.",
    needs=f"Student's test over seeds, corrected by Holm's method over all comparisons of the group, at .05, and a"
    f" difference of at least {100 * APART:g} points",
)
def beyond_random(groups: Sequence[tuple[Group, Sequence[Difference]]]) -> Iterable[Claim]:
    """Whether keeping the top of a matrix leaves another p(τ) than a random projection of the same rank."""
    alone = [group for group, _ in groups]
    for group, differences in groups:
        for matrix in group.central:
            own = [each for each in differences if each.matrix == matrix]
            if not own:
                continue
            largest = max(own, key=lambda each: abs(each.difference.value or 0.0))
            clear = [
                each
                for each in own
                if (each.difference.p_corrected or 1.0) <= wording.ALPHA and abs(each.difference.value or 0.0) >= APART
            ]
            number = f"The largest difference is {_text(largest)}."
            if len(group.seeds) == 1:
                first = f"One training cannot tell whether the top of {matrix} differs from random projections."
                clear = [largest]
            elif not clear:
                first = f"Keeping the top of {matrix} is not shown to differ from random projections of the same rank."
                clear = [largest]
            else:
                first, number = f"Keeping the top of {matrix} leaves {_clearly(clear)}.", ""
            yield Claim(
                tuple(filter(None, (first, number))),
                tuple((group.recipe, each) for each in clear),
                _subject(group, alone),
            )


def _clearly(clear: Sequence[Difference]) -> str:
    """`clearly less of the noise than random projections at 10 % (−20.0 points …)`."""
    parts = []
    for word, sign in (("less", -1), ("more", 1)):
        own = [each for each in clear if sign * (each.difference.value or 0.0) > 0]
        if own:
            strongest = max(own, key=lambda each: abs(each.difference.value or 0.0))
            shares = wording.listed([KEPT.text(each.keep) for each in own])
            parts.append(f"clearly {word} of the noise than random projections at {shares} (most {_text(strongest)})")
    return wording.listed(parts)


def _text(each: Difference) -> str:
    estimate = each.difference
    tested = f", {p_text(estimate)}" if estimate.p is not None else ""
    return f"{CHANGE.text(estimate)} at {KEPT.text(each.keep)}{tested}"


@rule(
    "The full model gives the noise token P (trained with α) and the right answer Q.",
    needs="the trained model on sequences without noise",
)
def full_model(groups: Sequence[Group]) -> Iterable[Claim]:
    """What the model with nothing cut predicts on clean sequences."""
    for group in groups:
        full = group.full
        yield Claim(
            (
                f"The full model gives the noise token {SHARE.text(full.p_noise)} (trained with"
                f" {SHARE.text(group.recipe.noise)}) and the right answer {SHARE.text(full.p_correct)}.",
                f"Accuracy: {SHARE.text(full.clean_accuracy)}; loss on noisy sequences: {LOSS.text(full.noisy_loss)}.",
            ),
            (group.recipe,),
            _subject(group, groups),
        )


@rule(
    "M prefers τ after q from step S on.",
    "No feed-forward comes to prefer τ after q by itself in every seed.",
    "Attention recalls from step S on.",
    "Attention recalls in N of M seeds.",
    "Nothing was trained.",
    needs="a measured step from which on the feed-forward's logit of τ is the largest, or the second head has more than"
    " half of its mass on ȳ, up to the last step; margins that were positive before training do not count",
)
def what_comes_first(groups: Sequence[Group]) -> Iterable[Claim]:
    """From which step on a feed-forward prefers the noise, and attention recalls."""
    for group in groups:
        yield Claim(tuple(_phases(group)), (group.recipe,), _subject(group, groups))


def _phases(group: Group) -> Iterable[str]:
    if not group.recipe.steps:
        yield "Nothing was trained: all numbers are those of random weights."
        return
    margins, attention = group.phases.margins, group.phases.attention
    always = {name: phase.steps.mean for name, phase in margins.items() if phase.steps and phase.came == phase.of}
    if always:
        first = min(always, key=lambda name: always[name])
        yield f"{first} prefers τ after q from step {_steps(margins[first])} on."
    else:
        yield "No feed-forward comes to prefer τ after q by itself in every seed."
    if attention.came == attention.of:
        yield f"Attention recalls from step {_steps(attention)} on."
    else:
        yield f"Attention recalls in {attention.came} of {wording.counted(attention.of, 'seed')}."
    some = {name: phase for name, phase in margins.items() if phase.came < phase.of and phase.came + phase.untrained}
    if some:
        yield f"In some seeds only: {'; '.join(_in_some(name, phase) for name, phase in some.items())}."


def _in_some(margin: str, phase: SeedsPhase) -> str:
    """`F1 in 2 of 3 seeds, from step 6 ± 2 on, in 1 before training already`."""
    text = f"{margin} in {phase.came} of {wording.counted(phase.of, 'seed')}"
    text += f", from step {_steps(phase)} on" if phase.came else ""
    return text + (f", in {phase.untrained} before training already" if phase.untrained else "")


def _steps(phase: SeedsPhase) -> str:
    return decimals(0).text(phase.steps)


def _subject(group: Group, groups: Sequence[Group]) -> str:
    return subject(group.recipe, [each.recipe for each in groups])
