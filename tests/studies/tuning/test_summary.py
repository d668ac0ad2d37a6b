"""The verdict of a tuning study: one comparison, decided before anything is seen."""

from __future__ import annotations

import pytest

from lesion.studies.tuning.summary import WORTH, verdict


def arms(**gains):
    return [
        {"arm": name.replace("_", "-"), "tasks": [{"change": {"mean": sum(ends) / 2, "low": ends[0], "high": ends[1]}}]}
        for name, ends in gains.items()
    ]


def against_random(low, high):
    return [{"first": "critical", "second": "random", "mean": (low + high) / 2, "low": low, "high": high}]


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
    made = arms(critical=critical, random=UNSURE, all_full=full)
    assert verdict(made, against_random(*difference)) == {"word": word, "reason": reason}


def test_without_random_blocks_there_is_no_verdict():
    assert verdict(arms(critical=SURE, least=SURE), []) is None
