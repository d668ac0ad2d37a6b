"""What a memory shows, in sentences made from its numbers."""

from __future__ import annotations

from lesion.labs.memory import size_findings
from lesion.labs.memory.result import FirstStep, Measures, MemorySummary, Moment, Power, Truncated
from lesion.labs.memory.size_findings import SIDES
from lesion.report import wording
from lesion.report.finding import Finding


def findings(summary: MemorySummary) -> list[Finding]:
    """The findings, in the order of the page."""
    sizes = size_findings.findings(summary.sizes, summary.study.width)
    return [_full(summary), _truncated(summary), *sizes, _first_step(summary.first_step)]


def part(row: Truncated, rank: int) -> str:
    """`the 19 smallest of 20 singular values kept`."""
    if row.control == "deletion" or row.rank == 0:
        return "nothing kept"
    if row.rank == rank:
        return "everything kept"
    if row.control == "random":
        return f"projected onto {row.rank} of {rank} random directions"
    size = "largest" if row.side == "top" else "smallest"
    many = f"the {size}" if row.rank == 1 else f"the {row.rank} {size}"
    return f"{many} of {rank} singular values kept"


def _full(summary: MemorySummary) -> Finding:
    full, noise = summary.full, summary.study.noise
    place = full.noise
    headline = (
        f"After {wording.counted(full.step, 'step')} the full memory gives f* a probability of {_p(full.p_correct)} and"
        f" the common class {_p(full.p_noise)}; it was trained on {_p(1 - noise)} and {_p(noise)}."
    )
    if place.side == "absent":
        return Finding("The full memory", (headline,), (f"The code of the common class is {SIDES['absent']}.",))
    sentences = []
    if noise == 0:
        sentences.append("There was no noise to learn: the common class is only one more wrong answer.")
    if len(full.singular_values) == 1:
        sentences.append(
            f"W has a single singular value, with {_p(place.alignment)} of the common class's code: there is no other"
            " to lie above or below."
        )
        return Finding("The full memory", (headline,), tuple(sentences))
    sentences.append(
        f"The noise lies {SIDES[place.side]}: the part that holds most of the common class's code"
        f" ({_p(place.alignment)}) has {place.ratio:.3g} times the largest other singular value."
    )
    first = summary.training[0].noise
    if first.side != place.side:
        sentences.append(f"After the first step it was {SIDES[first.side]}; it moved during training.")
    errors = [_error(moment, summary.study.classes) for moment in summary.training if moment.predicted]
    if errors:
        sentences.append(
            "The closed form for orthonormal codes gives the same spectrum at every measured step, to"
            f" {wording.figures(max(*errors, 1e-16), 1)} of the largest value."
        )
    return Finding("The full memory", (headline,), tuple(sentences))


def _error(moment: Moment, classes: int) -> float:
    """The largest distance of a singular value from the closed form, as a share of the largest singular value."""
    assert moment.predicted is not None
    predicted = sorted([moment.predicted.signal] * (classes - 1) + [moment.predicted.noise], reverse=True)
    distances = [abs(a - b) for a, b in zip(moment.singular_values, predicted, strict=False)]
    return max(distances) / max(moment.singular_values)


def _truncated(summary: MemorySummary) -> Finding:
    full, rank, best = summary.full, summary.rank, summary.best
    if best is None:
        return Finding("Truncation", ("W has a single component: there is nothing to keep a part of.",), ())
    # Truncation helps where the whole does worse on clean inputs.
    if best.clean_loss.mean < full.clean_loss:
        headline = (
            f"With {part(best, rank)}, clean accuracy goes from {wording.percent(full.clean_accuracy, 0)} to"
            f" {wording.percent(best.clean_accuracy.mean, 0)}, p of the common class from {_p(full.p_noise)} to"
            f" {_p(best.p_noise.mean)}, and clean loss from {full.clean_loss:.3f} to {best.clean_loss.mean:.3f} nats."
        )
    else:
        headline = (
            f"No part of the spectrum has a smaller clean loss than the whole ({full.clean_loss:.3f} nats); the nearest"
            f" is {part(best, rank)} ({best.clean_loss.mean:.3f})."
        )
    sentences = []
    of_rank = [row for row in summary.truncated if row.rank == best.rank]
    random = next((row for row in of_rank if row.control == "random"), None)
    if random is not None:
        p, loss = random.p_noise, random.clean_loss
        sentences.append(
            f"A random projection of the same rank ({wording.counted(random.draws, 'draw')}, [lowest, highest]):"
            f" accuracy {wording.percent(random.clean_accuracy.mean, 0)}, p of the common class {_p(p.mean)}"
            f" [{_p(p.low)}, {_p(p.high)}], clean loss {loss.mean:.3f} [{loss.low:.3f}, {loss.high:.3f}]."
        )
    opposite = next((row for row in of_rank if row.side not in (None, best.side)), None)
    if opposite is not None and best.rank:
        sentences.append(
            f"From the other side, {part(opposite, rank)}: accuracy"
            f" {wording.percent(opposite.clean_accuracy.mean, 0)}, {_p_and_loss(opposite.means)}."
        )
    sentences.append(f"With nothing kept: {_p_and_loss(summary.deletion.means)}.")
    return Finding("Truncation", (headline,), tuple(sentences))


