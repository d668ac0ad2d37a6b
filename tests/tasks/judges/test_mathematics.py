"""Mathematical answers: where they are read in a text, when they are equal, and what may not hang."""

import json
import time
import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.judges.judge import math

DECISIONS = tomllib.loads((Path(__file__).parent / "decisions.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("so she has 3 + 4 = 7. The answer is 18.", "18"),
        ("The answer is 18 dollars per day.", "18"),
        ("The answer is $18.", "$18"),
        ("The answer is 30 - 16 = 14.", "30 - 16 = 14"),
        ("The answer is 1,200 and that was 3 steps", "1,200"),
        ("The answer is -3.", "-3"),
        ("The answer is (3, 4), as drawn.", "(3, 4)"),
        ("The answer is 0.5.", "0.5"),
        ("**Answer:** 42", "42"),
        ("final answer: **42**", "42"),
        ("The answer is $5 and not $6", "$5"),
        (r"The final answer is $\frac{3}{4}$ of it.", r"\frac{3}{4}"),
        (r"The answer is \(x+1\).", "x+1"),
        ("57-50=7. 7+46=53. 53*2=106. #### 106", "106"),
        ("#### 1\nQuestion: what?\n#### 2", "1"),
        ("#### Step 3: add\nThe answer is 18.", "18"),
        (r"first \boxed{3}, then \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{\text{ } \{1\}}", r"\text{ } \{1\}"),
        (r"\boxed{7} so the answer is 8", "7"),
        (r"\boxed{7}, then \boxed{8", "7"),
        ("The answer is 5. Now let me check: 9", "5"),
        ("2 apples and 3 pears, 5 in all", "5"),
        (r"we get $x = 3$ and then $\sqrt{2}$.", r"\sqrt{2}"),
        ("she pays $5 x 3 = $15", "$5*3 = $15"),
        ("<think>the answer is 4, no</think> It is 5.", "5"),
        ("<think> hm 3 </think> <answer> 42 </answer>", "42"),
    ],
)
def test_the_answer_is_read_where_the_text_states_it(text, read):
    assert math(text, "0").parsed == read


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("The answer is 1200.", "1,200"), ("The answer is 1,200.", "1200"), ("#### -3", "-3"),
        ("The answer is −3.", "-3"), (r"\boxed{\frac{3}{4}}", r"\frac{3}{4}"),
        (r"\boxed{\dfrac{6}{8}}", r"\frac{3}{4}"), (r"\boxed{0.75}", r"\frac{3}{4}"),
        ("The answer is 3/4.", r"\frac{3}{4}"), ("The answer is 18.", "$18.00"), (r"\boxed{\$18}", "$18.00"),
        ("The answer is $18.00.", "18"), (r"\boxed{10,\!080}", "10080"), (r"\boxed{10{,}080}", "10,080"),
        (r"\boxed{x+1}", "1 + x"), (r"\boxed{(x-1)(x+1)}", "x^2-1"), (r"\boxed{2\sqrt{2}}", r"\sqrt{8}"),
        (r"\boxed{x = 5}", "5"), (r"\boxed{5 \text{ cm}}", "5"), (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"),
        ("The answer is Evelyn.", r"\text{Evelyn}"), (r"\boxed{\left( 3, \frac{\pi}{2} \right)}", r"(3, \pi/2)"),
        (r"\boxed{50\%}", "50"), ("The answer is 0.333333.", "0.3333333"),
    ],
)  # fmt: skip
def test_equal_answers_in_other_clothes_are_right(text, gold):
    assert math(text, gold).correct


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("The answer is 1.", "1,200"), ("The answer is 3.", "-3"), ("The answer is 3.", r"\frac{3}{4}"),
        ("The answer is 4.", r"\frac{3}{4}"), ("The answer is 1800.", "$18.00"), (r"\boxed{x-1}", "x+1"),
        (r"\boxed{(2, 1)}", "(1, 2)"), ("The answer is 18.0001.", "18"), ("The answer is 100000001.", "100000000"),
        (r"\boxed{10^{10^{10}}}", "10"), (r"\boxed{e^{e^{e^{e^{10}}}}}", "10"),
    ],
)  # fmt: skip
def test_different_answers_are_wrong(text, gold):
    verdict = math(text, gold)
    assert not verdict.correct


@pytest.mark.parametrize("kind", DECISIONS)
def test_an_answer_that_can_be_taken_in_several_ways_is_judged_as_decided(kind):
    right, wrong = DECISIONS[kind]["right"], DECISIONS[kind]["wrong"]
    assert [pair for pair in right if not math(*pair).correct] == []
    assert [pair for pair in wrong if math(*pair).correct] == []


def test_a_number_of_hundreds_of_digits_is_not_read():
    assert not math("#### " + "9" * 600, "9" * 600).correct


@pytest.mark.parametrize("text", ["", "   ", "I do not know.", "####", r"\boxed{}"])
def test_without_a_readable_answer_nothing_is_parsed(text):
    assert math(text, "18").parsed is None
    assert not math(text, "18").correct


