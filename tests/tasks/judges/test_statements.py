"""Which number a piece of prose states."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.judges.statements import given_first, last


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 apples and 3 pears, 5 in all", "5"), ("so it is 7 = 10 - 3", "7"), ("it is 12, not 10.", "12"),
        ("She gets:\n- 12 apples", "12"), ("8 apples - 3", "3"), ("x = - 3", "- 3"), ("20\n- 8\n= 12", "12"),
        ("192 / 1.2 or 160 = Y", "160"),
    ],
)  # fmt: skip
def test_the_last_number_that_a_text_states(text, number):
    found = last(text)
    assert found is not None
    assert found[0] == number
    assert last("none") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12\n\nShe has 3 boxes.", "12"), ("**12**\nBecause 3 boxes hold 4.", "12"),
        ("12 apples\n\nEach box holds 4.", "12"), ("12 apples, because 3 boxes hold 4.", "12"),
        ("12 (3 boxes of 4)", "12"), ("12", None), ("12\n", None), ("12\n+ 3", None), ("12\n13\n14", None),
        ("12\nThen 12 * 2 = 24", None), ("1. She has 3 boxes.\n2. Each holds 4.", None),
        ("12 apples\nShe buys 3 more.", None), ("3 + 4\n\nThat is all.", None), ("2 pizzas were cut", None),
    ],
)  # fmt: skip
def test_a_number_given_before_its_explanation(text, number):
    assert given_first(text) == number


@given(st.text(alphabet="0123456789.,:/-−–±½²^()*x= \n$%eEkmnotrabc'", max_size=80))
def test_what_is_stated_stands_in_the_text(text):
    for number in (given_first(text), (last(text) or (None, 0))[0]):
        assert number is None or number in text


@pytest.mark.parametrize(
    "piece", ["1(", "1 or ", "not 1 ", "between 1 and ", "1^", "1:2", "1 - ", "1 200 ", "1=", "½", "("]
)
def test_long_repetitions_are_read_in_bounded_time(piece):
    start = time.monotonic()
    text = f"12\n{piece * (10_000 // len(piece))},5"
    last(text)
    given_first(text)
    assert time.monotonic() - start < 5
