"""Kinds of ablation: what is critical whatever stands in for a place, and what under some kinds only."""

from dataclasses import replace
from itertools import chain

import pandas as pd
import pytest
from made_counts import counted, sentences

from lesion.edits.edit import ScaleBlock
from lesion.report.table import Table
from lesion.studies.ablation.analyses import kinds
from lesion.studies.ablation.result import AblationSummary, Material
from lesion.studies.ablation.sweep import Replacement

DIGEST = "0123456789abcdef"
LAYERS = range(4)


def edits(*factors: float | str) -> list:
    return [
        Replacement(layer, "block", None, factor, (("sums", DIGEST),))
        if isinstance(factor, str)
        else ScaleBlock(layer, factor)
        for factor in factors
        for layer in LAYERS
    ]


def summary(right: dict[float | str, list[int]], models=("m",), baseline: int = 80) -> AblationSummary:
    """So many items are right under each factor, block after block."""
    return counted(edits(*right), {"sums": [baseline, *chain(*right.values())]}, models).summary


def told(of) -> list[str]:
    return sentences(kinds.survive(kinds.compared(of.curves)))


def table_of(of) -> pd.DataFrame:
    return Table.of(kinds.part(Material(of)).rows).frame


def test_places_are_grouped_by_the_kinds_under_which_they_are_critical():
    of = summary({0.0: [0, 0, 70, 80], "mean": [0, 60, 80, 80], "resample": [0, 0, 0, 75]})
    assert told(of)[:1] == [
        "sums: block 0 is critical under zero, mean and resample alike; block 1 under zero and resample; block 2 under"
        " resample alone."
    ]
    table = table_of(of)
    assert table[["layer", "zero", "mean", "resample", "critical"]].to_numpy().tolist() == [
        [0, pytest.approx(0.8), pytest.approx(0.8), pytest.approx(0.8), "zero, mean, resample"],
        [1, pytest.approx(0.8), pytest.approx(0.2), pytest.approx(0.8), "zero, resample"],
        [2, pytest.approx(0.1), pytest.approx(0.0), pytest.approx(0.8), "resample"],
        [3, pytest.approx(0.0), pytest.approx(0.0), pytest.approx(0.05), ""],
    ]


def test_all_draws_of_resample_have_to_agree_and_their_drops_are_averaged():
    of = summary({0.0: [0, 80, 80, 80], "resample": [0, 0, 80, 80], "resample 1": [0, 80, 80, 80]})
    assert told(of)[:1] == ["sums: block 0 is critical under zero and resample alike."]
    table = table_of(of)
    assert table["resample"].tolist() == pytest.approx([0.8, 0.4, 0.0, 0.0])


def test_kinds_are_tested_against_each_other_at_the_same_block():
    of = summary({0.0: [0, 70, 80, 80], "mean": [0, 80, 80, 80], "resample": [30, 69, 80, 78]})
    (result,) = of.models[0].tasks
    differences = {(each.layer, each.first, each.second): each.difference for each in result.contrasts}
    pairs = [("zero", "mean"), ("zero", "resample"), ("mean", "resample")]
    assert set(differences) == {(layer, *pair) for layer in LAYERS for pair in pairs}
    # Right are the first items: the pairs that disagree all lie on one side, p = 2 · 2⁻ⁿ.
    expected = {(0, 1): 30, (0, 2): 30, (1, 0): 10, (1, 1): 1, (1, 2): 11, (3, 1): 2, (3, 2): 2}
    p = {(layer, pairs[at]): min(1.0, 2 * 0.5**count) for (layer, at), count in expected.items()}
    for (layer, *pair), difference in differences.items():
        assert difference.p == pytest.approx(p.get((layer, tuple(pair)), 1.0))
    ordered = sorted(each.p for each in differences.values())
    assert differences[0, "zero", "resample"].p_corrected == pytest.approx(12 * ordered[0])
    assert differences[1, "mean", "resample"].p_corrected == pytest.approx(10 * ordered[2])
    assert differences[1, "zero", "mean"].value == pytest.approx(-0.1)
    assert differences[1, "zero", "mean"].low < -0.1 < differences[1, "zero", "mean"].high < 0
    assert told(of)[-1] == (
        "Accuracy differs between kinds at block 0 (zero costs more than resample, mean costs more than resample)"
        " and block 1 (zero costs more than mean, resample costs more than mean) (12 paired tests, Holm)."
    )
    table = table_of(of)
    assert table["p, zero = mean"].tolist() == [differences[layer, "zero", "mean"].p_corrected for layer in LAYERS]
    assert table["differ"].tolist()[2:] == ["", ""]


def test_kinds_whose_test_is_not_known_are_not_said_to_differ():
    (own,) = kinds.compared(summary({0.0: [0, 0, 70, 80], "mean": [0, 60, 80, 80]}).curves)
    assert len(own.between(1)) == 1
    unknown = [
        each.model_copy(update={"difference": each.difference.model_copy(update={"p": None, "p_corrected": None})})
        for each in own.contrasts
    ]
    assert replace(own, contrasts=tuple(unknown)).between(1) == []


def test_draws_of_a_kind_are_tested_together():
    of = summary({0.0: [80, 80, 80, 80], "resample": [78, 80, 80, 80], "resample 1": [79, 80, 80, 80]})
    (result,) = of.models[0].tasks
    first = next(each.difference for each in result.contrasts if each.layer == 0)
    # Item 79 is lost in both draws, 78 in one: signs of 2 and 1, one of four choices as far on each side.
    assert (first.value, first.p, first.low) == (pytest.approx(0.015), pytest.approx(0.5), None)
    assert told(of)[-1] == "At no block accuracy is shown to differ between kinds (4 paired tests, Holm)."


def test_what_is_critical_under_no_common_kind_is_said():
    assert told(summary({0.0: [0, 80, 80, 80], "mean": [80, 0, 80, 80]}))[:1] == [
        "sums: block 0 is critical under zero alone; block 1 under mean alone; none is shown to be so under all kinds."
    ]
    assert told(summary({0.0: [80] * 4, "mean": [80] * 4}))[:1] == [
        "sums: no block is shown to be critical under zero or mean."
    ]


def test_other_factors_are_no_kind_and_a_baseline_that_shows_nothing_is_left_out():
    assert kinds.part(Material(summary({0.0: [0] * 4, 0.5: [0] * 4}))) is None
    assert kinds.part(Material(summary({"mean": [0] * 4}))) is None
    assert kinds.part(Material(summary({0.0: [0] * 4, "mean": [0] * 4}, baseline=2))) is None
    assert "0.5" not in told(summary({0.0: [0] * 4, 0.5: [80] * 4, "mean": [0] * 4}))[0]


def test_a_layer_that_a_kind_has_not_measured_yet_is_not_compared():
    of = summary({0.0: [0, 0, 80, 80], "mean": [0, 0, 80, 80]})
    model = of.models[0]
    task = model.tasks[0]
    short = task.model_copy(
        update={"cells": tuple(cell for cell in task.cells if (cell.factor, cell.layer) != ("mean", 1))}
    )
    short_of = of.model_copy(update={"models": (model.model_copy(update={"tasks": (short,)}),)})
    assert told(short_of)[:1] == ["sums: block 0 is critical under zero and mean alike."]


def test_several_models_have_a_map_each_with_a_row_per_kind():
    part = kinds.part(Material(summary({0.0: [0, 80, 80, 80], "mean": [0, 80, 80, 80]}, models=("a", "b"))))
    (figure,) = part.own
    assert [panel.title for panel in figure.panels] == ["a", "b"]