@pytest.mark.parametrize(
    "text",
    [
        "She sells them, which makes 9 * 2 =", "It makes 9 * 2 ≈ ", "The total is 9 * 2\n= $", "In all, 9 * 2 equals",
        r"In all it is \( 9 \times 2 = \)", r"In all it is 18 \times", "In all it is 18 +",
        "It is 9 * 2 =\n\nQuestion: 5?",
    ],
)  # fmt: skip
def test_an_answer_that_ends_in_the_middle_of_an_equation_is_not_said(text):
    assert math(text, "18").parsed is None


@pytest.mark.parametrize(
    "text",
    [
        "It is 9 * 2", "18\n=====", "It is ==18==", "The answer is 18. Check: 9 * 2 =", r"\boxed{18}, as 9 * 2 =",
        "18\n\nBecause 9 * 2 =",
    ],
)  # fmt: skip
def test_an_answer_that_is_said_before_an_unfinished_equation_counts(text):
    assert math(text, "18").correct


def test_an_alias_is_as_good_as_the_gold_answer():
    assert math("The answer is 7.", "8", aliases=("7",)).correct


def test_the_last_number_of_a_text_that_was_cut_off_is_no_answer():
    assert math("3 + 4 = 7, and then 7", "7", complete=True).correct
    assert math("3 + 4 = 7, and then 7", "7", complete=False).parsed is None
    assert math(r"\boxed{7} and then", "7", complete=False).correct


@given(st.integers(-(10**12), 10**12))
def test_every_integer_is_itself_with_or_without_separators(number):
    for text in (f"The answer is {number:,}.", f"#### {number}", rf"so \boxed{{{number}}}", f"it is {number}"):
        assert math(text, str(number)).correct
        assert math(text, f"{number:,}").correct
        assert not math(text, str(number + 1)).correct


@given(st.integers(-(10**6), 10**6), st.integers(0, 99))
def test_decimals_are_compared_exactly(whole, cents):
    value = Fraction(whole) + Fraction(cents, 100)
    text = f"{float(value):.2f}"
    assert math(f"The answer is ${text}.", text).correct
    assert math(f"The answer is {text}0.", text).correct
    assert not math(f"The answer is {text}1.", text).correct


PIECES = [
    *"{}()[]|:<>x12,; \\$^_'°=≤√½?%‰-+!\n", "km", "per", r"\frac", r"\boxed{", "#### ", "answer is ", "or", "twice",
]  # fmt: skip


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text_gets_a_verdict(text):
    math(text, "18")
    math("The answer is 18.", text)


HOSTILE = [
    "9**9**9", r"9^{9^9}", r"((((9^{99})^{99})^{99})^{99})^{99}", "100000000!", "9!!!!", r"2^{-9^{9^9}}",
    r"\begin{pmatrix}9^{9^9}&1\\2&3\end{pmatrix}", r"\sqrt[3]{9^{9^9}}", r"\sin(10^{10^{10}})",
    r"\binom{10^9}{5\cdot 10^8}", "(" * 400, r"\frac" * 90, "9" * 10_000, "9^9^9^9",
    r"\frac{1}{" * 1000 + "2" + "}" * 1000, "1000000000!", r"\sqrt{" * 60 + "2" + "}" * 60,
    "10^(10^(10^10)) - 10^(10^(10^10))", "x^(10^9)", r"\sin(9^{9999})", r"\binom{1000000}{500000}\pi",
    "-" * 400 + "1",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_expression_that_would_take_forever_is_wrong_within_seconds(hostile):
    start = time.thread_time()
    for form in ("\\boxed{%s}", "The answer is %s", "%s"):
        assert not math(form % hostile, "18").correct
        math("The answer is 18.", hostile)
    assert time.thread_time() - start < 8  # at most the limit of 2 s for each form


@pytest.mark.parametrize("piece", [r"\boxed{", "answer is ", "$x ", "1,", "#### ", "<answer>", r"\(", "answer is $"])
def test_long_repetitions_are_judged_in_linear_time(piece):
    start = time.monotonic()
    math(piece * 50_000, "18")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("head", ["", "#### ", "The answer is\n"])
@pytest.mark.parametrize(
    "piece", [".", "…", "-", "(", ";", "*", "_", " ", "\t", "\n", " \n", "No. ", "1 ", "1\n", "9", "a", "x="]
)
def test_loops_of_one_sign_are_judged_at_once(piece, head):
    start = time.thread_time()
    for gold in ("18", "yes"):
        assert not math(head + piece * (20_000 // len(piece)) + "x", gold).correct
    assert time.thread_time() - start < 4


def test_it_agrees_with_the_recorded_verdicts_of_1319_generations(shared):
    rows = [
        json.loads(line)
        for line in (shared / "data/checker/gsm8k-rho1b.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    differ = [number for number, row in enumerate(rows) if math(row["response"], row["gold"]).correct != row["correct"]]
    assert len(rows) == 1319
    # In each of these the record is what errs: in 328, 413 and 951 the answer is off by a factor of 100, which the
    # recorded rule forgave; in 16, 76 and 908 the stated answer ("80 + 150 = 230 miles", "5 bags", "30 - 16 = 14")
    # is the gold one.
    assert differ == [16, 76, 328, 413, 908, 951]


def test_every_solution_of_math_500_reaches_its_own_answer(shared):
    rows = [json.loads(line) for line in (shared / "data/math500/test.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["unique_id"] for row in rows if not math(row["solution"], row["answer"]).correct] == []
    assert not any(math(row["solution"], r"\frac{123457}{91}").correct for row in rows[:100])
