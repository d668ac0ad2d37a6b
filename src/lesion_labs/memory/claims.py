"""What the memory laboratory claims: what truncation does, where the noise lies, and what is learned first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import SHARE, decimals
from lesion_labs.memory.result import LOSS, FirstStep, KeptPart, MemorySummary, Moment, Power, Size

SIDES = {
    "top": "at the top of the spectrum",
    "bottom": "at the bottom of the spectrum",
    "between": "in the middle of the spectrum",
    "tied": "among equal singular values, which no truncation by size can separate",
    "absent": "not in W at all",
}
LITTLE = 0.1
"""A truncation cleans when it leaves at most this share of the whole memory's clean loss."""
POWER = decimals(3)


@rule(
    "With a part of W's spectrum kept, the common class's probability goes from A to B.",
    "No part of the spectrum has a smaller clean loss than the whole.",
    "W has a single component: there is nothing to truncate.",
    needs="the part with the smallest clean loss, beside random projections of its rank and nothing kept; intervals go"
    " from the lowest to the highest draw",
)
def what_truncation_does(full: Moment, parts: Sequence[KeptPart]) -> Iterable[Claim]:
    """What the part of the spectrum with the smallest clean loss does."""
    rank = max(part.rank for part in parts)
    best = next((part for part in parts if part.best), None)
    if best is None:
        yield Claim(("W has a single component: there is nothing to truncate.",), (full,))
        return
    random = next((part for part in parts if (part.kind, part.rank) == ("random", best.rank)), None)
    nothing = next(part for part in parts if part.kind == "nothing")
    controls = [
        *([] if random is None else [f"random projections of that rank {LOSS.text(random.clean_loss)}"]),
        f"nothing kept {LOSS.text(nothing.clean_loss)}",
    ]
    beside = f"Clean loss of controls: {'; '.join(controls)}."
    what = f"the {best.kind if best.rank == 1 else f'{best.rank} {best.kind}'} of {rank} components"
    before, after = LOSS.text(full.clean_loss), LOSS.text(best.clean_loss)
    if not (best.clean_loss.value or 0.0) < full.clean_loss:
        first = "No part of the spectrum has a smaller clean loss than the whole."
        second = f"The whole has {before}; the nearest, {what}, {after}."
    else:
        first = (
            f"With {what} of W kept, the common class's probability goes from {SHARE.text(full.p_noise)} to"
            f" {SHARE.text(best.p_noise)}."
        )
        accuracy = f"{SHARE.text(full.clean_accuracy)} to {SHARE.text(best.clean_accuracy)}"
        second = f"Clean accuracy goes from {accuracy}, clean loss from {before} to {after}."
    yield Claim((first, second, beside), tuple(filter(None, (full, best, random, nothing))))


@rule(
    "The noise lies at the top (bottom, middle) of the spectrum: its singular value is N times the largest other.",
    "The noise lies among equal singular values.",
    "The code of the common class is not in W at all.",
    "W has a single singular value.",
    needs="the group of equal singular values with most of the common class's code, after the last step",
)
def where_the_noise_lies(summary: MemorySummary) -> Iterable[Claim]:
    """Which singular value of the trained memory holds the noise, and whether that was so from the first step."""
    full, first = summary.full, summary.training[0]
    place = full.noise
    if place.side == "absent":
        yield Claim((f"The code of the common class is {SIDES['absent']}.",), (full,))
        return
    if not full.others:
        yield Claim(
            (f"W has a single singular value, with {place.alignment:.3f} of the common class's code.",), (full,)
        )
        return
    sentences = [
        f"After {wording.counted(full.step, 'step')} the noise lies {SIDES[place.side]}: its singular value is"
        f" {place.ratio:.3g} times the largest other."
    ]
    if first.noise.side != place.side:
        sentences.append(f"After the first step it was {SIDES[first.noise.side]}.")
    if errors := [_error(moment, summary.study.classes) for moment in summary.training if moment.predicted]:
        error = wording.figures(max(*errors, 1e-16), 1)
        sentences.append(f"The closed form agrees at every measured step to {error} of the largest value.")
    yield Claim(tuple(sentences), (full, first))


def _error(moment: Moment, classes: int) -> float:
    """The largest distance of a singular value from the closed form, as a share of the largest singular value."""
    predicted = sorted([moment.predicted_signal] * (classes - 1) + [moment.predicted_noise], reverse=True)
    distances = [abs(a - b) for a, b in zip(moment.singular_values, predicted, strict=False)]
    return max(distances) / max(moment.singular_values)


