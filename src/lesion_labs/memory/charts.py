"""The charts of a memory: its spectrum over training, truncations, the sweep over sizes, the first step's signals."""

from __future__ import annotations

import altair as alt
import pandas as pd

from lesion.report import axes, plots, theme, wording
from lesion.report.axes import Axis
from lesion.report.blocks import Series
from lesion_labs.curves import over_training, step_axis, step_name
from lesion_labs.memory.result import FirstStep, MemorySummary, Size, Spread

NOISE, OTHERS = "where the noise lies", "largest of the others (band: down to the smallest)"
CLOSED_NOISE, CLOSED_OTHERS = "closed form, noise", "closed form, the others"
SPECTRUM = {NOISE: 1, OTHERS: 0, CLOSED_NOISE: 6, CLOSED_OTHERS: 2}
"""Series of the spectrum with the numbers of their colours and marks."""
PROBABILITIES = {"p of the common class": 1, "p of f*": 0}
SIDES = {"top": "the largest kept", "bottom": "the smallest kept", "random": "random projection"}
SIDE_NUMBERS = (0, 1, 6)
TRUNCATION_LEGEND = (
    Series("the largest kept", 0),
    Series("the smallest kept", 1),
    Series("random projection", colour=theme.tone(6), area=True),
    Series("nothing kept", colour=theme.SOFT, dashed=True),
)
MEASURES = {
    "clean_accuracy": ("Clean accuracy", "clean accuracy, %"),
    "p_noise": ("Probability of the common class", "p of the common class, %"),
    "clean_loss": ("Clean loss", "clean loss, nats"),
}
"""Heading and axis of the truncation charts, by measure."""
SIGNALS = {
    "feed_forward": "feed-forward, q → τ",
    "value": "attention, recall",
    "value_noise": "attention, → τ",
}
SIGNAL_LEGEND = tuple(Series(name, index) for index, name in enumerate(SIGNALS.values()))
TRIGGERS = {
    "constant": "trigger as frequent at any V",
    "zipf": "trigger first of π ∝ 1/rank",
    "uniform": "trigger as rare as any token",
}
TONES = (0, 1, 2, 3, 4, 6, 7)
"""Colours of the sizes."""
FOOT = 0.02
"""A ratio below this is drawn at the foot."""


def spectrum_chart(summary: MemorySummary) -> alt.LayerChart:
    """Singular values over training: the noise's, and the largest of the others with a band down to the smallest."""
    measured: list[plots.Row] = []
    predicted: list[plots.Row] = []
    for moment in (moment for moment in summary.training if moment.noise.side != "absent"):
        others = list(moment.singular_values)
        measured.append((NOISE, moment.step, others.pop(moment.noise.rank - 1), None, None))
        if others:
            measured.append((OTHERS, moment.step, max(others), min(others), max(others)))
        if moment.predicted is not None:
            predicted.append((CLOSED_NOISE, moment.step, moment.predicted.noise, None, None))
            predicted.append((CLOSED_OTHERS, moment.step, moment.predicted.signal, None, None))
    frame, closed = plots.data(measured), plots.data(predicted)
    across = step_axis([moment.step for moment in summary.training])
    upright = axes.from_zero("singular value", [*frame["y"], *closed["y"]])
    names, numbers = list(SPECTRUM), list(SPECTRUM.values())
    return alt.layer(
        plots.curves(frame, across, upright, names, numbers=numbers, marks=False),
        plots.dashed(closed, across, upright, names, numbers=numbers),
        plots.points(frame[frame["series"] == NOISE], across, upright, names, numbers=numbers),
        plots.guides(plots.readings(plots.data(measured + predicted), step_name), across),
    )


def spectrum_legend(summary: MemorySummary) -> tuple[Series, ...]:
    """The series of the spectrum."""
    series = [Series(NOISE, SPECTRUM[NOISE]), Series(OTHERS, colour=theme.tone(SPECTRUM[OTHERS]), area=True)]
    if summary.full.predicted is not None:
        series += [Series(name, SPECTRUM[name], dashed=True) for name in (CLOSED_NOISE, CLOSED_OTHERS)]
    return tuple(series)


def probability_legend() -> tuple[Series, ...]:
    """The series of the probabilities."""
    series = [Series(name, number) for name, number in PROBABILITIES.items()]
    return (*series, Series("α, the share of noise", colour=theme.SOFT, dashed=True))


def probability_chart(summary: MemorySummary) -> alt.LayerChart:
    """Mean probabilities of f* and of the common class over training, with α."""
    frame = plots.data(
        (name, moment.step, 100 * probability, None, None)
        for moment in summary.training
        for name, probability in zip(PROBABILITIES, (moment.p_noise, moment.p_correct), strict=True)
    )
    return over_training(
        frame,
        axes.shares("mean probability, %"),
        list(PROBABILITIES),
        numbers=list(PROBABILITIES.values()),
        reference=100 * summary.study.noise,
    )


