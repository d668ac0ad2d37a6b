"""Text made safe to print: what acts on a terminal is shown as an escape, everything else as it is."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from lesion.plain import amount, plain, short

ACTING = [
    *map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\ufeff",
]  # fmt: skip
ACTING += [*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A)), "\ud800", "\udfff", "\U000e0041"]


def test_every_character_that_acts_is_shown_as_an_escape():
    for letter in ACTING:
        shown = plain(f"a{letter}b")
        assert shown.isascii()
        assert shown.isprintable()
        assert shown.encode("ascii").decode("unicode_escape") == f"a{letter}b"


def test_ordinary_text_stays_as_it_is():
    for text in (
        "",
        "block 3 × 0 – 5 %",
        "été",
        "日本語",
        "\u0645\u0631\u062d\u0628\u0627",
        "👩\u200d🔬",
        "a\u00a0b",
        "\\x1b",
    ):
        assert plain(text) == text


@given(st.text(st.characters(exclude_categories=())))
def test_nothing_escaped_is_left_over_and_escaping_twice_changes_nothing(text):
    shown = plain(text)
    assert not {unicodedata.category(one) for one in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert plain(shown) == shown


def test_a_value_in_a_message_is_short_and_on_one_line():
    assert short("a\nb") == "a\\nb"
    assert short([1, "x"]) == "[1, 'x']"
    for value in ("x" * 100_000, "\x1b" * 100, list(range(1000)), 10**5000):
        assert len(short(value)) <= 80


def test_a_number_of_bytes_has_a_unit_that_leaves_something_before_the_point():
    told = [amount(size) for size in (0, 1, 1023, 1024, 1536, 2**20 - 1, 2**20, 3 * 2**30, 5 * 2**50)]
    assert told == [
        *("0 bytes", "1 bytes", "1,023 bytes", "1.0 KiB", "1.5 KiB", "1,024.0 KiB", "1.0 MiB", "3.0 GiB"),
        "5,120.0 TiB",
    ]