def _p_and_loss(measures: Measures) -> str:
    return f"p of the common class {_p(measures.p_noise)}, clean loss {measures.clean_loss:.3f}"


def _first_step(step: FirstStep) -> Finding:
    sizes = [point.vocabulary for point in step.points]
    between = f"Between vocabularies of {min(sizes)} and {max(sizes)}"
    headline, sentences = (_without_noise if step.noise == 0 else _with_noise)(step, between)
    zipf, uniform = (number(step.power(trigger, "value").exact) for trigger in ("zipf", "uniform"))
    rarer = (
        f"Where the trigger becomes rarer with V, recall's exact power is {zipf} (π ∝ 1/rank), {uniform} (π uniform)."
    )
    return Finding("The first gradient step", (headline,), (*sentences, rarer))


def _without_noise(step: FirstStep, between: str) -> tuple[str, list[str]]:
    """Without noise there is only recall's signal."""
    last, value = step.under("constant")[-1], step.power("constant", "value")
    headline = (
        "Without noise nothing pushes from q or from any token to τ, so that the feed-forward has no signal to compare."
        f" {between} the attention-value signal towards recall {_scaling(value)}."
    )
    sentences = [f"Between the two largest vocabularies its exact power is {number(value.late)}."]
    if last.sampled:
        sentences.append(
            f"On batches at V = {last.vocabulary} recall's mean is"
            f" {_times(last.sampled.value / last.sampled.value_spread)} times its standard deviation over tokens."
        )
    return headline, sentences


def _with_noise(step: FirstStep, between: str) -> tuple[str, list[str]]:
    forward, value = step.power("constant", "feed_forward"), step.power("constant", "value")
    last, noise = step.under("constant")[-1], step.power("constant", "value_noise")
    headline = (
        f"{between} the feed-forward's signal q → τ {_scaling(forward)}, the attention-value signal towards recall"
        f" {_scaling(value)}."
    )
    sentences = [
        f"Between the two largest vocabularies the exact powers are {number(forward.late)} and {number(value.late)}."
    ]
    if last.value > 0 and last.feed_forward > 0:
        sentences.append(
            f"At V = {last.vocabulary} the feed-forward's signal is {_times(last.feed_forward / last.value)} times the"
            " attention-value one."
        )
    if sampled := last.sampled:
        sentences.append(
            f"On batches at V = {last.vocabulary} the feed-forward's signal is"
            f" {_times(sampled.feed_forward / sampled.feed_forward_width)} times the standard deviation of q → other"
            f" tokens; recall's mean is {_times(sampled.value / sampled.value_spread)} times its standard deviation"
            " over tokens."
        )
    times = ""
    if last.value > 0 and last.value_noise > 0:
        times = f" and is {_times(last.value_noise / last.value)} times recall's at V = {last.vocabulary}"
    sentences.append(f"Attention also learns the noise, from every token: that signal {_scaling(noise)}{times}.")
    return headline, sentences


def _scaling(power: Power) -> str:
    """`scales as V to the power 0.362 [0.218, 0.582] (exactly 0.350)`."""
    exactly = f"(exactly {number(power.exact)})"
    if power.batches is None or power.batches.value is None:
        return f"has no measurable power of V {exactly}"
    return f"scales as V to the power {batches_text(power)} {exactly}"


def batches_text(power: Power) -> str:
    """`0.362 [0.218, 0.582]`: on batches; empty where none was drawn."""
    if power.batches is None:
        return ""
    low, high = power.batches.low, power.batches.high
    interval = "" if low is None or high is None else f" [{number(low)},{wording.SPACE}{number(high)}]"
    return number(power.batches.value) + interval


def number(value: float | None) -> str:
    """Three decimals; a dash where there is no number."""
    return wording.DASH if value is None else f"{value:.3f}".replace("-", wording.MINUS)


def _times(value: float) -> str:
    """Two digits, or more where the number itself has more: `0.13`, `16`, `39,300`."""
    text = f"{value:,.0f}" if abs(value) >= 100 else wording.figures(value, 2)
    return text.replace("-", wording.MINUS)


def _p(value: float) -> str:
    return f"{value:.3f}"
