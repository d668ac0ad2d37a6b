"""The errors: their text is safe to print, whatever somebody typed or sent stands in it."""

from lesion.errors import LesionError, UsageError, nearest


def test_nothing_in_a_message_acts_on_a_terminal_or_makes_a_line_of_its_own():
    assert str(UsageError("There is no task '\x1b[31m\nlesion: done'.")) == (
        "There is no task '\\x1b[31m\\nlesion: done'."
    )


def test_lines_below_a_message_stand_indented():
    assert str(LesionError("Two faults:", "line 1", "line 2\n")) == "Two faults:\n  line 1\n  line 2\\n"


def test_a_word_longer_than_any_path_in_use_is_shown_by_its_ends():
    word = "a" * 4000 + "b" * 1000
    text = str(LesionError(f"There is no '{word}' here; write another."))
    assert text == f"There is no '{'a' * 99}…{'b' * 59}' here; write another."
    path = "/".join(["folder"] * 50)
    assert path in str(LesionError(f"There is no file {path}."))


def test_the_nearest_of_known_names():
    assert nearest("arithmetik", ["arithmetic", "atlas"]) == " (nearest: arithmetic)"
    assert nearest("x" * 100_000, ["arithmetic"]) == ""
