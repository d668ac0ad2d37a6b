"""JSON Lines as a task: what a file may say, and how each fault of it is told."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.catalogue import find
from lesion.tasks.jsonl import JsonLines, gathered
from lesion.tasks.question_files import json_rows
from lesion.tasks.task import Answer, Task

GOOD = '{"id": "1", "prompt": "2 + 2 =", "answer": "4"}'


def parse(text, file):
    return gathered(json_rows(text, file))[0]


def test_a_file_of_questions_is_a_task(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text(GOOD + "\n\n" + GOOD.replace('"1"', '"2"') + "\n", encoding="utf-8")
    task = JsonLines.read(path)
    assert isinstance(task, Task)
    assert (task.kind, task.style, task.max_new_tokens, task.stop) == ("generate", "auto", 64, ("\n",))
    assert [(item.id, item.question, item.gold) for item in task.load()] == [
        ("1", "2 + 2 =", "4"),
        ("2", "2 + 2 =", "4"),
    ]


def test_an_answer_that_may_span_lines_is_not_stopped_at_one(tmp_path):
    path = tmp_path / "sums.jsonl"
    path.write_text(GOOD[:-1] + ', "judge": "math"}', encoding="utf-8")
    assert JsonLines.read(path).stop == ()


def test_numbers_stand_as_written():
    item = parse('{"id": 7, "prompt": "p", "answer": 1.50, "aliases": [3, "three"]}', "f")[0]
    assert (item.id, item.gold, item.aliases) == ("7", "1.50", ("3", "three"))


def test_a_line_without_an_id_is_known_by_its_number():
    bare = '{"prompt": "p", "answer": "a"}'
    assert [item.id for item in parse(f"{bare}\n\n{bare}\n{GOOD[:-1].replace('1', 'x', 1)}}}", "f")] == ["1", "3", "x"]


words = st.text(min_size=1, max_size=20).filter(str.strip)
rows = st.lists(
    st.fixed_dictionaries(
        {"id": words, "prompt": words, "answer": words},
        optional={
            "aliases": st.lists(words, max_size=3),
            "judge": st.sampled_from(["exact", "math", "contains"]),
            "solution": words,
            "group": words,
        },
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda row: row["id"],
)


@given(rows, st.booleans())
def test_what_is_written_is_read(written, ascii_only):
    text = "\n".join(json.dumps(row, ensure_ascii=ascii_only) for row in written)
    read = parse(text, "f")
    assert [
        {"id": item.id, "prompt": item.question, "answer": item.gold, "aliases": list(item.aliases)} for item in read
    ] == [{key: row.get(key, []) for key in ("id", "prompt", "answer", "aliases")} for row in written]
    assert [item.metadata["judge"] for item in read] == [row.get("judge", "exact") for row in written]


@given(st.text(max_size=80))
def test_any_text_is_a_task_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert all(item.question and item.gold for item in parse(text, "f"))


def contrast(**changes):
    return json.dumps(
        {"id": "1", "prompt": "The capital of France is", "answer": "Paris", "tempting": " the", **changes}
    )


def test_an_item_with_a_tempting_text_is_a_contrast(tmp_path):
    task = task_of(tmp_path, contrast(group="capital"))
    assert isinstance(task, Task)
    assert (task.kind, task.stop, task.style) == ("contrast", (), "raw")
    (item,) = task.load()
    assert (item.gold, item.choices, item.group) == ("Paris", ("Paris", " the"), "capital")
    assert task.judge(item, Answer(" Paris", ranks=(1, 2))).correct
    assert not task.judge(item, Answer(" the", ranks=(2, 1))).correct


def choose(**changes):
    return json.dumps({"id": "1", "prompt": "p", "answer": "a", "choices": ["a", "b"], **changes})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "\n{'id': 1}", "f, line 2: this is not JSON"),
        (GOOD + "\n[1, 2]", "f, line 2: this is not a JSON object"),
        ('{"id": "1", "answer": "4"}', "f, line 1: the field 'prompt' is missing"),
        ('{"id": "", "prompt": "p", "answer": "4"}', "f, line 1: 'id' is empty"),
        ('{"prompt": "p", "answer": "4"}\n{"id": "1", "prompt": "p", "answer": "4"}', "f, line 2: the id '1' was used"),
        (
            '{"id": "1", "prompts": "p", "answer": "4"}',
            "f, line 1: there is no field 'prompts'; did you mean 'prompt'?",
        ),
        (GOOD + "\n\n" + GOOD, "f, line 3: the id '1' was used on line 1"),
        (GOOD + "\n" + choose(id="2"), "f, line 2: this item has 'choices', the first item (line 1) has neither"),
        (
            choose() + "\n" + GOOD.replace('"1"', '"2"'),
            "this item has neither 'choices' nor 'tempting', the first item (line 1) has 'choices'",
        ),
        (GOOD + "\n" + contrast(id="2"), "f, line 2: this item has 'tempting', the first item (line 1) has neither"),
        (
            contrast() + "\n" + choose(id="2"),
            "f, line 2: this item has 'choices', the first item (line 1) has 'tempting'",
        ),
        (contrast() + "\n" + GOOD.replace('"1"', '"2"'), "put items of different kinds into two files"),
        (contrast(tempting=""), "f, line 1: 'tempting' is empty"),
        (contrast(tempting="Paris"), "f, line 1: 'tempting' is the answer itself"),
        (GOOD[:-1] + ', "judge": "maths"}', "f, line 1: there is no judge 'maths' (nearest: math"),
        (choose(answer="A"), "f, line 1: the answer 'A' is not among the choices"),
        (choose(choices=["a", "a"]), "at least two different"),
        (choose(choices="ab"), "'choices' must be a list of texts"),
        (choose(judge="math"), "'judge' is for generated answers"),
        (GOOD.replace('"4"', '" "'), "f, line 1: 'answer' is empty"),
        (GOOD.replace('"4"', "NaN"), "f, line 1: NaN is not JSON"),
        ("[" * 100_000, "f, line 1:"),
    ],
)
def test_a_fault_is_told_with_its_line(text, says):
    with pytest.raises(UsageError) as error:
        parse(text, "f")
    assert says in str(error.value)


def test_a_file_that_is_absent_or_not_text_is_told(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        JsonLines.read(tmp_path / "absent.jsonl")
    with pytest.raises(UsageError, match="is a folder"):
        JsonLines.read(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UsageError, match=r"empty\.jsonl is empty; write one object a line"):
        JsonLines.read(tmp_path / "empty.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(GOOD.encode() + b"\n\xe9")
    with pytest.raises(UsageError, match="line 2: this is not UTF-8"):
        JsonLines.read(tmp_path / "latin.jsonl")


def task_of(tmp_path, line):
    path = tmp_path / "task.jsonl"
    path.write_text(line, encoding="utf-8")
    return JsonLines.read(path)


@pytest.mark.parametrize(
    ("rule", "said", "right"),
    [
        ("exact", " 4\n", True),
        ("exact", "4.", False),
        ("math", "2 + 2 = 4, so the answer is 4.0.", True),
        ("math", "The answer is 5.", False),
        ("contains", "it is 4, I think", True),
        ("contains", "five", False),
    ],
)
def test_the_item_names_its_judge(tmp_path, rule, said, right):
    task = task_of(tmp_path, GOOD[:-1] + f', "judge": "{rule}"}}')
    assert task.judge(task.load()[0], Answer(said)).correct is right


@pytest.mark.parametrize("field", ["prompt", "answer", "choices"])
def test_half_a_character_is_refused_with_its_line(field):
    row = {"id": "1", "prompt": "p", "answer": "a", "choices": ["a", "b"]}
    row[field] = ["a", "b\ud800"] if field == "choices" else "a\ud800"
    with pytest.raises(UsageError, match=f"line 1: '{field}' holds half a character"):
        parse(json.dumps(row), "file.jsonl")


def test_a_file_says_what_ends_its_answers(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text('{"prompt": "a", "answer": "1", "stop": "\\nQ:"}\n{"prompt": "b", "answer": "2"}\n')
    assert JsonLines.read(file).stop == ("\nQ:",)
    file.write_text('{"prompt": "a", "answer": "1", "stop": ["\\nQ:", "!"], "judge": "math"}\n')
    assert JsonLines.read(file).stop == ("\nQ:", "!")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"prompt": "b", "answer": "2", "stop": "?"}', "line 2: 'stop' differs from that of line 1"),
        ('{"prompt": "b", "answer": "2", "stop": ["\\nQ:", ""]}', "'stop' has an empty text"),
        ('{"prompt": "b", "answer": "2", "stop": true}', "'stop' must be a list of texts"),
        ('{"prompt": "b", "answer": "2", "stops": "?"}', "did you mean 'stop'"),
    ],
)
def test_a_stop_string_that_cannot_be_meant_is_refused(tmp_path, line, fault):
    file = tmp_path / "q.jsonl"
    file.write_text('{"prompt": "a", "answer": "1", "stop": "\\nQ:"}\n' + line)
    with pytest.raises(UsageError, match=re.escape(fault)):
        JsonLines.read(file)


def test_a_judge_behind_the_name_judges_all_items(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ({"prompt": "a", "answer": "Rome"}, {"prompt": "b", "answer": "Rome", "judge": "exact"})
    Path("q?.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("q.jsonl").write_text(Path("q?.jsonl").read_text())
    sentence = Answer("It is Rome.", 3, "stop")
    for name in ("q.jsonl?judge=contains", "jsonl:q.jsonl?judge=contains", "gold:q.jsonl?judge=contains"):
        assert [item.metadata["judge"] for item in find(name).load()] == ["contains", "contains"]
    task = find("q.jsonl?judge=contains")
    assert [task.judge(item, sentence).correct for item in task.load()] == [True, True]
    assert [item.metadata["judge"] for item in find("q?.jsonl").load()] == ["exact", "exact"]
    for wrong, why in (("judge=contain", "nearest: contains"), ("juge=math", "nearest: judge"), ("judge=", "no value")):
        with pytest.raises(UsageError, match=why):
            find(f"q.jsonl?{wrong}")
    Path("c.jsonl").write_text('{"prompt": "a", "answer": "x", "choices": ["x", "y"]}')
    with pytest.raises(UsageError, match="'judge' is for generated answers"):
        find("c.jsonl?judge=math")
