"""Power of planned tests: against enumeration, simulated studies that run the tests, and the rule's own functions."""

import numpy as np
import pytest
from scipy.stats import binom

from lesion.statistics.critical import Pairs, p_critical, smallest_loss
from lesion.statistics.power import bound, detectable, items_needed, power
from lesion.statistics.spared import p_spared


def p(expect: str, lost: int, retained: int) -> float:
    counts = Pairs(lost, retained, 0)
    return p_critical(counts) if expect == "critical" else p_spared(counts)


@pytest.mark.parametrize(("expect", "loss"), [("critical", 0.75), ("spared", 0.0), ("spared", 0.05)])
def test_power_is_the_sum_over_all_outcomes(expect, loss):
    items, baseline, tests = 24, 0.8, 2
    total = 0.0
    for right in range(1, items + 1):
        for lost in range(right + 1):
            chance = binom.pmf(right, items, baseline) * binom.pmf(lost, right, loss)
            if chance > 1e-12 and p(expect, lost, right - lost) * tests <= 0.05:
                total += chance
    assert power(expect, items, baseline, loss, tests) == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize(("expect", "loss"), [("critical", 0.7), ("spared", 0.08)])
def test_power_is_how_often_simulated_studies_pass(expect, loss):
    rng, items, baseline, tests, studies = np.random.default_rng(4), 100, 0.7, 3, 600
    right = rng.binomial(items, baseline, studies)
    lost = rng.binomial(right, loss)
    passed = np.mean([p(expect, int(a), int(b - a)) * tests <= 0.05 for a, b in zip(lost, right, strict=True)])
    assert power(expect, items, baseline, loss, tests) == pytest.approx(passed, abs=0.06)


def test_what_can_be_found_of_the_right_items_is_that_of_the_rule():
    assert detectable("critical", 80, 30) == pytest.approx(smallest_loss(80, 30))
    most = bound("spared", 80, 2)
    assert p_spared(Pairs(most, 80 - most, 0)) * 2 <= 0.05 < p_spared(Pairs(most + 1, 79 - most, 0)) * 2
    largest = detectable("spared", 80, 2)
    assert binom.cdf(most, 80, largest) == pytest.approx(0.8)
    assert detectable("spared", 3, 30) is None


@pytest.mark.parametrize("expect", ["critical", "spared"])
def test_so_many_items_are_enough_and_far_fewer_are_not(expect):
    loss = {"critical": 0.75, "spared": 0.0}[expect]
    needed = items_needed(expect, 0.5, loss, 4)
    assert power(expect, needed, 0.5, loss, 4) >= 0.8 > power(expect, int(0.8 * needed), 0.5, loss, 4)
    assert items_needed(expect, 0.5, {"critical": 0.5, "spared": 0.25}[expect], 4) is None
