"""Pace: from made-up times of steps, how many rows pay, what empty slots cost, and when compiling steps pays."""

import pytest

from lesion.engines.transformers.pace import FIRST, FUSING, Pace, pays, seconds_of

# Milliseconds of a captured step with edits on an H200: 7B and 0.5B (docs/results/speed-gpu.md).
LARGE, SMALL = {64: 8.14, 256: 11.55, 512: 19.19}, {64: 3.39, 256: 4.19, 512: 5.22, 1600: 10.17}


def roofline(knee, reading=5.0):
    """A step that costs the reading of the weights up to `knee` rows, and beyond it as much again for each as many."""
    return lambda rows: max(reading, reading * rows / knee)


def grown(step, wanted=10**6):
    """The rows of a batch that grows as its pace says, and how often it was recorded anew."""
    pace, rows, sizes = Pace(), FIRST, []
    while True:
        pace.note(rows, step(rows))
        sizes.append(rows)
        more = pace.next(rows, wanted)
        if more == rows:
            return sizes
        rows = more


@pytest.mark.parametrize("knee", [100, 300, 1000, 5000])
def test_a_batch_grows_by_doubling_and_stops_at_the_first_size_that_makes_no_more_tokens_a_second(knee):
    step, sizes = roofline(knee), grown(roofline(knee))
    assert sizes == [FIRST * 2**n for n in range(len(sizes))]
    rates = [rows / step(rows) for rows in sizes]
    assert max(rates) == rates[-1] == pytest.approx(max(rows / step(rows) for rows in range(1, 20_000)))
    assert sizes[-1] < max(4 * knee, 4 * FIRST)


def test_more_rows_pay_where_twice_as_many_make_a_tenth_more_tokens_a_second():
    for factor, expected in ((1.0, True), (1.8, True), (1.83, False), (2.0, False), (3.0, False)):
        assert pays({128: 5.0, 256: 5.0 * factor}, 256) is expected
    assert pays({128: 5.0}, 128)
    assert pays({128: 5.0, 140: 6.0}, 140), "no size is so much smaller that it could be compared"
    # Four times as many rows are two doublings.
    assert pays({100: 1.0, 400: 4 / 1.22}, 400)
    assert not pays({100: 1.0, 400: 4 / 1.20}, 400)


def test_measured_steps_of_a_card_pay_to_the_sizes_that_its_figures_show():
    assert pays(LARGE, 512)
    assert not pays({**LARGE, 1024: 2 * LARGE[512]}, 1024)
    assert pays(SMALL, 1600)


def test_a_batch_grows_to_no_more_than_is_wanted_and_not_for_a_few_rows():
    step = roofline(10**6)
    assert grown(step, wanted=600) == [FIRST, 2 * FIRST, 4 * FIRST]
    assert grown(step, wanted=800) == [FIRST, 2 * FIRST, 4 * FIRST, 800]
    assert grown(step, wanted=40) == [FIRST]


def test_a_later_batch_begins_with_as_many_rows_as_an_earlier_one_came_to():
    pace = Pace()
    assert pace.rows == FIRST
    pace.note(40, 5.0)
    assert pace.rows == FIRST
    pace.note(4 * FIRST, 9.0)
    assert pace.rows == 4 * FIRST


def test_a_step_between_measured_ones_lies_on_the_line_between_them_and_outside_it_is_the_nearest():
    times = {100: 4.0, 200: 5.0, 400: 9.0}
    for rows, expected in ((100, 4.0), (150, 4.5), (300, 7.0), (1, 4.0), (4000, 9.0)):
        assert seconds_of(times, rows) == pytest.approx(expected)
    assert seconds_of({}, 7) == 0.0


def test_empty_slots_cost_nothing_below_the_smallest_measured_size():
    pace = Pace()
    pace.note(128, 4.0)
    assert pace.wasted(128, 3) == 0.0
    pace.note(512, 10.0)
    assert pace.wasted(512, 320) == pytest.approx(3.0)
    assert pace.wasted(512, 3) == pytest.approx(6.0)


def test_what_compiling_spares_grows_with_the_tokens_that_are_left():
    pace, blocks = Pace(), 28
    pace.note(256, 0.01155)
    cost = FUSING * blocks
    # A sweep of 1,600 answers is too short; the 149 million tokens of a large study are not.
    assert pace.spared(256, 1_600 * 300) < cost < pace.spared(256, 149_000_000 // 8)
