"""Critical blocks beside a hinge or step: read from a layer study, and how far away."""

from __future__ import annotations

import json
import math

import pytest
from made import STOPPING, bare

from lesion.errors import LesionError, UsageError
from lesion.studies.drift.result import apart, distance, places, read_critical


def layer(number: int, critical: bool, unit: str = "block") -> dict:
    return {"layer": number, "unit": unit, "critical": critical}


@pytest.fixture
def folder(tmp_path):
    tasks = {
        "gsm8k": [layer(3, True), layer(1, True), layer(2, False), layer(0, True, "mlp")],
        "triviaqa": [layer(0, False)],
    }
    (tmp_path / "summary.json").write_text(json.dumps(bare(tasks, "a")))
    return tmp_path


def test_the_critical_blocks_are_those_of_whole_blocks_in_order(folder):
    assert read_critical(folder, ["a", "b"]) == {"a": {"gsm8k": (1, 3), "triviaqa": ()}}


def test_a_study_of_other_models_is_refused_with_the_names_of_both(folder):
    with pytest.raises(UsageError, match=r"is about a, not about b, c") as caught:
        read_critical(folder, ["b", "c"])
    assert "--study" in str(caught.value)


@pytest.mark.parametrize("text", ["{}", '{"kind": "drift"}', '{"study": {}}', '{"models": 3}'])
def test_a_folder_with_another_kind_of_study_is_refused(text, tmp_path):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UsageError, match="does not hold a layer study"):
        read_critical(tmp_path, ["a"])


@pytest.mark.parametrize("text", ["[]", '{"kind": "layers", "models": 3}'])
def test_a_damaged_layer_study_is_refused_as_one(text, tmp_path):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(LesionError, match=r"summary\.json"):
        read_critical(tmp_path, ["a"])


def test_a_study_that_stopped_asking_is_refused_with_what_to_do(folder):
    summary = json.loads((folder / "summary.json").read_text())
    summary["models"].append({"model": "c", "tasks": summary["models"][0]["tasks"]})
    summary["models"][0] = json.loads(json.dumps(summary["models"][0]))
    summary["models"][0]["tasks"][0]["stopping"] = STOPPING
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(UsageError, match="Run the same study without stopping into that folder"):
        read_critical(folder, ["a"])
    assert read_critical(folder, ["c"])["c"]["gsm8k"] == (1, 3)


def test_a_folder_without_a_summary_and_a_broken_one_are_told_apart(tmp_path):
    with pytest.raises(UsageError, match=r"There is no .*summary\.json"):
        read_critical(tmp_path / "absent", ["a"])
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(LesionError, match="not JSON"):
        read_critical(tmp_path, ["a"])


def test_a_block_stands_between_the_layer_that_enters_it_and_the_one_that_it_gives():
    assert [apart(layer, 2) for layer in (0.5, 2.0, 2.7, 3.0, 4.5)] == [-1.5, 0, 0, 0, 1.5]


def test_the_nearest_critical_block_counts_and_how_near_any_place_would_be():
    hinges = places("hinge", 0, 8)
    assert (hinges[0], hinges[-1]) == (1, 7)
    result = distance(5.0, (1, 3), hinges)
    assert result is not None
    assert (result.block, result.distance) == (3, 1.0)
    # Within one layer of [1, 2] or [3, 4] is all of 1 … 5, out of 1 … 7.
    assert result.chance == pytest.approx(4 / 6, abs=1e-3)
    nearest = distance(5.0, (7, 3), hinges)
    assert nearest is not None
    assert nearest.distance == 1.0


def test_a_step_is_over_one_of_the_blocks_between_the_layers_fitted():
    assert places("step", 1, 5) == [1.5, 2.5, 3.5, 4.5]
    result = distance(2.5, (0, 2, 4), places("step", 1, 5))
    assert result is not None
    assert (result.block, result.distance, result.chance) == (2, 0, 0.5)


def test_without_critical_blocks_or_without_a_place_there_is_no_distance():
    assert distance(3.0, (), [1.0, 2.0]) is None
    assert distance(math.nan, (1,), [1.0, 2.0]) is None
