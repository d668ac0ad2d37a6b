"""Which edits count as selective, and which controls can tell."""

import made_isolation as made
import pytest

from lesion.studies.isolation.claims import strongest
from lesion.studies.isolation.evaluation import EvaluatedTask


def task(kind="choose", chance=None, low=0.9, **changes):
    baseline = {"result": {"value": 0.95, "low": low, "high": 1.0}}
    entry = {
        "name": "t", "role": "control", "kind": kind, "items": 9, "chance": chance, "baseline": baseline, "cells": [],
    }  # fmt: skip
    return EvaluatedTask.model_validate(entry | changes)


@pytest.mark.parametrize(
    ("low", "chance", "informs"),
    [(0.35, 0.25, True), (0.349, 0.25, False), (0.1, 0.0, True), (0.0, 0.0, False), (0.9, None, False),
     (None, 0.25, False)],
)  # fmt: skip
def test_a_control_is_informative_from_ten_points_above_chance_on_by_its_lower_limit(low, chance, informs):
    assert task(chance=chance, low=low).informative == informs


def test_running_text_is_never_a_control_that_is_answered():
    assert not task("score", low=2.0).informative


def test_the_strongest_edit_is_the_one_with_most_evidence():
    evaluation = made.evaluated(made.evaluation(boost=False))
    (skill,) = evaluation.skills
    best = strongest(evaluation, skill, [e for e in evaluation.tried if e.method == "mathneuro"])
    assert (best.edit.keep, best.selective) == (0.05, True)
    assert [control.name for control in best.suffering] == [made.TEXT]
