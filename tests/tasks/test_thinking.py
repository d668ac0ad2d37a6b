"""Thinking: trace and final answer of a stored text, and prompts that end in the opening tag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.tasks.style import answer_start, opening, parted, unclosed
from tiny import tokenizer


@pytest.mark.parametrize(
    ("text", "trace", "final"),
    [
        ("It is 4.", "", "It is 4."),
        ("<think>\nhm, 4\n</think>\n\nIt is 4.", "<think>\nhm, 4\n</think>\n\n", "It is 4."),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n", ""),
        ("hm, 4\n</think>\n\n4", "hm, 4\n</think>\n\n", "4"),  # said behind a prompt that has the tag
        ("<think>a</think>b</think> c", "<think>a</think>b</think> ", "c"),
        ("\n<think>\nhm, 4, 4, 4", "\n<think>\nhm, 4, 4, 4", None),
        ("A tag <think> in the middle", "", "A tag <think> in the middle"),
        ("", "", ""),
    ],
)
def test_the_final_answer_stands_behind_the_last_closing_tag_and_a_trace_that_is_open_has_none(text, trace, final):
    assert parted(text) == (trace, final)
    assert unclosed(text) == (final is None)


@given(st.text("<>/think \n4", max_size=30))
def test_trace_and_final_answer_are_the_text(text):
    trace, final = parted(text)
    assert trace + (final or "") == text
    assert answer_start(f"<think>{text}") == answer_start(f"<think>{text}", opened=True)


def test_a_prompt_is_opened_where_it_ends_in_the_tag_as_text_or_with_white_space():
    fast = tokenizer()
    for ending in ("<think>", "<think>\n", "<think> \n"):
        assert opening(fast, fast.encode(f"user: a <think> b\n{ending}")) == ending
    for ending in ("<think>\n\n</think>\n\n", "<think> so", "", "think"):
        assert opening(fast, fast.encode(f"user: <think>{ending} a?")) == ""
    assert opening(fast, fast.encode("<think></think>")) == ""
