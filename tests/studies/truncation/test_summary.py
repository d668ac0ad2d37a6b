"""The numbers of a search are those that follow from its answers by hand."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from searching import Known, Say, chance, contrasts, luck, order, study, validation

from lesion.core.cached_answers import Answers
from lesion.report.values import Estimate
from lesion.studies.truncation.search import collapsed
from runs import run_truncation

EDIT = "1.mlp.up top 0.5"


def table(edit, item):
    right = luck(edit, item) < (0.8 if edit == EDIT else 0.4)
    return Say(right, -0.1 - luck(edit, item, "gold"))


@pytest.fixture(scope="module")
def summary(llama, tmp_path_factory):
    place = tmp_path_factory.mktemp("summary")
    task = contrasts(place / "c.jsonl")
    return run_truncation(study(task), place / "out", model=llama, make_engine=Known(table)).summary


def column(edit: str, items) -> tuple[np.ndarray, np.ndarray]:
    says = [table(edit, item) for item in items]
    return np.array([say.right for say in says]), np.array([say.gold for say in says])


def test_the_chosen_edit_is_told_on_test_items_against_the_unedited_model(summary):
    assert summary.chosen == EDIT
    test = order(0)[len(validation(0)) :]
    (before, gold_before), (after, gold_after) = column("baseline", test), column(EDIT, test)
    (outcome,) = summary.best_tests
    gain = outcome.gain
    assert (outcome.items, outcome.baseline, outcome.accuracy.value) == (24, before.mean(), after.mean())
    assert gain.value == pytest.approx(after.mean() - before.mean())
    assert gain.low < gain.value < gain.high
    only = [int((before & ~after).sum()), int((after & ~before).sum())]
    assert gain.p == pytest.approx(stats.binomtest(only[0], sum(only)).pvalue)
    # McNemar's score at the limits of Tango's interval: 0 lies outside exactly where it rejects.
    assert (gain.low > 0) == ((only[1] - only[0]) / math.sqrt(sum(only)) > stats.norm.isf(0.025))
    reach = stats.t.isf(0.025, 23) * stats.sem(gold_after - gold_before)
    gold = outcome.gold_gain
    assert gold.value == pytest.approx((gold_after - gold_before).mean())
    assert [gold.low, gold.high] == pytest.approx([gold.value - reach, gold.value + reach])


def test_every_cell_is_told_on_validation_items(summary):
    for cell in summary.cells:
        right, gold = column(cell.edit, validation(0))
        base, _ = column("baseline", validation(0))
        (outcome,) = cell.outcomes
        assert (outcome.items, outcome.accuracy.value, cell.score) == (6, right.mean(), right.mean())
        assert outcome.drop.value == pytest.approx(base.mean() - right.mean())
        assert outcome.drop.low <= outcome.drop.value <= outcome.drop.high
        assert outcome.gold == pytest.approx(gold.mean())
        wilson = stats.binomtest(int(right.sum()), 6).proportion_ci(0.95, "wilson")
        assert [outcome.accuracy.low, outcome.accuracy.high] == pytest.approx([wilson.low, wilson.high], abs=1e-9)
        assert (cell.rank, cell.of, cell.address) == (int(cell.keep * 32), 32, f"{cell.layer}.{cell.matrix}")


def test_the_unedited_model_is_told_on_both_parts(summary):
    for base, part, items in zip(
        summary.unedited,
        ("validation", "test"),
        (validation(0), order(0)[len(validation(0)) :]),
        strict=True,
    ):
        right, gold = column("baseline", items)
        assert (base.part, base.items, base.accuracy.value) == (part, len(items), right.mean())
        assert base.gold == pytest.approx(gold.mean())


def test_tokens_are_mean_probabilities_median_ranks_and_mean_margins_on_test_items(summary):
    test = order(0)[len(validation(0)) :]
    assert [row.edit for row in summary.tokens] == ["baseline", EDIT]
    for row in summary.tokens:
        right, gold = column(row.edit, test)
        assert (row.items, row.revision) == (24, None)
        assert row.p_right.value == pytest.approx(np.exp(gold).mean())
        assert row.p_tempting.value == pytest.approx(np.exp(gold - 0.5).mean())
        reach = stats.t.isf(0.025, 23) * stats.sem(np.exp(gold))
        assert [row.p_right.low, row.p_right.high] == pytest.approx(
            [row.p_right.value - reach, row.p_right.value + reach]
        )
        ranks = [1 if ok else int(item[1:]) + 2 for ok, item in zip(right, test, strict=True)]
        assert row.rank_right == np.median(ranks)
        assert row.rank_tempting == np.median([2 if ok else 1 for ok in right])
        assert (row.margin.value, row.margin.low, row.margin.high) == pytest.approx((0.5, 0.5, 0.5))


def test_what_the_tokens_gain_is_told_by_the_paired_differences_of_their_probabilities(summary):
    test = order(0)[len(validation(0)) :]
    (_, before), (_, after) = column("baseline", test), column(EDIT, test)
    (outcome,) = summary.best_tests
    for role, less in (("right", 0.0), ("tempting", 0.5)):
        change = np.exp(after - less) - np.exp(before - less)
        reach = stats.t.isf(0.025, 23) * stats.sem(change)
        gain = getattr(outcome, f"{role}_gain")
        assert gain.value == pytest.approx(change.mean())
        assert [gain.low, gain.high] == pytest.approx([change.mean() - reach, change.mean() + reach])


def test_no_limit_of_a_probability_lies_below_0_or_above_1(search, tmp_path):
    """Of three test items one is certain, or all but one: Student's interval reaches beyond."""
    for edge, golds in (("low", (-0.001, -30.0, -30.0)), ("high", (-30.0, -0.001, -0.001))):
        likely = dict(zip(order(0, 4)[1:], golds, strict=True))
        engine = Known(lambda edit, item, likely=likely: Say(True, likely.get(item, -1.0)), 4)
        p_right = search(None, engine, contrasts(tmp_path / f"{edge}.jsonl", 4), validation=0.25).tokens[0].p_right
        probabilities = np.exp(golds)
        reach = stats.t.isf(0.025, 2) * stats.sem(probabilities)
        low, high = probabilities.mean() - reach, probabilities.mean() + reach
        assert low < 0 if edge == "low" else high > 1
        assert [p_right.low, p_right.high] == pytest.approx([max(0.0, low), min(1.0, high)])


