"""How the numbers of a truncation search are written for people: log-probabilities, scores, estimates."""

from __future__ import annotations

from lesion.report import wording
from lesion.report.values import Estimate
from lesion.studies.truncation.result import Score, TruncationSummary


def nats(value: float | None, digits: int | None = None) -> str:
    """A change of log-probability with its sign: `+0.31`, a small one `−0.004`; unknown as a dash."""
    if value is None:
        return wording.DASH
    text = f"{abs(value):.{digits if digits is not None else 2 if abs(value) >= 0.1 else 3}f}"
    return text if float(text) == 0 else f"{'+' if value > 0 else wording.MINUS}{text}"


def nats_interval(low: float | None, high: float | None) -> str:
    """`[−0.10, 0.31]`, of small ends with a digit more; empty when unknown."""
    if low is None or high is None:
        return ""
    digits = 2 if max(abs(low), abs(high)) >= 0.1 else 3
    return f"[{nats(low, digits)},{wording.SPACE}{nats(high, digits)}]".replace("+", "")


def nats_estimate(estimate: Estimate) -> str:
    """`+0.20 [0.10, 0.31]`."""
    return f"{nats(estimate.value)} {nats_interval(estimate.low, estimate.high)}".rstrip()


def log_probability(value: float | None) -> str:
    """`−1.234`; unknown as a dash."""
    return wording.DASH if value is None else f"{value:.3f}".replace("-", wording.MINUS)


def percent_estimate(estimate: Estimate, digits: int = 1) -> str:
    """`52.0 % [45.1, 58.8]`."""
    return f"{wording.percent(estimate.value, digits)} {wording.interval(estimate.low, estimate.high, digits)}".rstrip()


def points_estimate(estimate: Estimate) -> str:
    """`+1.5 [−2.0, 5.0]`, in points."""
    if estimate.value is None:
        return wording.DASH
    return f"{wording.signed(estimate.value)} {wording.interval(estimate.low, estimate.high)}".rstrip()


def points_change(estimate: Estimate) -> str:
    """`+12.0 points [5.0, 19.0]`."""
    return f"{wording.signed(estimate.value or 0.0)} points {wording.interval(estimate.low, estimate.high)}".rstrip()


def score(summary: TruncationSummary, value: float | None) -> str:
    """A score on validation items, in the unit of what the search maximises."""
    return log_probability(value) if summary.by_gold else wording.percent(value)


def step_score(summary: TruncationSummary, value: Score) -> str:
    """The score before or after a step of the composition."""
    return score(summary, summary.score(value))


def probability(estimate: Estimate) -> str:
    """The mean probability of a token, `12.0 % [10.1, 13.9]`; a small one with a digit more."""
    return percent_estimate(estimate, probability_digits(estimate.value))


def probability_digits(value: float | None) -> int:
    """Digits of a probability in percent."""
    return 1 if value is None or value >= 0.1 else 2


def rank(value: float | None) -> str:
    """A median rank."""
    return wording.DASH if value is None else f"{value:,g}"


def label_text(label: str, share: float) -> str:
    """`“A” to 98.0 % of the items`."""
    answer = f"“{wording.short(label, 24)}”" if label else "no readable answer"
    return f"{answer} to {wording.percent(share)} of the items"
