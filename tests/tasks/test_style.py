"""The text form of a prompt style reads back, and what is none is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.style import Style

SCALARS = st.text() | st.integers() | st.booleans() | st.none() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.sampled_from(["", "chat", "r1-zero"]),
    st.sampled_from(["", "on", "off"]),
    st.text(),
    st.lists(SCALARS, max_size=3),
)
def test_the_text_of_a_style_reads_back(name, thinking, system, values):
    arguments = zip(("depth", "effort", "enable_thinking"), map(json.dumps, values), strict=False)
    style = Style(name, thinking, system, tuple(arguments))
    assert Style.parse(str(style)) == style


def test_it_is_what_a_person_would_write():
    style = Style.parse('chat thinking=on system="Be brief." effort=high depth=3')
    assert style == Style("chat", "on", "Be brief.", (("depth", "3"), ("effort", '"high"')))
    assert str(style) == 'chat thinking=on system="Be brief." depth=3 effort=high'
    assert Style.parse("thinking=off") == Style(thinking="off")
    assert Style.parse("chat thinking=auto") == Style("chat")
    assert str(Style("chat", arguments=(("on", '"true"'), ("yes", "true")))) == 'chat on="true" yes=true'


def test_settings_of_its_own_come_before_those_of_the_study():
    style = Style.parse("chat thinking=off depth=3").having("on", "Be brief.", ["depth=4", "effort=high"])
    assert str(style) == 'chat thinking=off system="Be brief." depth=3 effort=high'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chat thinking", "'chat thinking' is no prompt style"),
        ('chat system="open', "is no prompt style"),
        ("chat thinking=perhaps", "Thinking is on, off or auto, not 'perhaps'."),
        ("chat tools=[1]", r"\[1\] is neither a text, a number, true nor false"),
    ],
)
def test_what_is_no_style_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        Style.parse(text)
