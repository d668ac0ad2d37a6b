"""Frames: the texts that stand in for an item share its solved problems, its form, and its tokens one by one."""

import re

import pytest

import lesion
from lesion.activations.calibration import frames
from lesion.errors import UsageError
from lesion.models.load import Model
from lesion.tasks.catalogue import draw, find
from lesion.tasks.prompts import encode


@pytest.fixture(scope="module")
def network() -> Model:
    return lesion.load("bundled:llama-base")


SOLVED = ["arithmetic:add?digits=1", "arithmetic:copy?digits=2&shots=2", "copying?length=2&shots=2",
          "arithmetic:subtract?sets=3", "arithmetic:words?digits=1&shots=1&form=question"]  # fmt: skip


@pytest.mark.parametrize("name", SOLVED)
def test_texts_stand_behind_the_solved_problems_of_the_item_and_show_another_one(name):
    task = find(name)
    for item in draw(task, 20, 0):
        between = "\n\n" if "question" in name else "\n"
        before, _, asked = item.question.rpartition(between)
        others = lesion.aligned(task, item)
        assert len({other.question for other in others}) == len(others) >= 5
        for other in others:
            shots, _, question = other.question.rpartition(between)
            assert shots == before
            assert re.sub(r"[\w-]+", "_", question) == re.sub(r"[\w-]+", "_", asked) or "words" in name
            assert question not in before
            assert task.judge(other, lesion.tasks.task.Answer(other.gold)).correct


def test_sentences_of_ioi_are_the_same_but_for_their_names():
    task = find("ioi")
    for item in draw(task, 20, 0):
        subject = item.metadata["subject"]
        for other in lesion.aligned(task, item)[:50]:
            names = {other.gold: item.gold, other.metadata["subject"]: subject}
            back = [names.get(word, word) for word in re.split(r"\b", other.question)]
            assert "".join(back) == item.question
            assert other.gold != other.metadata["subject"]


@pytest.mark.parametrize("name", ["arithmetic:add?digits=1&sets=2", "greater_than", "ioi", "fewshot:2:greater_than"])
def test_in_a_frame_each_token_stands_beside_one_of_the_same_word(network, name):
    task = find(name)
    items = draw(task, 6, 0)
    found = frames(network, task, items, fewest=2)
    assert sorted(item.id for frame in found for item in frame.items) == sorted(item.id for item in items)
    for frame in found:
        for item in frame.items:
            own = encode(network, task, item, "raw")
            for text in frame.texts:
                theirs = encode(network, task, text, "raw")
                assert len(own) == len(theirs)
                # Of words that are equal the tokens are equal, at the same places: nothing between them has shifted.
                pairs = zip(item.question.split(), text.question.split(), strict=True)
                assert sum(a == b for a, b in zip(own, theirs, strict=True)) >= sum(a == b for a, b in pairs)
                assert text.shots == item.shots


@pytest.mark.parametrize(
    "name", ["primer:arithmetic", "facts", "agreement", "shuffled:ioi", "fewshot:2:primer:reading"]
)
def test_a_task_whose_texts_differ_in_form_is_refused_by_its_name(network, name):
    task = find(name)
    with pytest.raises(UsageError, match=rf"^{re.escape(name)} has no texts that are aligned .*--replace"):
        frames(network, task, draw(task, 2, 0))


def test_items_with_too_few_aligned_texts_are_counted_and_one_is_named(network):
    task = find("copying?length=3")
    with pytest.raises(UsageError, match=r"5 of 5 items of copying.* have fewer than 401 texts .*\(item \S+: \d+\)"):
        frames(network, task, draw(task, 5, 0), texts=500, fewest=401)
