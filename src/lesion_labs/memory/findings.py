"""What a memory shows, in sentences made from its numbers."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.finding import Finding
from lesion_labs.memory import size_findings
from lesion_labs.memory.result import FirstStep, MemorySummary, Moment, Power, Truncated
from lesion_labs.memory.size_findings import SIDES


def findings(summary: MemorySummary) -> list[Finding]:
    """The findings, in the order of the page."""
    sizes = size_findings.findings(summary.sizes, summary.study.width)
    return [_full(summary), _truncated(summary), *sizes, _first_step(summary.first_step)]


def part(row: Truncated, rank: int) -> str:
    """`the 19 smallest of 20 singular values kept`."""
    if row.rank in (0, rank):
        return "everything kept" if row.rank else "nothing kept"
    if row.control == "random":
        return f"projected onto {row.rank} of {rank} random directions"
    size = "largest" if row.side == "top" else "smallest"
    return f"the {size if row.rank == 1 else f'{row.rank} {size}'} of {rank} singular values kept"


def _full(summary: MemorySummary) -> Finding:
    full, noise = summary.full, summary.study.noise
    place = full.noise
    headline = (
        f"After {wording.counted(full.step, 'step')} the full memory gives f* {full.p_correct:.3f} and the common class"
        f" {full.p_noise:.3f} (trained on {1 - noise:.3f} and {noise:.3f})."
    )
    sentences = []
    if noise == 0:
        sentences.append("There was no noise to learn.")
    if place.side == "absent":
        sentences = [f"The code of the common class is {SIDES['absent']}."]
    elif len(full.singular_values) == 1:
        sentences.append(f"W has a single singular value, with {place.alignment:.3f} of the common class's code.")
    else:
        sentences.append(
            f"The noise lies {SIDES[place.side]}: its singular value ({place.alignment:.3f} of the common class's code)"
            f" is {place.ratio:.3g} times the largest other."
        )
        first = summary.training[0].noise
        if first.side != place.side:
            sentences.append(f"After the first step it was {SIDES[first.side]}.")
        errors = [_error(moment, summary.study.classes) for moment in summary.training if moment.predicted]
        if errors:
            sentences.append(
                f"The closed form agrees at every measured step to {wording.figures(max(*errors, 1e-16), 1)} of the"
                " largest value."
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
        return Finding("Truncation", ("W has a single component: there is nothing to truncate.",), ())
    # Truncation helps where the whole does worse on clean inputs.
    if best.clean_loss.mean < full.clean_loss:
        headline = (
            f"With {part(best, rank)}, clean accuracy goes from {wording.percent(full.clean_accuracy, 0)} to"
            f" {wording.percent(best.clean_accuracy.mean, 0)}, p of the common class from {full.p_noise:.3f} to"
            f" {best.p_noise.mean:.3f}, and clean loss from {full.clean_loss:.3f} to {best.clean_loss.mean:.3f} nats."
        )
    else:
        headline = (
            f"No part of the spectrum has a smaller clean loss than the whole ({full.clean_loss:.3f} nats); the nearest"
            f" is {part(best, rank)} ({best.clean_loss.mean:.3f})."
        )
    controls: list[str] = []
    for row in (row for row in summary.truncated if row.rank == best.rank):
        if row.control == "random":
            controls.insert(0, f"random projection ({wording.counted(row.draws, 'draw')}) {_loss(row)}")
        elif row.side not in (None, best.side) and best.rank:
            controls.append(f"{part(row, rank)} {_loss(row)}")
    controls.append(f"nothing kept {_loss(summary.deletion)}")
    return Finding("Truncation", (headline,), (f"Clean loss beside it: {'; '.join(controls)}.",))


def _loss(row: Truncated) -> str:
    """The clean loss, with the lowest and the highest draw where there are several."""
    loss = row.clean_loss
    return f"{loss.mean:.3f}" + (f" [{loss.low:.3f}, {loss.high:.3f}]" if row.draws > 1 else "")


def _first_step(step: FirstStep) -> Finding:
    sizes = [point.vocabulary for point in step.points]
    forward, value, noise = (step.power("constant", signal) for signal in ("feed_forward", "value", "value_noise"))
    last, sampled = step.under("constant")[-1], step.under("constant")[-1].sampled
    at = f"V = {last.vocabulary}"
    recall = f"recall by attention-value {_scaling(value)}"
    powers = f"Powers of V from {min(sizes)} to {max(sizes)}:"
    spread = _times(sampled.value / sampled.value_spread) if sampled else ""
    if step.noise == 0:
        headline = f"Without noise the feed-forward has no signal from q or any other token to τ. {powers} {recall}."
        sentences = [f"On batches at {at} recall's mean is {spread} times its standard deviation."] if sampled else []
    else:
        headline = f"{powers} the feed-forward's signal q → τ {_scaling(forward)}, {recall}."
        sentences = []
        if last.value > 0 and last.feed_forward > 0:
            times = _times(last.feed_forward / last.value)
            sentences.append(f"At {at} the feed-forward's signal is {times} times recall's.")
        if sampled:
            times = _times(sampled.feed_forward / sampled.feed_forward_width)
            sentences.append(
                f"On batches at {at} the feed-forward's signal is {times} times its standard deviation over other"
                f" tokens, recall's {spread} times."
            )
        also = f"Attention also learns the noise, from every token: {_scaling(noise)}"
        if last.value > 0 and last.value_noise > 0:
            also += f", {_times(last.value_noise / last.value)} times recall's at {at}"
        sentences.append(f"{also}.")
    zipf, uniform = (number(step.power(trigger, "value").exact) for trigger in ("zipf", "uniform"))
    rarer = f"With a rarer trigger, recall's exact power is {zipf} (π ∝ 1/rank) or {uniform} (π uniform)."
    return Finding("The first gradient step", (headline,), (*sentences, rarer))


def _scaling(power: Power) -> str:
    """`0.362 [0.218, 0.582] (exactly 0.350)`."""
    exactly = f"(exactly {number(power.exact)})"
    if power.batches is None or power.batches.value is None:
        return f"not measurable {exactly}"
    return f"{batches_text(power)} {exactly}"


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
