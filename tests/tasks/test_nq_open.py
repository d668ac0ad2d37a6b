"""NQ-open: closed-book questions with several right answers."""

import pytest

from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Answer, Task
from rowfiles import write

MOON = {
    "question": "when was the last time anyone was on the moon",
    "answer": ["14 December 1972 UTC", "December 1972"],
}


def test_a_question_is_asked_with_a_question_mark_and_any_of_its_answers_is_right(tmp_path):
    task = find(f"nq_open:{write(tmp_path / 'x.jsonl', MOON)}")
    assert isinstance(task, Task)
    assert (task.kind, task.subject) == ("generate", "trivia")
    (item,) = task.load()
    assert item.question == "when was the last time anyone was on the moon?"
    assert (item.gold, item.aliases) == ("14 December 1972 UTC", ("December 1972",))
    for said in ("14 december 1972 utc", "It was in December 1972."):
        assert task.judge(item, Answer(said)).correct
    assert not task.judge(item, Answer("1972")).correct
    assert task.judge(item, Answer("")).parsed is None
    assert task.judge(item, Answer("December 1972", finish="nonfinite")).parsed is None


def test_the_rule_is_part_of_the_name_and_decides(tmp_path):
    path = write(tmp_path / "x.jsonl", MOON)
    said = Answer("It was in December 1972.")
    verdicts = {}
    for rule in ("words", "exact", "substring"):
        task = find(f"nq_open:{path}?rule={rule}")
        assert task.name == f"nq_open:{path}" + ("" if rule == "words" else f"?rule={rule}")
        verdicts[rule] = task.judge(task.load()[0], said).correct
    assert verdicts == {"words": True, "exact": False, "substring": True}
    with pytest.raises(UsageError, match=r"no rule 'exakt' for nq_open \(nearest: exact\)"):
        find("nq_open?rule=exakt")


def test_answers_stand_once_and_a_mark_that_is_there_is_not_doubled(tmp_path):
    row = {"question": "Who is it? ", "answer": ["Ann", " Ann ", "", "Ben"]}
    (item,) = find(f"nq_open:{write(tmp_path / 'x.jsonl', row)}").load()
    assert (item.question, item.gold, item.aliases) == ("Who is it?", "Ann", ("Ben",))


def test_the_hub_and_a_file_give_the_same_items_and_calibration_takes_the_training_split(tmp_path, monkeypatch):
    other = {"question": "who else", "answer": ["nobody"]}
    splits = {"validation": [MOON], "train": [other]}
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda task, repository, subset, split: splits[split])
    task, local = find("nq_open"), find(f"nq_open:{write(tmp_path / 'x.jsonl', MOON)}")
    assert task.load() == local.load() == calibration_items(local)
    assert [item.question for item in calibration_items(task)] == ["who else?"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"answer": ["a"]}, "no field 'question'"),
        ({"question": "q", "answer": []}, "must be a list of at least one text"),
        ({"question": "q", "answer": [" "]}, "there is an empty answer only"),
        ({"question": "\ud800", "answer": ["a"]}, "'question' holds half a character"),
    ],
)
def test_a_malformed_row_is_told(tmp_path, row, says):
    with pytest.raises(UsageError, match=rf"(x\.jsonl, row|Item) 1\b.*{says}"):
        find(f"nq_open:{write(tmp_path / 'x.jsonl', MOON, row)}").load()


def test_the_real_file_is_read_whole(shared):
    task = find(f"nq_open:{shared / 'data/nq_open/dev.jsonl'}")
    items = task.load()
    assert len(items) == len({item.id for item in items}) == 3610
    assert items[0].question == "when was the last time anyone was on the moon?"
    assert (items[-1].question, items[-1].gold) == ("what is the meaning of the name comanche?", "enemy")
    rights = [(item, right) for item in items for right in (item.gold, *item.aliases)]
    # three answers of the data are nothing but punctuation, in which nothing can be read
    assert {right for item, right in rights if not task.judge(item, Answer(right)).correct} == {"---", ")", "*"}
    strangers = sum(task.judge(item, Answer(items[index - 1].gold)).correct for index, item in enumerate(items))
    assert strangers < 40  # an answer to another question is wrong, chance matches aside
