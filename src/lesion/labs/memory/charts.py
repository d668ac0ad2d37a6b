"""The charts of a memory: its spectrum over training, truncations, the sweep over sizes, the first step's signals."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pandas as pd

from lesion.labs.memory.result import FirstStep, MemorySummary, Place, Size, Truncated
from lesion.report import plots, theme, wording
from lesion.report.blocks import Series
from lesion.report.plots import Axis

NOISE, OTHERS = "where the noise lies", "largest of the others (band: down to the smallest)"
CLOSED_NOISE, CLOSED_OTHERS = "closed form, noise", "closed form, the others"
SPECTRUM = {NOISE: 1, OTHERS: 0, CLOSED_NOISE: 6, CLOSED_OTHERS: 2}
"""Series of the spectrum with the numbers of their colours and marks."""
PROBABILITIES = {"p of the common class": 1, "p of f*": 0}
SIDES = {"top": "the largest kept", "bottom": "the smallest kept", "random": "random projection"}
SIDE_NUMBERS = (0, 1, 6)
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
TRIGGERS = {
    "constant": "trigger as frequent at any V",
    "zipf": "trigger first of π ∝ 1/rank",
    "uniform": "trigger as rare as any token",
}
TONES = (0, 1, 2, 3, 4, 6, 7)
"""Colours of the sizes."""
FOOT = 0.02
"""A ratio below this is drawn at the foot."""
EVERY = 4
"""Every so many steps, a curve over training has a mark."""
COLUMNS = ["series", "x", "y", "low", "high"]


def spectrum_chart(summary: MemorySummary) -> alt.LayerChart:
    """Singular values over training: the noise's, and the largest of the others with a band down to the smallest."""
    measured, predicted, guide = [], [], []
    for moment in summary.training:
        tip = [_step(moment.step)]
        if moment.noise.side != "absent":
            of_noise, others = _apart(moment.singular_values, moment.noise)
            measured.append(_row(NOISE, moment.step, of_noise))
            tip.append(f"{NOISE}: {_figures(of_noise)}")
            if others:
                measured.append(_row(OTHERS, moment.step, max(others), min(others), max(others)))
                tip.append(f"the others: {_figures(min(others))} to {_figures(max(others))}")
        if moment.predicted is not None and moment.noise.side != "absent":
            for name, value in ((CLOSED_NOISE, moment.predicted.noise), (CLOSED_OTHERS, moment.predicted.signal)):
                predicted.append(_row(name, moment.step, value))
                tip.append(f"{name}: {_figures(value)}")
        guide.append(_tip(moment.step, tip))
    frame, closed = _frame(measured), _frame(predicted)
    across = _steps([moment.step for moment in summary.training])
    upright = Axis("singular value", 0.0, _above([*frame["y"], *closed["y"]]))
    names, numbers = list(SPECTRUM), list(SPECTRUM.values())
    return alt.layer(
        plots.curves(frame, across, upright, names, numbers=numbers, marks=False),
        plots.dashed(closed, across, upright, names, numbers=numbers),
        plots.points(frame[frame["series"] == NOISE], across, upright, names, numbers=numbers),
        plots.guides(pd.DataFrame(guide), across),
    )


def _apart(values: Sequence[float], place: Place) -> tuple[float, list[float]]:
    """The singular value of the noise, and the others."""
    index = place.rank - 1
    return values[index], [*values[:index], *values[index + 1 :]]


def spectrum_legend(summary: MemorySummary) -> tuple[Series, ...]:
    """The series of the spectrum and of the probabilities beside it."""
    series = [Series(NOISE, SPECTRUM[NOISE]), Series(OTHERS, colour=theme.tone(SPECTRUM[OTHERS]), area=True)]
    if summary.full.predicted is not None:
        series += [Series(name, SPECTRUM[name], dashed=True) for name in (CLOSED_NOISE, CLOSED_OTHERS)]
    series += [Series(name, number) for name, number in PROBABILITIES.items()]
    return (*series, Series("α, the share of noise", colour=theme.SOFT, dashed=True))


