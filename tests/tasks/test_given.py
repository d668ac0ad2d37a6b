"""Tasks given as Python objects: as a file with the same questions, with a judge of one's own, safe to continue."""

import json

import pandas as pd
import pytest

import lesion
from lesion.tasks.given import offered
from lesion.tasks.task import Answer, Item, Verdict

SUMS = [{"prompt": f"{a} + 1 =", "answer": a + 1} for a in range(4)]
QUICK = {"layers": 0, "max_new_tokens": 2, "items": 3}


def length_is_even(text: str, gold: str) -> bool:
    return len(text) % 2 == 0


class Echo:
    """A task as a person writes one: with what `Task` says and nothing more."""

    name, kind, max_new_tokens, stop, style = "echo", "generate", 2, (), "raw"

    def __init__(self, gold: str = "yes") -> None:
        self.gold = gold

    def load(self):
        return [Item(str(number), f"say {number}", self.gold) for number in range(3)]

    def judge(self, item, answer):
        return Verdict(item.gold == self.gold and "e" in answer.text, answer.text)


def test_questions_in_memory_answer_as_the_same_questions_in_a_file(llama, tmp_path):
    file = tmp_path / "sums.jsonl"
    file.write_text("\n".join(json.dumps(question) for question in SUMS))
    read = lesion.find_task(str(file))
    for questions in (SUMS, pd.DataFrame(SUMS), iter(SUMS)):
        task = lesion.task("sums", questions)
        assert task.name == "python:sums"
        assert (task.items, task.kind, task.stop, task.style) == (read.items, read.kind, read.stop, read.style)
    mine = lesion.ablate(llama, lesion.task("sums", SUMS), **QUICK)
    theirs = lesion.ablate(llama, str(file), **QUICK)
    columns = ["item", "edit", "text", "correct"]
    pd.testing.assert_frame_equal(mine.answers[columns], theirs.answers[columns])
    assert set(mine.answers["task"]) == {"python:sums"}


def test_a_judge_of_ones_own_decides(llama):
    result = lesion.ablate(llama, [lesion.task("even", SUMS, judge=length_is_even), "primer:atlas"], **QUICK)
    own = result.answers.query("task == 'python:even'")
    assert own["correct"].tolist() == [len(text) % 2 == 0 for text in own["text"]]
    lengthy = lesion.task("sums", SUMS, judge=lambda text, gold: len(text))
    with pytest.raises(lesion.UsageError, match="judge of item 1 returned 2, not True or False"):
        lengthy.judge(lengthy.items[0], Answer("12"))
    assert lengthy.judge(lengthy.items[0], Answer("", finish="nonfinite")) == Verdict(False, None)


def test_any_object_that_does_what_a_task_does_is_one(llama):
    answers = lesion.ablate(llama, Echo(), **QUICK).answers
    assert set(answers["task"]) == {"python:echo"}
    assert answers["correct"].tolist() == ["e" in text for text in answers["text"]]


@pytest.mark.parametrize(
    "other",
    [
        lesion.task("sums", [*SUMS[:-1], {"prompt": "9 + 9 =", "answer": 18}], judge=length_is_even),
        lesion.task("sums", SUMS, judge=lambda text, gold: gold in text),
        lesion.task("sums", SUMS, judge=length_is_even, version="2"),
        lesion.task("sums", SUMS, judge="contains"),
    ],
)
def test_a_folder_goes_on_with_the_same_questions_and_judge_only(llama, tmp_path, other):
    def ablated(task):
        return lesion.ablate(llama, task, **QUICK | {"items": 4}, out=tmp_path / "study")

    assert ablated(lesion.task("sums", SUMS, judge=length_is_even)).evaluated == 8
    assert ablated(lesion.task("sums", list(SUMS), judge=length_is_even)).evaluated == 0
    with pytest.raises(lesion.LesionError, match=r"(?s)data (that )?has changed"):
        ablated(other)
    assert lesion.result(tmp_path / "study").table_full["items"].tolist() == [4]


def test_only_the_call_that_was_given_it_knows_it(tmp_path):
    task = lesion.task("sums", SUMS)
    with offered({task.name: task}):
        assert lesion.find_task("python:sums") is task
        assert lesion.find_task("gold:python:sums").name == "gold:python:sums"
    with pytest.raises(lesion.UsageError, match=r"a Python program gave as an object.*JSON Lines file"):
        lesion.find_task("python:sums")
    file = tmp_path / "study.toml"
    file.write_text('models = ["bundled:llama-base"]\ntasks = ["python:sums"]\n')
    with pytest.raises(lesion.UsageError, match="only that program has it"):
        lesion.study(file, tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a/b", SUMS), "named by letters"),
        (("sums", []), "has no questions"),
        (("sums", [{"prompt": "?"}]), "Question 1 of sums.*'answer' is missing"),
        (("sums", [{"prompt": "?", "answer": "1", "id": 1}] * 2), "id '1' was used"),
        (("sums", ["2 + 2"]), "give a data frame, or mappings such as"),
        (("sums", pd.Series(SUMS[0])), "give a data frame, or mappings such as"),
        (("sums", [{"prompt": "?", "anwser": "1"}]), "no field 'anwser'; did you mean 'answer'"),
        (("sums", 3), "several mappings or a data frame, not 3"),
    ],
)
def test_what_cannot_be_a_task_is_refused(arguments, message):
    with pytest.raises(lesion.UsageError, match=message):
        lesion.task(*arguments)


def test_an_unknown_judge_and_two_tasks_of_one_name_are_refused(llama):
    with pytest.raises(lesion.UsageError, match="A judge is exact, math, contains, or a function"):
        lesion.task("sums", SUMS, judge="exactly")
    with pytest.raises(lesion.UsageError, match="Two tasks are called python:echo"):
        lesion.ablate(llama, [Echo("a"), Echo("b")], **QUICK)
    with pytest.raises(lesion.UsageError, match="must give items"):
        lesion.ablate(llama, type("Empty", (Echo,), {"load": lambda self: []})(), **QUICK)


def longer_than(letters: int):
    return lambda text, gold: len(text) > letters


def test_what_a_judge_takes_from_around_it_is_part_of_it(llama, tmp_path):
    def asked(judge, folder):
        return lesion.ablate(llama, tasks=lesion.task("sums", SUMS, judge=judge), out=folder, **QUICK)

    asked(longer_than(0), tmp_path / "out")
    with pytest.raises(lesion.LesionError, match="--out"):
        asked(longer_than(50), tmp_path / "out")
    assert asked(longer_than(0), tmp_path / "out").evaluated == 0


@pytest.mark.parametrize("judge", [lambda text: True, lambda text, gold: text[1000] == gold])
def test_a_judge_that_fails_is_told_with_its_item(llama, judge):
    with pytest.raises(lesion.UsageError, match=r"The judge failed on item \d: (TypeError|IndexError): .* two texts"):
        lesion.ablate(llama, tasks=lesion.task("sums", SUMS, judge=judge), **QUICK)