def truncation_chart(summary: MemorySummary, measure: str) -> alt.LayerChart:
    """One measure against the number of components kept, by side, and for the random projections.

    Bars and band go from the lowest to the highest draw.
    """
    factor = 1 if measure == "clean_loss" else 100
    frame = plots.data(
        _spread(SIDES[row.control or row.side or ""], row.rank, row.of(measure), row.draws, factor)
        for row in summary.truncated
        if row.control != "deletion"
    )
    nothing = factor * summary.deletion.of(measure).mean
    random = frame["series"] == SIDES["random"]
    stride = next(stride for stride in (1, 2, 4, 5, 10, 20, 50, 100) if summary.rank / stride <= 8)
    room, ticks = 0.02 * max(summary.rank, 1), tuple(map(float, range(0, summary.rank + 1, stride)))
    across = Axis("components kept", -room, max(summary.rank, 1) + room, form="d", ticks=ticks)
    _, title = MEASURES[measure]
    upright = axes.shares(title)
    if measure == "clean_loss":
        upright = axes.from_zero(title, [*frame["y"], *frame["high"], nothing])
    guide = plots.readings(frame, lambda rank: f"{wording.counted(int(rank), 'component')} kept")
    names = list(SIDES.values())
    return alt.layer(
        plots.level(nothing, upright),
        plots.curves(frame[random], across, upright, names, numbers=SIDE_NUMBERS, marks=False),
        plots.curves(frame[~random], across, upright, names, numbers=SIDE_NUMBERS, spread="bars", guide=guide),
    )


def sizes_drawn(summary: MemorySummary, codes: str) -> list[Size]:
    """The sizes that are drawn over training: those with one input per class."""
    return [size for size in summary.sizes if size.codes == codes and size.inputs == size.classes]


def ratio_chart(summary: MemorySummary, codes: str, noise: float) -> alt.LayerChart:
    """σ_noise over the largest other σ against the step, a curve per number of classes, one input per class."""
    drawn = sizes_drawn(summary, codes)
    frame = plots.data(
        _spread(_classes(size), place.step, place.ratio, size.draws)
        for size in drawn
        if size.noise == noise
        for place in size.places
    )
    ratios = [place.ratio for size in drawn for place in size.places]
    heights = [max(value, FOOT) for ratio in ratios for value in (ratio.mean, ratio.low, ratio.high)]
    upright = axes.ratio_axis("σ of noise / largest other σ", heights)
    names = list(dict.fromkeys(frame["series"]))
    return over_training(frame, upright, names, numbers=TONES, reference=1.0, foot=FOOT)


def ratio_legend(summary: MemorySummary, codes: str) -> tuple[Series, ...]:
    """The numbers of classes, and the line between the two sides of the spectrum."""
    names = dict.fromkeys(_classes(size) for size in sizes_drawn(summary, codes))
    series = [Series(name, TONES[index % len(TONES)]) for index, name in enumerate(names)]
    return (*series, Series("as large as the largest other", colour=theme.SOFT, dashed=True))


def signal_chart(step: FirstStep, trigger: str) -> alt.LayerChart:
    """The first step's signals against the vocabulary: exact lines, and sampled marks with their lowest and highest."""
    exact: list[plots.Row] = []
    batches: list[plots.Row] = []
    for point in step.under(trigger):
        for signal, name in SIGNALS.items():
            exact.append((name, point.vocabulary, point.of(signal), None, None))
            if point.sampled:
                values = [draw.of(signal) for draw in point.draws]
                batches.append((name, point.vocabulary, point.sampled.of(signal), min(values), max(values)))
    levels = [level for point in step.points for level in (point, point.sampled) if level]
    upright = axes.ratio_axis("gradient, signal", [level.of(signal) for level in levels for signal in SIGNALS])
    across = axes.ratio_axis("vocabulary V", [point.vocabulary for point in step.points], own=True)
    lines, marks = plots.data(exact), plots.data(batches)
    both = [lines.assign(series=lines["series"] + ", exact"), marks.assign(series=marks["series"] + ", batches")]
    guide = plots.readings(pd.concat(both), lambda vocabulary: f"V = {vocabulary:g}")
    # A logarithmic axis has no place for what is not above 0: bars go down to its end.
    marks = marks[marks["y"] > 0].assign(
        low=marks["low"].clip(lower=upright.low), high=marks["high"].clip(upper=upright.high)
    )
    names = list(SIGNALS.values())
    return alt.layer(
        plots.curves(lines[lines["y"] > 0], across, upright, names, marks=False),
        plots.points(marks, across, upright, names),
        plots.guides(guide, across),
    )


def _spread(series: str, x: int, spread: Spread, draws: int, factor: int = 1) -> plots.Row:
    ends = (factor * spread.low, factor * spread.high) if draws > 1 else (None, None)
    return series, x, factor * spread.mean, *ends


def _classes(size: Size) -> str:
    return f"m = {size.classes}"
