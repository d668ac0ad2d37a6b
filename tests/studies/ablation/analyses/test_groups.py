"""Accuracy by group, counted from the answers."""

from hypothesis import given
from hypothesis import strategies as st
from made import ITEMS, right, study

from lesion.plain import natural
from lesion.statistics.paired import wilson
from lesion.studies.ablation.analyses import groups
from lesion.studies.ablation.result import Material


def test_groups_are_counted_as_a_naive_loop_counts_them():
    shares = groups.shares(Material(*study()))
    assert {(share.model, share.task) for share in shares} == {("base", "sums"), ("child", "sums")}
    assert len(shares) == 2 * 2 * 5
    for share in shares:
        members = [item for item in range(ITEMS) if f"{item % 2 + 1} steps" == share.group]
        layer = None if share.cut == "unedited" else int(share.cut)
        count = sum(right("sums", layer, item) for item in members)
        assert (share.right, share.items) == (count, len(members))
        assert (share.accuracy.low, share.accuracy.high) == wilson(count, len(members))


def test_tasks_with_one_group_or_a_group_per_item_have_no_shares():
    summary, answers, items = study()
    assert groups.shares(Material(summary, answers, items.assign(group="all"))) == []
    many = items.assign(group=items["item"] + items.index.astype(str))
    assert len({share.group for share in groups.shares(Material(summary, answers, many))}) <= groups.MOST_GROUPS


def test_verdicts_stored_as_numbers_count_the_same():
    summary, answers, items = study()
    as_numbers = answers.assign(correct=answers["correct"].astype(int))
    first, other = (groups.shares(Material(summary, frame, items)) for frame in (answers, as_numbers))
    assert first == other


@given(st.lists(st.integers(0, 300), min_size=1))
def test_groups_are_ordered_by_their_numbers(numbers):
    labels = sorted((f"{n} steps" for n in numbers), key=natural)
    assert labels == [f"{n} steps" for n in sorted(numbers)]
