"""Numbers as people write them, compared with exact arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.judges.numerals import EXPONENT, LONGEST, quantity, same

INTEGERS = st.integers(0, 10**15)


def value(text: str) -> Fraction:
    read = quantity(text)
    assert read is not None, text
    return read.value


@given(INTEGERS, st.sampled_from([",", " ", "\u00a0", "\u2009", "\u202f", "'", "’", "_", r"\,", "{,}"]))
def test_digits_in_threes_are_the_number_without_separators(number, mark):
    assert value(f"{number:,}".replace(",", mark)) == number


@given(INTEGERS, st.integers(0, 12), st.integers(-99, 99), st.sampled_from(["", "-", "−", "–", "+", "-$", "$-"]))
def test_decimals_and_powers_of_ten_have_their_exact_values(digits, places, power, sign):
    written = f"{digits}".rjust(places + 1, "0")
    written = f"{written[:-places]}.{written[-places:]}" if places else written
    exact = Fraction(Decimal(written)) * Fraction(10) ** power * (1 if sign in ("", "+") else -1)
    assert value(f"{sign}{written}e{power}") == exact
    assert value(f"{sign}{written} × 10^{power}") == exact
    assert value(rf"{sign}{written} \times 10^{{{power}}}") == exact


@given(st.integers(1, 999), st.integers(1, 99), st.integers(1, 99))
def test_fractions_and_mixed_numbers_have_their_exact_values(whole, above, more):
    below = above + more
    assert value(f"{above}/{below}") == Fraction(above, below)
    assert value(f"{whole} {above}/{below}") == whole + Fraction(above, below)
    assert value(rf"-{whole}\frac{{{above}}}{{{below}}}") == -whole - Fraction(above, below)
    assert quantity(f"{whole} {below}/{above}") is None


@pytest.mark.parametrize(
    ("text", "amount", "factor"),
    [
        ("½", Fraction(1, 2), None),
        ("2⅔", Fraction(8, 3), None),
        (r"\frac12", Fraction(1, 2), None),
        (r"12.5\%", Fraction(25, 2), Fraction(1, 100)),
        ("50 per cent", Fraction(50), Fraction(1, 100)),
        ("1.5 million", Fraction(3, 2), Fraction(10**6)),
        (r"1.5 \text{ million}", Fraction(3, 2), Fraction(10**6)),
        ("$20k", Fraction(20), Fraction(1000)),
        ("2 dozen", Fraction(2), Fraction(12)),
    ],
)
def test_an_amount_and_what_multiplies_it_are_kept_apart(text, amount, factor):
    read = quantity(text)
    assert read is not None
    assert (read.amount, read.factor) == (amount, factor)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "x",
        "1,5",
        "1.200,50",
        "12,34",
        "1, 200",
        "±3",
        "--3",
        "1/0",
        "3 5/2",
        "2:30",
        "20k",
        "2^3",
        "10 - 3",
        ".",
    ],
)
def test_what_is_no_single_number_is_not_read(text):
    assert quantity(text) is None


def test_numbers_too_large_to_convert_are_not_read():
    assert value(f"1e{EXPONENT}") == 10**EXPONENT
    assert quantity(f"1e{EXPONENT + 1}") is None
    assert quantity("1e" + "9" * 400) is None
    assert value("9" * LONGEST) == 10**LONGEST - 1
    assert quantity("9" * 5000) is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("0.333333", "1/3", True),
        ("0.33333", "1/3", False),
        ("0.333333", "0.33333334", True),
        ("0.333334", "0.333333", False),
        ("15.0000001", "15", False),
        ("15.0000001", "15.000000", True),
        ("50%", "50", True),
        ("50%", "0.5", True),
        ("50%", "0.5%", False),
        ("1.5 million", "1.5 billion", False),
    ],
)
def test_numbers_are_the_same_exactly_or_rounded_or_in_the_unit_of_the_question(one, other, alike):
    first, second = quantity(one), quantity(other)
    assert first is not None
    assert second is not None
    assert same(first, second) is alike
    assert same(second, first) is alike
    assert same(first, first)


def test_a_fraction_has_endless_decimals_and_a_whole_number_none():
    places = [read.places if (read := quantity(text)) else None for text in ("1/3", "6/3", "0.50", "1.25e1", "5e-3")]
    assert places == [math.inf, 0, 2, 1, 3]