@rule(
    "The noise lies at the top (bottom) of the spectrum at every size and noise.",
    "Which side holds the noise depends on the number of classes (and) on the noise.",
    needs="memories with orthonormal codes of every size that fits the width, after the last step; with gaussian codes"
    " a side on which all draws agree",
)
def what_the_side_depends_on(sizes: Sequence[Size]) -> Iterable[Claim]:
    """Whether the side that holds the noise depends on the number of classes and on the noise."""
    plain = [size for size in sizes if size.codes == "orthonormal"]
    drawn = [size for size in sizes if size.codes == "gaussian"]
    if not plain:
        return
    steps, sides = wording.counted(plain[0].last.step, "step"), {size.key: size.last_side for size in plain}
    only = (
        f"; m{wording.SPACE}={wording.SPACE}{plain[0].classes} alone has room"
        if len(_of(plain, "classes")) == 1
        else ""
    )
    if len(set(sides.values())) == 1:
        where = SIDES[plain[0].last_side]
        first = f"After {steps} the noise lies {where} at every {'noise' if only else 'size and noise'}{only}."
    else:
        names = (("noise", "the number of classes"), ("classes", "the noise"))
        factors = [name for fixed, name in names if any(len(_of(own, "last_side")) > 1 for own in _by(plain, fixed))]
        first = f"Which side holds the noise after {steps} depends on {wording.listed(factors)}{only}."
    same = sum(size.last_side == sides.get(size.key) for size in drawn)
    second = f"With gaussian codes it is the same side in {same} of {len(drawn)} settings."
    errors = [
        abs(place.ratio.mean - ratio)
        for size in plain
        if size.closed_form
        for place, ratio in zip(size.places, size.closed_form.ratios, strict=True)
    ]
    third = f"Closed form and training agree on the ratio to {wording.figures(max(*errors, 1e-16), 1)}."
    yield Claim((first, second, third), tuple(sizes))


def _of(sizes: Sequence[Size], name: str) -> set[object]:
    return {getattr(size, name) for size in sizes}


def _by(sizes: Sequence[Size], name: str) -> list[list[Size]]:
    return [[size for size in sizes if getattr(size, name) == value] for value in _of(sizes, name)]


@rule(
    "Dropping the largest component removes most of the clean loss in N of M settings, the smallest in K.",
    needs=f"at most {100 * LITTLE:g} % of the whole memory's clean loss is left",
)
def which_cut_cleans(sizes: Sequence[Size]) -> Iterable[Claim]:
    """In how many settings dropping the largest, the smallest or a random component removes the noise."""
    cuts = ("without_largest", "without_smallest", "without_random")
    counts = [sum(getattr(size, cut) <= LITTLE * size.whole_loss for size in sizes) for cut in cuts]
    if sizes:
        yield Claim(
            (
                f"Dropping the largest component removes at least {100 * (1 - LITTLE):g}{wording.SPACE}% of the clean"
                f" loss in {counts[0]} of {len(sizes)} settings, the smallest in {counts[1]}, a random one in"
                f" {counts[2]}.",
            ),
            tuple(sizes),
        )


@rule(
    "In the first step the feed-forward's signal grows as V to the power P, recall's by attention as V to the power Q.",
    "Without noise the feed-forward has no signal.",
    needs="least squares of logarithms over vocabularies, with a bootstrap interval over batches of gaussian codes",
)
def what_is_learned_first(step: FirstStep) -> Iterable[Claim]:
    """How the signals of the first gradient step scale with the vocabulary."""
    forward, value, noise = (step.power("constant", signal) for signal in ("feed_forward", "value", "value_noise"))
    last = step.under("constant")[-1]
    if step.noise == 0:
        first = f"Without noise the feed-forward has no signal; recall's by attention scales as V to {_scaling(value)}."
        yield Claim((first,), (value,))
        return
    sentences = [
        f"The feed-forward's signal scales with the vocabulary as V to {_scaling(forward)}, recall's by attention as V"
        f" to {_scaling(value)}."
    ]
    if last.value > 0 and last.feed_forward > 0:
        times = last.feed_forward / last.value
        text = f"{times:,.0f}" if times >= 100 else wording.figures(times, 2)
        sentences.append(f"At V = {last.vocabulary} the feed-forward's is {text} times recall's.")
    sentences.append(f"Attention also learns the noise, from every token: V to {_scaling(noise)}.")
    yield Claim(tuple(sentences), (forward, value, noise))


def _scaling(power: Power) -> str:
    """`0.362 [0.218, 0.582] (exactly 0.350)`."""
    exactly = f"(exactly {POWER(power.exact)})"
    unknown = power.batches is None or power.batches.value is None
    return f"a power that batches do not show {exactly}" if unknown else f"{POWER.text(power.batches)} {exactly}"
