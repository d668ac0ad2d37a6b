"""IOI: the project's own sentences, and files of others."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.benchmarks.ioi import Ioi
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Task
from rowfiles import write


def test_the_projects_own_sentences_name_the_giver_twice_and_the_answer_once_in_both_orders():
    task = find("ioi")
    assert isinstance(task, Task)
    items = task.load()
    assert len(items) == len({item.question for item in items}) == 400
    assert Counter(item.group for item in items) == {"ABBA": 200, "BABA": 200}
    for item, tempted in zip(items, find("ioi?tempting=subject").load(), strict=True):
        subject = tempted.choices[1]
        words = re.findall(r"\w+", item.question)
        assert (words.count(item.gold), words.count(subject)) == (1, 2)
        assert item.gold[0] != subject[0]
        assert (words.index(item.gold) < words.index(subject)) == (item.group == "ABBA")
        assert words[-1] in ("to", "for")
        assert "{" not in item.question
        assert item.choices == tempted.choices == (item.gold, subject, " the")


def test_the_sentences_are_the_same_every_time_and_none_is_observed_that_is_asked():
    first, second = Ioi().load(), Ioi().load()
    assert first == second
    pool = calibration_items(find("ioi"))
    assert len(pool) == 400
    assert not {item.question for item in pool} & {item.question for item in first}
    assert not {item.id for item in pool} & {item.id for item in first}


def test_the_real_file_is_read_and_its_repeated_names_are_found(shared):
    path = shared / "data/ioi/ioi.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    items = find(f"ioi:{path}?tempting=subject").load()
    assert [(i.id, i.question, i.gold) for i in items] == [(str(r["case_id"]), r["prompt"], r["answer"]) for r in rows]
    for item in items:
        words = re.findall(r"[A-Z]\w+", item.question)
        assert words.count(item.choices[1]) == 2
        assert item.group == ("ABBA" if words.index(item.gold) < words.index(item.choices[1]) else "BABA")
    assert find(f"ioi:{path}").load() == items
    assert {item.choices[2:] for item in items} == {(" the",)}


names = st.sampled_from(["Zoë", "O'Neil", "Jean-Luc", "Li", "Ann"])


ends = st.sampled_from(["", ".", "!", "?!", "…", '."', " .", ".)"])


@given(st.lists(names, min_size=2, max_size=2, unique=True), st.booleans(), st.booleans(), ends)
def test_whole_sentences_and_other_names_of_fields_are_read_as_the_same_items(
    tmp_path_factory, pair, whole, given_, end
):
    right, subject = pair
    prompt = f"When {right} and {subject} met, {subject} gave a pen to"
    row = {"text" if whole else "prompt": f"{prompt} {right}{end}" if whole else prompt, "IO": right}
    if given_:
        row["S"] = subject
    path = write(tmp_path_factory.mktemp("data") / "ioi.json", row)
    (item,) = Ioi(str(path), "subject").load()
    assert (item.question, item.gold, item.choices, item.group) == (prompt, right, (right, subject, " the"), "ABBA")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"answer": "Ann"}, r"row 1: there is no field 'prompt'; there are 'answer'"),
        ({"prompt": "Ann and", "answer": None}, r"row 1: 'answer' is empty \(null\)"),
        (
            {"text": "When Li and Ann met, Li gave Ann a drink.", "IO": "Ann"},
            r"row 1: the sentence must end in the answer 'Ann', and ends in 'drink\.'",
        ),
        ({"sentence": "Ann?", "IO": "Ann"}, r"row 1: the prompt is nothing but the answer 'Ann'"),
        ({"prompt": "Ann and Li. Li to", "answer": "Ann", "case_id": 0}, r"row 1: the id '0' is that of .*row 0"),
        ({"prompt": "Ann and Li went to", "answer": "Ann"}, r"row 1: there is no name besides 'Ann' that stands twice"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_with_file_and_row(tmp_path, row, says):
    good = {"prompt": "Ann and Li. Li gave it to", "answer": "Ann", "case_id": 0}
    path = write(tmp_path / "ioi.json", good, row)
    with pytest.raises(UsageError, match=f"{re.escape(str(path))}, {says}"):
        find(f"ioi:{path}?tempting=subject").load()


def test_a_prompt_may_end_in_the_answer_or_go_on(tmp_path):
    texts = ["Ann and Li met, and Li waved to Ann!", "Ann and Li met, and Li told Ann about", "Li called Joann"]
    path = write(tmp_path / "ioi.json", *[{"prompt": text, "answer": "Ann"} for text in texts])
    assert [item.question for item in Ioi(str(path)).load()] == ["Ann and Li met, and Li waved to", *texts[1:]]


def test_a_name_with_a_stop_of_its_own_ends_a_sentence(tmp_path):
    path = write(
        tmp_path / "ioi.json",
        *[{"text": f"Bob and Al Jr. met, and Bob waved to Al Jr.{end}", "IO": "Al Jr."} for end in ("", "!")],
    )
    assert {item.question for item in Ioi(str(path)).load()} == {"Bob and Al Jr. met, and Bob waved to"}


def test_without_a_repeated_name_another_text_may_tempt(tmp_path):
    path = write(tmp_path / "ioi.json", {"prompt": "Ann and Li went to", "answer": "Ann"})
    (item,) = find(f"ioi:{path}?tempting= her").load()
    assert (item.choices, item.group) == (("Ann", " her", " the"), "")
