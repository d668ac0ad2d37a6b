"""Numbers as they are written for people."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.report import wording
from lesion.report.values import FIGURES, POINTS, SHARE, WHOLE_SHARE


def plain(text: str) -> str:
    return text.replace(wording.SPACE, " ")


def test_a_percentage_and_its_interval_never_break_across_lines():
    assert SHARE.text(0.875) == f"87.5{wording.SPACE}%"
    assert plain(SHARE.interval(-0.012, 0.25)) == "[−1.2, 25.0]"


def test_an_interval_without_digits_is_rounded_outward_so_that_the_number_beside_it_lies_within():
    assert plain(WHOLE_SHARE.interval(0.996, 0.999)) == "[99, 100]"
    assert plain(WHOLE_SHARE.interval(-0.012, 0.5)) == "[−2, 50]"
    assert plain(WHOLE_SHARE.interval(0.29, 0.57)) == "[29, 57]"  # 100 × these are a rounding error off whole numbers


def test_a_drop_that_rounds_to_nothing_has_no_sign():
    assert POINTS(-0.0001) == "0.0"


def test_what_is_not_known_is_a_dash():
    assert SHARE.text(None) == POINTS(None) == wording.p_value(None) == "–"
    assert SHARE.interval(None, 1.0) == ""


def test_p_values_have_two_digits_and_a_floor():
    assert [plain(wording.p_value(p)) for p in (0.0, 0.00009, 0.0123, 0.25, 1.0)] == [
        "< .0001", "< .0001", ".012", ".25", "1",
    ]  # fmt: skip


@given(st.sets(st.integers(0, 40)))
def test_runs_of_layers_name_exactly_these_layers(layers):
    named: list[int] = []
    for piece in re.split(r", | and ", wording.layer_runs(layers, last=" and")) if layers else []:
        first, _, last = piece.partition("–")
        named.extend(range(int(first), int(last or first) + 1))
    assert named == sorted(layers)


def test_a_list_reads_as_a_sentence_does():
    assert wording.listed(["a"]) == "a"
    assert wording.listed(["a", "b", "c"]) == "a, b and c"
    assert wording.listed(["a", "b"], "or") == "a or b"


@given(st.text(), st.integers(4, 40))
def test_a_long_name_is_shortened_in_the_middle(name, longest):
    short = wording.short(name, longest)
    assert len(short) <= longest
    assert short == wording.printable(name) or (
        short[0] == wording.printable(name)[0] and wording.printable(name).endswith(short.partition("…")[2][-1])
    )


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_writable_and_keeps_its_other_characters(text):
    clean = wording.printable(text)
    clean.encode("utf-8")
    assert "\0" not in clean
    assert len(clean) == len(text)
    kept = [(a, b) for a, b in zip(text, clean, strict=True) if a != b]
    assert all(b == "\ufffd" and (a == "\0" or 0xD800 <= ord(a) <= 0xDFFF) for a, b in kept)


@pytest.mark.parametrize(
    ("value", "text"), [(4.2593, "4.259"), (67170.0, "6.717e4"), (1e12, "1e12"), (2e-5, "2e-5"), (9999.4, "9999")]
)
def test_powers_of_ten_are_short(value, text):
    assert FIGURES(value) == text
    assert float(text) == pytest.approx(value, rel=1e-3)
