"""Options behind the `?` of a task's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.query import Option, options, read

KNOWN = {"digits": Option(2, range(1, 7), ""), "form": Option("equation", ("equation", "question"), "")}


@given(st.integers(1, 6), st.sampled_from(["equation", "question"]), st.permutations(["digits", "form"]))
def test_options_read_back_in_any_order(digits, form, order):
    values = {"digits": digits, "form": form}
    assert read("task", "&".join(f"{key}={values[key]}" for key in order), KNOWN) == values


def test_what_is_not_given_has_its_default():
    assert read("task", "", KNOWN) == {"digits": 2, "form": "equation"}
    assert read("task", "form=question", KNOWN) == {"digits": 2, "form": "question"}


def test_an_ampersand_inside_a_value_is_no_second_option():
    assert options("facts", "tempting= R&D here", {"tempting": "x"}) == {"tempting": " R&D here"}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("digit=2", r"no option 'digit' .*nearest: digits.*as in 'task\?digits=2&form=equation'"),
        ("digits=2&digits=3", "'digits' stands twice"),
        ("digits", "has no value; write digits=2"),
        ("form=", "has no value; write form=equation"),
        ("form=equations", "no form 'equations' .*nearest: equation"),
        ("digits=7", "digits is '7'; write a whole number from 1 to 6, such as digits=2"),
        ("digits=٣", "write a whole number from 1 to 6"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(query, says):
    with pytest.raises(UsageError, match=says):
        read(f"task?{query}", query, KNOWN)
