"""Margins: the loss of log p(right) − log p(tempting), with Student's test, corrected over the edits planned."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from lesion.edits.edit import ScaleBlock
from lesion.statistics.paired import holm
from lesion.studies.ablation.drops import compares, margins

ITEMS = 12
EDITS = [ScaleBlock(layer) for layer in range(3)]


def frame(differences) -> pd.DataFrame:
    return pd.DataFrame(
        {"scores": [(-1.0, -1.0 - value) for value in differences], "ranks": [(1, 2)] * len(differences)}
    )


@pytest.fixture
def drawn() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    baseline = rng.normal(2, 1, ITEMS)
    return [baseline, *(baseline - shift + rng.normal(0, 0.3, ITEMS) for shift in (0.0, 1.5, -0.8))]


def test_loss_interval_and_p_are_those_of_a_paired_t_test_corrected_by_holm(drawn):
    baseline, *edited = drawn
    own = margins(frame(baseline), dict(zip(EDITS, map(frame, edited), strict=True)), 3, 0.9)
    tests = [ttest_rel(baseline, each) for each in edited]
    for edit, each, test in zip(EDITS, edited, tests, strict=True):
        assert own[edit].value == pytest.approx((baseline - each).mean())
        interval = test.confidence_interval(0.9)
        assert (own[edit].low, own[edit].high) == pytest.approx((interval.low, interval.high))
        assert own[edit].p == pytest.approx(test.pvalue)
    assert [own[edit].p_corrected for edit in EDITS] == pytest.approx(holm([test.pvalue for test in tests]))


def test_edits_without_answers_yet_count_in_the_correction(drawn):
    baseline, _, edited, _ = drawn
    (own,) = margins(frame(baseline), {EDITS[1]: frame(edited)}, 270, 0.95).values()
    assert own.p_corrected == pytest.approx(270 * ttest_rel(baseline, edited).pvalue)


def test_where_a_probability_is_not_finite_or_no_tokens_are_compared_there_is_no_margin(drawn):
    baseline, edited, *_ = drawn
    broken = frame(edited)
    broken.at[3, "scores"] = (-math.inf, -1.0)
    assert margins(frame(baseline), {EDITS[0]: broken}, 1, 0.95) == {}
    generated = pd.DataFrame({"scores": [()] * ITEMS, "ranks": [()] * ITEMS})
    assert not compares(generated)
    assert margins(generated, {EDITS[0]: generated}, 1, 0.95) == {}
