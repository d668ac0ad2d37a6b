"""MMLU from the original CSV files and in the schema of the hub, in both forms."""

import csv
import importlib.util
import json
from pathlib import Path

import jinja2
import pandas
import pytest
import yaml
from transformers import AutoTokenizer

import lesion.models
from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Task
from sentencepieces import Speaker

ROWS = [
    ["Which is a fruit?", "Granite.", "Apple, or pear.", "Basalt.", "None", "B"],
    ['He said "ha"?\nTwice.', "Yes", "No", "Once", "Never", "D"],
    ["  What is 2 + 2?", "4", "5", "6", "7", "A"],
    ["And the third?", "a", "b", "c", "d", "C"],
]
BUNDLED = Path(lesion.models.__file__).parent / "bundled/llama-base"


@pytest.fixture(scope="module")
def speaker():
    return Speaker(AutoTokenizer.from_pretrained(BUNDLED))


def table(path, rows=ROWS, **options):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows(rows)
    return path


def hub(rows=ROWS, subject="fruit"):
    return [
        {"question": row[0], "subject": subject, "choices": row[1:5], "answer": "ABCD".index(row[5])} for row in rows
    ]


def test_the_question_is_followed_by_its_options_behind_letters(tmp_path):
    item = find(f"mmlu:{table(tmp_path / 'fruit_test.csv')}").load()[0]
    assert item.question == "Which is a fruit?\nA. Granite.\nB. Apple, or pear.\nC. Basalt.\nD. None"
    assert (item.gold, item.solution, item.choices, item.group) == ("B", "B", ("A", "B", "C", "D"), "fruit")
    assert item.metadata["options"] == ("Granite.", "Apple, or pear.", "Basalt.", "None")


def test_as_text_the_question_stands_alone_and_the_options_are_chosen_among(tmp_path):
    item = find(f"mmlu:{table(tmp_path / 'fruit_test.csv')}?form=text").load()[0]
    assert item.question == "Which is a fruit?"
    assert item.choices == ("Granite.", "Apple, or pear.", "Basalt.", "None")
    assert item.gold == item.solution == "Apple, or pear."
    assert item.metadata["letter"] == "B"


@pytest.mark.parametrize("form", ["letter", "text"])
def test_every_option_can_be_right_and_only_the_right_one_is(tmp_path, form):
    task = find(f"mmlu:{table(tmp_path / 'fruit_test.csv')}?form={form}")
    assert isinstance(task, Task)
    assert task.kind == "choose"
    rights = []
    for item in task.load():
        correct = [task.judge(item, Answer(choice)).correct for choice in item.choices]
        assert sum(correct) == 1
        rights.append(correct.index(True))
    assert rights == [1, 3, 0, 2]
    broken = task.judge(task.load()[0], Answer(task.load()[0].gold, finish="nonfinite"))
    assert (broken.correct, broken.parsed) == (False, None)


def test_two_options_of_the_same_text_are_one_answer(tmp_path):
    path = table(tmp_path / "x.csv", [["Which?", "same", "other", "same", "fourth", "C"]])
    task = find(f"mmlu:{path}?form=text")
    assert task.judge(task.load()[0], Answer("same")).correct
    assert not task.judge(find(f"mmlu:{path}").load()[0], Answer("A")).correct


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "parquet"])
@pytest.mark.parametrize("form", ["letter", "text"])
def test_the_original_files_and_the_schema_of_the_hub_give_the_same_items(tmp_path, monkeypatch, ending, form):
    path = tmp_path / f"fruit_test.{ending}"
    if ending == "csv":
        table(path)
    elif ending == "parquet":
        pandas.DataFrame(hub()).to_parquet(path)
    else:
        rows = hub()
        path.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = []
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda *where: asked.append(where) or hub())
    assert find(f"mmlu:{path}?form={form}").load() == find(f"mmlu?form={form}").load()
    assert asked == [("mmlu", "cais/mmlu", "all", "test")]


