"""Pace: what recorded steps cost by the number of their rows, and what follows from that.

Below some number of rows a step costs the reading of the weights, however many share it; beyond, every row costs as
much again. So more rows pay up to a knee, which is found in a batch's first steps: it grows as long as that pays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

# Rows of a network's first batch; below them a step is thought to cost the same.
FIRST = 128
# Twice as many rows must make so many times as many tokens a second, or a batch stays as it is.
GAIN = 1.1
# A batch grows by half of its rows at least: each number of rows is recorded anew.
LEAST = 1.5
# What fusing spares of a step: 2.6 of 11.6 ms at 7B with 256 rows on an H200, of which some may not come about.
SPARED = 0.2
# Seconds that fusing takes a block, where the network's steps were not fused yet: a guess.
FUSING = 3.0


class Pace:
    """What the steps of one network cost.

    Attributes:
        seconds: of a step, the latest measured, by the number of its rows.
        recording: seconds of the latest recording.
        fusing: seconds that fusing a step took a block.
    """

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.recording = 0.0
        self.fusing = FUSING

    @property
    def rows(self) -> int:
        """How many rows a batch begins with."""
        return max(self.seconds | {FIRST: 0.0})

    def note(self, rows: int, seconds: float) -> None:
        """Take note of a step."""
        self.seconds[rows] = seconds

    def next(self, rows: int, wanted: int) -> int:
        """How many rows a batch goes on with whose steps were measured, where so many are wanted."""
        more = min(2 * rows, wanted)
        return more if more >= LEAST * rows and pays(self.seconds, rows) else rows

    def wasted(self, rows: int, at_work: int) -> float:
        """Seconds that a step of so many rows takes longer than one of those at work alone."""
        return max(0.0, seconds_of(self.seconds, rows) - seconds_of(self.seconds, at_work))

    def spared(self, rows: int, tokens: int) -> float:
        """Seconds that fusing steps of so many rows spares until so many tokens are said."""
        return SPARED * seconds_of(self.seconds, rows) * tokens / rows


def pays(seconds: Mapping[int, float], rows: int) -> bool:
    """Whether more rows than so many are worth a trial: whether those made more tokens a second than fewer did.

    Args:
        seconds: of a step by its rows, with that of `rows`.
    """
    fewer = max((each for each in seconds if LEAST * each <= rows), default=None)
    if fewer is None:
        return True
    gain = rows / seconds[rows] * seconds[fewer] / fewer
    return gain >= GAIN ** math.log2(rows / fewer)


def seconds_of(seconds: Mapping[int, float], rows: int) -> float:
    """What a step of so many rows takes, on straight lines between measured ones; outside, as long as the nearest."""
    measured = sorted(seconds)
    return float(np.interp(rows, measured, [seconds[each] for each in measured])) if measured else 0.0
