"""The accuracy of guessing."""

import pytest

from commandline import write
from lesion.tasks.catalogue import find
from lesion.tasks.wrapped import guessing


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


@pytest.mark.parametrize(("often", "share"), [(60, 59.5 / 60), (54, 0.9), (38, 0.5), (30, 0.5)])
def test_one_answer_to_all_items_is_a_guess_where_it_is_right_too_often_for_chance(tmp_path, often, share):
    rows = [
        {"prompt": f"Question {row}: is it so?", "choices": [" yes", " no"], "answer": " yes" if row < often else " no"}
        for row in range(60)
    ]  # of 60 fair coins 38 heads or more, or as many tails, are no rarity: p = .052
    task = find(str(write(tmp_path / "q.jsonl", rows)))
    assert guessing(task, task.load()) == share
