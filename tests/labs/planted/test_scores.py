"""Scores of rankings and named sets against naive counts."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import LesionError
from lesion_labs.planted.truth import average_precision, overlap, rank

rankings = st.lists(st.integers(0, 4), min_size=2, max_size=6).map(
    lambda scores: {str(place): float(score) for place, score in enumerate(scores)}
)


@given(rankings, st.data())
def test_rank_and_average_precision_are_means_over_all_orders_of_ties(scores, data):
    truth = data.draw(st.sets(st.sampled_from(sorted(scores)), min_size=1))
    ranks, precisions = [], []
    for order in permutations(scores):
        if any(scores[one] < scores[next_one] for one, next_one in pairwise(order)):
            continue
        places = [place for place, name in enumerate(order, start=1) if name in truth]
        ranks.append(places[0])
        precisions.append(np.mean([count / place for count, place in enumerate(places, start=1)]))
    assert rank(scores, truth) == pytest.approx(np.mean(ranks))
    assert average_precision(scores, truth) == pytest.approx(np.mean(precisions))


def test_a_perfect_ranking():
    scores = {"0": 0.9, "1": 0.8, "2": 0.1, "3": 0.0}
    assert (rank(scores, {"0", "1"}), average_precision(scores, {"0", "1"})) == (1, 1)
    assert rank(scores, {"3"}) == 4


def test_named_places_have_a_precision_only_where_there_are_any():
    assert overlap({"0", "1", "2"}, {"2", "3"}) == type(overlap({"0"}, {"0"}))(1 / 3, 1 / 2)
    nothing = overlap(set(), {"2"})
    assert nothing.precision is None
    assert nothing.recall == 0


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(LesionError, match="at least one true place"):
        rank({"0": 1.0}, [])
    with pytest.raises(LesionError, match="true place 7 has no score"):
        average_precision({"0": 1.0}, ["7"])
    with pytest.raises(LesionError, match="at least one"):
        overlap({"0"}, [])
