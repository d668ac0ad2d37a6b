"""Gold answers as scores: what is scored is what would be right to say, behind the prompt of the task."""

from dataclasses import replace

import pytest

from lesion.errors import LesionError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_choices, encode_gold, encode_solved
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Item, Task
from lesion.tasks.wrapped import Gold
from sentencepieces import KINDS, Speaker, speaker

ATLAS = find("primer:atlas")
CHOICE = Item("1", "what is it?", "the cat", choices=("the mat", "the cat"), solution="the cat")
CONTRAST = Item("1", "that is", "the cat", choices=("the cat", " a"), solution="the cat")
SOLVED = Item("1", "what is it?", "4", aliases=("four",), solution="it is\nwhat it is. #### 4")


def test_a_gold_task_has_the_items_prompts_and_subject_of_the_task():
    for name in ("primer:reading", "primer:atlas?form=contrast", "ioi", "shuffled:facts"):
        task, of = find(f"gold:{name}"), find(name)
        assert isinstance(task, Task)
        assert task.name == f"gold:{name}"
        assert (task.kind, task.style, task.stop) == ("score", of.style, ())
        assert task.load() == of.load()
        assert calibration_items(task) == calibration_items(of)
    assert (Gold(find("gsm8k")).subject, Gold(ATLAS).subject) == ("math", "")


@pytest.mark.parametrize("style", ["raw", "plain", "answer", "chat"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("item", [CHOICE, CONTRAST, SOLVED, replace(SOLVED, solution="")])
def test_the_gold_answer_follows_its_prompt_as_a_choice_does(kind, item, style):
    model, task = speaker(kind), Gold(ATLAS)
    prompt, continuation = encode_gold(model, task, item, style)
    right = item.gold if item.choices else item.solution or item.gold
    assert prompt == encode(model, ATLAS, item, style)
    assert (continuation,) == encode_choices(model, ATLAS, replace(item, choices=(right,)), style)
    if right in item.choices:
        assert continuation == encode_choices(model, ATLAS, item, style)[item.choices.index(right)]
    assert encode_solved(model, task, item, style) == (*prompt, *continuation)


def test_observed_a_gold_or_shuffled_file_of_questions_is_one_text_as_it_stands(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1", "prompt": "that is ", "answer": "it"}', encoding="utf-8")
    model, task = speaker("first"), find(str(path))
    for name in (f"gold:{path}", f"shuffled:{path}", f"gold:shuffled:{path}"):
        assert encode_solved(model, find(name), task.load()[0]) == encode_solved(model, task, task.load()[0])


@pytest.mark.parametrize("item", [CHOICE, CONTRAST, SOLVED])
def test_what_does_not_fit_the_context_is_cut_off_and_a_prompt_that_fills_it_is_told(item):
    whole = speaker("first")
    prompt, continuation = encode_gold(whole, Gold(ATLAS), item, "raw")
    for room in range(1, len(continuation) + 2):
        narrow = Speaker(whole.tokenizer, "narrow", len(prompt) + room)
        assert encode_gold(narrow, Gold(ATLAS), item, "raw") == (prompt, continuation[:room])
    for context in (len(prompt), len(prompt) - 1):
        with pytest.raises(LesionError, match=r"tem 1 of primer:atlas .*narrow"):
            encode_gold(Speaker(whole.tokenizer, "narrow", context), Gold(ATLAS), item, "raw")


def test_an_item_without_an_answer_is_told():
    with pytest.raises(LesionError, match="Item 1 of primer:atlas has no gold answer"):
        encode_gold(speaker("first"), Gold(ATLAS), Item("1", "what is it?", ""), "raw")


def test_a_score_is_right_when_it_is_finite():
    task = find("gold:primer:atlas")
    assert task.judge(task.load()[0], Answer("", scores=(-3.0,))).correct
    assert not task.judge(task.load()[0], Answer("", finish="nonfinite")).correct
