"""Few-shot prompts: solved questions of the task before each of its own, never the one that is asked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.task import Answer, Item, Task
from lesion.tasks.wrapped import FewShot, draw_shots, solution


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["primer:reading", "primer:atlas", "ioi", "facts"])
def test_shots_are_items_of_the_calibration_pool_and_never_the_item_itself(name, count):
    task, inner = FewShot(find(name), count), find(name)
    assert isinstance(task, Task)
    assert task.name == f"fewshot:{count}:{name}"
    assert (task.kind, task.style, task.max_new_tokens) == (inner.kind, inner.style, inner.max_new_tokens)
    pool = {item.question: item for item in calibration_items(inner)}
    items = task.load()
    assert [replace(item, shots=()) for item in items] == list(inner.load())
    for item in items:
        assert len({question for question, _ in item.shots}) == count
        for question, solved in item.shots:
            assert question != item.question
            assert solved == (pool[question].gold if pool[question].choices else pool[question].solution)


def test_fewer_shots_are_the_first_of_more_and_each_item_has_its_own():
    few, many = (FewShot(find("primer:reading"), count).load() for count in (2, 8))
    assert all(a.shots == b.shots[:2] for a, b in zip(few, many, strict=True))
    assert len({item.shots for item in few}) > 0.99 * len(few)
    assert few == FewShot(find("primer:reading"), 2).load()


@given(st.lists(st.sampled_from("abcde"), max_size=8), st.sampled_from("abcde"), st.integers(1, 4))
def test_as_many_shots_as_there_are_other_questions_can_be_had_and_no_more(questions, asked, count):
    pool = [Item(str(number), question, "g") for number, question in enumerate(questions)]
    item = Item("asked", asked, "g")
    others = set(questions) - {asked}
    if count > len(others):
        with pytest.raises(UsageError, match=f"there are {len(others)} others to take"):
            draw_shots(item, pool, count, "task")
    else:
        drawn = [shot.question for shot in draw_shots(item, pool, count, "task")]
        assert len(drawn) == len(set(drawn)) == count
        assert set(drawn) <= others


def test_of_a_local_file_the_other_items_are_the_shots(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(
        "\n".join(f'{{"id": "{n}", "prompt": "{n} + 1 =", "answer": "{n + 1}"}}' for n in range(3)), encoding="utf-8"
    )
    task = find(f"fewshot:2:{path}")
    for item in task.load():
        others = [n for n in range(3) if str(n) != item.id]
        assert sorted(item.shots) == [(f"{n} + 1 =", f"{n + 1}") for n in others]
    with pytest.raises(UsageError, match="3 solved questions were asked for before item 0"):
        find(f"fewshot:3:{path}").load()


def test_every_shot_of_the_real_problems_ends_in_an_answer_that_its_judge_finds_right(shared):
    inner = find(f"gsm8k:{shared}/data/gsm8k/test.jsonl")
    for item in inner.load()[:50]:
        solved = solution(inner, item)
        assert solved == f"{item.solution}\n#### {item.gold}"
        assert inner.judge(item, Answer(solved)).correct


def test_an_answer_ends_where_a_next_question_begins(tmp_path):
    assert FewShot(find("primer:reading"), 1).stop == ("\nQuestion:",)
    assert FewShot(find("gsm8k"), 1).stop == find("gsm8k").stop
    assert FewShot(find("mmlu"), 1).stop == ()
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1", "prompt": "p", "answer": "a", "judge": "math"}', encoding="utf-8")
    assert FewShot(find(str(path)), 1).stop == ("\nQuestion:", "\n\n")


def test_calibration_items_have_shots_too():
    pool = calibration_items(find("fewshot:2:primer:reading"))
    assert [item.id for item in pool] == [item.id for item in calibration_items(find("primer:reading"))]
    assert all(len(item.shots) == 2 and item.question not in dict(item.shots) for item in pool)
