"""What a number of items can show, against simulated studies and SciPy's own tests."""

import re

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from lesion.statistics.critical import POWER
from lesion.statistics.detectable import fewest_changed, smallest_drop, too_low
from lesion.statistics.paired import holm, mcnemar_exact


@pytest.mark.parametrize("tests", [1, 8, 30, 100])
def test_the_fewest_items_that_have_to_change_are_those_of_an_exact_test_at_holms_first_step(tests):
    needed = fewest_changed(tests)
    assert holm([binomtest(needed, needed).pvalue, *[1.0] * (tests - 1)])[0] <= 0.05
    assert holm([binomtest(needed - 1, needed - 1).pvalue, *[1.0] * (tests - 1)])[0] > 0.05


@pytest.mark.parametrize(("items", "tests"), [(60, 8), (100, 30), (300, 30)])
def test_the_smallest_drop_is_found_in_four_of_five_studies(items, tests):
    drop = smallest_drop(items, tests)
    lost = np.random.default_rng(0).binomial(items, drop, size=20_000)
    found = np.array([mcnemar_exact(count, 0) * tests <= 0.05 for count in range(items + 1)])[lost]
    assert found.mean() == pytest.approx(POWER, abs=0.012)  # standard error 0.003
    assert binom.sf(fewest_changed(tests) - 1, items, drop) == pytest.approx(POWER)


def test_more_items_show_smaller_drops_and_too_few_none():
    assert smallest_drop(5, 8) is None
    assert smallest_drop(300, 30) < smallest_drop(150, 30) < smallest_drop(100, 30)
    assert smallest_drop(100, 30) > smallest_drop(100, 1)


@pytest.mark.parametrize(
    ("right", "items", "guessing", "says"),
    [
        (1, 150, 0.0, r"nothing can be critical here\. .* 150 items show no drop \(80 % power"),
        (57, 150, 0.0, None),
        (40, 150, 0.25, r"near guessing\. .* 40 of 150 items right, and guessing gives 25 %"),
        (90, 150, 0.25, None),
        (146, 150, 0.25, None),
    ],
)
def test_a_baseline_that_is_too_low_is_told_in_one_line(right, items, guessing, says):
    line = too_low("m", "t", right, items, 30, guessing)
    if says is None:
        assert line is None
    else:
        assert "\n" not in line
        assert re.search(says, line), line