def probability_chart(summary: MemorySummary) -> alt.LayerChart:
    """Mean probabilities of f* and of the common class over training, with α."""
    rows, guide = [], []
    for moment in summary.training:
        values = dict(zip(PROBABILITIES, (moment.p_noise, moment.p_correct), strict=True))
        rows += [_row(name, moment.step, 100 * value) for name, value in values.items()]
        tips = [f"{name}: {wording.percent(value, 2)}" for name, value in values.items()]
        guide.append(_tip(moment.step, [_step(moment.step), *tips]))
    across, upright = _steps([moment.step for moment in summary.training]), _shares("mean probability, %")
    numbers = list(PROBABILITIES.values())
    frame, names = _frame(rows), list(PROBABILITIES)
    return alt.layer(
        plots.level(100 * summary.study.noise, upright),
        plots.curves(frame, across, upright, names, numbers=numbers, marks=False),
        plots.points(_thinned(frame), across, upright, names, numbers=numbers),
        plots.guides(pd.DataFrame(guide), across),
    )


def truncation_chart(summary: MemorySummary, measure: str) -> alt.LayerChart:
    """One measure against the number of components kept, by side, and for the random projections.

    Bars and band go from the lowest to the highest draw.
    """
    factor = 1 if measure == "clean_loss" else 100
    parts: list[dict[str, object]] = []
    controls: list[dict[str, object]] = []
    tips = {0: [_kept(0)]}
    for row in summary.truncated:
        name = SIDES.get(row.control or row.side or "")
        if name is None:
            continue
        spread = row.of(measure)
        ends = (factor * spread.low, factor * spread.high) if row.draws > 1 else (None, None)
        (controls if row.control else parts).append(_row(name, row.rank, factor * spread.mean, *ends))
        tips.setdefault(row.rank, [_kept(row.rank)]).append(f"{name}: {_spread_text(row, measure, factor)}")
    nothing = factor * summary.deletion.of(measure).mean
    tips[0].append(f"nothing kept: {_figures(nothing)}")
    guide = pd.DataFrame([_tip(rank, lines) for rank, lines in tips.items()])
    frame, random = _frame(parts), _frame(controls)
    across = _ranks(summary.rank)
    if measure == "clean_loss":
        heights = [value for data in (frame, random) for name in ("y", "high") for value in data[name].dropna()]
        upright = Axis(MEASURES[measure][1], 0.0, _above([*heights, nothing]))
    else:
        upright = _shares(MEASURES[measure][1])
    names = list(SIDES.values())
    return alt.layer(
        plots.level(nothing, upright),
        plots.curves(random, across, upright, names, numbers=SIDE_NUMBERS, marks=False),
        plots.curves(frame, across, upright, names, numbers=SIDE_NUMBERS, spread="bars", guide=guide),
    )


def _spread_text(row: Truncated, measure: str, factor: int) -> str:
    spread = row.of(measure)
    ends = wording.plain_interval(factor * spread.low, factor * spread.high) if row.draws > 1 else ""
    return f"{_figures(factor * spread.mean)} {ends}".rstrip()


def truncation_legend() -> tuple[Series, ...]:
    """The series of every truncation chart."""
    top, bottom, random = SIDES.values()
    return (
        Series(top, SIDE_NUMBERS[0]),
        Series(bottom, SIDE_NUMBERS[1]),
        Series(random, colour=theme.tone(SIDE_NUMBERS[2]), area=True),
        Series("nothing kept", colour=theme.SOFT, dashed=True),
    )


def sizes_drawn(summary: MemorySummary, codes: str) -> list[Size]:
    """The sizes that are drawn over training: those with one input per class."""
    return [size for size in summary.sizes if size.codes == codes and size.inputs == size.classes]


def ratio_chart(summary: MemorySummary, codes: str, noise: float) -> alt.LayerChart:
    """σ_noise over the largest other σ against the step, a curve per number of classes, one input per class."""
    drawn = sizes_drawn(summary, codes)
    sizes = [size for size in drawn if size.noise == noise]
    names = [_classes(size) for size in sizes]
    rows: list[dict[str, object]] = []
    tips: dict[int, list[str]] = {}
    for size in sizes:
        for place in size.places:
            mean, low, high = (max(value, FOOT) for value in (place.ratio.mean, place.ratio.low, place.ratio.high))
            rows.append(_row(_classes(size), place.step, mean, *((low, high) if size.draws > 1 else (None, None))))
            ends = wording.plain_interval(place.ratio.low, place.ratio.high) if size.draws > 1 else ""
            line = f"{_classes(size)}: {_figures(place.ratio.mean)} {ends}".rstrip()
            tips.setdefault(place.step, [_step(place.step)]).append(line)
    guide = pd.DataFrame([_tip(step, lines) for step, lines in tips.items()])
    spreads = [place.ratio for size in drawn for place in size.places]
    heights = [max(value, FOOT) for spread in spreads for value in (spread.mean, spread.low, spread.high)]
    across = _steps([place.step for size in drawn for place in size.places])
    upright = plots.ratio_axis("σ of noise / largest other σ", heights)
    frame = _frame(rows)
    return alt.layer(
        plots.level(1.0, upright),
        plots.curves(frame, across, upright, names, numbers=TONES, marks=False),
        plots.points(_thinned(frame), across, upright, names, numbers=TONES),
        plots.guides(guide, across),
    )


