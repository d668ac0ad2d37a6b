"""Names of tasks, and seeded draws of their items."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.errors import LesionError, UsageError
from lesion.tasks.catalogue import draw, find
from lesion.tasks.task import Answer, Item, Kind, Task, Verdict


@dataclass(frozen=True)
class Numbers:
    """A task of `count` items, listed backwards if asked."""

    count: int = 50
    backwards: bool = False
    name: str = "numbers"
    kind: Kind = "generate"
    max_new_tokens: int = 4
    stop: tuple[str, ...] = ()
    style: str = "raw"

    def load(self):
        items = [Item(f"n{number}", f"{number} + 1 =", f"{number + 1}") for number in range(self.count)]
        return items[::-1] if self.backwards else items

    def judge(self, item: Item, answer: Answer) -> Verdict:
        return Verdict(answer.text == item.gold, answer.text)


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(0, 50), st.integers())
def test_a_smaller_draw_is_the_beginning_of_a_larger_one(one, other, seed):
    small, large = sorted((max(one, 1), max(other, 1)))
    assert draw(Numbers(), large, seed)[:small] == draw(Numbers(), small, seed)


@settings(deadline=None)
@given(st.integers())
def test_a_draw_of_all_holds_every_item_once_whatever_the_order_of_the_file(seed):
    everything = draw(Numbers(), None, seed)
    assert sorted(item.id for item in everything) == sorted(item.id for item in Numbers().load())
    assert everything == draw(Numbers(backwards=True), 50, seed)


def test_the_order_is_that_of_the_documented_digest():
    keys = [hashlib.sha256(f"7:{item.id}".encode()).hexdigest() for item in draw(Numbers(), None, 7)]
    assert keys == sorted(keys)


def test_another_seed_draws_other_items():
    assert draw(Numbers(), 10, 0) != draw(Numbers(), 10, 1)


def test_every_item_is_drawn_equally_often():
    counts = [0] * 50
    for seed in range(2000):
        for item in draw(Numbers(), 5, seed):
            counts[int(item.id[1:])] += 1
    # 200 expected for each, standard deviation 13.4
    assert min(counts) > 140
    assert max(counts) < 260


def test_more_than_there_are_is_told_with_both_numbers():
    with pytest.raises(UsageError, match=r"51 items were asked for, and numbers has 50\."):
        draw(Numbers(), 51, 0)
    with pytest.raises(UsageError, match="at least 1"):
        draw(Numbers(), 0, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gsm8", "nearest: gsm8k"),
        ("triviqa", "nearest: triviaqa"),
        ("primer:arithmetik", "nearest: primer:arithmetic"),
        ("triviaqa?rule=substrings", "nearest: substring"),
        ("gsm8k:", "write gsm8k:PATH"),
        ("gsm8k:/not/there.jsonl", "There is no file"),
        ("jsonl:", "jsonl:PATH"),
        ("not-there.jsonl", "There is no file not-there.jsonl"),
        ("", "There is no task ''"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(name, says):
    with pytest.raises(UsageError) as error:
        find(name)
    assert says in str(error.value)


@pytest.mark.parametrize("name", ["gsm8k", "math500", "triviaqa", "triviaqa?rule=substring", "primer:atlas"])
def test_a_task_has_the_name_by_which_it_was_found(name):
    task = find(name)
    assert isinstance(task, Task)
    assert task.name == name


def test_a_file_of_questions_is_found_by_its_ending(tmp_path):
    path = tmp_path / "triviaqa-like.jsonl"
    path.write_text('{"id": "1", "prompt": "p", "answer": "a"}', encoding="utf-8")
    assert find(str(path)).name == str(path)
    assert find(f"jsonl:{path}").name == f"jsonl:{path}"
    assert draw(find(str(path)), None, 0)[0].question == "p"


@pytest.mark.parametrize("name", ["gsm8k", "math500", "triviaqa"])
def test_without_the_hub_a_local_file_is_advised(name, monkeypatch):
    import datasets

    def refuse(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(LesionError, match=rf"no route to host.*{name}:PATH"):
        find(name).load()
