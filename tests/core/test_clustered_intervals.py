"""What is said of clusters: when intervals widen, why one cannot be computed, and which items are copies."""

from lesion.core.clustered_intervals import OverClusters, Sharing, copied_questions, note
from lesion.report import wording


def over(widening: float) -> OverClusters:
    return OverClusters(clusters=9, low=0, high=1, design=widening**2, widening=widening)


def noted(items: int, what: str, clusters: int, *widenings: float) -> str:
    text = note([("facts", items, Sharing(what=what, clusters=clusters), [None, *map(over, widenings)])])
    return text.replace(wording.SPACE, " ")


def test_a_table_notes_how_much_wider_intervals_are_and_where_clusters_are_too_few():
    assert noted(90, "relation", 9, 1.5, 1.7) == (
        "The 90 items of facts share 9 relations; over these, intervals are up to 1.7 times as wide."
    )
    assert "too few" in noted(9, "relation", 4, 3.0)


def test_nothing_is_noted_where_nothing_widens_or_groups_may_be_labels():
    assert noted(90, "relation", 9, 1.05) == noted(90, "relation", 9) == noted(90, "group", 3, 3.0) == ""
    assert note([("sums", 90, None, [])]) == ""


def test_copies_are_claimed_and_a_single_one_is_not():
    (claim,) = copied_questions([("a.jsonl", 30, Sharing(what="question", clusters=6), ())])
    assert claim.text.replace(wording.SPACE, " ").startswith("The 30 items of a.jsonl ask only 6 questions")
    assert copied_questions([("a.jsonl", 30, Sharing(what="question", clusters=29), ())]) == ()
