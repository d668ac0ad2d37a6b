"""The schedule: rates, orders and luck that are functions of the step alone."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lesion.training.schedule import optimizer_of, order, rate, schedule_of, seed_all


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 9), st.integers(0, 9), st.integers(0, 2**32))
def test_the_order_from_a_step_on_is_the_rest_of_the_whole_order(count, rows, steps, begun, seed):
    begun = min(begun, steps)
    whole = order(count, rows, steps, seed)
    assert len(whole) == steps * rows
    assert (order(count, rows, steps, seed, begun) == whole[begun * rows :]).all()
    for start in range(0, len(whole) - count + 1, count):
        assert sorted(whole[start : start + count]) == list(range(count))


@given(st.integers(1, 200), st.floats(0, 0.99), st.booleans())
def test_the_rate_rises_over_the_warm_up_then_falls_or_stays_and_is_never_nothing(steps, warmup, falls):
    rates = [rate(step, steps, warmup, falls=falls) for step in range(steps)]
    rising = round(warmup * steps)
    assert all(0 < value <= 1 for value in rates)
    assert all(low < high for low, high in pairwise(rates[: rising + 1]))
    after = rates[rising:]
    assert all(high >= low for high, low in pairwise(after))
    if rising < steps:
        assert after[0] == 1


def test_rates_are_those_of_the_formula():
    assert [rate(step, 8, 0.25) for step in range(8)] == pytest.approx([1 / 3, 2 / 3, *(1 - k / 6 for k in range(6))])
    assert rate(4, 8, 0.0, falls=False) == 1


def test_a_schedule_begun_in_the_middle_is_the_rest_of_the_whole():
    def rates(begun):
        optimizer = optimizer_of([nn.Parameter(torch.ones(2, 2))], 0.1)
        schedule = schedule_of(optimizer, begun, 9, 0.3)
        for _ in range(begun, 9):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            schedule.step()

    assert list(rates(4)) == list(rates(0))[4:]


def test_the_luck_of_a_step_is_a_function_of_seed_and_step():
    def drawn(seed, step):
        seed_all(seed, step)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert drawn(3, 7) == drawn(3, 7)
    assert len({drawn(3, 7), drawn(3, 8), drawn(4, 7)}) == 3
