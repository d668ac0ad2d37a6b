"""Profiles: which number per block is read from which study's folder."""

import json

import made_profiles as made
import pytest
from made import STOPPING

from lesion.core.values import read_summary
from lesion.errors import LesionError, UsageError
from lesion.studies.drift.result import DriftSummary
from lesion.studies.overlay.summary import read


def at(profile, block):
    """The value of a block with its limits."""
    index = profile.blocks.index(block)
    return profile.values[index], profile.low[index], profile.high[index]


def numbers(profile):
    return dict(zip(profile.blocks, (round(value, 9) for value in profile.values), strict=True))


def test_a_layer_study_gives_the_drop_per_task_with_its_interval_and_its_critical_blocks(tmp_path):
    found = read(made.layers(tmp_path, {"sums": [0.8, None, 0.3], "facts": [0.1, 0.0, -0.1]}, critical=(0,)))
    sums, facts = found.profiles
    assert numbers(sums) == {0: 0.8, 2: 0.3}
    assert (sums.label, sums.kind, sums.unit, sums.critical) == ("drop · sums", "layers", "points", (0,))
    assert at(sums, 2) == pytest.approx((0.3, 0.2, 0.4))
    assert numbers(facts) == {0: 0.1, 1: 0.0, 2: -0.1}


def test_drops_of_a_study_that_stopped_asking_are_drawn_with_a_note_and_not_ranked(tmp_path):
    place = made.layers(tmp_path, {"sums": [0.8, 0.2, 0.3], "facts": [0.1, 0.0, 0.0]}, critical=(0,))
    told = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    task = told["models"][0]["tasks"][0]
    for cell in task["cells"]:
        cell |= {"decided": "exceeds" if cell["critical"] else "open", "critical": None}
    task["stopping"] = STOPPING
    (place / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    found = read(place)
    sums, facts = found.profiles
    assert (sums.label, sums.ranked, sums.critical) == ("drop · sums, stopped", False, ())
    assert (facts.label, facts.ranked) == ("drop · facts", True)
    (note,) = found.notes
    assert "sums of made stopped block by block" in note


def test_places_and_factors_of_a_layer_study_are_profiles_of_their_own(tmp_path):
    place = made.layers(tmp_path, {"sums": [0.8, 0.2]})
    told = json.loads((place / "summary.json").read_text())
    told["models"][0]["tasks"][0]["cells"][0] |= {"unit": "mlp", "factor": 0.5}
    (place / "summary.json").write_text(json.dumps(told))
    assert {profile.label for profile in read(place).profiles} == {"drop · MLP, sums, ×0.5", "drop · sums"}


def test_drift_after_a_block_is_that_of_the_next_layer_and_the_loss_in_a_block_is_the_step_over_it(tmp_path):
    lost, after = read(made.drift(tmp_path, [1.0, 0.9, 0.5, 0.4])).profiles
    assert numbers(lost) == {1: 0.4, 2: 0.1}
    assert numbers(after) == {0: 0.9, 1: 0.5, 2: 0.4}
    assert at(after, 1) == pytest.approx((0.5, 0.49, 0.51))
    assert (lost.ranked, after.ranked, lost.unit) == (True, False, "nmi")


@pytest.mark.parametrize(("layer_zero", "known"), [("embedding", {1: 0.1, 2: 0.2}), ("block", {2: 0.2})])
def test_the_step_out_of_the_layer_that_all_are_compared_with_is_no_loss_to_be_ranked(tmp_path, layer_zero, known):
    place = made.drift(tmp_path, [1.0, 0.5, 0.4, 0.2], layer_zero=layer_zero)
    assert numbers(read(place).profiles[0]) == known


def test_density_counts_all_matrices_of_a_block_and_leaves_the_head_out(tmp_path):
    [profile] = read(made.isolation(tmp_path, [made.selection("mathneuro", 0.01, [10, 3, 40])])).profiles
    assert numbers(profile) == {0: 0.10, 1: 0.03, 2: 0.40}
    assert profile.label == "density · mathneuro, 1 % · sums"
    assert set(profile.low) == {None}


def test_of_a_method_the_smallest_share_from_the_most_texts_is_drawn_averaged_over_repeats_with_their_ends(tmp_path):
    selections = [
        made.selection("mathneuro", 0.01, [10, 20], repeat=0),
        made.selection("mathneuro", 0.01, [30, 30], repeat=1),
        made.selection("mathneuro", 0.01, [90, 1], samples=5),
        made.selection("mathneuro", 0.05, [50, 51]),
    ]
    found = read(made.isolation(tmp_path, selections))
    [profile] = found.profiles
    assert numbers(profile) == {0: 0.2, 1: 0.25}
    assert at(profile, 0) == pytest.approx((0.2, 0.1, 0.3))
    assert "of 4 selections by mathneuro" in found.notes[0]


def test_a_method_that_takes_as_much_of_every_block_has_no_profile_and_a_note_says_so(tmp_path):
    found = read(made.isolation(tmp_path, [made.selection("wanda", 0.2, [20, 20, 20])]))
    assert found.profiles == ()
    assert found.notes == (f"{tmp_path.name}: wanda takes as much of every block, so that its density has no shape.",)


def test_a_block_s_truncation_gain_is_its_best_cell_that_was_asked_in_full_and_says_more_than_one_thing(tmp_path):
    cells = [
        made.cell(0, 0.2, screen=-0.3), made.cell(0, -0.1, screen=-0.2), made.cell(0, -0.5, collapsed=True),
        made.cell(0, -0.6, eliminated=8), made.cell(1, None, screen=0.4), made.cell(2, 0.05),
    ]  # fmt: skip
    gain, screen = read(made.truncation(tmp_path, cells)).profiles
    assert numbers(gain) == {0: 0.1, 2: -0.05}
    assert numbers(screen) == {0: -0.2, 1: 0.4}
    assert screen.unit == "nats"


def test_the_limits_of_a_gain_are_those_of_the_drop_turned_over(tmp_path):
    cell = made.cell(0, -0.2, ends={"low": -0.3, "high": 0.1})
    [gain] = read(made.truncation(tmp_path, [cell])).profiles
    assert at(gain, 0) == pytest.approx((0.2, -0.1, 0.3))


def test_a_folder_without_numbers_per_block_is_refused_with_what_was_looked_for(tmp_path):
    with pytest.raises(UsageError, match=r"no summary\.json of `lesion ablate`"):
        read(tmp_path)
    made.folder(tmp_path, "summary.json", {"models": [{"model": "m", "layers": []}]})
    with pytest.raises(UsageError, match="holds no study with a number per block"):
        read(tmp_path)


def test_a_folder_that_has_answers_and_no_summary_yet_is_sent_to_report(tmp_path):
    (tmp_path / "answers.sqlite").touch()
    with pytest.raises(UsageError, match="`lesion report"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "isolation"}', '{"kind": "isolation", "isolation": 3}'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(LesionError, match=r"summary\.json is damaged"):
        read(tmp_path)


def test_a_drift_whose_loops_were_stopped_is_said_to_be_approximate(tmp_path):
    place = made.drift(tmp_path / "d", [1.0, 0.5, 0.4, 0.2])
    assert read(place).notes == ()
    summary = read_summary(DriftSummary, place, "")
    summary.model_copy(update={"approximate": "An answer was ended early."}).write(place)
    assert read(place).notes == ("d is approximate. An answer was ended early.",)
