"""The pace of a run is that of its last answers, and nothing is said about it before there is something to go by."""

import itertools
import math
import re
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lesion.bar
from lesion.bar import NEWS, SETTLED, WINDOW, Bar, Pace, watching
from lesion.progress import Silent
from tiny import model


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(lesion.bar, "time", made)
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


def test_the_time_left_starts_from_an_estimate_and_does_not_jump_when_answers_come_fast_for_a_while():
    pace, left = Pace(), []
    pace.see(0.0, 0)
    pace.expect(1000.0, 0.0, 0)
    done = 0
    for second in range(1, 1001):
        done += 3 if second <= 100 else 1  # 1,200 answers in 1,000 s, the first hundred seconds three times as fast
        pace.see(float(second), done)
        minutes, seconds = re.search(r"(\d+):(\d+) left", pace.text(1200 - done)).groups()
        left.append(60 * int(minutes) + int(seconds))
    assert max(abs(before - after) for before, after in itertools.pairwise(left)) <= 10
    assert all(0.65 * (1000 - second) - 1 <= each <= 1.1 * (1000 - second) for second, each in enumerate(left, 1))


def test_no_time_is_said_while_an_estimate_is_to_come():
    pace = Pace()
    pace.expect(math.inf, 0.0, 0)
    for second in range(40):
        pace.see(float(second), second)
    assert pace.text(60) == "1.0/s"


def test_by_default_a_terminal_shows_a_bar_and_a_log_stays_as_it_is(monkeypatch):
    with watching(None, None) as told:
        assert isinstance(told, Silent)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with watching(None, None) as told:
        assert isinstance(told, Bar)
    with watching(None, False) as told:
        assert isinstance(told, Silent)
    mine = Silent()
    with watching(mine, True) as told:
        assert told is mine


def test_what_is_shown_on_request_acts_on_nothing(capsys):
    with watching(None, True) as told:
        told.begin("made\x1b[31m", 10, 0)
        told.note("read [bold]this[/bold]\n")
    assert lines(capsys) == ["made\\x1b[31m: 10 answers", "note: read [bold]this[/bold]\\n"]


def test_a_function_of_python_shows_its_progress_and_its_notes_on_request(tmp_path, capsys):
    file = tmp_path / "questions.jsonl"
    file.write_text('{"prompt": "2 + 2 =", "answer": "4"}\n')
    options = {"items": 5, "layers": 0, "max_new_tokens": 1}
    lesion.ablate(model("llama"), str(file), **options)
    assert capsys.readouterr() == ("", "")
    lesion.ablate(model("llama"), str(file), **options, progress=True)
    out = capsys.readouterr()
    assert "has 1 item, fewer than the 5 asked for" in out.err
    assert "2 answers" in out.err


class Shell:
    """What a notebook's kernel has of IPython."""

    kernel = True

    def __init__(self) -> None:
        self.shown: list[str] = []

    def install(self, monkeypatch) -> None:
        ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        ipython.get_ipython = lambda: self
        display.HTML = str
        display.display = lambda html, display_id: self
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def update(self, html: str) -> None:
        self.shown.append(html)


def test_a_notebook_shows_work_and_notes_escaped_and_is_not_flooded(monkeypatch, clock):
    shell = Shell()
    shell.install(monkeypatch)
    with watching(None, None) as told:
        told.answered(1)
        told.begin("<b>made</b>", 1000, 0)
        for _ in range(999):
            clock.now += 0.01
            told.answered(1)
        told.note("<script>")
        told.answered(1)
    assert 30 < len(shell.shown) < 60
    assert "1,000 of 1,000 &lt;b&gt;made&lt;/b&gt;, answers" in shell.shown[-1]
    assert '<progress value="1000" max="1000"' in shell.shown[-1]
    assert "note: &lt;script&gt;" in shell.shown[-1]
