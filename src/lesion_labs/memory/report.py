"""The result of a memory: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.report import wording
from lesion.report.blocks import Check
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars, Curves, Map
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.values import SHARE, decimals
from lesion_labs.memory.result import LOSS, FirstStep, KeptPart, MemorySummary, Moment, Power, SingularValues, Size

SIDES = {
    "top": "at the top",
    "bottom": "at the bottom",
    "between": "in the middle",
    "tied": "among equal singular values, which no truncation by size can separate",
    "absent": "not in W at all",
}
LITTLE = 0.1
"""A truncation cleans when it leaves at most this share of the whole memory's clean loss."""
POWER = decimals(3)


@rule
def what_truncation_does(full: Moment, parts: Sequence[KeptPart]) -> Iterable[Claim]:
    """What the part of the spectrum with the smallest clean loss does.

    Says: With a part of W's spectrum kept, the common class's probability goes from A to B. | No part of the spectrum
    has a smaller clean loss than the whole. | W has a single component: there is nothing to truncate.
    Needs: the part with the smallest clean loss, beside random projections of its rank and nothing kept; intervals go
    from the lowest to the highest draw
    """
    rank = max(part.rank for part in parts)
    best = next((part for part in parts if part.best), None)
    if best is None:
        yield Claim(("W has a single component: there is nothing to truncate.",), (full,))
        return
    controls = [part for part in parts if part.kind == "nothing" or (part.kind, part.rank) == ("random", best.rank)]
    names = {"random": "random projections of that rank", "nothing": "nothing kept"}
    losses = wording.listed([f"{names[part.kind]} {LOSS.text(part.clean_loss)}" for part in controls])
    what = f"the {best.kind if best.rank == 1 else f'{best.rank} {best.kind}'} of {rank} components"
    shares = f"{SHARE.text(full.p_noise)} to {SHARE.text(best.p_noise)}"
    first = f"With {what} of W kept, the common class's probability goes from {shares}."
    if not (best.clean_loss.value or 0.0) < full.clean_loss:
        first = "No part of the spectrum has a smaller clean loss than the whole."
    second = f"Clean loss: the whole {LOSS.text(full.clean_loss)}, {what} {LOSS.text(best.clean_loss)}; {losses}."
    yield Claim((first, second), (full, best, *controls))


@rule
def where_the_noise_lies(summary: MemorySummary) -> Iterable[Claim]:
    """Which singular value of the trained memory holds the noise, and whether that was so from the first step.

    Says: In the spectrum of W the noise lies at the top (bottom, middle): its singular value is N times the largest
    other. | In the spectrum of W the noise lies among equal singular values. | The code of the common class is not in W
    at all. | W has a single singular value.
    Needs: the group of equal singular values with most of the common class's code, after the last step
    """
    full, first = summary.full, summary.training[0]
    place = full.noise
    if place.side == "absent":
        yield Claim((f"The code of the common class is {SIDES['absent']}.",), (full,))
        return
    if not full.others:
        alone = f"W has a single singular value, with {place.alignment:.3f} of the common class's code."
        yield Claim((alone,), (full,))
        return
    after = f"{SIDES[place.side]} after {wording.counted(full.step, 'step')}"
    ratio = f"{place.ratio:.3g}"
    sentences = [f"In the spectrum of W the noise lies {after}: its singular value is {ratio} times the largest other."]
    if first.noise.side != place.side:
        sentences.append(f"After the first step it was {SIDES[first.noise.side]}.")
    yield Claim(tuple(sentences), (full, first))


