"""Which edits count as selective, and which controls can tell."""

import made_isolation as made
import pytest

from lesion.report import trials
from lesion.report.evidence import strongest


def asked(kind="choose", **changes):
    entry = {"task": "t", "role": "control", "kind": kind, "items": 9, "cells": []} | changes
    (task,) = trials.evaluation({"evaluation": {"model": "m", "tasks": [entry]}}).tasks
    return task


@pytest.mark.parametrize(
    ("low", "chance", "informs"),
    [(0.35, 0.25, True), (0.349, 0.25, False), (0.1, 0.0, True), (0.0, 0.0, False), (0.9, None, False),
     (None, 0.25, False)],
)  # fmt: skip
def test_a_control_can_tell_from_ten_points_above_chance_on_by_its_lower_limit(low, chance, informs):
    assert asked(chance=chance, baseline={"accuracy": 0.95, "low": low, "high": 1.0}).informs == informs


def test_running_text_is_never_a_control_that_is_answered():
    assert not asked("score", chance=None, baseline={"perplexity": 3.0, "low": 2.0, "high": 4.0}).informs


def test_a_summary_without_chance_takes_generated_answers_to_be_unguessable_and_says_nothing_of_choices():
    baseline = {"accuracy": 0.95, "low": 0.9, "high": 1.0}
    assert asked("generate", baseline=baseline).chance == 0.0
    assert asked("choose", baseline=baseline).chance is None
    assert not asked("choose", baseline=baseline).informs


def test_the_strongest_edit_is_the_one_with_most_evidence():
    found = trials.evaluation({"evaluation": made.evaluation(boost=False)})
    (skill,) = found.skills
    best = strongest(found, skill, [e for e in found.tried if e.method == "mathneuro"])
    assert (best.edit.keep, best.selective) == (0.05, True)
    assert [control.name for control in best.suffering] == [made.TEXT]