def test_no_change_is_told_as_0_and_never_as_minus_0(search):
    (outcome,) = search(lambda *_: Say(True)).best_tests
    assert "-0.0" not in outcome.model_dump_json()
    assert (outcome.gain.value, outcome.gain.p, outcome.gold_gain.value) == (0.0, 1.0, 0.0)


def test_numbers_that_are_not_finite_are_missing_and_the_summary_stays_json(search, tmp_path):
    def broken(edit, item):
        return Say(edit == EDIT, math.nan if edit == EDIT else -1.0)

    summary = search(broken)
    json.dumps(summary.model_dump(mode="json"), allow_nan=False)
    (outcome,) = summary.best_tests
    gold = outcome.gold_gain
    assert (outcome.gain.value, outcome.gold, gold.value, gold.low) == (1.0, None, None, None)
    contrast = search(broken, task=contrasts(tmp_path / "c.jsonl"))
    json.dumps(contrast.model_dump(mode="json"), allow_nan=False)


def test_contrasts_of_which_some_are_not_finite_are_told_without_a_warning(search, tmp_path):
    """Of the best edit's test items one is broken: its probabilities are missing, not wrong."""
    first = order(0)[-1]

    def broken(edit, item):
        return Say(True, math.nan if edit != "baseline" and item == first else -1.0)

    summary = search(broken, task=contrasts(tmp_path / "c.jsonl"))
    before, after = summary.tokens
    assert before.p_right.value == pytest.approx(math.exp(-1))
    assert (after.p_right.value, after.margin.value) == (None, None)
    assert after.rank_right == 1.0
    json.dumps(summary.model_dump(mode="json"), allow_nan=False)


def test_the_rank_correlation_has_an_interval_and_none_where_all_cells_score_the_same(search):
    values = {"keep": [0.8, 0.6, 0.5, 0.4, 0.3, 0.2], "screen": {"best": 8, "random": 4}}
    agreement = search(chance("rank"), **values).screen.rank_correlation
    assert -1 <= agreement.low < agreement.value < agreement.high <= 1
    flat = search(lambda *_: Say(True), **values)
    assert flat.screen.rank_correlation == Estimate(value=None)
    single = search(chance("rank"), screen={"best": 1, "random": 0}).screen
    assert (single.evaluated, single.rank_correlation.value) == (1, None)


@pytest.mark.parametrize(
    ("said", "before", "label"),
    [
        (["a"] * 9 + ["b"], ["x", "y"] * 5, True),
        (["a"] * 8 + ["b"] * 2, ["x", "y"] * 5, False),
        (["a"] * 10, ["b"] * 10, True),  # one label for another
        (["a"] * 10, ["a"] * 9 + ["b"], True),
        (["a"] * 10, ["a"] * 10, False),
        (["a"] * 9 + ["b"], ["a"] * 9 + ["c"], False),
        (["a"] * 9 + ["b"], ["a"] * 8 + ["c"] * 2, True),
        (["a"] * 19 + ["b"], ["a"] * 18 + ["c"] * 2, False),  # 5 points more
        ([""] * 10, ["x", "y"] * 5, True),  # no answer could be read
        (["a"], ["b"], False),  # one item alone
    ],
)
def test_a_label_is_one_answer_to_nine_tenths_of_the_items_that_the_unedited_model_gives_less_often(
    said, before, label
):
    def answers(labels):
        count = len(labels)
        return Answers(
            np.zeros(count, dtype=bool),
            np.zeros(count),
            tuple(labels),
            np.zeros((count, 0)),
            np.zeros((count, 0), dtype=np.int64),
        )

    assert collapsed(answers(said), answers(before)) == (said[0], said.count(said[0]) / len(said), label)
