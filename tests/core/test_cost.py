"""Cost: kept apart from what was found, part by part, and read without complaint."""

from __future__ import annotations

import pytest

from lesion.core import cost
from lesion.errors import LesionError


def test_parts_are_noted_one_by_one_and_stand_beside_a_summary_without_changing_it(tmp_path):
    cost.note(tmp_path, "training", {"all-full": 1.5})
    cost.note(tmp_path, "asking", {"a": 1})
    cost.note(tmp_path, "asking", {"a": 2})
    summary = {"found": 1}
    assert cost.beside(summary, tmp_path) == {"found": 1, "cost": {"training": {"all-full": 1.5}, "asking": {"a": 2}}}
    assert summary == {"found": 1}


@pytest.mark.parametrize("text", [None, "{", "[1]", "\udcff"])
def test_where_the_cost_is_missing_or_damaged_nothing_is_known_of_it(text, tmp_path):
    if text is not None:
        (tmp_path / cost.FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cost.read(tmp_path) == {}


def test_a_folder_that_cannot_be_written_is_named_with_advice(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(LesionError, match="--out"):
        cost.note(tmp_path / "file", "asking", {})
