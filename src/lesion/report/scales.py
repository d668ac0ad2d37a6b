"""Number axes for the page's charts: where a value lies, and which values get a tick; linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from lesion.report import wording


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` laid out from `start` to `end` in SVG units (`end` below `start` is upwards).

    Attributes:
        ticks: values that get a line, with their text.
        logarithmic: equal ratios are equal distances; values are then above 0.
        reversed: `low` lies at `end`: for measures of which less is better.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float | int, str], ...] = ()
    logarithmic: bool = False
    reversed: bool = False

    def at(self, value: float | int) -> float:
        """Where a value lies; one beyond the ends lies at the end."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, low, high))
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.start + (1 - share if self.reversed else share) * (self.end - self.start)


def shares(values: Iterable[float | None], start: float, end: float, *, closer: bool = True) -> Scale:
    """A linear axis for shares in percent: 0 to 1, or `closer` where all values lie near each other."""
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if closer and near(known):
        room = max(0.02, 0.12 * (high - low))
        step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low + 2 * room) / step <= 7)
        low = max(-room, math.floor(round((low - room) / step, 6)) * step)
        high = min(1 + room, math.ceil(round((high + room) / step, 6)) * step)
    else:
        low, high, step = min(0.0, low) - 0.03, max(1.0, high) + 0.03, 0.25
    first = math.ceil(round(low / step, 6))
    places = [i * step for i in range(first, math.floor(round(high / step, 6)) + 1)]
    ticks = tuple((place, f"{100 * place:.0f}") for place in places if -1e-9 < place < 1 + 1e-9)
    return Scale(low, high, start, end, ticks)


def near(values: Iterable[float | None]) -> bool:
    """Whether all known values lie within less than 45 points."""
    known = [value for value in values if value is not None]
    return not known or max(known) - min(known) < 0.45


def ratios(
    values: Iterable[float | None], start: float, end: float, texts: str = "plain", *, reversed: bool = False
) -> Scale:
    """A logarithmic axis; with `texts="keep"` (shares kept) or `"count"` the ticks are the values themselves.

    Values that are not above 0 are left out of account.
    """
    known = sorted({value for value in values if value is not None and value > 0})
    low, high = (known[0], known[-1]) if known else (1.0, 10.0)
    room = 1.08 if high > low else 1.6
    room = max(room, (high / low) ** 0.06)
    if texts == "keep":
        ticks = tuple((value, wording.keep(value).replace(f"{wording.SPACE}%", "")) for value in known)
    elif texts == "count":
        ticks = tuple((value, f"{value:,.0f}") for value in known)
    else:
        ticks = tuple((value, wording.figures(value, 3)) for value in decades(low / room, high * room))
    return Scale(low / room, high * room, start, end, ticks, logarithmic=True, reversed=reversed)


def numbers(values: Iterable[float | None], start: float, end: float) -> Scale:
    """A linear axis whose ticks are the values themselves: for the few factors of a sweep."""
    known = sorted({value for value in values if value is not None})
    low, high = (known[0], known[-1]) if known else (0.0, 1.0)
    room = 0.06 * (high - low) or 0.1
    return Scale(low - room, high + room, start, end, tuple((value, f"{value:g}") for value in known))


def decades(low: float, high: float) -> list[float]:
    """Round values between two others, at most seven."""
    for marks in ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        found = [
            mark * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for mark in marks
            if low <= mark * 10.0**power <= high
        ]
        if 2 <= len(found) <= 7:
            return found
    return [low, math.sqrt(low * high), high] if len(found) < 2 else found[:: -(-len(found) // 7)]


def spaced(scale: Scale, distance: float) -> list[tuple[float | int, str]]:
    """The ticks that have at least `distance` SVG units from the last one that is shown."""
    found: list[tuple[float | int, str]] = []
    for value, text in scale.ticks:
        if not found or abs(scale.at(value) - scale.at(found[-1][0])) >= distance:
            found.append((value, text))
    return found


def axes(x: Scale, y: Scale, names: tuple[str, str], height: int) -> list[Markup]:
    """Grid, numbers and names of both axes."""
    left, right = x.start, x.end
    floor, top = y.start, y.end
    found = [
        Markup('<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>'
               '<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="end">{}</text>').format(
            left, y.at(value), right, left - 6, y.at(value) + 4, text
        )
        for value, text in spaced(y, 15.0)
    ]  # fmt: skip
    found += [
        Markup('<path class="grid" d="M{:.1f} {:.1f}V{:.1f}"/>'
               '<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(
            x.at(value), floor, top, x.at(value), floor + 15, text
        )
        for value, text in spaced(x, 30.0)
    ]  # fmt: skip
    found.append(Markup('<path class="grid zero" d="M{:.1f} {:.1f}V{:.1f}H{:.1f}"/>').format(left, top, floor, right))
    found.append(
        Markup('<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            (left + right) / 2, height - 5, wording.short(names[0], 52)
        )
    )
    found.append(
        Markup('<text class="axis" transform="translate(12 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>').format(
            (top + floor) / 2, wording.short(names[1], 44)
        )
    )
    return found
