"""Accuracy by group, counted from the answers."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from made import ITEMS, right, study

from lesion.statistics.paired import wilson
from lesion.studies.ablation import groups


def test_groups_are_counted_as_a_naive_loop_counts_them():
    summary, answers, items = study()
    breakdowns = groups.breakdowns(summary.curves, answers, items, 0.95)
    assert [(breakdown.curve.model, breakdown.curve.task) for breakdown in breakdowns] == [
        ("base", "sums"),
        ("child", "sums"),
    ]
    for breakdown in breakdowns:
        for (group, layer), share in breakdown.shares.items():
            members = [i for i in range(ITEMS) if f"{i % 2 + 1} steps" == group]
            k = sum(right("sums", layer, i) for i in members)
            assert (share.right, share.n, (share.low, share.high)) == (
                k,
                len(members),
                wilson(k, len(members)),
            )
        assert len(breakdown.shares) == 2 * 5


def test_tasks_with_one_group_or_a_group_per_item_have_no_breakdown():
    summary, answers, items = study()
    assert groups.breakdowns(summary.curves, answers, items.assign(group="all"), 0.95) == ()
    many = items.assign(group=items["item"] + items.index.astype(str))
    assert all(
        len(breakdown.groups) <= groups.MOST_GROUPS
        for breakdown in groups.breakdowns(summary.curves, answers, many, 0.95)
    )


def test_verdicts_stored_as_numbers_count_the_same():
    summary, answers, items = study()
    as_numbers = answers.assign(correct=answers["correct"].astype(int))
    first, other = (groups.breakdowns(summary.curves, frame, items, 0.95) for frame in (answers, as_numbers))
    assert first == other


def test_answers_are_counted_per_cell_and_item_once():
    _, answers, _ = study()
    doubled = pd.concat([answers, answers])
    assert groups.answered(doubled)["base", "sums", "2×0"] == ITEMS


@given(st.lists(st.integers(0, 300), min_size=1))
def test_groups_are_ordered_by_their_numbers(numbers):
    labels = sorted((f"{n} steps" for n in numbers), key=groups.natural)
    assert labels == [f"{n} steps" for n in sorted(numbers)]
