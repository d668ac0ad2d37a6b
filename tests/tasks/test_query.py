"""Names of tasks taken apart: options behind the `?`, and names of the harness's tasks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.catalogue import canonical
from lesion.tasks.query import HarnessName, Option, options, read

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


words = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-./:= ", min_size=1, max_size=12)
maybe = st.none() | words


@given(words, maybe, maybe, st.none() | st.integers(0, 99), maybe, st.booleans())
def test_a_name_reads_back(task, metric, reader, shots, path, study):
    name = HarnessName(task, metric, reader, shots, path, study)
    assert HarnessName.parse(str(name)) == name


def test_canonical_names_are_one_for_all_ways_to_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "gsm8k").write_text("a file of the name of a task is not meant")
    typed = (
        "harness:gsm8k?path=mine&shots=2",
        "harness:gsm8k?shots=2&path=./mine",
        f"harness:gsm8k?shots=2&path={tmp_path}/mine",
    )
    assert {canonical(name) for name in typed} == {f"harness:gsm8k?shots=2&path={tmp_path}/mine"}
    assert canonical("gold:harness:gsm8k") == "gold:harness:gsm8k"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("harness:", "Say which task of lm-evaluation-harness: harness:NAME"),
        ("harness:gsm8k?metrik=acc", r"no option 'metrik' .*nearest: metric"),
        ("harness:gsm8k?shots=1&shots=2", "'shots' stands twice"),
        ("harness:gsm8k?metric", "'metric' .*has no value; write metric=acc_norm"),
        ("harness:gsm8k?shots=few", "'few'; write a whole number from 0"),
        ("harness:gsm8k?decoding=greedy", "write decoding=study"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name, said):
    with pytest.raises(UsageError, match=said):
        HarnessName.parse(name)