def test_ids_count_within_a_subject_so_that_one_file_and_all_of_them_agree(tmp_path, monkeypatch):
    other = [["Else?", "a", "b", "c", "d", "A"]]
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda *where: [*hub(other, "birds"), *hub(ROWS, "fruit")])
    everything = [item.id for item in find("mmlu").load()]
    assert everything[1:] == [item.id for item in find(f"mmlu:{table(tmp_path / 'fruit_test.csv')}").load()]
    assert len(set(everything)) == 5


def test_from_the_hub_calibration_takes_the_other_splits(monkeypatch):
    splits = {"test": ROWS[:1], "validation": ROWS[1:3], "dev": ROWS[3:]}
    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", lambda task, repository, subset, split: hub(splits[split]))
    task = find("mmlu")
    pool = calibration_items(task)
    assert [item.gold for item in pool] == ["D", "A", "C"]
    assert not {item.id for item in pool} & {item.id for item in task.load()}
    assert [item.id.partition("-")[0] for item in pool] == ["validation", "validation", "dev"]


@pytest.mark.parametrize("options", [{}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_quoting_line_ends_and_a_byte_order_mark_change_nothing(tmp_path, options, mark):
    path = table(tmp_path / "fruit_test.csv", **options)
    path.write_bytes(mark + path.read_bytes())
    assert find(f"mmlu:{path}").load()[1].question == 'He said "ha"?\nTwice.\nA. Yes\nB. No\nC. Once\nD. Never'
    assert find(f"mmlu:{path}").load()[2].question.startswith("What is 2 + 2?\nA. 4\n")


def test_of_a_folder_every_test_file_is_read(tmp_path):
    for name in ("b_test.csv", "a_test.csv", "a_dev.csv", "notes.csv"):
        table(tmp_path / name, ROWS[:2] if "dev" in name else ROWS)
    assert [item.group for item in find(f"mmlu:{tmp_path}").load()] == ["a"] * 4 + ["b"] * 4
    assert len(find(f"mmlu:{tmp_path / 'a_dev.csv'}").load()) == 2


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([ROWS[0], ["q", "a", "b", "A"]], r"line 2: there are 4 cells; a row of MMLU has 6"),
        ([ROWS[0], ["q", "a", "b", "c", "d", "E"]], r"line 2: the answer is 'E'; it must be a letter from A to D"),
        ([["question", "A", "B", "C", "D", "answer"]], r"line 1: the answer is 'answer'"),
        ([["q", "", "b", "c", "d", "A"]], r"line 1: option A is empty\.$"),
        ([["q", "a", " ", "", "", "A"]], r"line 1: all options but one are empty"),
        ([], r"x_test.csv is empty"),
    ],
)
def test_a_malformed_row_is_told_with_its_file_and_line(tmp_path, rows, says):
    with pytest.raises(UsageError, match=rf"^{tmp_path}/x_test\.csv.*{says}" if rows else says):
        find(f"mmlu:{table(tmp_path / 'x_test.csv', rows)}").load()


def test_an_empty_option_can_stand_behind_a_letter_but_not_be_scored(tmp_path):
    path = table(tmp_path / "x.csv", [["q", "a", "b", "", "d", "A"]])
    assert find(f"mmlu:{path}").load()[0].question == "q\nA. a\nB. b\nC. \nD. d"
    with pytest.raises(UsageError, match=r"line 1: option C is empty; write it out, or ask with \?form=letter"):
        find(f"mmlu:{path}?form=text").load()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'"q,a,b,c,d,A\n', "this is not CSV"),
        (b"q,a,b,c,d,A\n\xff,a,b,c,d,A\n", "line 2: this is not UTF-8"),
        (b"\n\n", "is empty"),
        (b"x" * 200_000 + b",a,b,c,d,A\n", "line 1: this is not CSV .*limit"),
    ],
)
def test_a_file_that_is_no_csv_is_told(tmp_path, data, says):
    path = tmp_path / "x_test.csv"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=says):
        find(f"mmlu:{path}").load()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer": 4}, "the answer is 4; it must be a letter from A to D, or a number from 0 to 3"),
        ({"answer": True}, "the answer is True"),
        ({"choices": ["a", 2, "c", "d"]}, "must be a list of texts"),
        ({"choices": ["a"]}, "2 to 26 options, not 1"),
        ({"choices": ["a", "\ud800", "c", "d"]}, "option B' holds half a character"),
        ({"question": 7}, "'question' must be a text"),
    ],
)
def test_a_malformed_row_in_the_schema_of_the_hub_is_told(tmp_path, change, says):
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, [hub()[0], hub()[1] | change])), encoding="utf-8")
    with pytest.raises(UsageError, match=rf"x\.jsonl, row 1: .*{says}"):
        find(f"mmlu:{path}").load()


