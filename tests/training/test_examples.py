"""Examples: prompts as a model is asked them, answers as they follow, and the token that ends them."""

from dataclasses import replace

import pytest

from lesion.errors import LesionError
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_gold
from lesion.tasks.prompts import encode
from lesion.tasks.wrapped import Gold
from lesion.training.supervised import end_token, example, examples
from tiny import model


@pytest.fixture
def subject():
    return model("llama")


@pytest.fixture
def task():
    return find("primer:reading")


def test_an_example_is_the_prompt_that_is_asked_and_the_gold_answer_that_is_scored_and_an_end(subject, task):
    items = task.calibration()[:5]
    for item, made in zip(items, examples(subject, task, items), strict=True):
        prompt, gold = encode_gold(subject, Gold(task), item)
        assert made.prompt == prompt == encode(subject, task, item)
        assert made.completion == (*gold, 2)


def test_a_teachers_words_follow_the_prompt_in_place_of_the_solution_without_white_space_around_them(subject, task):
    item = task.calibration()[0]
    made = example(subject, task, item, " seven of nine\n")
    assert subject.tokenizer.decode(made.completion) == " seven of nine</s>"
    assert made.prompt == encode(subject, task, item)


def test_the_gold_choice_is_learned_where_there_are_choices(subject, task):
    item = replace(task.calibration()[0], choices=("ham", "eggs"), gold="eggs", solution="spam")
    (made,) = examples(subject, task, [item])
    assert subject.tokenizer.decode(made.completion) == " eggs</s>"


def test_the_end_is_the_first_token_at_which_the_model_stops_or_that_of_its_tokenizer(subject):
    assert end_token(subject) == 2
    subject.network.generation_config.eos_token_id = [7, 2]
    assert end_token(subject) == 7
    subject.network.generation_config.eos_token_id = None
    assert end_token(subject) == 2
    subject.tokenizer.eos_token = None
    with pytest.raises(LesionError, match="eos_token_id"):
        end_token(subject)


def test_what_cannot_be_learned_is_told(subject, task):
    item = task.calibration()[0]
    with pytest.raises(LesionError, match="no answer that could be learned"):
        example(subject, task, item, "  ")
    with pytest.raises(LesionError, match="the context has 256"):
        example(subject, task, item, "so " * 90)
