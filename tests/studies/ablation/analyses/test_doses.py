"""Dose and response: under which factors a block is critical, and at which factor half of the accuracy is left."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest
from made_counts import ITEMS, counted, sentences

from lesion.edits.edit import ScaleBlock
from lesion.report.table import Table
from lesion.statistics.half_dose import half_dose_interval
from lesion.studies.ablation.analyses import doses
from lesion.studies.ablation.result import Material


def studied(right: dict[float, list[int]], baseline: int = 80) -> Material:
    """So many items are right under each factor, block after block."""
    edits = [ScaleBlock(layer, factor) for factor, counts in right.items() for layer in range(len(counts))]
    return counted(edits, {"sums": [baseline, *chain(*right.values())]})


def table(material: Material) -> dict[int, dict]:
    return {row["layer"]: row for row in Table.of(doses.part(material).rows).frame.to_dict("records")}


def test_the_claim_says_at_which_factor_half_is_left():
    material = studied({0.0: [0, 0, 79], 0.5: [0, 60, 80], 1.5: [80, 80, 0]})
    without_answers = Material(material.summary)
    assert sentences(doses.part(without_answers).claims) == [
        "Half of the accuracy on sums is left at ×0.75 of block 0 and ×0.33 of block 1."
    ]
    first = table(material)[0]
    assert f"×0.75 [{first['half_low']:.2f}, " in sentences(doses.part(material).claims)[0]


@pytest.mark.parametrize("left", [[0, 20, 60], [10, 70, 75], [10, 41, 79], [0, 0, 0]])
def test_the_factor_of_half_the_accuracy_is_that_of_straight_lines(left):
    factors = [0.0, 0.25, 0.5]
    row = table(studied({factor: [count] for factor, count in zip(factors, left, strict=True)}))[0]
    expected = np.interp(0.4, [*np.array(left) / 100, 0.8], [*factors, 1.0]) if len({*left}) > 1 else 0.75
    assert row["half"] == pytest.approx(expected)


def test_coming_from_one_the_first_crossing_counts_and_without_any_there_is_none():
    rows = table(studied({-1.0: [0, 75], 0.0: [60, 75], 0.25: [75, 0], 0.5: [0, 75], 0.75: [80, 80]}))
    assert rows[0]["half"] == pytest.approx(0.625)
    assert rows[1]["half"] == pytest.approx(0.25 + 0.25 * 40 / 75)
    (only,) = table(studied({0.0: [70], 0.5: [75], 2.0: [0]})).values()
    assert pd.isna(only["half"])


def test_the_table_has_the_critical_blocks_with_their_accuracies():
    (row,) = table(studied({-1.0: [0, 80], 0.0: [0, 79], 0.5: [60, 78]})).values()
    assert [row[f"accuracy at {factor}"] for factor in ("-1", "0", "0.5")] == pytest.approx([0, 0, 0.6])
    assert row["critical"] == "×−1, ×0"


@pytest.mark.parametrize(("factors", "baseline"), [((0.0, 0.5), 80), ((0.0, 0.5, 1.0), 80), ((0.0, 0.5, 2.0), 2)])
def test_too_few_factors_or_a_baseline_that_shows_nothing_make_no_curve(factors, baseline):
    assert doses.part(studied({factor: [baseline * (factor == 1.0)] for factor in factors}, baseline)) is None


def test_half_doses_have_intervals_over_items_where_the_answers_are_at_hand():
    rows = table(studied({0.0: [0, 20, 41], 0.5: [60, 70, 80], 0.75: [80, 80, 80], 1.5: [80, 80, 0]}))
    right = np.stack([np.arange(ITEMS) < count for count in (20, 70, 80)])
    expected = half_dose_interval(np.arange(ITEMS) < 80, right, [0.0, 0.5, 0.75], 0.95, seed=0)
    assert (rows[1]["half_low"], rows[1]["half_high"]) == (expected.low, expected.high)
    assert rows[1]["half_low"] <= rows[1]["half"] <= rows[1]["half_high"]
    assert np.isnan(rows[2]["half_low"])
