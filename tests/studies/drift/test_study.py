"""The study file of a drift: defaults, what decides an answer, and what is wrong with a file."""

import pytest

from lesion.errors import UsageError
from lesion.studies.drift.study import DriftStudy

LEAST = {"models": ["bundled:llama-base"], "task": "primer:arithmetic"}


def test_the_defaults_are_the_papers_where_it_says_and_documented_where_it_does_not():
    study = DriftStudy.make(**LEAST)
    assert (study.clusters, study.runs, study.items) == (None, 5, 20)
    assert (study.part, study.solution, study.layer_zero) == ("both", "own", "embedding")
    assert (study.normalise, study.nmi, study.starts, study.elbow) == ("none", "arithmetic", 10, "later")


@pytest.mark.parametrize(("clusters", "drawn"), [([10, 30, 50, 70], 50), ([30, 10], 30), (7, 7)])
def test_the_papers_fifty_clusters_are_drawn_where_they_are_asked_for_else_the_first(clusters, drawn):
    assert DriftStudy.make(**LEAST, clusters=clusters).drawn == drawn


def test_how_states_are_clustered_is_no_part_of_what_decides_the_answers_but_how_they_are_asked_is():
    plain = DriftStudy.make(**LEAST).identity()
    clustered = {"clusters": 3, "runs": 2, "items": 3, "starts": 1, "nmi": "max", "normalise": "unit", "seed": 1}
    more = {"models": ["bundled:llama-base", "x/y"], "task": LEAST["task"]}
    assert DriftStudy.make(**LEAST, **clustered).identity() == DriftStudy.make(**more).identity() == plain
    for other in ({"prompt_style": "raw"}, {"max_new_tokens": 3}, {"dtype": "bfloat16"}):
        assert DriftStudy.make(**LEAST, **other).identity() != plain
    assert DriftStudy.make(models=LEAST["models"], task="primer:atlas").identity() != plain


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"runs": 0}, "runs must be a whole number from 1, not 0"),
        ({"items": "all"}, "items must be a whole number from 1"),
        ({"clusters": [50, 50]}, "50 is listed twice"),
        ({"clusters": 1}, "clusters must be a whole number from 2"),
        ({"part": "answer"}, "part must be prompt, solution or both"),
        ({"solution": "mine"}, "solution must be own, gold or none"),
        ({"layer_zero": "first"}, "layer_zero must be embedding or block"),
        ({"normalise": "l2"}, "normalise must be none, unit or standardise"),
        ({"nmi": "mean"}, "nmi must be arithmetic, geometric, min or max"),
        ({"elbow": "first"}, "elbow must be later or all"),
        ({"between": [1]}, "between must be a list of two layers"),
        ({"between": [2, 2]}, "2, 2 does not go from an earlier layer to a later one"),
        ({"part": "solution", "solution": "none"}, "there would be no tokens"),
        ({"task": {"name": "gsm8k", "items": 3}}, "at the top of the study"),
        ({"models": []}, "models must be a list of at least one model"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(values, said):
    with pytest.raises(UsageError) as caught:
        DriftStudy.make(**{**LEAST, **values})
    assert said in str(caught.value)
