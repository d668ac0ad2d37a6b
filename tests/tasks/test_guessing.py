"""The accuracy of guessing."""

from __future__ import annotations

import pytest

from lesion.tasks.catalogue import find
from lesion.tasks.guessing import guessing


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("greater_than", 0.5),
        ("shuffled:greater_than", 0.5),
        ("agreement", 0.5),
        ("fewshot:2:agreement", 0.5),
        ("arithmetic:add", 0.0),
        ("induction", 0.0),
    ],
)
def test_guessing_is_right_as_often_as_choices_are(name, share):
    task = find(name)
    assert guessing(task, task.load()) == share


def test_four_options_are_guessed_in_a_quarter(shared):
    task = find(f"mmlu:{shared}/data/mmlu")
    assert guessing(task, task.load()) == 0.25
