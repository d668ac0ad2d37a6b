"""The style class of a cell: a step of colour for every number, and none where there is no number."""

import math

import pytest

from lesion.report.heat import agreement_class, heat_class


@pytest.mark.parametrize(
    ("value", "name"),
    [(0.0, "k0"), (0.5, "k10"), (2.0, "k20"), (-0.5, "g10"), (-0.01, "k0"), (None, "none"), (math.nan, "none")],
)
def test_a_drop_has_a_class_per_step(value, name):
    assert heat_class(value) == name


def test_the_number_that_is_full_has_the_last_step():
    assert [heat_class(value, 0.2) for value in (0.2, 0.1, -0.2, 0.5)] == ["k20", "k10", "g20", "k20"]


@pytest.mark.parametrize(
    ("value", "name"),
    [(0.0, "k0"), (1.0, "k16"), (-1.0, "g16"), (-0.5, "g8"), (3.0, "k16"), (None, "none"), (math.nan, "none")],
)
def test_a_correlation_stays_legible_on_its_colour(value, name):
    assert agreement_class(value) == name
