"""Axes of charts: a title, the range of the numbers, their ticks and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import altair as alt

FEW = 6
"""An axis of whole numbers that is no longer has a tick at each of them."""


@dataclass(frozen=True)
class Axis:
    """An axis: its title, the range of its numbers, and how they are written (a format of d3).

    Attributes:
        whole: whether only whole numbers have a tick.
        kind: `linear` or `log`.
    """

    title: str
    low: float | None = None
    high: float | None = None
    form: str = ""
    whole: bool = False
    kind: str = "linear"
    ticks: tuple[float, ...] = ()

    @property
    def scale(self) -> alt.Scale:
        """As Altair has it."""
        domain = [end for end in (self.low, self.high) if end is not None]
        limits = {"domain": domain} if len(domain) == 2 else {"domainMin": self.low, "domainMax": self.high}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        return alt.Scale(type=self.kind, nice=False, **known, **({} if self.kind == "log" else {"zero": False}))

    @property
    def axis(self) -> alt.Axis:
        """As Altair has it."""
        # Vega leaves out every other tick where there are more than it counts.
        more: dict[str, object] = {"values": list(self.ticks), "tickCount": len(self.ticks)} if self.ticks else {}
        if self.whole:
            more |= {"tickMinStep": 1, "format": "d"}
            low, high = self.low, self.high
            if not self.ticks and low is not None and high is not None and high - low <= FEW:
                more |= {"values": list(range(math.ceil(low), math.floor(high) + 1))}
        if self.form:
            more |= {"format": self.form}
        return alt.Axis(title=self.title, **more)


def ratio_axis(title: str, values: Iterable[float | int | None], *, whole: bool = False, own: bool = False) -> Axis:
    """A logarithmic axis that holds all values above 0, with at most seven round ticks.

    Args:
        title: of the axis.
        values: those that are not above 0 are left out.
        whole: whether only whole numbers have a tick.
        own: the values themselves have the ticks, and no round numbers.
    """
    known = sorted({float(value) for value in values if value is not None and value > 0})
    low, high = (known[0], known[-1]) if known else (1.0, 10.0)
    room = max(1.08 if high > low else 1.6, (high / low) ** 0.06)
    ticks = known if own else [tick for tick in _round(low / room, high * room) if not whole or tick % 1 == 0]
    return Axis(title, low / room, high * room, form=",.9~g", kind="log", ticks=tuple(ticks))


def _round(low: float, high: float) -> list[float]:
    """Round numbers between two others, at most seven."""
    for marks in ((1, 1.1, 1.2, 1.3, 1.5, 1.7, 2, 2.5, 3, 4, 5, 7), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [mark * 10.0**power for power in powers for mark in marks if low <= mark * 10.0**power <= high]
        if 2 <= len(ticks) <= 7:
            return ticks
    return [low, math.sqrt(low * high), high] if len(ticks) < 2 else ticks[:: -(-len(ticks) // 7)]
