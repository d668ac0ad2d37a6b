"""Numbers as people write them, compared with exact arithmetic."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.judges.expressions import rational
from lesion.tasks.judges.grammar import readings
from lesion.tasks.judges.judge import math
from lesion.tasks.judges.meanings import Scalar
from lesion.tasks.judges.notation import EXPONENT, LONGEST

INTEGERS = st.integers(0, 10**15)


def value(text: str) -> Fraction | None:
    ((scalar, _),) = readings(text)
    assert isinstance(scalar, Scalar), text
    return (rational(scalar.node) or 0) * (scalar.factor or Fraction(1))


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


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("½", Fraction(1, 2)), ("2⅔", Fraction(8, 3)), (r"\frac12", Fraction(1, 2)),
        (r"0.1\overline{6}", Fraction(1, 6)), (r"12.5\%", Fraction(1, 8)), ("50 per cent", Fraction(1, 2)),
        (r"1.5 \text{ million}", Fraction(1_500_000)), ("3 million 200 thousand", Fraction(3_200_000)),
        ("2 thousand and 5 hundred", Fraction(2500)), ("2 dozen", Fraction(24)),
    ],
)  # fmt: skip
def test_words_and_signs_behind_a_number_multiply_it(text, exact):
    assert value(text) == exact


def test_numbers_too_large_to_convert_are_not_read():
    assert value(f"1e{EXPONENT}") == 10**EXPONENT
    assert value("9" * LONGEST) == 10**LONGEST - 1
    for text in (f"1e{EXPONENT + 1}", "1e" + "9" * 400, "9" * 5000):
        assert readings(text) == ()


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("0.333333", "1/3", True), ("0.33333", "1/3", False), ("0.333333", "0.33333334", True),
        ("0.333334", "0.333333", False), ("15.0000001", "15", False), ("15.0000001", "15.000000", True),
        ("50%", "50", True), ("50%", "0.5", True), ("50%", "0.5%", False), ("1.5 million", "1.5 billion", False),
    ],
)  # fmt: skip
def test_numbers_are_the_same_exactly_or_rounded_or_in_the_unit_of_the_question(one, other, alike):
    assert math(rf"\boxed{{{one}}}", other).correct is alike
    assert math(rf"\boxed{{{other}}}", one).correct is alike
    assert math(rf"\boxed{{{one}}}", one).correct
