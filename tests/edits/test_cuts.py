"""What truncations leave of a matrix, counted."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.edits.cuts import Cut, cuts, kept_by_all, refuse_both
from lesion.edits.edit import ScaleParameters, Truncate
from lesion.edits.selections.topk import Magnitude
from lesion.errors import UsageError

truncations = st.builds(
    Truncate, st.just("3.mlp.up"), st.integers(0, 100).map(lambda n: n / 100), st.sampled_from(["top", "bottom"])
)


@given(st.lists(truncations, max_size=4), st.integers(1, 60))
def test_truncations_of_one_matrix_keep_the_components_that_every_one_of_them_keeps(several, rank):
    by_hand = set(range(rank))
    for part in several:
        count = int(Fraction(str(part.keep)) * rank)
        by_hand &= set(range(count)) if part.side == "top" else set(range(rank - count, rank))
    start, stop = kept_by_all(several, rank)
    assert set(range(start, stop)) == by_hand
    assert start <= stop


def test_a_fraction_is_taken_in_exact_decimals():
    # 0.29 · 100 is 28.999… in binary floating point.
    assert kept_by_all([Truncate("3.mlp.up", 0.29)], 100) == (0, 29)
    assert kept_by_all([Truncate("3.mlp.up", 0.29, "bottom")], 100) == (71, 100)


@pytest.mark.parametrize(
    ("cut", "saved", "says"),
    [
        (Cut("3.mlp.up", (48, 32), 0, 3), 48 * 32 - 3 * 80, "the largest 3 of 32 components"),
        (Cut("3.mlp.up", (48, 32), 2, 32), 48 * 32 - 30 * 80, "the smallest 30 of 32 components"),
        (Cut("3.mlp.up", (48, 32), 2, 5), 48 * 32 - 3 * 80, "components 3 to 5 of 32"),
        (Cut("3.mlp.up", (48, 32), 7, 7), 48 * 32, "none of 32 components"),
        (Cut("3.mlp.up", (48, 32), 0, 32), 48 * 32 - 32 * 80, "all 32 components"),
    ],
)
def test_a_cut_says_what_is_kept_and_counts_what_two_factors_save(cut, saved, says):
    assert str(cut) == says
    assert cut.saved == saved
    assert cut.whole == (cut.kept == 32)


def test_every_matrix_has_one_cut_in_the_order_of_its_first_truncation():
    edits = [Truncate("1.mlp.up", 0.5), Truncate("0.mlp.up", 0.25, "bottom"), Truncate("1.mlp.up", 0.75, "bottom")]
    found = cuts(edits, {"0.mlp.up": (8, 16), "1.mlp.up": (16, 8)})
    assert found == (Cut("1.mlp.up", (16, 8), 2, 4), Cut("0.mlp.up", (8, 16), 6, 8))


def test_a_matrix_that_is_both_truncated_and_multiplied_is_refused_by_name():
    multiplied = ScaleParameters(Magnitude(0.1, ("1.mlp.up",)), 0.0)
    refuse_both([multiplied], [Truncate("0.mlp.up", 0.5)], "a model")
    with pytest.raises(UsageError, match=r"1\.mlp\.up of a model is to be truncated and its weights multiplied"):
        refuse_both([multiplied], [Truncate("0.mlp.up", 0.5), Truncate("1.mlp.up", 0.5)], "a model")
