"""Which edits become one line of a chart."""

import made_isolation as made
import pytest

from lesion.studies.isolation import sweeps


def edits(*keeps_and_factors, **more):
    found = [made.edit("mathneuro", keep, factor) | more for keep, factor in keeps_and_factors]
    return evaluation(found).tried


def evaluation(entries):
    return made.evaluated(
        {"model": "m", "dtype": "float32", "edits": entries, "tasks": [], "selectivity": [], "choice": None}
    )


def places(lines):
    return {one.label.replace("\N{NO-BREAK SPACE}", " "): [stop.at for stop in one.stops] for one in lines}


def test_keeps_of_one_method_form_one_line_in_ascending_order():
    assert places(sweeps.paths(edits((0.1, 0), (0.01, 0), (0.05, 0)))) == {"MathNeuro": [0.01, 0.05, 0.1]}


def test_factors_at_one_keep_form_one_line():
    assert places(sweeps.paths(edits((0.05, 1.1), (0.05, 1.05)))) == {"MathNeuro": [1.05, 1.1]}


def test_keeps_under_several_factors_are_several_lines_named_by_the_factor():
    found = edits((0.05, 1.1), (0.1, 1.1), (0.05, 1.2), (0.1, 1.2))
    assert places(sweeps.paths(found)) == {"MathNeuro ×1.1": [0.05, 0.1], "MathNeuro ×1.2": [0.05, 0.1]}


def test_repeats_stand_together():
    repeats = [made.edit("wanda", 0.05) | {"edit": f"e{i}", "repeat": i} for i in range(3)]
    (line,) = sweeps.paths(evaluation(repeats).tried)
    assert [len(stop.edits) for stop in line.stops] == [3]


def test_pruning_does_not_share_an_axis_with_two_boosts():
    assert places(sweeps.swept(edits((0.05, 0), (0.05, 1.05), (0.05, 1.1)), "factor")) == {"MathNeuro": [1.05, 1.1]}
    assert places(sweeps.swept(edits((0.05, 0), (0.05, 1.05)), "factor")) == {"MathNeuro": [0.0, 1.05]}


def test_a_single_place_is_no_sweep():
    assert sweeps.swept(edits((0.05, 0)), "keep") == []


def test_random_controls_of_others_are_no_lines():
    tried = made.evaluated().tried
    assert {edit.method for edit in tried} == set(made.METHODS)
    assert len(tried) == len(made.METHODS) * len(made.KEEPS) + 3


def test_pruning_and_boosting_are_told_apart():
    found = sweeps.regimes(edits((0.05, 0), (0.05, 0.5), (0.05, 1.1)))
    assert {name: [edit.factor for edit in group] for name, group in found.items()} == {
        "prune": [0.0, 0.5], "boost": [1.1],
    }  # fmt: skip


@pytest.mark.parametrize("keep", [None, 0.05])
def test_an_edit_made_by_hand_keeps_its_own_name(keep):
    (edit,) = edits((0.05, 0), method="custom", keep=keep, label="mine-and-yours")
    assert edit.method_name == "mine-and-yours"
    (line,) = sweeps.paths([edit])
    assert line.label == "mine-and-yours"