@rule
def which_side_holds_the_noise(sizes: Sequence[Size]) -> Iterable[Claim]:
    """In how many settings of size and noise the noise lies on which side of the spectrum.

    Says: In the spectrum the noise lies at the top in N of M settings with orthonormal codes; in K at the bottom. With
    gaussian codes it is the same side in L of M.
    Needs: counts, after the last step; with gaussian codes a side on which all draws agree
    """
    plain = [size for size in sizes if size.codes == "orthonormal"]
    drawn = [size for size in sizes if size.codes == "gaussian"]
    if not plain:
        return
    held = Counter(size.last_side for size in plain).most_common()
    (side, count), *others = held
    rest = "".join(f"; in {number} {SIDES[other]}" for other, number in others)
    of = f"{count} of {len(plain)}"
    first = f"In the spectrum the noise lies {SIDES[side]} in {of} settings with orthonormal codes{rest}."
    sides = {size.key: size.last_side for size in plain}
    same = sum(size.last_side == sides.get(size.key) for size in drawn)
    yield Claim((first, f"With gaussian codes it is the same side in {same} of {len(drawn)}."), tuple(sizes))


@rule
def which_cut_cleans(sizes: Sequence[Size]) -> Iterable[Claim]:
    """In how many settings dropping the largest, the smallest or a random component removes the noise.

    Says: Dropping the largest component removes most of the clean loss in N of M settings, the smallest in K.
    Needs: at most 10 % of the whole memory's clean loss is left
    """
    cuts = ("without_largest", "without_smallest", "without_random")
    counts = [sum(getattr(size, cut) <= LITTLE * size.whole_loss for size in sizes) for cut in cuts]
    if sizes:
        text = (
            f"Dropping the largest component removes at least {100 * (1 - LITTLE):g}{wording.SPACE}% of the clean loss"
            f" in {counts[0]} of {len(sizes)} settings, the smallest in {counts[1]}, a random one in {counts[2]}."
        )
        yield Claim((text,), tuple(sizes))


@rule
def what_is_learned_first(step: FirstStep) -> Iterable[Claim]:
    """How the signals of the first gradient step scale with the vocabulary.

    Says: In the first step the feed-forward's signal grows as V to the power P, recall's by attention as V to the power
    Q. | Without noise the feed-forward has no signal.
    Needs: least squares of logarithms over vocabularies, with a bootstrap interval over batches of gaussian codes
    """
    forward, value = (step.power("constant", signal) for signal in ("feed_forward", "value"))
    last, recall = step.under("constant")[-1], f"recall's by attention as V to {_scaling(value)}"
    if step.noise == 0:
        yield Claim((f"Without noise the feed-forward has no signal; {recall}.",), (value,))
        return
    sentences = [f"The feed-forward's signal scales with the vocabulary as V to {_scaling(forward)}, {recall}."]
    if last.value > 0 and last.feed_forward > 0:
        times = last.feed_forward / last.value
        text = f"{times:,.0f}" if times >= 100 else wording.figures(times, 2)
        sentences.append(f"At V = {last.vocabulary} the feed-forward's is {text} times recall's.")
    yield Claim(tuple(sentences), (forward, value))


def _scaling(power: Power) -> str:
    """`0.362 [0.218, 0.582] (exactly 0.350)`."""
    exactly = f"(exactly {POWER(power.exact)})"
    unknown = power.batches is None or power.batches.value is None
    return f"a power that batches do not show {exactly}" if unknown else f"{POWER.text(power.batches)} {exactly}"


READING = (
    "Logits of input i are W_U W W_E e_i with frozen codes; W is trained from zero by full-batch gradient descent on"
    " the expected cross-entropy. The target is f*(i) with probability 1 − α and one common class with probability α.",
    "The first step is that of noisy in-context recall at zero weights and uniform attention: the gradient of the"
    " feed-forward from the trigger q to the noise token τ, and of the attention-value matrix from a token to itself"
    " (recall) and to τ; each over its mean towards the other tokens.",
)
TRIGGERS = (
    "Trigger: as frequent at any V (constant), first of π ∝ 1/rank (zipf), as rare as any token (uniform). Last two:"
    " exact, between the two largest vocabularies."
)


