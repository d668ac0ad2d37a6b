"""Axes: values lie where they should, and ticks are round, spaced and within."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.report import scales

shares = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6)
positive = st.lists(st.floats(1e-4, 1e6), min_size=1, max_size=6)


@given(shares)
def test_shares_lie_within_the_plot_in_their_order(values):
    scale = scales.shares(values, 260.0, 10.0)
    heights = [scale.at(value) for value in sorted(values)]
    assert all(10.0 <= height <= 260.0 for height in heights)
    assert heights == sorted(heights, reverse=True)
    assert scale.low <= min(values) <= max(values) <= scale.high
    assert all(0.0 <= value <= 1.0 + 1e-9 for value, _ in scale.ticks)
    assert len(scale.ticks) >= 2


@given(positive, st.booleans())
def test_equal_ratios_are_equal_distances(values, reversed_):
    scale = scales.ratios(values, 0.0, 100.0, reversed=reversed_)
    low, high = min(values), max(values)
    middle = (scale.at(low) + scale.at(high)) / 2
    assert scale.at(math.sqrt(low * high)) == pytest.approx(middle, abs=1e-6)
    assert (scale.at(low) >= scale.at(high)) == (reversed_ or low == high)
    assert all(0.0 <= scale.at(value) <= 100.0 for value in values)
    assert 1 <= len(scale.ticks) <= 8


def test_values_near_each_other_get_a_closer_axis():
    near, far = scales.shares([0.9, 0.95], 0.0, 100.0), scales.shares([0.1, 0.95], 0.0, 100.0)
    assert near.high - near.low < 0.2
    assert (far.low, far.high) == (-0.03, 1.03)
    assert [text for _, text in far.ticks] == ["0", "25", "50", "75", "100"]


def test_a_value_beyond_the_end_lies_at_the_end():
    scale = scales.shares([0.0, 1.0], 0.0, 100.0)
    assert (scale.at(-5.0), scale.at(7.0)) == (0.0, 100.0)


@given(st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=30), st.floats(5.0, 60.0))
def test_shown_ticks_keep_their_distance(values, distance):
    scale = scales.ratios(values, 0.0, 400.0, "keep")
    shown = [scale.at(value) for value, _ in scales.spaced(scale, distance)]
    assert all(abs(b - a) >= distance for a, b in itertools.pairwise(shown))
