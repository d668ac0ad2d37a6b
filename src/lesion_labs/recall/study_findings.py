"""What a study of the recall laboratory shows, in sentences: means over seeds, beside random projections."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import forms, wording
from lesion.report.finding import Finding
from lesion_labs.recall.findings import APART, TIE
from lesion_labs.recall.result import Spread
from lesion_labs.recall.seeds import Difference, differences
from lesion_labs.recall.study_result import Group, SeedsPhase

LEVEL = 0.05
"""The probability of any false claim in a family of comparisons."""
OWN = "In these sequences ȳ may be q or τ itself: predicting τ can be right."


def group_name(group: Group) -> str:
    """What tells a group from others: `α 0.6, mlp, sgd, 600 steps, V 32, d 128`."""
    recipe = group.recipe
    return (
        f"α {recipe.noise:g}, {recipe.feed_forward}, {recipe.optimiser}, {wording.counted(recipe.steps, 'step')}, "
        f"V {recipe.vocabulary}, d {recipe.width}"
    )


def spread_text(spread: Spread, *, signed: bool = False, bare: bool = False) -> str:
    """The mean, with the lowest and the highest where there are several: `0.512 [0.498, 0.530]`."""
    mean, least, most = (
        decimals(value, signed=signed, bare=bare) for value in (spread.mean, spread.least, spread.most)
    )
    return mean if spread.std is None else f"{mean}{wording.SPACE}[{least},{wording.SPACE}{most}]"


def decimals(value: float | None, *, signed: bool = False, bare: bool = False) -> str:
    """A number with three decimals; `bare` of the 0 before the point."""
    text = forms.decimals(3, signed=signed)(value)
    return text.replace("0.", ".", 1) if bare and value is not None and abs(round(value, 3)) < 1 else text


def finding(group: Group) -> Finding:
    """What a group of seeds shows."""
    full = group.full
    headline = [
        f"On clean sequences the full model gives τ {spread_text(full.p_noise)} and ȳ {spread_text(full.p_correct)};"
        f" accuracy {spread_text(full.clean_accuracy)}."
    ]
    if abs(group.recipe.noise - 0.5) < APART:
        headline.append(TIE)
    sentences = [phases(group), *([OWN] if group.recipe.own_answers else [])]
    compared = differences(group)
    for matrix in group.central:
        (deleted,), (without,) = group.rows(matrix, "deletion"), group.rows(matrix, "drop-top")
        sentences.append(
            f"{matrix} deleted: p(τ) {spread_text(deleted.p_noise)}, accuracy {spread_text(deleted.clean_accuracy)};"
            f" without its largest component: p(τ) {spread_text(without.p_noise)}, accuracy"
            f" {spread_text(without.clean_accuracy)}. Loss on noisy sequences: {spread_text(full.noisy_loss)},"
            f" {spread_text(deleted.noisy_loss)} and {spread_text(without.noisy_loss)}."
        )
        sentences += _beyond(matrix, compared)
    if compared:
        sentences.append(
            f"Clear: by Student's test over seeds (p ≤ {LEVEL:g}, Holm-corrected over"
            f" {wording.counted(len(compared), 'comparison')}) and by at least {APART:g}. In brackets: differences of"
            " means."
        )
    return Finding(
        f"{group_name(group)} ({wording.counted(len(group.seeds), 'seed')})", tuple(headline), tuple(sentences)
    )


def phases(group: Group) -> str:
    """Which margin is first positive in every seed, which in some only, and when attention recalls."""
    if not group.recipe.steps:
        return "Nothing was trained: these are models of random weights."
    margins, attention = group.phases.margins, group.phases.attention
    text = f"attention recalls in {attention.came} of {wording.counted(attention.of, 'seed')}"
    if attention.came == attention.of:
        text = f"attention recalls from step {_steps(attention)} on"
    always = {name: phase.steps.mean for name, phase in margins.items() if phase.steps and phase.came == phase.of}
    if always:
        first = min(always, key=lambda name: always[name])
        text = f"{first} prefers τ after q from step {_steps(margins[first])} on; {text}"
    text = f"{wording.capital(text)}."
    some = {name: phase for name, phase in margins.items() if phase.came < phase.of and phase.came + phase.untrained}
    parts = "; ".join(_in_some(name, phase) for name, phase in some.items())
    return f"{text} In some seeds only: {parts}." if parts else text


def _in_some(margin: str, phase: SeedsPhase) -> str:
    """`F1 in 2 of 3 seeds, from step 6 [1, 10] on, in 1 before training already`."""
    text = f"{margin} in {phase.came} of {wording.counted(phase.of, 'seed')}"
    text += f", from step {_steps(phase)} on" if phase.came else ""
    return text + (f", in {phase.untrained} before training already" if phase.untrained else "")


def _steps(phase: SeedsPhase) -> str:
    steps = phase.steps
    assert steps is not None
    if steps.least == steps.most:
        return f"{steps.least:,.0f}"
    return f"{steps.mean:,.0f} [{steps.least:,.0f}, {steps.most:,.0f}]"


def _beyond(matrix: str, compared: Sequence[Difference]) -> list[str]:
    """Whether keeping the top leaves more or less of p(τ) than a random projection: significantly, and by enough."""
    differences_here = [difference for difference in compared if difference.matrix == matrix]
    if not differences_here:
        return []
    clear = [difference for difference in differences_here if difference.p <= LEVEL and abs(difference.mean) >= APART]
    if not clear:
        largest = max(differences_here, key=lambda difference: abs(difference.mean))
        return [
            f"Keeping the top of {matrix} makes no clear difference of p(τ) to random projections; the largest:"
            f" {_difference_text(largest)}."
        ]
    signs = {"less": [each for each in clear if each.mean < 0], "more": [each for each in clear if each.mean > 0]}
    parts = [
        f"keeping the top {wording.listed(list(map(_difference_text, members)))} of {matrix} leaves clearly {how} of"
        " p(τ) than random projections"
        for how, members in signs.items()
        if members
    ]
    return [f"{wording.capital('; '.join(parts))}."]


def _difference_text(difference: Difference) -> str:
    return f"{wording.keep(difference.keep)} ({decimals(difference.mean, signed=True)})"
