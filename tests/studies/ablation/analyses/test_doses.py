"""Dose and response: under which factors a block is critical, and at which factor half of the accuracy is left."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from lesion.edits.edit import ScaleBlock
from lesion.report import wording
from lesion.report.table import Table
from lesion.statistics.half_dose import half_dose_interval
from lesion.studies.ablation.analyses import doses
from lesion.studies.ablation.material import Material
from lesion.studies.ablation.study import Study
from lesion.studies.ablation.summary import summarise

ITEMS = 100


def summary(right: dict[float, list[int]], baseline: int = 80, task: str = "sums", *, answers: bool = False):
    """A summary in which so many items are right under each factor, block after block: the first ones."""
    edits = [ScaleBlock(layer, factor) for factor, counts in right.items() for layer in range(len(counts))]
    counts = [baseline, *(count for each in right.values() for count in each)]
    rows = [
        {
            "model_name": "m", "task": task, "edit": edit, "item": f"i{item}", "correct": item < count,
            "finish": "stop", "parsed": "1", "scores": (), "text": "1", "tokens": 1, "engine": "e",
        }
        for edit, count in zip(["baseline", *map(str, edits)], counts, strict=True)
        for item in range(ITEMS)
    ]  # fmt: skip
    items = pd.DataFrame([{"task": task, "item": f"i{item}"} for item in range(ITEMS)])
    study = Study.make(models=["m"], tasks=[task], items=ITEMS)
    frame = pd.DataFrame(rows)
    of = summarise(study, {"m": edits}, frame, items)
    return (of, frame) if answers else of


def part(of, answers=None):
    return doses.part(Material(of) if answers is None else Material(of, answers))


def test_the_claim_says_at_which_factor_half_is_left():
    (claim,) = part(summary({0.0: [0, 0, 79], 0.5: [0, 60, 80], 1.5: [80, 80, 0]})).claims
    assert claim.text.replace(wording.SPACE, " ") == (
        "Half of the accuracy on sums is left at ×0.75 of block 0 and ×0.33 of block 1."
    )


@pytest.mark.parametrize("left", [[0, 20, 60], [10, 70, 75], [39, 41, 79], [0, 0, 0]])
def test_the_factor_of_half_the_accuracy_is_that_of_straight_lines(left):
    factors = [0.0, 0.25, 0.5]
    (of,) = doses.doses(summary({factor: [count] for factor, count in zip(factors, left, strict=True)}).curves)
    expected = np.interp(0.4, [*np.array(left) / 100, 0.8], [*factors, 1.0]) if len({*left}) > 1 else 0.75
    assert of.half(0) == pytest.approx(expected)


def test_coming_from_one_the_first_crossing_counts_and_without_any_there_is_none():
    (of,) = doses.doses(summary({-1.0: [0, 75], 0.0: [60, 75], 0.25: [75, 0], 0.5: [0, 75], 0.75: [80, 80]}).curves)
    assert of.half(0) == pytest.approx(0.625)
    assert of.half(1) == pytest.approx(0.25 + 0.25 * 40 / 75)
    (of,) = doses.doses(summary({0.0: [70], 0.5: [75], 2.0: [0]}).curves)
    assert of.layers == (0,)
    assert of.half(0) is None


def test_the_table_has_the_critical_blocks_with_their_accuracies():
    table = Table.of(part(summary({-1.0: [0, 80], 0.0: [0, 79], 0.5: [60, 78]})).rows)
    (row,) = table.frame.to_dict("records")
    assert [row[f"accuracy at {factor}"] for factor in ("-1", "0", "0.5")] == pytest.approx([0, 0, 0.6])
    assert row["critical"] == "×−1, ×0"


def test_too_few_factors_or_a_baseline_that_shows_nothing_make_no_curve():
    assert part(summary({0.0: [0], 0.5: [0]})) is None
    assert part(summary({0.0: [0], 0.5: [0], 1.0: [80]})) is None
    assert part(summary({0.0: [0], 0.5: [0], 2.0: [0]}, baseline=2)) is None


def test_half_doses_have_intervals_over_items_where_the_answers_are_at_hand():
    right = {0.0: [0, 20, 41], 0.5: [60, 70, 80], 0.75: [80, 80, 80], 1.5: [80, 80, 0]}
    of, answers = summary(right, answers=True)
    (each,) = doses.doses(of.curves)
    baseline = np.arange(ITEMS) < 80
    right = np.stack([np.arange(ITEMS) < count for count in (20, 70, 80)])
    assert doses.halves(each, answers, 0.95, 0)[1] == half_dose_interval(
        baseline, right, [0.0, 0.5, 0.75], 0.95, seed=0
    )
    made = part(of, answers)
    table = Table.of(made.rows)
    rows = {row["layer"]: row for row in table.frame.to_dict("records")}
    assert rows[1]["half_low"] <= rows[1]["half"] <= rows[1]["half_high"]
    assert np.isnan(rows[2]["half_low"])
    (claim,) = made.claims
    assert f" [{rows[0]['half_low']:.2f}," in claim.sentences[1]
