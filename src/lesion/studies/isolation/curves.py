"""Line charts as inline SVG: a task's accuracy against the share kept or the factor, and overlap against samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale
from lesion.report.trials import METHODS, Asked, Effect, Evaluation, mean, number
from lesion.studies.isolation import tradeoff
from lesion.studies.isolation.sweeps import Along, Series, Stop

LEFT, RIGHT, TOP, BOTTOM = 56.0, 14.0, 10.0, 40.0
AXES = {"keep": "share taken of every matrix, %", "factor": "factor on the selected weights"}


@dataclass(frozen=True)
class Overlap:
    """How far the sets of one method, keep and number of samples agree between disjoint draws, IoU in 0…1.

    `low` and `high` are the pairs that agree least and most; None where there is only one pair.
    """

    method: str
    keep: float | None
    samples: int
    repeats: int
    pairs: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    chance: float | None

    @property
    def label(self) -> str:
        """`MathNeuro, keep 5 %`."""
        name = METHODS.get(self.method, self.method)
        return name if self.keep is None else f"{name}, keep{wording.SPACE}{wording.keep(self.keep)}"


def overlaps(isolation: Mapping[str, Any]) -> list[Overlap]:
    """The overlaps of an isolation's summary whose mean is known; the spread is that of the pairs where they are."""
    found = []
    for entry in isolation.get("overlap") or ():
        middle = number(entry.get("mean"))
        if middle is None:
            continue
        pairs = tuple(value for value in map(number, entry.get("iou") or ()) if value is not None)
        low, high = (min(pairs), max(pairs)) if pairs else (number(entry.get("low")), number(entry.get("high")))
        if len(pairs) == 1 or int(entry.get("repeats") or 0) == 2:
            low = high = None  # one pair has no spread
        found.append(
            Overlap(
                method=str(entry.get("method") or ""),
                keep=number(entry.get("keep")),
                samples=int(entry.get("samples") or 0),
                repeats=int(entry.get("repeats") or 0),
                pairs=pairs,
                mean=middle,
                low=low,
                high=high,
                chance=number(entry.get("chance")),
            )
        )
    return found


def panel(found: Evaluation, series: Sequence[Series], task: Asked, along: Along, size: tuple[int, int]) -> Markup:
    """One task's accuracy (or perplexity) along the share kept or the factor, a line per series.

    Error bars are the effects' intervals; grey bars beside them go from the lowest to the highest random control.
    """
    width, height = size
    measured = [
        (one, stop, [task.effects[edit.key] for edit in stop.edits if edit.key in task.effects])
        for one in series
        for stop in one.stops
    ]
    values: list[float | None] = [task.value, task.low, task.high, task.guessed]
    for _, _, effects in measured:
        for effect in effects:
            values += [effect.value, effect.low, effect.high]
            if effect.random is not None:
                values += [effect.random.lowest, effect.random.highest]
    places = [stop.at for _, stop, effects in measured if effects]
    upwards = (height - BOTTOM, TOP)
    x = scales.ratios(places, LEFT, width - RIGHT, "keep") if along == "keep" else _factors(places, width)
    y = scales.ratios(values, *upwards) if task.scored else scales.shares(values, *upwards)
    parts = scales.axes(x, y, (AXES[along], "perplexity" if task.scored else "accuracy, %"), height)
    if task.value is not None:
        parts.append(Markup('<path class="baseline" d="M{} {:.1f}H{}"/>').format(LEFT, y.at(task.value), width - RIGHT))
    if task.guessed is not None:
        parts.append(Markup('<path class="guess" d="M{} {:.1f}H{}"/>').format(LEFT, y.at(task.guessed), width - RIGHT))
    hits: list[Markup] = []
    for index, one in enumerate(series):
        colour = found.colours.index(one.stops[0].edits[0].method_name) % charts.SERIES
        shift = 3.0 * (index - (len(series) - 1) / 2)  # neighbours' error bars must not cover each other
        of_one = [(stop, effects) for same, stop, effects in measured if same is one and effects]
        marks, line = [], []
        for stop, effects in of_one:
            at = x.at(stop.at) + shift
            middle = mean(effect.value for effect in effects)
            assert middle is not None
            line.append((at, y.at(middle)))
            marks.append(_stop(effects, at, y))
            marks.append(charts.mark(at, y.at(middle), 3.8, index))
            hits.append(_hit(stop, effects, at, y, task, found.model))
        stroke = Markup("")
        if len(line) > 1:
            stroke = Markup('<path class="stroke" d="M{}"/>').format("L".join(f"{a:.1f} {b:.1f}" for a, b in line))
        parts.append(Markup('<g class="t{}">{}{}</g>').format(colour, stroke, Markup("").join(marks)))
    name = f"{task.name} against the {AXES[along]}; the numbers stand in the table of the evaluation."
    return _chart(name, width, height, parts + hits)


