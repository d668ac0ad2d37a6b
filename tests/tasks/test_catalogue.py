"""Names of tasks, and seeded draws of their items."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import LesionError, UsageError
from lesion.tasks import benchmarks
from lesion.tasks.catalogue import NAMES, calibration_items, canonical, draw, find
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


@given(st.integers(0, 50), st.integers(0, 50), st.integers())
def test_a_smaller_draw_is_the_beginning_of_a_larger_one(one, other, seed):
    small, large = sorted((max(one, 1), max(other, 1)))
    assert draw(Numbers(), large, seed)[:small] == draw(Numbers(), small, seed)


@given(st.integers())
def test_a_draw_of_all_holds_every_item_once_whatever_the_order_of_the_file(seed):
    everything = draw(Numbers(), None, seed)
    assert sorted(item.id for item in everything) == sorted(item.id for item in Numbers().load())
    assert everything == draw(Numbers(backwards=True), 50, seed)


def test_the_order_is_that_of_the_documented_digest():
    keys = [hashlib.sha256(f"7:{item.id}".encode()).hexdigest() for item in draw(Numbers(), None, 7)]
    assert keys == sorted(keys)


def test_none_is_refused():
    with pytest.raises(UsageError, match="at least 1"):
        draw(Numbers(), 0, 0)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gsm8", "nearest: gsm8k"),
        ("primer:arithmetik", "nearest: primer:arithmetic"),
        ("triviaqa?rule=substrings", "nearest: substring"),
        ("gsm8k:", "write gsm8k:PATH"),
        ("gsm8k:/not/there.jsonl", "There is no file"),
        ("jsonl:", "jsonl:PATH"),
        ("", "There is no task ''"),
        ("gsm8k?rule=exact", "There is no option 'rule' in 'gsm8k?rule=exact'; it has none"),
        ("wikitext:x.txt", "a file of running text text:PATH"),
        ("facts?tempting=", "has no value; write tempting=frequent"),
        ("primer:arithmetic?n=8", "primer:arithmetic has no setting 'n=8'"),
        ("primer:atlas?form=choice", "There is no form 'choice' for primer:atlas; there is contrast"),
        ("primer:reading?form=contrast", "primer:atlas?form=contrast is the only one"),
        ("gold:", "Say which task: gold:TASK"),
        ("gold:gold:gsm8k", "in the order gold:shuffled:fewshot:K:TASK"),
        ("shuffled:gold:gsm8k", "'shuffled:gold:gsm8k' has shuffled: before gold:"),
        ("fewshot:2:shuffled:gsm8k", "in the order gold:shuffled:fewshot:K:TASK"),
        ("fewshot:2:fewshot:2:gsm8k", "each once at most"),
        ("fewshot:gsm8k", "no number of solved questions; write fewshot:K:TASK"),
        ("fewshot:², :gsm8k", "no number of solved questions"),
        ("fewshot:2", "Say which task: fewshot:K:TASK"),
        ("fewshot:2:primer:text", "has no solved questions"),
        ("shuffled:primer:text", "no gold answers"),
    ],
)
def test_a_name_that_is_none_is_told_with_the_nearest(name, says):
    with pytest.raises(UsageError) as error:
        find(name)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "triviaqa?rule=substring", "nq_open?rule=exact", "mmlu?form=text", "race?form=text", "ioi?tempting=subject",
        "facts?tempting=frequent", "facts?tempting= her", "primer:atlas?form=contrast", "gold:primer:atlas",
        "gold:shuffled:fewshot:8:primer:atlas", "fewshot:4:ioi?tempting=subject",
        *(name for name in NAMES if name not in ("jsonl", "text")),
    ],
)  # fmt: skip
def test_a_task_has_the_name_by_which_it_was_found(name):
    task = find(name)
    assert isinstance(task, Task)
    assert task.name == name


def test_every_file_of_benchmarks_is_one_that_is_found_by_its_name():
    folder = Path(benchmarks.__file__).parent
    names = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert {find(name).name for name in names} == names == set(benchmarks.BENCHMARKS)


def test_a_file_of_questions_is_found_by_its_ending(tmp_path):
    path = tmp_path / "triviaqa-like.jsonl"
    path.write_text('{"id": "1", "prompt": "p", "answer": "a"}', encoding="utf-8")
    assert find(str(path)).name == str(path)
    assert find(f"jsonl:{path}").name == f"jsonl:{path}"
    assert draw(find(str(path)), None, 0)[0].question == "p"


@pytest.mark.parametrize("name", ["gsm8k", "math500", "triviaqa", "nq_open", "mmlu", "race"])
def test_without_the_hub_a_local_file_is_advised(name, monkeypatch):
    import datasets

    def refuse(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(LesionError, match=rf"no route to host.*{name}:PATH"):
        find(name).load()


GSM = {"question": "How many?", "answer": "2*3=<<2*3=6>>6.\n#### 6"}
TRIVIA = {"question": "Who?", "question_id": "q1", "answer": {"value": "Mark Twain", "aliases": []}}


@pytest.mark.parametrize(("name", "row"), [("gsm8k", GSM), ("triviaqa", TRIVIA)])
def test_from_the_hub_calibration_takes_the_training_split_of_a_benchmark(tmp_path, monkeypatch, name, row):
    asked = []

    def rows(task, repository, subset, split):
        asked.append(split)
        return [row | {"question": f"{split}?", "question_id": split}]

    monkeypatch.setattr("lesion.tasks.benchmark.hub_rows", rows)
    task = find(name)
    assert [item.question for item in calibration_items(task)] == ["train?"]
    assert task.load()[0].question == f"{asked[-1]}?" != "train?"
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(row), encoding="utf-8")
    local = find(f"{name}:{path}")
    assert calibration_items(local) == local.load()


@pytest.mark.parametrize("name", ["primer:arithmetic", "primer:reading"])
def test_the_primers_calibration_items_are_two_thousand_of_the_training_split(name):
    task = find(name)
    pool, asked = calibration_items(task), task.load()
    assert len(pool) == len({item.id for item in pool}) == len({item.question for item in pool}) == 2000
    assert all(re.fullmatch(r"train-\d+", item.id) for item in pool)
    assert not {item.question for item in pool} & {item.question for item in asked}
    assert {item.group for item in pool} == {item.group for item in asked}
    for item in pool:
        assert task.judge(item, Answer(item.solution)).correct
        if name == "primer:arithmetic":  # the problem itself, in whatever words, is not one of the test split
            chain = item.solution.split()[:-2]
            numbers = "".join([re.match(r"\d+", chain[0])[0], *(re.search(r"[-+*/]\d+", step)[0] for step in chain)])
            assert hashlib.sha256(numbers.encode()).digest()[0] >= 26
    assert pool == calibration_items(find(name))


def test_one_file_typed_in_several_ways_is_one_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"id": "1", "prompt": "a", "answer": "b"}\n')
    names = ["q.jsonl", "./q.jsonl", "jsonl:q.jsonl", f"jsonl:{tmp_path / 'q.jsonl'}"]
    assert len({canonical(name) for name in names}) == 1
    for before in ("gold:", "shuffled:", "fewshot:2:", "gold:shuffled:fewshot:2:"):
        assert {canonical(before + name) for name in names} == {before + canonical("q.jsonl")}
        assert find(before + "q.jsonl").name == before + "q.jsonl"
    assert canonical("fewshot:2:q.jsonl") != canonical("fewshot:4:q.jsonl")
    assert canonical("ioi:q.jsonl?tempting=subject") == f"ioi:{tmp_path / 'q.jsonl'}?tempting=subject"
    assert canonical("gold:") == "gold:"
    assert canonical("triviaqa:q.jsonl?rule=exact") != canonical("triviaqa:q.jsonl")
    assert [canonical(name) for name in ("gsm8k", "primer:atlas", "gsm8k:absent")] == [
        "gsm8k",
        "primer:atlas",
        "gsm8k:absent",
    ]


def test_a_file_name_with_control_characters_is_refused(tmp_path):
    file = tmp_path / "q\x1b[31m.jsonl"
    file.write_text('{"id": "1", "prompt": "a", "answer": "b"}\n')
    with pytest.raises(UsageError, match="control characters"):
        find(str(file))


def test_a_file_of_another_kind_is_told_which_kinds_are_read():
    with pytest.raises(UsageError, match=r"is no task; a file of your own questions is JSON Lines \(\.jsonl\), a JSON"):
        find("data/words.txt")
