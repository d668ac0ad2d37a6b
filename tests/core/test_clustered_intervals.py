"""Sentences on clusters: when intervals widen, why one cannot be computed, and what would not stand."""

from lesion.core.clustered_intervals import OverClusters, Sharing, changes, widened
from lesion.report import wording
from lesion.report.values import Estimate


def over(low: float, high: float, widening: float) -> OverClusters:
    return OverClusters(clusters=9, low=low, high=high, design=widening**2, widening=widening)


def plain(text: str | None) -> str:
    return str(text).replace(wording.SPACE, " ")


def test_a_change_that_the_interval_over_clusters_does_not_carry_is_named():
    measured = [
        ("block 1", Estimate(value=0.2, low=0.05, high=0.3), over(-0.1, 0.4, 1.7)),
        ("block 2", Estimate(value=0.5, low=0.4, high=0.6), over(0.3, 0.7, 1.5)),
    ]
    text = plain(changes("facts", 90, Sharing(what="relation", clusters=9), measured))
    assert text.startswith(
        "The 90 items of facts share 9 relations; over these, intervals of drops are up to 1.7 times"
    )
    assert text.endswith("would not stand for block 1 as a change ([−10.0, 40.0] holds no change, 0.0).")


def test_why_there_is_no_interval_is_said():
    known = {"block 1": over(0, 1, 3)}
    assert "share one relation" in plain(widened("facts", 9, Sharing(what="relation", clusters=1), {}))
    assert "a relation of its own" in plain(widened("facts", 9, Sharing(what="relation", clusters=9), known))
    assert "too few" in plain(widened("facts", 9, Sharing(what="relation", clusters=4), known))


def test_copies_are_named_without_an_interval_and_a_single_one_is_not():
    text = plain(widened("a.jsonl", 30, Sharing(what="question", clusters=6), {}))
    assert text.startswith("The 30 items of a.jsonl ask only 6 questions")
    assert widened("a.jsonl", 30, Sharing(what="question", clusters=29), {}) is None


def test_nothing_is_said_where_nothing_widens_or_groups_may_be_labels():
    assert widened("facts", 90, Sharing(what="relation", clusters=9), {"block 1": over(0, 1, 1.05)}) is None
    assert widened("a.jsonl", 90, Sharing(what="group", clusters=3), {"block 1": over(0, 1, 3)}) is None
    assert widened("sums", 90, None, {}) is None
