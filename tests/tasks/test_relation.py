"""A choice among a relation keeps an item's prompt and right text, and asks among the objects of its relation."""

import json

from lesion.tasks.catalogue import find
from lesion.tasks.task import Answer
from lesion.tasks.wrapped import Relation, has_relations

ROWS = [
    {"case_id": 1, "prompt": "The mother tongue of A is", "subject": "A", "ground_truth": "French"},
    {"case_id": 2, "prompt": "The mother tongue of B is", "subject": "B", "ground_truth": "Dutch"},
    {"case_id": 3, "prompt": "C plays the", "subject": "C", "ground_truth": "piano"},
]


def test_facts_are_asked_among_the_objects_of_their_relation(tmp_path):
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(ROWS))
    facts = find(f"facts:{file}")
    task = Relation(facts)
    assert task.kind == "choose"
    assert {item.id: item.choices for item in task.load()} == {"1": ("Dutch", "French"), "2": ("Dutch", "French")}
    plain = {item.id: item for item in facts.load()}
    for item in task.load():
        assert (item.question, item.gold) == (plain[item.id].question, plain[item.id].gold)
        assert task.judge(item, Answer(item.gold)).correct
        assert not task.judge(item, Answer(next(text for text in item.choices if text != item.gold))).correct
        assert not task.judge(item, Answer(item.gold, finish="nonfinite")).correct


def test_what_has_no_relations_is_not_asked_so():
    assert has_relations(find("facts"))
    assert not any(map(has_relations, map(find, ("ioi", "arithmetic:add", "primer:atlas"))))
