"""RACE: passages with several questions, from files, folders and the hub, in both forms."""

import json
from pathlib import Path

import pandas
import pytest
from transformers import AutoTokenizer

import lesion.models
from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Task
from rowfiles import write
from sentencepieces import Speaker

FLOOD = {
    "id": "high1.txt",
    "article": "The rain had gone on for a week.\nThen the river came.",
    "questions": ["How long did it rain?", "The river  _  .", "What came last?", "Who was there?"],
    "options": [
        ["A week.", "A day.", "A year.", "Never."],
        ["sang", "came", "slept", "left"],
        ["Rain.", "Snow.", "The river.", "Wind."],
        ["He", "She", "They", "Nobody"],
    ],
    "answers": ["A", "B", "C", "D"],
}
SUN = {
    "id": "middle2.txt",
    "article": "The sun shines.",
    "questions": ["What shines?"],
    "options": [["The moon.", "The sun."]],
    "answers": ["B"],
}
BUNDLED = Path(lesion.models.__file__).parent / "bundled/llama-base"


def hub(*passages):
    """The rows of `ehovy/race`: one question each."""
    return [
        {
            "example_id": passage["id"],
            "article": passage["article"],
            "answer": answer,
            "question": question,
            "options": options,
        }
        for passage in passages
        for question, options, answer in zip(passage["questions"], passage["options"], passage["answers"], strict=True)
    ]


def test_every_question_of_a_passage_is_asked_with_its_passage_and_its_options(tmp_path):
    items = find(f"race:{write(tmp_path / 'x.txt', FLOOD)}").load()
    assert [item.id for item in items] == ["high1.txt:0", "high1.txt:1", "high1.txt:2", "high1.txt:3"]
    assert items[1].question == (
        "Article: The rain had gone on for a week.\nThen the river came.\n\n"
        "Question: The river  _  .\nA. sang\nB. came\nC. slept\nD. left"
    )
    assert (items[1].gold, items[1].solution, items[1].choices) == ("B", "B", ("A", "B", "C", "D"))
    assert {item.group for item in items} == {"high"}


@pytest.mark.parametrize("form", ["letter", "text"])
def test_every_option_can_be_right_and_only_the_right_one_is(tmp_path, form):
    task = find(f"race:{write(tmp_path / 'x.txt', FLOOD)}?form={form}")
    assert isinstance(task, Task)
    assert task.kind == "choose"
    right = [[task.judge(item, Answer(choice)).correct for choice in item.choices] for item in task.load()]
    assert right == [[row == column for column in range(4)] for row in range(4)]
    assert task.judge(task.load()[0], Answer(task.load()[0].gold, finish="nonfinite")).parsed is None


@pytest.mark.parametrize("ending", ["txt", "json", "jsonl"])
def test_one_passage_a_file_a_list_of_them_and_one_a_line_are_the_same(tmp_path, ending):
    lines = write(tmp_path / f"lines.{ending}", FLOOD, SUN)
    whole = tmp_path / f"list.{ending}"
    whole.write_text(json.dumps([FLOOD, SUN], indent=2), encoding="utf-8")
    write(tmp_path / f"folder/test/high/1.{ending}", FLOOD, indent=2)
    write(tmp_path / f"folder/test/middle/2.{ending}", SUN)
    one = find(f"race:{lines}").load()
    assert one == find(f"race:{whole}").load() == find(f"race:{tmp_path / 'folder'}").load()
    assert [item.group for item in one] == ["high"] * 4 + ["middle"]


@pytest.mark.parametrize("form", ["letter", "text"])
def test_a_file_and_the_hub_give_the_same_items(tmp_path, monkeypatch, form):
    asked = []
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda *where: asked.append(where) or hub(FLOOD, SUN))
    local = find(f"race:{write(tmp_path / 'x.jsonl', FLOOD, SUN)}?form={form}").load()
    assert local == find(f"race?form={form}").load()
    assert asked == [("race", "ehovy/race", "high", "test")]
    pandas.DataFrame(hub(FLOOD, SUN)).to_parquet(tmp_path / "x.parquet")
    assert find(f"race:{tmp_path / 'x.parquet'}?form={form}").load() == local


def test_from_the_hub_calibration_takes_the_training_split(monkeypatch):
    splits = {"test": [FLOOD], "train": [SUN]}
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda task, repository, subset, split: hub(*splits[split]))
    task = find("race")
    assert len(task.load()) == 4
    assert [item.id for item in calibration_items(task)] == ["middle2.txt:0"]


