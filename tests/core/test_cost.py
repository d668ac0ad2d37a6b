"""Cost: kept apart from what was found, part by part, and read without complaint."""

import json

import pytest

from lesion.core import cost


def test_parts_are_noted_one_by_one(tmp_path):
    cost.note(tmp_path, "training", {"all-full": 1.5})
    cost.note(tmp_path, "asked", {"computed": 1})
    cost.note(tmp_path, "asked", {"computed": 2})
    assert cost.read(tmp_path) == {"training": {"all-full": 1.5}, "asked": {"computed": 2}}


@pytest.mark.parametrize("text", [None, "{", "[1]", "\udcff"])
def test_where_the_cost_is_missing_or_damaged_nothing_is_known_of_it(text, tmp_path):
    if text is not None:
        (tmp_path / cost.FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cost.read(tmp_path) == {}


@pytest.mark.parametrize("damage", [None, "3", True, -1, [1], {}, "NaN", float("nan"), float("inf"), 10**400])
def test_a_part_in_which_something_else_than_amounts_stands_counts_as_absent(damage, tmp_path):
    sound = {"training": {"all-full": 1.5}, "asked": {"computed": 2}}
    (tmp_path / cost.FILE).write_text(json.dumps(sound))
    assert cost.read(tmp_path) == sound
    for part, broken in (
        ("training", {"all-full": damage}),
        ("asked", {"computed": 2, "seconds": damage if damage != {} else None}),
        ("training", damage if damage != {} else []),
    ):
        (tmp_path / cost.FILE).write_text(json.dumps(sound | {part: broken}))
        assert cost.read(tmp_path) == {name: value for name, value in sound.items() if name != part}