def test_a_folder_without_a_test_file_is_told(tmp_path):
    table(tmp_path / "a_dev.csv")
    with pytest.raises(UsageError, match=r"no file \*_test.csv in the folder"):
        find(f"mmlu:{tmp_path}")


def test_the_prompt_ends_in_answer_and_the_letter_follows_after_a_space(tmp_path, speaker):
    task = find(f"mmlu:{table(tmp_path / 'fruit_test.csv')}")
    item = task.load()[0]
    assert speaker.tokenizer.decode(encode(speaker, task, item)[1:]) == f"{item.question}\nAnswer:"
    assert [speaker.tokenizer.decode(choice) for choice in encode_choices(speaker, task, item)] == [
        " A",
        " B",
        " C",
        " D",
    ]


@pytest.mark.parametrize("form", ["letter", "text"])
def test_every_prompt_is_word_for_word_that_of_the_harness(shared, speaker, form):
    found = importlib.util.find_spec("lm_eval")
    if found is None:
        pytest.skip("lm-eval is not installed")
    folder = Path(found.submodule_search_locations[0]) / "tasks/mmlu"
    file = "default/_default_template_yaml" if form == "letter" else "continuation/_continuation_template_yaml"
    template = jinja2.Template(yaml.safe_load((folder / file).read_text(encoding="utf-8"))["doc_to_text"])
    task = find(f"mmlu:{shared / 'data/mmlu/marketing_test.csv'}?form={form}")
    with (shared / "data/mmlu/marketing_test.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    assert len(rows) == len(task.load()) == 234
    written = {"answer": "{question}\nAnswer:", "plain": "Question: {question}\nAnswer:"}[task.style]
    for row, item in zip(rows, task.load(), strict=True):
        assert written.replace("{question}", item.question) == template.render(question=row[0], choices=row[1:5])


COUNTS = {
    "global_facts": 100, "high_school_geography": 198, "marketing": 234, "miscellaneous": 783, "nutrition": 306,
    "sociology": 201, "us_foreign_policy": 100, "world_religions": 171,
}  # fmt: skip


def test_the_real_files_are_read_whole(shared):
    task = find(f"mmlu:{shared / 'data/mmlu'}")
    items = task.load()
    assert {group: sum(item.group == group for item in items) for group in COUNTS} == COUNTS
    assert len({item.id for item in items}) == len(items) == 2093
    first, last = items[0], items[-1]
    assert first.question.startswith("As of 2016, about what percentage of adults aged 18 years")
    assert (first.gold, first.metadata["options"]) == ("C", ("10%", "20%", "40%", "80%"))
    assert last.question.startswith("The numen of Augustus referred to which of the following characteristics?")
    assert (last.gold, last.metadata["options"][0]) == ("A", "Divine power")
    assert {item.gold for item in items} == {"A", "B", "C", "D"}
    texts = find(f"mmlu:{shared / 'data/mmlu'}?form=text").load()
    assert [item.id for item in texts] == [item.id for item in items]
    assert all(item.gold == item.metadata["options"]["ABCD".index(other.gold)].strip()
               for item, other in zip(texts, items, strict=True))  # fmt: skip