class MemoryResult(StudyResult[MemorySummary]):
    """An associative memory with noise: its truncations, its training, other sizes, and the first step of recall."""

    SUMMARY = MemorySummary
    TEXTLESS = True
    EYEBROW = "associative memory"
    READING = READING

    @property
    def kept(self) -> list[KeptPart]:
        """Every part of the spectrum and every control; everything and nothing, the same from both sides, once."""
        rank, best = self.summary.rank, self.summary.best
        return [
            KeptPart.of_row(row, row is best)
            for row in self.summary.truncated
            if row.control or (row.rank and (row.rank < rank or row.side == "top"))
        ]

    @override
    def parts(self) -> tuple[Part, ...]:
        summary, kept, step = self.summary, self.kept, self.summary.first_step
        truncations = Rows(
            "truncations", kept, (KeptPart,), "Truncations of W", "Means over draws [lowest, highest].", marked="best",
            brief=("kind", "rank", "p_noise", "clean_accuracy", "clean_loss"),
        )  # fmt: skip
        sides = {"kind": ("largest", "smallest", "random")}
        moments = [(moment, moment.predicted) for moment in summary.training]
        training = Rows("training", moments, (Moment, SingularValues), "Over training")
        sizes = Rows(
            "sizes", summary.sizes, (Size,), "Other sizes",
            "Ratio: σ of the noise over the largest other σ, mean over draws of codes. Losses: after the last step.",
        )  # fmt: skip
        singular = ("noise_value", "largest_other", "smallest_other")
        return (
            Part(
                "Does truncation remove the noise?", truncations,
                (
                    Curves("p_noise", "rank", "kind", low=0.0, high=100.0, only=sides),
                    Curves("clean_accuracy", "rank", "kind", low=0.0, high=100.0, only=sides),
                    Curves("clean_loss", "rank", "kind", only=sides),
                ),
                what_truncation_does(summary.full, kept),
            ),
            Part(
                "Where in the spectrum does the noise lie?", training,
                (
                    Curves(singular, "step", log=True, axis="singular value"),
                    Curves(("p_noise", "p_correct"), "step", log=True, axis="mean probability, %"),
                ),
                where_the_noise_lies(summary), short="Spectrum",
            ),
            Part(
                "Which side holds the noise at other sizes?", sizes,
                tuple(
                    Map(
                        f"{when}_strength", "noise", "name", hue="share", shown=f"{when}_ratio", panel="codes",
                        caption=f"σ of the noise over the largest other σ after the {when} step; above 1 the noise is"
                        " on top. m classes, one input each unless said.",
                    )
                    for when in ("last", "first")
                ),
                (*which_side_holds_the_noise(summary.sizes), *which_cut_cleans(summary.sizes)),
                short="Sizes", wide=True,
            ),
            Part(
                "What does the first gradient step learn?",
                Rows("powers", step.powers, (Power,), "Powers of the vocabulary V", TRIGGERS),
                (Bars("batches", "signal", caption=f"With α {step.noise:g}; bootstrap intervals over batches."),),
                what_is_learned_first(step), short="First step",
            ),
        )  # fmt: skip

    @property
    @override
    def basis(self) -> str:
        study = self.summary.study
        return (
            f"{study.classes} classes,"
            f" {wording.counted(study.inputs, 'input')}, noise α {study.noise:g};"
            f" {wording.counted(study.draws, 'draw')} of each random control."
        )

    @override
    def checks(self) -> list[Check]:
        checks, noise, best = [], self.summary.study.noise, self.summary.best
        rows = [row for row in self.summary.truncated if best and (row.control, row.rank) == ("random", best.rank)]
        if best and rows:
            better = best.clean_loss.mean < rows[0].clean_loss.low
            than = "than every random projection of that rank."
            checks.append({True: Check("good", f"Better {than}"), False: Check("bad", f"Not better {than}")}[better])
        if noise == 0:
            checks.append(Check("bad", "Without noise nothing has to be forgotten."))
        if noise == 0.5:
            checks.append(Check("bad", "At α .5 the full memory ties: judge by probability and loss."))
        return checks
