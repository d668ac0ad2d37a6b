"""On the bundled model: the weights that MathNeuro finds for arithmetic are those that arithmetic hangs on."""

import json
from pathlib import Path

import pytest

from commandline import lesion, undrawn

SKILL, CONTROLS = "primer:arithmetic", ("primer:atlas", "primer:reading")
ITEMS = 30

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Path:
    """What `lesion isolate` and `lesion evaluate` leave, each in its folder, as one would type them."""
    from lesion.cli.main import code

    place = tmp_path_factory.mktemp("isolation")
    controls = [word for name in CONTROLS for word in ("--control", name)]
    tasks = [word for name in (SKILL, CONTROLS[0]) for word in ("--task", name)]
    isolate = ["isolate", "bundled:llama-base", "--skill", SKILL, *controls, "--samples", "50", "--repeats", "2"]
    with undrawn():
        assert code([*isolate, "--out", str(place / "isolated")]) == 0
    edit = ["--edit", str(place / "isolated" / "mathneuro-0.05.edit"), "--random-controls", "2"]
    evaluate = ["evaluate", "bundled:llama-base", *edit, *tasks, "--items", str(ITEMS)]
    with undrawn():
        assert code([*evaluate, "--out", str(place / "evaluated")]) == 0
    return place


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def test_pruning_them_takes_far_more_arithmetic_than_pruning_as_many_at_random(found):
    told = summary(found / "evaluated")["evaluation"]
    arithmetic = next(entry for entry in told["tasks"] if entry["name"] == SKILL)
    cut, *drawn = arithmetic["cells"]
    assert arithmetic["role"] == "skill"
    assert arithmetic["baseline"]["result"]["value"] >= 0.7
    assert cut["change"]["low"] > 0.3
    assert cut["random"]["beyond"]["low"] > 0.3
    assert cut["change"]["p_corrected"] < 0.001
    assert all(abs(cell["change"]["value"]) < 0.2 for cell in drawn)


def test_pruning_them_leaves_the_atlas_alone(found):
    told = summary(found / "evaluated")["evaluation"]
    atlas = next(entry for entry in told["tasks"] if entry["name"] == "primer:atlas")
    assert atlas["baseline"]["result"]["value"] >= 0.9
    assert atlas["cells"][0]["change"]["value"] < 0.1
    contrast = next(entry for entry in told["selectivity"] if entry["control"] == "primer:atlas")
    assert contrast["difference"]["low"] > 0.3


def test_they_are_few_and_two_draws_of_texts_find_mostly_the_same(found):
    told = summary(found / "isolated")["isolation"]
    assert [entry["repeat"] for entry in told["selections"]] == [0, 1]
    for entry in told["selections"]:
        selected, total = (sum(matrix[name] for matrix in entry["matrices"]) for name in ("selected", "total"))
        assert 0.002 < selected / total < 0.05
    (overlap,) = told["overlaps"]
    assert overlap["mean"]["value"] > 0.5 > 10 * overlap["chance"]
    # The file holds vectors and thresholds, no mask: a tenth of the 1.5 million weights at most, in bytes.
    assert (found / "isolated" / "mathneuro-0.05.edit").stat().st_size < 147_456


def test_a_model_into_which_they_were_pruned_for_good_answers_as_the_edited_one(found, tmp_path, capsys):
    edit = found / "isolated" / "mathneuro-0.05.edit"
    done = lesion(capsys, "apply", "bundled:llama-base", "--edit", edit, "--out", tmp_path / "pruned")
    assert done.code == 0, done.err
    asks = ["--task", SKILL, "--items", ITEMS, "--out", tmp_path / "out"]
    assert lesion(capsys, "evaluate", tmp_path / "pruned", *asks).code == 0
    (whole,) = summary(tmp_path / "out")["evaluation"]["tasks"]
    told = summary(found / "evaluated")["evaluation"]["tasks"][0]
    for what in ("result", "rates"):
        assert whole["baseline"][what] == told["cells"][0][what]