def ratio_legend(summary: MemorySummary, codes: str) -> tuple[Series, ...]:
    """The numbers of classes, and the line between the two sides of the spectrum."""
    names = dict.fromkeys(_classes(size) for size in sizes_drawn(summary, codes))
    series = [Series(name, TONES[index % len(TONES)]) for index, name in enumerate(names)]
    return (*series, Series("as large as the largest other", colour=theme.SOFT, dashed=True))


def _classes(size: Size) -> str:
    return f"m = {size.classes}"


def signal_chart(step: FirstStep, trigger: str) -> alt.LayerChart:
    """The first step's signals against the vocabulary: exact lines, and sampled marks with their lowest and highest."""
    upright = plots.ratio_axis("gradient, signal", _heights(step))
    low_end, high_end = upright.low or 0.0, upright.high or 0.0
    lines, marks, guide = [], [], []
    for point in step.under(trigger):
        tip = [f"V = {point.vocabulary}"]
        for signal, name in SIGNALS.items():
            exact = point.of(signal)
            tip.append(f"{name}, exact: {_figures(exact)}")
            if exact > 0:
                lines.append(_row(name, point.vocabulary, exact))
            if point.sampled is None:
                continue
            values = [draw.of(signal) for draw in point.draws]
            mean, low, high = point.sampled.of(signal), min(values), max(values)
            tip.append(f"{name}, batches: {_figures(mean)} {wording.plain_interval(low, high)}")
            if mean > 0:  # a logarithmic axis has no place for what is not above 0: bars go down to its end
                marks.append(_row(name, point.vocabulary, mean, max(low, low_end), min(high, high_end)))
        guide.append(_tip(point.vocabulary, tip))
    across = plots.ratio_axis("vocabulary V", [point.vocabulary for point in step.points], own=True)
    names = list(SIGNALS.values())
    return alt.layer(
        plots.curves(_frame(lines), across, upright, names, marks=False),
        plots.points(_frame(marks), across, upright, names),
        plots.guides(pd.DataFrame(guide), across),
    )


def _heights(step: FirstStep) -> list[float]:
    """All heights under every trigger: the charts have one axis."""
    levels = [level for point in step.points for level in (point, point.sampled) if level is not None]
    return [level.of(signal) for level in levels for signal in SIGNALS]


def signal_legend() -> tuple[Series, ...]:
    """The signals."""
    return tuple(Series(name, index) for index, name in enumerate(SIGNALS.values()))


def _row(
    series: str, across: float | int, upright: float, low: float | None = None, high: float | None = None
) -> dict[str, object]:
    return {"series": series, "x": across, "y": upright, "low": low, "high": high}


def _frame(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(COLUMNS[1:], float))


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of a few steps, without their spread: for marks that tell series apart and do not hide the lines."""
    steps = sorted(set(frame["x"]))
    return frame[frame["x"].isin([*steps[::EVERY], *steps[-1:]])].assign(low=None, high=None)


def _tip(across: float | int, lines: Sequence[str]) -> dict[str, object]:
    return {"x": across, "tip": "\n".join(lines)}


def _steps(steps: Sequence[int]) -> Axis:
    return plots.ratio_axis("step", steps, whole=True)


def _ranks(rank: int) -> Axis:
    stride = next(stride for stride in (1, 2, 4, 5, 10, 20, 50, 100) if rank / stride <= 8)
    ticks = tuple(float(kept) for kept in range(0, rank + 1, stride))
    return Axis("components kept", -0.02 * max(rank, 1), 1.02 * max(rank, 1), form="d", ticks=ticks)


def _shares(title: str) -> Axis:
    return Axis(title, -3.0, 103.0, ticks=(0.0, 25.0, 50.0, 75.0, 100.0))


def _above(values: Sequence[float]) -> float:
    """The end of an axis from 0 that holds all values."""
    return 1.06 * (max(values, default=0.0) or 1.0)


def _step(step: int) -> str:
    return f"step {step:,}"


def _kept(rank: int) -> str:
    return f"{wording.counted(rank, 'component')} kept"


def _figures(value: float) -> str:
    return wording.figures(value, 4).replace("-", wording.MINUS)