def consistency(of_overlaps: Sequence[Overlap], size: tuple[int, int]) -> Markup:
    """Mean IoU between draws against the number of samples, a line per method and keep; dashed: by chance."""
    width, height = size
    x = scales.ratios([float(one.samples) for one in of_overlaps], LEFT, width - RIGHT, "count")
    y = Scale(0.0, 1.02, height - BOTTOM, TOP, tuple((i / 4, f"{i / 4:.2g}") for i in range(5)))
    parts = scales.axes(x, y, ("texts of each data set", "overlap of sets (IoU)"), height)
    hits: list[Markup] = []
    for index, label in enumerate(labels(of_overlaps)):
        of_label = sorted((one for one in of_overlaps if one.label == label), key=lambda one: one.samples)
        shift = 2.0 * (index % 5 - 2)
        marks = []
        for one in of_label:
            at, height_at = x.at(float(one.samples)) + shift, y.at(one.mean)
            if one.low is not None and one.high is not None:
                marks.append(_bar("error", at, y.at(one.low), y.at(one.high)))
            marks.append(charts.mark(at, height_at, 3.8, index))
            told = f"{label}, {wording.counted(one.samples, 'text')}: IoU {one.mean:.3f}"
            if one.low is not None and one.high is not None:
                told += f" (pairs {one.low:.3f} to {one.high:.3f})"
            elif one.repeats == 2:
                told += " (one pair, no interval)"
            if one.chance is not None:
                told += f", by chance {one.chance:.3f}"
            hits.append(
                Markup('<circle class="point" data-tip="{}" cx="{:.1f}" cy="{:.1f}" r="9"/>').format(
                    told, at, height_at
                )
            )
        stroke = "L".join(f"{x.at(float(one.samples)) + shift:.1f} {y.at(one.mean):.1f}" for one in of_label)
        known = [(one, one.chance) for one in of_label if one.chance is not None]
        dashed = "L".join(f"{x.at(float(one.samples)) + shift:.1f} {y.at(chance):.1f}" for one, chance in known)
        lines = Markup('<path class="stroke" d="M{}"/>').format(stroke) if len(of_label) > 1 else Markup("")
        if len(known) > 1:
            lines += Markup('<path class="baseline" d="M{}"/>').format(dashed)
        elif known:
            # One point is no line: where no other size is drawn, the whole width is free for it.
            at = x.at(float(known[0][0].samples))
            ends = (LEFT, width - RIGHT) if len({one.samples for one in of_overlaps}) == 1 else (at - 12, at + 12)
            lines += Markup('<path class="baseline" d="M{:.1f} {:.1f}H{:.1f}"/>').format(
                ends[0], y.at(known[0][1]), ends[1]
            )
        parts.append(Markup('<g class="t{}">{}{}</g>').format(index % charts.SERIES, lines, Markup("").join(marks)))
    return _chart("Overlap of the sets found from different texts.", width, height, parts + hits)


def labels(of_overlaps: Sequence[Overlap]) -> list[str]:
    """The lines of the consistency chart, in their order."""
    return list(dict.fromkeys(one.label for one in of_overlaps))


def swatch(colour: int, index: int) -> Markup:
    """The legend's picture of a line: a stroke with its mark."""
    return Markup(
        '<svg class="swatch t{}" viewBox="0 0 34 14" aria-hidden="true"><path class="stroke" d="M1 7H33"/>{}</svg>'
    ).format(colour % charts.SERIES, charts.mark(17.0, 7.0, 4.2, index))


def legend(found: Evaluation, series: Sequence[Series]) -> list[tuple[Markup, str]]:
    """A picture and a label per series, in the colours of the charts."""
    return [
        (swatch(found.colours.index(one.stops[0].edits[0].method_name), index), one.label)
        for index, one in enumerate(series)
    ]


def _factors(places: Sequence[float], width: int) -> Scale:
    return scales.numbers([*places, 1.0], LEFT, width - RIGHT)


def _stop(effects: Sequence[Effect], at: float, y: Scale) -> Markup:
    """One edit's interval, or the repeats as thin points, with the random controls' spread beside them."""
    found = Markup("")
    spreads = [effect.random for effect in effects if effect.random is not None]
    lows = [spread.lowest for spread in spreads if spread.lowest is not None]
    highs = [spread.highest for spread in spreads if spread.highest is not None]
    middle = mean(spread.mean for spread in spreads)
    if lows and highs and middle is not None:
        found += Markup('<g class="chance">{}<circle cx="{:.1f}" cy="{:.1f}" r="2.4"/></g>').format(
            _bar("", at + 4, y.at(min(lows)), y.at(max(highs))), at + 4, y.at(middle)
        )
    if len(effects) > 1:
        for effect in effects:
            found += Markup('<circle class="repeat" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(at, y.at(effect.value))
    elif effects[0].low is not None and effects[0].high is not None:
        found += _bar("error", at, y.at(effects[0].low), y.at(effects[0].high))
    return found


def _bar(name: str, x: float, low: float, high: float) -> Markup:
    return Markup('<path class="{}" d="M{:.1f} {:.1f}V{:.1f}"/>').format(name, x, low, high)


def _hit(stop: Stop, effects: Sequence[Effect], at: float, y: Scale, task: Asked, model: str) -> Markup:
    told = [f"{effect.edit.name}: {tradeoff.numbers(task, effect)}" for effect in effects]
    middle = mean(effect.value for effect in effects)
    assert middle is not None
    return Markup(
        '<circle class="point" data-tip="{}" data-model="{}" data-task="{}" data-edit="{}" '
        'cx="{:.1f}" cy="{:.1f}" r="9"/>'
    ).format(Markup("&#10;").join(told), model, task.name, stop.edits[0].key, at, y.at(middle))


def _chart(name: str, width: int, height: int, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, name, Markup("").join(parts)
    )
