"""The verdict of a tuning study: one comparison, decided before anything is seen."""

import pytest
from made_tuning import made

from lesion.studies.tuning.report import Change, Difference, Verdict
from lesion.studies.tuning.run import WORTH, decide


def change(ends) -> Change:
    return Change(value=sum(ends) / 2, low=ends[0], high=ends[1], seeds=(sum(ends) / 2,))


def against_random(low, high) -> Difference:
    return Difference(first="critical", second="random", **change((low, high)).model_dump())


SURE, UNSURE = (0.02, 0.06), (-0.02, 0.06)


@pytest.mark.parametrize(
    ("critical", "full", "difference", "word", "reason"),
    [
        (SURE, SURE, (0.001, 0.05), "pays", "better"),
        (SURE, SURE, (-0.001, 0.05), "cannot tell", "undecided"),
        (SURE, SURE, (-0.05, WORTH - 1e-6), "does not pay", "no better"),
        (SURE, SURE, (-0.05, WORTH), "cannot tell", "undecided"),
        (UNSURE, SURE, (0.001, 0.05), "cannot tell", "no gain"),
        (UNSURE, SURE, (-0.05, -0.01), "does not pay", "no better"),
        (UNSURE, UNSURE, (0.001, 0.05), "cannot tell", "nothing learned"),
        (UNSURE, UNSURE, (-0.05, -0.01), "cannot tell", "nothing learned"),
        (SURE, UNSURE, (0.001, 0.05), "pays", "better"),
    ],
)
def test_it_pays_only_beyond_doubt_and_where_something_was_learned(critical, full, difference, word, reason):
    verdict = decide(change(critical), against_random(*difference), change(full))
    assert verdict == Verdict(word=word, reason=reason)


def test_without_random_blocks_there_is_no_verdict():
    assert made({"critical": 0.1, "least": 0.0}).verdict is None
