"""Axes have the ends and the ticks that they are given."""

import pytest

from lesion.report.plots import Axis


@pytest.mark.parametrize(
    ("axis", "scale"),
    [
        (Axis("a"), {}),
        (Axis("a", 0.0, 2.0), {"domain": [0.0, 2.0]}),
        (Axis("a", low=1.0), {"domainMin": 1.0}),
        (Axis("a", high=1.0), {"domainMax": 1.0}),
        (Axis("a", 0.001, 1.0, kind="log"), {"domain": [0.001, 1.0], "type": "log"}),
    ],
)
def test_an_axis_has_the_ends_that_it_is_given(axis, scale):
    plain = {"type": "linear", "nice": False} | ({} if axis.kind == "log" else {"zero": False})
    assert axis.scale.to_dict() == plain | scale


@pytest.mark.parametrize(("high", "ticks"), [(1.0, [0, 1]), (2.0, [0, 1, 2]), (2.5, [0, 1, 2]), (60.0, None)])
def test_a_short_axis_of_whole_numbers_has_a_tick_at_each(high, ticks):
    made = Axis("step", 0.0, high, whole=True).axis.to_dict()
    assert made.get("values") == ticks
