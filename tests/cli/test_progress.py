"""The pace of a run is that of its last answers, and nothing is said about it before there is something to go by."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lesion.cli.progress
from lesion.cli.progress import NEWS, SETTLED, WINDOW, Bar, Pace


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(lesion.cli.progress, "time", made)
    return made


def lines(capsys) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_workers_that_start_for_a_minute_and_then_answer_ten_a_second_are_said_to_answer_ten_a_second(clock, capsys):
    bar = Bar()
    bar.begin("llama", 1000, 0)
    clock.now += 60
    bar.answered(10)
    for _ in range(20):
        clock.now += 1
        bar.answered(10)
    first, early, later = lines(capsys)
    assert first == "llama: 1,000 answers"
    assert early == "llama: 10 of 1,000"
    # 160 are there after 15 seconds of answers, ten a second: the other 840 take 84 seconds.
    assert later == "llama: 160 of 1,000, 10.0/s, 1:24 left"


def test_what_was_stored_before_does_not_count_as_pace(clock, capsys):
    bar = Bar()
    bar.begin("llama", 1000, 800)
    for _ in range(16):
        clock.now += 1
        bar.answered(2)
    assert lines(capsys)[-1] == "llama: 830 of 1,000, 2.0/s, 1:25 left"


def test_another_model_begins_with_a_pace_of_its_own(clock, capsys):
    bar = Bar()
    for name, a_second in (("fast", 50), ("slow", 1)):
        bar.begin(name, 10_000, 0)
        for _ in range(16):
            clock.now += 1
            bar.answered(a_second)
    assert [re.findall("[0-9.]+/s", line) for line in lines(capsys)] == [[], ["50.0/s"], [], ["1.0/s"]]


@given(st.floats(0.5, 500), st.floats(0.05, 5), st.integers(1, 400))
def test_a_steady_pace_is_told_as_it_is_once_it_is_settled(rate, every, count):
    pace = Pace()
    for number in range(count):
        pace.see(number * every, round(number * every * rate * 1000))
    if (count - 1) * every < SETTLED:
        assert pace.rate is None
    else:
        assert pace.rate == pytest.approx(rate * 1000, rel=0.01)


def test_a_pace_that_changed_is_told_as_it_is_now_and_rare_answers_have_one_too():
    pace = Pace()
    for second in range(1000):
        pace.see(float(second), 100 * second)
    for second in range(1000, 1000 + round(WINDOW) + 1):
        pace.see(float(second), 100 * 999 + second - 999)
    assert pace.rate == pytest.approx(1.0)
    rare = Pace()
    for number in range(NEWS):
        rare.see(600.0 * number, number)
    assert rare.rate == pytest.approx(1 / 600)
