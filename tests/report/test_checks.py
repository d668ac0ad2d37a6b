"""Checks that pages share: what a gain needs, and commands that can be typed."""

import pytest

from lesion.report import checks
from lesion.statistics.paired import mcnemar_exact


@pytest.mark.parametrize("items", [30, 100])
def test_no_gain_and_no_loss_can_show_where_too_few_items_are_wrong_or_right_for_any(items):
    for wrong in range(10):
        (check,) = checks.baselines([("sums", 1 - wrong / items, 0.0, items)])
        repaired = mcnemar_exact(0, wrong) if wrong else 1.0  # all of them, and none broken
        assert ("no gain" in check.text) == (repaired > 0.05)
        (check,) = checks.baselines([("sums", (wrong + 1) / items, 0.0, items)])
        assert ("no loss" in check.text) == (mcnemar_exact(wrong + 1, 0) > 0.05)


def test_of_a_task_at_chance_or_with_few_items_it_is_not_said_that_losses_can_show():
    of = [("none", 0.0, 0.0, 3), ("all", 1.0, 0.0, 3), ("chance", 0.5, 0.5, 8)]
    assert not any("a loss can show" in check.text for check in checks.baselines(of))


def test_a_task_that_lives_in_python_is_in_no_command():
    command = checks.untried("The mean", "ablate", ["m"], ["sums.jsonl"], "--replace mean")
    assert "lesion ablate m --task sums.jsonl --replace mean" in command.text
    without = checks.untried("The mean", "ablate", ["m"], ["sums.jsonl", "python:mine"], "--replace mean")
    assert (without.text, without.command) == ("The mean was not tried.", "")
