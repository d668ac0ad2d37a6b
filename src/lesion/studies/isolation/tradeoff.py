"""The trade-off plot as inline SVG: accuracy on the skill against a control, a line per method, keeps labelled.

After Christ et al. (2024, Figures 2 and 3): the ideal of pruning is the top left (the skill lost, the control kept),
that of boosting the top right. Colours come from the style sheet by class; every text is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from lesion.report import charts, scales, wording
from lesion.report.scales import Scale
from lesion.report.trials import Asked, Edited, Effect, Evaluation, mean
from lesion.studies.isolation.sweeps import Series, Stop

LEFT, RIGHT, TOP, BOTTOM = 56.0, 14.0, 12.0, 40.0


@dataclass
class Labels:
    """Places already taken by texts and marks, so that no label covers another."""

    taken: list[tuple[float, float, float, float]] = field(default_factory=list)

    def free(self, box: tuple[float, float, float, float]) -> bool:
        """Whether a box (left, top, right, bottom) covers no other."""
        left, top, right, bottom = box
        return all(right < a or left > c or bottom < b or top > d for a, b, c, d in self.taken)

    def take(self, box: tuple[float, float, float, float]) -> bool:
        """Take a box (left, top, right, bottom) where it covers no other."""
        free = self.free(box)
        if free:
            self.taken.append(box)
        return free


@dataclass(frozen=True)
class Plane:
    """Where accuracies on a skill and a control lie in a chart."""

    x: Scale
    y: Scale
    width: int
    height: int


def panel(
    found: Evaluation, series: Sequence[Series], skill: Asked, control: Asked, size: tuple[int, int], *, boost: bool
) -> Markup:
    """One chart: every series with its intervals, random controls in grey, the unedited model as a dashed cross.

    Dotted: chance, where answers are chosen.

    Args:
        found: for the colours of methods.
        series: what is drawn.
        skill: whose accuracy goes to the right.
        control: whose accuracy, or perplexity, goes upwards.
        size: width and height in SVG units.
        boost: the ideal corner is the top right.
    """
    plane = _plane(series, skill, control, size)
    places = Labels()
    parts = [*scales.axes(plane.x, plane.y, (f"accuracy on {skill.name}, %", _upwards(control)), plane.height)]
    parts.append(_ideal(plane, places, boost=boost))
    parts.append(_baseline(plane, skill, control))
    strokes, marks, texts, hits = [], [], [], []
    for index, one in enumerate(series):
        colour = found.colours.index(one.stops[0].edits[0].method_name) % charts.SERIES
        line = []
        for stop in one.stops:
            at = _middle(stop, skill, control, plane)
            if at is None:
                continue
            line.append(at)
            places.take((at[0] - 4, at[1] - 4, at[0] + 4, at[1] + 4))
            marks.append(_stop(stop, at, skill, control, plane, colour, index))
            hits.extend(_hits(stop, skill, control, plane, found.model))
        if len(line) > 1:
            stroke = "L".join(f"{x:.1f} {y:.1f}" for x, y in line)
            strokes.append(Markup('<path class="stroke t{}" d="M{}"/>').format(colour, stroke))
    for one in series:
        for stop in one.stops:
            at = _middle(stop, skill, control, plane)
            if at is not None and (text := stop_name(one, stop)):
                texts.append(_label(text, at, places, plane))
    name = f"{skill.name} against {control.name} under every edit; the numbers stand in the table of the evaluation."
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        plane.width, plane.height, name, Markup("").join(parts + strokes + marks + texts + hits)
    )


def stop_name(series: Series, stop: Stop) -> str:
    """What varies along a series, at one of its stops: `5 %` or `×1.1`; empty for an edit without a keep."""
    if series.along == "factor":
        return wording.factor(stop.at)
    return "" if stop.at != stop.at else wording.keep(stop.at)


def numbers(task: Asked, effect: Effect) -> str:
    """An effect in words: the value and its change with intervals, and the random controls beside it."""
    if task.scored:
        told = f"perplexity {wording.perplexity(effect.value)} {wording.plain_interval(effect.low, effect.high)}"
        if effect.change is not None:
            told += f", ×{effect.change:.3f} {wording.plain_interval(effect.change_low, effect.change_high)}"
    else:
        told = f"{wording.percent(effect.value)} {wording.interval(effect.low, effect.high)}"
        if effect.change is not None:
            interval = wording.interval(effect.change_low, effect.change_high)
            told += f", drop {wording.points(effect.change)} {interval}"
    spread = effect.random
    if spread is not None and spread.mean is not None:
        write = wording.perplexity if task.scored else wording.percent
        told += f"; random {write(spread.mean)} ({write(spread.lowest)} to {write(spread.highest)})"
    return told


def _plane(series: Sequence[Series], skill: Asked, control: Asked, size: tuple[int, int]) -> Plane:
    edits = [edit for one in series for stop in one.stops for edit in stop.edits]
    width, height = size

    def values(task: Asked) -> list[float | None]:
        found = [task.value, task.low, task.high, task.guessed]
        for effect in (task.effects.get(edit.key) for edit in edits):
            if effect is not None:
                found += [effect.value, effect.low, effect.high]
                if effect.random is not None:
                    found += [effect.random.lowest, effect.random.highest]
        return found

    upwards = (height - BOTTOM, TOP)
    # One measure for both accuracies: a trifle of the control must not look like the loss of the skill.
    closer = all(scales.near(values(task)) for task in (skill, control) if not task.scored)
    return Plane(
        x=scales.shares(values(skill), LEFT, width - RIGHT, closer=closer),
        y=scales.ratios(values(control), *upwards, reversed=True)
        if control.scored
        else scales.shares(values(control), *upwards, closer=closer),
        width=width,
        height=height,
    )


def _upwards(control: Asked) -> str:
    return f"perplexity on {control.name}" if control.scored else f"accuracy on {control.name}, %"


def _ideal(plane: Plane, places: Labels, *, boost: bool) -> Markup:
    top = plane.y.end
    corner = plane.x.end if boost else plane.x.start
    towards = -1 if boost else 1
    x = corner + towards * 8
    places.take((min(x, x + towards * 34), top + 20, max(x, x + towards * 34), top + 36))
    return Markup(
        '<path class="ideal" d="M{:.1f} {:.1f}h{}a52 52 0 0 {} {} 52Z"/>'
        '<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="{}">ideal</text>'
    ).format(corner, top, towards * 52, 0 if boost else 1, -towards * 52, x, top + 32, "end" if boost else "start")


def _baseline(plane: Plane, skill: Asked, control: Asked) -> Markup:
    found = Markup("")
    if skill.value is not None:
        found += Markup('<path class="baseline" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
            plane.x.at(skill.value), plane.y.start, plane.y.end
        )
    if control.value is not None:
        found += Markup('<path class="baseline" d="M{:.1f} {:.1f}H{:.1f}"/>').format(
            plane.x.start, plane.y.at(control.value), plane.x.end
        )
    if skill.guessed is not None:
        found += Markup('<path class="guess" d="M{:.1f} {:.1f}V{:.1f}"/>').format(
            plane.x.at(skill.guessed), plane.y.start, plane.y.end
        )
    if control.guessed is not None:
        found += Markup('<path class="guess" d="M{:.1f} {:.1f}H{:.1f}"/>').format(
            plane.x.start, plane.y.at(control.guessed), plane.x.end
        )
    return found


def _both(edit: Edited, skill: Asked, control: Asked) -> tuple[Effect, Effect] | None:
    one, other = skill.effects.get(edit.key), control.effects.get(edit.key)
    return None if one is None or other is None else (one, other)


def _middle(stop: Stop, skill: Asked, control: Asked, plane: Plane) -> tuple[float, float] | None:
    measured = [both for edit in stop.edits if (both := _both(edit, skill, control)) is not None]
    x, y = (mean(both[i].value for both in measured) for i in (0, 1))
    return None if x is None or y is None else (plane.x.at(x), plane.y.at(y))


def _stop(
    stop: Stop, at: tuple[float, float], skill: Asked, control: Asked, plane: Plane, colour: int, index: int
) -> Markup:
    """The mark of a stop: one edit with its intervals, or thin points for its repeats and their mean."""
    found = Markup("")
    for edit in stop.edits:
        both = _both(edit, skill, control)
        if both is None:
            continue
        found += _random(both, at, plane)
        x, y = plane.x.at(both[0].value), plane.y.at(both[1].value)
        if len(stop.edits) > 1:
            found += Markup('<circle class="repeat" cx="{:.1f}" cy="{:.1f}" r="2"/>').format(x, y)
            continue
        if both[0].low is not None and both[0].high is not None:
            ends = (plane.x.at(both[0].low), y, plane.x.at(both[0].high))
            found += Markup('<path class="error" d="M{:.1f} {:.1f}H{:.1f}"/>').format(*ends)
        if both[1].low is not None and both[1].high is not None:
            ends = (x, plane.y.at(both[1].low), plane.y.at(both[1].high))
            found += Markup('<path class="error" d="M{:.1f} {:.1f}V{:.1f}"/>').format(*ends)
    return Markup('<g class="t{}">{}{}</g>').format(colour, found, charts.mark(*at, 4.2, index))


def _random(both: tuple[Effect, Effect], at: tuple[float, float], plane: Plane) -> Markup:
    """The matched random controls: a grey cross from the lowest to the highest, tied to their edit."""
    spreads = [effect.random for effect in both]
    if any(s is None or s.mean is None or s.lowest is None or s.highest is None for s in spreads):
        return Markup("")
    (x, x_low, x_high), (y, y_low, y_high) = (
        tuple(scale.at(value) for value in (s.mean, s.lowest, s.highest) if value is not None)
        for s, scale in zip(spreads, (plane.x, plane.y), strict=True)
        if s is not None
    )
    return Markup(
        '<g class="chance"><path class="tie" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/><path d="M{:.1f} {:.1f}H{:.1f}"/>'
        '<path d="M{:.1f} {:.1f}V{:.1f}"/><circle cx="{:.1f}" cy="{:.1f}" r="2.4"/></g>'
    ).format(*at, x, y, x_low, y, x_high, x, y_low, y_high, x, y)


def _label(text: str, at: tuple[float, float], places: Labels, plane: Plane) -> Markup:
    """A text beside a mark, where there is room; none where there is not: pointing tells it."""
    wide = 6.2 * len(text)
    for x, y, anchor in (
        (at[0] + 7, at[1] - 4, "start"),
        (at[0] + 7, at[1] + 12, "start"),
        (at[0] - 7, at[1] - 4, "end"),
        (at[0] - 7, at[1] + 12, "end"),
        (at[0], at[1] - 9, "middle"),
        (at[0], at[1] + 17, "middle"),
    ):
        left = {"start": x, "end": x - wide, "middle": x - wide / 2}[anchor]
        inside = left >= plane.x.start and left + wide <= plane.width and plane.y.end <= y - 9 and y <= plane.y.start
        if inside and places.take((left, y - 9, left + wide, y + 1)):
            return Markup('<text class="label small" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
                x, y, anchor, text
            )
    return Markup("")


def _hits(stop: Stop, skill: Asked, control: Asked, plane: Plane, model: str) -> list[Markup]:
    """Invisible discs over the marks: pointing at one tells its numbers, a click opens the answers."""
    found = []
    for edit in stop.edits:
        both = _both(edit, skill, control)
        if both is None:
            continue
        told = [edit.name] + [
            f"{task.name}: {numbers(task, effect)}" for task, effect in zip((skill, control), both, strict=True)
        ]
        found.append(
            Markup(
                '<circle class="point" data-tip="{}" data-model="{}" data-task="{}" data-edit="{}" '
                'cx="{:.1f}" cy="{:.1f}" r="9"/>'
            ).format(
                Markup("&#10;").join(told),
                model,
                skill.name,
                edit.key,
                plane.x.at(both[0].value),
                plane.y.at(both[1].value),
            )
        )
    return found
