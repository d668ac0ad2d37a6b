"""Layers in text form, against sets of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.core.layers import canonical_layers, parse_layers
from lesion.errors import UsageError

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), min_size=1, max_size=6)


@given(RANGES)
def test_text_names_the_union_of_its_numbers_and_ranges(ranges):
    text = ", ".join(f"{first}-{first + more}" if more else str(first) for first, more in ranges)
    expected = sorted({layer for first, more in ranges for layer in range(first, first + more + 1)})
    assert parse_layers(text, 64, "m") == expected
    assert parse_layers(expected, 64, "m") == expected


@given(st.sets(st.integers(0, 60), min_size=1), st.randoms(use_true_random=False))
def test_the_canonical_form_depends_on_the_set_alone_and_names_it(layers, random):
    order = random.sample(sorted(layers), len(layers))
    text = canonical_layers(order)
    assert text == canonical_layers(",".join(map(str, order))) == canonical_layers(text)
    assert set(parse_layers(text, 61, "m")) == layers


@pytest.mark.parametrize(
    ("given_", "text"), [("7,0-2,3", "0-3,7"), ([7, 3, 3], "3,7"), (" ALL ", "all"), ("1-1", "1"), ("0-9,2-3", "0-9")]
)
def test_canonical_forms(given_, text):
    assert canonical_layers(given_) == text


def test_all_names_every_block():
    assert parse_layers("all", 3, "m") == [0, 1, 2]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("12", "there is no block 12: bundled:llama-base has blocks 0 to 7."),
        ("0-3,8-10", "there is no block 8: bundled:llama-base has blocks 0 to 7."),
        ("6-9", "there is no block 8: bundled:llama-base has blocks 0 to 7."),
        ("0-999999", "there is no block 8: bundled:llama-base has blocks 0 to 7."),
    ],
)
def test_a_block_outside_the_model_is_named_with_those_there_are(layers, message):
    with pytest.raises(UsageError) as caught:
        parse_layers(layers, 8, "bundled:llama-base")
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "x", "1,", "-1", "1-2-3", "1.5", "0-", "٣", "9" * 5000, "1;2"])
def test_text_that_names_no_layers_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="such as 0-3,7"):
        parse_layers(text, 8, "m")