def test_the_level_is_that_of_the_folder_where_the_id_does_not_say_it(tmp_path):
    write(tmp_path / "middle/7.txt", FLOOD | {"id": "7"})
    write(tmp_path / "other/8.txt", SUN | {"id": "8"})
    assert [item.group for item in find(f"race:{tmp_path}").load()] == ["middle"] * 4 + [""]


def test_a_passage_without_an_id_is_told_apart_by_its_words(tmp_path):
    rows = [{name: value for name, value in row.items() if name != "id"} for row in (FLOOD, SUN)]
    items = find(f"race:{write(tmp_path / 'x.jsonl', *rows)}").load()
    assert len({item.id for item in items}) == 5


def without(*fields):
    return {name: value for name, value in FLOOD.items() if name not in fields}


@pytest.mark.parametrize(
    ("passage", "says"),
    [
        (without("article"), r"no field 'article'; there are 'id', 'questions', 'options', 'answers'"),
        (FLOOD | {"article": " "}, r"'article' is empty"),
        (FLOOD | {"answers": ["A", "B"]}, r"there are 4 questions, options for 4 and 2 answers"),
        (FLOOD | {"options": []}, r"there are 4 questions, options for 0 and 4 answers"),
        (FLOOD | {"questions": "How?"}, r"'questions' must be a list with an entry for each question"),
        (FLOOD | {"questions": [], "options": [], "answers": []}, r"the passage has no questions"),
        (FLOOD | {"answers": ["A", "B", "E", "D"]}, r"question 2: the answer is 'E'; it must be a letter from A to D"),
        (FLOOD | {"options": [*FLOOD["options"][:3], ["a", "b", "c"]]}, r"question 3: the answer is 'D'; .* A to C"),
        (FLOOD | {"options": [["a"]] * 4}, r"question 0: there must be 2 to 26 options, not 1"),
    ],
)
def test_a_malformed_passage_is_told_with_its_file_and_place(tmp_path, passage, says):
    alone = write(tmp_path / "one.txt", passage)
    with pytest.raises(UsageError, match=rf"one\.txt\b.*{says}"):
        find(f"race:{alone}").load()
    second = write(tmp_path / "two.jsonl", SUN, passage)
    with pytest.raises(UsageError, match=rf"two\.jsonl, row 1\b.*{says}"):
        find(f"race:{second}").load()


def test_a_passage_that_stands_twice_is_told_with_both_places(tmp_path):
    write(tmp_path / "a.txt", FLOOD)
    write(tmp_path / "b.txt", FLOOD)
    with pytest.raises(UsageError, match=r"b\.txt, row 0: the passage high1\.txt was there before: .*a\.txt"):
        find(f"race:{tmp_path}").load()


def test_two_passages_under_one_id_are_told(tmp_path):
    rows = [*hub(SUN), hub(SUN | {"article": "Another."})[0]]
    with pytest.raises(UsageError, match=r"row 1: the passage middle2.txt was there before"):
        find(f"race:{write(tmp_path / 'x.jsonl', *rows)}").load()


def test_a_folder_without_passages_and_a_wrong_form_are_told(tmp_path):
    with pytest.raises(UsageError, match=r"no file \*\.txt, \*\.json, \*\.jsonl in the folder"):
        find(f"race:{tmp_path}")
    with pytest.raises(UsageError, match=r"no form 'txt' for race \(nearest: text, letter\)"):
        find("race?form=txt")


@pytest.mark.parametrize("form", ["letter", "text"])
def test_the_prompt_ends_in_answer_and_what_is_scored_follows_after_a_space(tmp_path, form):
    speaker = Speaker(AutoTokenizer.from_pretrained(BUNDLED))
    task = find(f"race:{write(tmp_path / 'x.txt', SUN)}?form={form}")
    (item,) = task.load()
    options = "\nA. The moon.\nB. The sun." if form == "letter" else ""
    prompt = f"Article: The sun shines.\n\nQuestion: What shines?{options}\nAnswer:"
    assert speaker.tokenizer.decode(encode(speaker, task, item)[1:]) == prompt
    scored = [speaker.tokenizer.decode(choice) for choice in encode_choices(speaker, task, item)]
    assert scored == ([" A", " B"] if form == "letter" else [" The moon.", " The sun."])
