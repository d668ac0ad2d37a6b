"""Checks that pages share: what a gain needs, and commands that can be typed."""

import pytest

from lesion.report import checks
from lesion.statistics.paired import mcnemar_exact


@pytest.mark.parametrize("items", [30, 100])
def test_no_gain_can_show_where_too_few_items_are_wrong_for_any(items):
    for wrong in range(10):
        (check,) = checks.baselines([("sums", 1 - wrong / items, 0.0, items)])
        repaired = mcnemar_exact(0, wrong) if wrong else 1.0  # all of them, and none broken
        assert ("no gain" in check.text) == (repaired > 0.05)


def test_a_task_that_lives_in_python_is_in_no_command():
    command = checks.untried("The mean", "ablate", ["m"], ["sums.jsonl"], "--replace mean")
    assert "lesion ablate m --task sums.jsonl --replace mean" in command.text
    without = checks.untried("The mean", "ablate", ["m"], ["sums.jsonl", "python:mine"], "--replace mean")
    assert (without.text, without.command) == ("The mean was not tried.", "")
