"""Facts: the project's own, and the files of others in their several forms."""

import json
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.benchmarks.facts import Facts
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Answer, Task, Verdict
from rowfiles import write


def test_the_projects_own_facts_are_well_over_a_hundred_different_statements():
    task = find("facts")
    assert isinstance(task, Task)
    items = task.load()
    assert len(items) == len({item.id for item in items}) == len({item.question for item in items}) >= 150
    for item in items:
        relation, _, subject = item.id.partition(":")
        assert item.group == relation
        assert subject in item.question
        assert not item.question.endswith(" ")
        assert item.choices == (item.gold, " the")
    # Each relation is asked in several wordings.
    wordings = {(i.group, i.question.replace(i.id.partition(":")[2], "{}")) for i in items}
    assert min(Counter(group for group, _ in wordings).values()) >= 2
    assert calibration_items(task) == items


def test_the_known_facts_are_read_and_what_is_frequent_is_counted(shared):
    path = shared / "data/counterfact/known_1000.json"
    rows = json.loads(path.read_text(encoding="utf-8"))
    items = find(f"facts:{path}?tempting=frequent").load()
    assert [(i.id, i.question, i.gold, i.group) for i in items] == [
        (str(r["known_id"]), r["prompt"], r["attribute"], r["relation_id"]) for r in rows
    ]
    for item in items:
        others = Counter(r["attribute"] for r in rows if r["relation_id"] == item.group and r["attribute"] != item.gold)
        if others:
            assert others[item.choices[1]] == max(others.values())
        else:
            assert item.choices[1] != item.gold


def test_counterfact_is_read_as_rows_and_as_it_was_published(shared, tmp_path):
    flat = shared / "data/counterfact/counterfact-val.json"
    rows = json.loads(flat.read_text(encoding="utf-8"))
    items = find(f"facts:{flat}").load()
    assert [(i.id, i.question, i.gold) for i in items] == [
        (str(r["case_id"]), r["prompt"], r["ground_truth"]) for r in rows
    ]
    assert all("{}" in item.group for item in items)
    assert [i.choices[1:-1] for i in items] == [(r["target_new"],) for r in rows]
    nested = [
        {
            "case_id": r["case_id"],
            "requested_rewrite": {
                "prompt": r["prompt"].replace(r["subject"], "{}"),
                "relation_id": "P1",
                "subject": r["subject"],
                "target_new": {"str": r["target_new"], "id": "Q1"},
                "target_true": {"str": r["ground_truth"], "id": "Q2"},
            },
        }
        for r in rows
    ]
    published = find(f"facts:{write(tmp_path / 'facts.json', *nested)}").load()
    assert [(i.id, i.question, i.gold, i.choices) for i in published] == [
        (i.id, i.question, i.gold, i.choices) for i in items
    ]
    assert {item.group for item in published} == {"P1"}


words = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and "{" not in text).map(str.strip)


@given(words, words, st.sampled_from(["attribute", "ground_truth", "target_true"]), st.booleans())
def test_every_name_of_the_right_text_and_both_kinds_of_prompt_make_the_same_item(
    tmp_path_factory, subject, right, field, spelt
):
    prompt = "It is said that {} is in"
    row = {"id": 4, "subject": subject, field: f" {right} ", "relation": "place"}
    row["prompt"] = prompt.replace("{}", subject) if spelt else prompt
    (item,) = Facts(str(write(tmp_path_factory.mktemp("data") / "facts.json", row)), " x").load()
    assert (item.id, item.question, item.gold, item.group, item.choices) == (
        "4",
        prompt.replace("{}", subject),
        right,
        "place",
        (right, " x", " a" if right.startswith("the") else " the"),
    )


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"subject": "Rome", "attribute": "Italy"}, "there is no field 'prompt'"),
        ({"prompt": "Rome is in", "attribute": None}, r"'attribute' is empty \(null\); fill it in"),
        ({"prompt": "Rome is in", "target_true": {"str": None}}, r"'target_true': 'str' is empty \(null\)"),
        ({"prompt": "Rome is in", "attribute": 3}, "'answer' must be a text"),
        ({"prompt": "{} is in", "attribute": "Italy"}, ".*there is no 'subject'"),
        ({"requested_rewrite": "Rome"}, "'requested_rewrite' must be an object"),
        ({"prompt": "Rome is in", "attribute": "Italy", "case_id": 7}, "the id '7' is that of .*row 0"),
        ({"prompt": "Rome is in", "attribute": "\ud800"}, ".*half a character"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_with_file_and_row(tmp_path, row, says):
    path = write(tmp_path / "facts.json", {"case_id": 7, "prompt": "Paris is in", "attribute": "France"}, row)
    with pytest.raises(UsageError, match=f"{re.escape(str(path))}, row 1[:,] {says}"):
        find(f"facts:{path}").load()


def test_where_all_have_one_answer_nothing_is_frequent(tmp_path):
    path = write(tmp_path / "facts.json", {"prompt": "Paris is in", "attribute": "France"})
    assert find(f"facts:{path}").load()[0].group == ""
    with pytest.raises(UsageError, match="have the same right answer 'France'"):
        find(f"facts:{path}?tempting=frequent").load()


def test_the_atlas_as_contrasts_asks_its_facts_in_their_prompts_with_the_most_frequent_value_tempting():
    task, asked = find("primer:atlas?form=contrast"), find("primer:atlas")
    assert (task.kind, task.style) == ("contrast", asked.style)
    assert [(i.id, i.question, i.gold, i.group) for i in task.load()] == [
        (i.id, i.question, i.gold, i.group) for i in asked.load()
    ]
    for item in task.load():
        counts = Counter(i.gold for i in asked.load() if i.group == item.group and i.gold != item.gold)
        assert counts[item.choices[1]] == max(counts.values())
    item = task.load()[0]
    assert task.judge(item, Answer(f" {item.gold}", ranks=(1, 5))) == Verdict(True, item.gold)
