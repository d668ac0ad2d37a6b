"""GSM8K, MATH-500 and TriviaQA from local files, the real ones where they are at hand."""

import json
import re

import pandas
import pytest

from lesion.errors import UsageError
from lesion.tasks.benchmarks.triviaqa import unquote_csv
from lesion.tasks.catalogue import find
from lesion.tasks.task import Answer
from rowfiles import write

GSM = {"question": "How many?", "answer": "He has 2*3=<<2*3=6>>6.\nAnd 6*200=<<6*200=1200>>1200.\n#### 1,200"}


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet"])
def test_gsm8k_reads_gold_solution_and_steps(tmp_path, ending):
    path = tmp_path / f"test.{ending}"
    if ending == "parquet":
        pandas.DataFrame([GSM]).to_parquet(path)
    else:
        path.write_text(json.dumps([GSM] if ending == "json" else GSM), encoding="utf-8")
    (item,) = find(f"gsm8k:{path}").load()
    assert item.gold == "1200"
    assert item.solution == "He has 2*3=6.\nAnd 6*200=1200."
    assert item.group == "2 steps"


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("gsm8k", {"problem": "p", "answer": "a"}, "there is no field 'question'; there are 'problem', 'answer'"),
        ("gsm8k", {"question": "p", "answer": "6"}, "x.jsonl, row 0: there is no answer behind '####'"),
        ("math500", GSM, "no field 'problem'"),
        ("triviaqa", {"question": "p"}, "no field 'answer'"),
        ("triviaqa", {"question": "p", "answer": "x"}, "must be an object"),
        ("triviaqa", {"question": "p", "golden_answers": []}, "there are no answers"),
    ],
)
def test_a_file_of_another_form_is_told(tmp_path, name, row, says):
    with pytest.raises(UsageError, match=says):
        find(f"{name}:{write(tmp_path / 'x.jsonl', row)}").load()


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "is empty"), ("{}\nno", "line 2: this is not JSON"), ("3", "not a JSON object but a number")],
)
def test_a_broken_file_is_told(tmp_path, text, says):
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        find(f"gsm8k:{path}").load()


HUB = {
    "question": "Who?",
    "question_id": "q1",
    "answer": {"value": "Mark Twain", "aliases": ["Samuel Clemens", "Mark Twain"], "normalized_aliases": []},
}


def test_triviaqa_reads_the_schema_of_the_hub_and_each_question_once(tmp_path):
    (item,) = find(f"triviaqa:{write(tmp_path / 'x.jsonl', HUB, HUB)}").load()
    assert (item.id, item.gold, item.aliases) == ("q1", "Mark Twain", ("Samuel Clemens",))


def test_the_rule_of_the_paper_knows_no_aliases_where_there_is_a_main_answer(tmp_path):
    path = write(tmp_path / "x.jsonl", HUB)
    task = find(f"triviaqa:{path}?rule=substring")
    (item,) = task.load()
    assert task.judge(item, Answer("it was mark twain")).correct
    assert not task.judge(item, Answer("Samuel Clemens")).correct
    assert find(f"triviaqa:{path}").judge(item, Answer("Samuel Clemens")).correct


@pytest.mark.parametrize(
    ("written", "clean"),
    [
        ('"Who said ""God is dead""?"', 'Who said "God is dead"?'),
        ('"What is ""The Solent""?"', 'What is "The Solent"?'),
        ('In "Lolita", who is "L"?', 'In "Lolita", who is "L"?'),
        ('"God is dead"', '"God is dead"'),
        ('"One", two and "three"', '"One", two and "three"'),
        ('"', '"'),
        ("", ""),
    ],
)
def test_only_the_quoting_of_a_csv_cell_is_taken_off(written, clean):
    assert unquote_csv(written) == clean


def test_an_answer_cut_off_at_the_limit_is_not_read_from_its_last_number(tmp_path):
    task = find(f"gsm8k:{write(tmp_path / 'x.jsonl', GSM)}")
    (item,) = task.load()
    assert task.judge(item, Answer("6*200 = 1200", finish="stop")).correct
    assert task.judge(item, Answer("6*200 = 1200", finish="length")).parsed is None
    assert task.judge(item, Answer("#### 1200", finish="nonfinite")).parsed is None


def test_the_real_gsm8k_is_read_whole(shared):
    task = find(f"gsm8k:{shared / 'data/gsm8k/test.jsonl'}")
    items = task.load()
    assert len(items) == len({item.id for item in items}) == 1319
    assert all(float(item.gold) == int(item.gold) for item in items)
    assert not any("<<" in item.solution for item in items)
    wrong = [item.id for item in items if not task.judge(item, Answer(f"{item.solution}\n#### {item.gold}")).correct]
    assert wrong == []


def test_the_real_math500_is_read_whole(shared):
    items = find(f"math500:{shared / 'data/math500/test.jsonl'}").load()
    assert len(items) == len({item.id for item in items}) == 500
    assert {item.group for item in items} == {f"level {level}" for level in range(1, 6)}


def test_the_real_svamp_is_read_whole_and_its_equations_give_its_answers(shared):
    items = find(f"svamp:{shared / 'data/svamp/SVAMP.json'}").load()
    assert len(items) == len({item.id for item in items}) == 1000
    for item in items:
        equation, _, answer = item.solution.partition(" = ")
        assert answer == item.gold
        assert re.fullmatch(r"[\d .()+*/-]+", equation)
        # The equation of one problem contradicts its answer, in the data: (4 - 2) + 3 = 1.
        assert eval(equation) == pytest.approx(float(answer)) or item.id == "chal-680"


def test_the_real_trivia_sample_is_read_whole_and_its_aliases_count(shared):
    task = find(f"triviaqa:{shared / 'data/triviaqa/sample1000.jsonl'}")
    items = task.load()
    assert len(items) == len({item.id for item in items}) == 1000
    assert not any('""' in item.question for item in items)
    for item in items:
        for alias in (item.gold, *item.aliases):
            assert task.judge(item, Answer(alias)).correct
    strangers = sum(task.judge(item, Answer(items[index - 1].gold)).correct for index, item in enumerate(items))
    assert strangers < 20  # an answer to another question is wrong, chance matches aside
