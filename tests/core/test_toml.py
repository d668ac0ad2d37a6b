"""TOML: lines of keys against texts written by hand, writing against the standard library's reader."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.core.toml import Lines, dump

# Every line that sets something ends in a comment with the paths it sets; the rest is there to mislead.
TEXT = '''
a = 1                      #! a
# b = 2
title = """                #! title
b = 3
[edits]
"""
b = "a = 5 # [x]"          #! b
list = [                   #! list
  "x",                     #! list.0
  # "y",
  {source = "b", r = "c"}, #! list.1 list.1.source list.1.r
  "z", "w",                #! list.2 list.3
  [                        #! list.4
  "y",                     #! list.4.0
  ],
  {s = ["p",               #! list.5 list.5.s list.5.s.0
  "q"]},                   #! list.5.s.1
  "last" ]                 #! list.6
one.two = 3                #! one one.two
one."th ree" = 4           #! one.th ree

[edits]                    #! edits
list = [1,                 #! edits.list edits.list.0
2]                         #! edits.list.1
a = 3                      #! edits.a

[[tasks]]                  #! tasks tasks.0
name = "n"                 #! tasks.0.name
[[tasks]]                  #! tasks.1
name = "m"                 #! tasks.1.name
inner.deep = true          #! tasks.1.inner tasks.1.inner.deep
'''


def _expected() -> list[tuple[tuple[str | int, ...], int]]:
    found = []
    for number, line in enumerate(TEXT.split("\n"), 1):
        _, marked, paths = line.partition("#! ")
        # The one key with a space in it would be cut in two.
        for path in paths.replace("th ree", "th_ree").split() if marked else []:
            parts = path.replace("th_ree", "th ree").split(".")
            found.append((tuple(int(part) if part.isdigit() else part for part in parts), number))
    return found


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(("path", "line"), _expected(), ids=lambda value: str(value))
def test_every_key_and_entry_is_found_on_its_line(path, line, newline):
    # The marks within the multi-line string are part of its value; all others are comments.
    assert Lines(TEXT.replace("\n", newline)).of(path) == line


def test_what_is_absent_is_placed_where_the_part_of_it_that_is_there_stands():
    lines = Lines("models = [\n 'a',\n 'b',\n]\n[edits]\n")
    assert lines.of(("models", 1, "source")) == 3
    assert lines.of(("models", 7)) == 1
    assert lines.of(("edits", "unit")) == 5
    assert lines.of(("tasks",)) is None


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = WORDS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3))
TABLES = st.dictionaries(WORDS, VALUES, max_size=4)


@given(st.dictionaries(WORDS, VALUES | TABLES, max_size=5).filter(lambda d: not _nested(d)))
def test_what_is_written_is_read_back_the_same(document):
    assert _exact(tomllib.loads(dump(document))) == _exact(document)


def _nested(document: dict[str, object]) -> bool:
    """Tables within tables are beyond what `dump` is for; within lists they are inline."""
    tables = [value for value in document.values() if isinstance(value, dict)]
    return any(isinstance(inner, dict) for table in tables for inner in table.values())


def _exact(value: object) -> object:
    """1, 1.0 and True told apart, which `==` does not."""
    if isinstance(value, dict):
        return {key: _exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_exact(inner) for inner in value]
    return type(value).__name__, repr(value)


def test_absent_values_are_left_out():
    assert tomllib.loads(dump({"a": None, "b": [{"c": None, "d": 1}], "t": {"e": None}})) == {"b": [{"d": 1}], "t": {}}


def test_what_toml_cannot_hold_is_a_fault_of_the_caller():
    with pytest.raises(TypeError, match="no form for object"):
        dump({"a": object()})
