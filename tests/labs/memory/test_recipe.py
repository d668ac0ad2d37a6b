"""Recipes that cannot be built are refused with what can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.labs.memory.model import codes
from lesion.labs.memory.recipe import CODES, Recipe


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"classes": 1}, "--classes 1: a memory needs at least 2 target classes."),
        ({"classes": 100_000}, "up to 256"),
        ({"noise": 1.0}, "--noise 1: the noise is the probability of the common class, at least 0 and below 1."),
        ({"noise": -0.1}, "--noise -0.1:"),
        ({"noise": float("nan")}, "--noise nan:"),
        ({"noise": float("inf")}, "--noise inf:"),
        ({"classes": 20, "width": 20}, "no room for 21 orthonormal codes"),
        ({"classes": 20, "width": 20}, "give at least --width 21, or --codes gaussian"),
        ({"classes": 4, "inputs": 30, "width": 20}, "give at least --width 30"),
        ({"classes": 4, "inputs": 3}, "give at least --inputs 4"),
        ({"inputs": 100_000}, "up to 1024 inputs"),
        ({"codes": "orthogonal"}, "(nearest: orthonormal)"),
        ({"width": 0, "codes": "gaussian"}, "--width 0"),
        ({"steps": 0}, "--steps 0"),
        ({"draws": 0}, "0 draws"),
        ({"seed": -1}, "--seed -1"),
    ],
)
def test_what_cannot_be_built_is_refused_and_the_person_told_what_can(wrong, told):
    with pytest.raises(UsageError) as caught:
        Recipe(**wrong)
    assert told in str(caught.value)


@given(classes=st.integers(2, 12), extra=st.integers(0, 8), kind=st.sampled_from(CODES))
def test_the_least_width_that_is_named_is_enough(classes, extra, kind):
    found = Recipe(classes, classes + extra, max(classes + 1, classes + extra), codes=kind)
    of_codes = codes(found)
    assert of_codes.outputs.shape == (classes + 1, found.width)
    assert of_codes.inputs.shape == (found.width, classes + extra)
    assert Recipe(classes).number == classes
