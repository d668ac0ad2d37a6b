"""Corrupted prompts: what each task changes, that another answer is right then, and what is refused."""

import json

import pytest

from lesion.errors import UsageError
from lesion.tasks.catalogue import find
from lesion.tasks.counterparts import corruptions_of
from lesion.tasks.generated.family import words
from rowfiles import write

IOI = {"prompt": "Then Ann and Bob went home. Ann gave a book to", "answer": "Bob"}
FACTS = [
    {"known_id": 0, "subject": "Rome", "attribute": "Italy", "prompt": "Rome lies in", "relation_id": "P17"},
    {"known_id": 1, "subject": "Lyon", "attribute": "France", "prompt": "Lyon is a city of", "relation_id": "P17"},
    {"known_id": 2, "subject": "Turin", "attribute": "Italy", "prompt": "Turin lies in", "relation_id": "P17"},
    {"known_id": 3, "subject": "Zola", "attribute": "writer", "prompt": "Zola is a", "relation_id": "P106"},
]


def of(task, index=0):
    task = find(task)
    return list(corruptions_of(task, task.load()[index]))


def test_the_repeated_name_of_ioi_becomes_the_other_one_which_swaps_the_answer(tmp_path):
    file = tmp_path / "ioi.json"
    file.write_text(json.dumps([IOI]))
    (other,) = of(f"ioi:{file}")
    assert other.question == "Then Ann and Bob went home. Bob gave a book to"
    assert (other.gold, other.choices) == ("Ann", ("Ann", "Bob"))
    assert all(len(of("ioi", index)) == 1 for index in range(20))


def test_a_fact_is_told_of_another_subject_of_the_relation_with_another_answer_in_its_own_wording(tmp_path):
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(FACTS))
    (other,) = of(f"facts:{file}")
    assert (other.question, other.gold, other.id) == ("Lyon lies in", "France", "1")
    assert {item.question for item in of(f"facts:{file}", 1)} == {"Rome is a city of", "Turin is a city of"}
    assert of(f"facts:{file}", 3) == []  # no other item of its relation


def test_induction_has_another_word_where_the_right_one_stood():
    item = find("induction?length=6").load()[0]
    first, second = item.question.split(), of("induction?length=6")[0].question.split()
    changed = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    assert len(changed) == 1
    assert changed[0][0] == item.gold
    assert of("induction?length=6")[0].gold == changed[0][1]
    assert changed[0][1] in set(words()) - set(first)


def test_agreement_has_its_subject_in_the_other_number():
    item, (other,) = find("agreement").load()[0], of("agreement")
    changed = [pair for pair in zip(item.question.split(), other.question.split(), strict=True) if len({*pair}) > 1]
    assert len(changed) == 1
    assert item.question.split()[1] == changed[0][0]
    assert (other.gold, other.choices[1]) == (item.choices[1], item.gold)


def test_an_invented_fact_becomes_one_about_another_person_in_the_same_wording():
    task = find("primer:atlas?form=contrast")
    known = {item.id: item for item in task.load()}
    item = task.load()[7]
    others = list(corruptions_of(task, item))
    assert len(others) > 50
    for other in others:
        own = known[other.id]
        assert (own.group, own.gold) == (item.group, other.gold)
        assert other.gold != item.gold
        apart = [(a, b) for a, b in zip(item.question.split(), other.question.split(), strict=True) if a != b]
        assert 1 <= len(apart) <= 2  # first and family name


def test_rows_of_one_group_corrupt_each_other(tmp_path):
    rows = [
        {"prompt": f"{n} is", "answer": a, "tempting": "no", "group": g} for n, a, g in ("aax", "bby", "cax", "dbx")
    ]
    file = write(tmp_path / "rows.jsonl", *rows)
    assert [item.question for item in of(f"{file}")] == ["d is"]


@pytest.mark.parametrize(
    ("task", "why"), [("primer:arithmetic", "has no tempting tokens"), ("shuffled:ioi", "no rule by which to corrupt")]
)
def test_a_task_that_cannot_be_corrupted_is_refused_by_name(task, why):
    with pytest.raises(UsageError, match=why):
        of(task)
