"""The items of a tuning: apart from each other, and refused where there is nothing to learn."""

import pytest
from tuning import study, teach

from lesion.errors import UsageError
from lesion.studies.tuning.training import TRAINABLE, prepare
from lesion.tasks.catalogue import find


@pytest.fixture(autouse=True)
def _taught(monkeypatch):
    teach(monkeypatch)


def test_training_validation_and_test_items_are_apart_and_so_are_those_of_the_ablation():
    data = prepare(study(controls=["control"]))
    test = {item.id for item in data.test[data.choice]}
    held, learned = {item.id for item in data.validation}, {item.id for item in data.train}
    ablated = {item.id for item in prepare(study(ablation_items=1, items=25)).test[data.choice]} - test
    assert (len(test), len(held), len(learned)) == (20, 5, 35)
    assert not test & held
    assert not test & learned
    assert not held & learned
    assert len(ablated) == 5  # of the first six of the draw, those after the first
    assert {choice.name: len(items) for choice, items in data.every_item().items()} == {"sums": 25, "control": 10}


def test_the_draw_is_a_function_of_the_seed():
    first, again, other = prepare(study()), prepare(study()), prepare(study(seed=1))
    assert (first.train, first.test) == (again.train, again.test)
    assert first.train != other.train
    assert first.test[first.choice] != other.test[other.choice]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"task": "closed"}, r"closed has no training items apart from those that it asks; these have: primer:arith"),
        ({"task": "primer:atlas"}, r"primer:atlas has no training items apart"),
        ({"task": "primer:text"}, r"primer:text has no answers to learn.*such as primer:arithmetic"),
        ({"task": "primer:atlas?form=contrast"}, r"has no answers to learn, its items are contrasts"),
        ({"task": "sumz"}, r"There is no task 'sumz'"),
        ({"items": 60}, r"sums has 60 items, and 66 are needed: 6 to find the critical blocks on and 60 to test"),
        ({"validation_items": 40}, r"sums has 40 training items, and 40 would be held out"),
        ({"task": "choices", "by": "reward"}, r"choices has no answers to draw and reward.*such as arithmetic:add"),
        ({"controls": ["primer:text"]}, r"primer:text is scored, not judged.*give another --control"),
    ],
)
def test_what_cannot_be_tuned_or_tested_on_is_refused(values, told):
    with pytest.raises(UsageError, match=told):
        prepare(study(**values))


GENERATED = ("primer:", "arithmetic:", "copying")  # the others download their data


@pytest.mark.parametrize("name", [name for name in TRAINABLE if name.startswith(GENERATED)])
def test_tasks_that_are_named_as_having_training_items_have_them(name):
    data = prepare(study(task=name))
    asked = {item.question for item in find(name).load()}
    assert len(data.train) > 900
    assert not asked & {item.question for item in data.train}
