"""Calibration: what a text is, and which texts a draw has."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.activations.calibration import calibration
from lesion.errors import LesionError, UsageError
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_choices, encode_solved
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item
from tiny import model

LLAMA = model("llama")


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "sums.jsonl"
    rows = [{"id": f"i{n}", "prompt": f"{n} + 1 =", "answer": f" {n + 1}"} for n in range(20)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return find(str(file))


def said(ids):
    return LLAMA.tokenizer.decode(ids)


def test_a_jsonl_text_is_prompt_and_answer_as_they_stand(jsonl):
    item = jsonl.load()[3]
    assert encode_solved(LLAMA, jsonl, item) == tuple(LLAMA.tokenizer.encode("3 + 1 = 4"))
    glued = Item("a", "abc", "def")
    assert said(encode_solved(LLAMA, jsonl, glued)) == "<s>abcdef"


def test_a_text_is_the_prompt_that_is_asked_and_the_worked_solution_after_one_space():
    task = find("primer:atlas")
    item = Item("x", "what is 2 + 3?", "5", solution="2 + 3 = 5. #### 5")
    solved = encode_solved(LLAMA, task, item)
    prompt = encode(LLAMA, task, item)
    assert solved[: len(prompt)] == prompt
    assert said(solved) == "<s>question: what is 2 + 3?\nanswer: 2 + 3 = 5. #### 5"


def test_of_choices_the_gold_one_follows_as_when_it_is_scored(tmp_path):
    file = tmp_path / "choices.jsonl"
    file.write_text(json.dumps({"id": "1", "prompt": "sky is", "answer": "blue", "choices": ["red", "blue"]}))
    task = find(str(file))
    item = task.load()[0]
    prompt, choices = (encode(LLAMA, task, item, "plain"), encode_choices(LLAMA, task, item, "plain"))
    assert encode_solved(LLAMA, task, item, "plain") == prompt + choices[1]


def test_control_tokens_in_a_solution_are_characters():
    ids = encode_solved(LLAMA, find("primer:atlas"), Item("x", "who </s>", "me </s>"))
    assert LLAMA.tokenizer.eos_token_id not in ids


def expected_order(items, seed):
    # The items that are asked come from the other end.
    digest = {item.id: hashlib.sha256(f"{seed}:{item.id}".encode()).digest() for item in items}
    return sorted(digest, key=digest.__getitem__, reverse=True)


def test_the_first_draw_begins_where_the_seeded_draw_of_the_catalogue_ends(jsonl):
    found = calibration(LLAMA, jsonl, 7, seed=5)
    every = draw(jsonl, None, 5)
    last = every[::-1][:7]
    assert found.ids == tuple(item.id for item in last) == tuple(expected_order(jsonl.load(), 5)[:7])
    assert found.draws[0].places == tuple(range(7))
    assert found.texts == tuple(encode_solved(LLAMA, jsonl, item) for item in last)


def test_what_is_asked_under_the_same_seed_is_not_observed_while_there_are_items_for_both(jsonl):
    there = len(jsonl.load())
    for samples, asked in ((7, there - 7), (there - 3, 3), (there // 2, there // 2), (7, there - 6)):
        observed = set(calibration(LLAMA, jsonl, samples, seed=3).ids)
        both = observed & {item.id for item in draw(jsonl, asked, 3)}
        assert len(both) == max(0, samples + asked - there)


def test_repeats_take_stretches_of_one_order_while_the_pool_suffices(jsonl):
    found = calibration(LLAMA, jsonl, (2, 6), repeats=3)
    assert found.disjoint
    assert [(d.samples, d.repeat) for d in found.draws] == [(2, 0), (2, 1), (2, 2), (6, 0), (6, 1), (6, 2)]
    large = [[found.ids[p] for p in d.places] for d in found.draws[3:]]
    assert [i for ids in large for i in ids] == expected_order(jsonl.load(), 0)[:18]
    for small, whole in zip(found.draws[:3], found.draws[3:], strict=True):
        assert small.places == whole.places[:2]


def test_repeats_overlap_and_say_so_when_it_does_not(jsonl):
    found = calibration(LLAMA, jsonl, 8, repeats=3)
    assert not found.disjoint
    assert len({d.places for d in found.draws}) == 3
    assert all(len(set(d.places)) == 8 for d in found.draws)
    assert [found.ids[p] for p in found.draws[0].places] == expected_order(jsonl.load(), 0)[:8]
    assert len(found.ids) == len(found.texts) == len({p for d in found.draws for p in d.places})


def test_with_replacement_more_texts_can_be_drawn_than_there_are(jsonl):
    found = calibration(LLAMA, jsonl, (5, 60), repeats=2, replacement=True, seed=2)
    assert not found.disjoint
    five, _, sixty, other = found.draws
    assert len(sixty.places) == 60
    assert len(set(sixty.places)) <= 20 == len(jsonl.load())
    assert five.places == sixty.places[:5]
    assert sixty.places != other.places
    order = expected_order(jsonl.load(), 2)
    digest = hashlib.sha256(b"2:1:37").hexdigest()
    assert found.ids[other.places[37]] == order[int(digest, 16) % 20]


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(12)), st.integers(-5, 5))
def test_a_draw_does_not_depend_on_the_order_of_the_file(jsonl, order, seed):
    items = jsonl.load()[:12]
    straight = calibration(LLAMA, jsonl, 4, repeats=2, seed=seed, items=items)
    shuffled = calibration(LLAMA, jsonl, 4, repeats=2, seed=seed, items=[items[place] for place in order])
    assert straight.ids == shuffled.ids
    assert straight.draws == shuffled.draws


def test_a_text_beyond_the_context_is_cut_at_its_end_and_marked(jsonl):
    items = [Item("long", "a" * 400, "b"), Item("fits", "a" * 254, "b")]  # the context is 256, <s> included
    found = calibration(LLAMA, jsonl, 2, items=items)
    by_id = {i: (text, cut) for i, text, cut in zip(found.ids, found.texts, found.cut, strict=True)}
    assert len(by_id["long"][0]) == len(by_id["fits"][0]) == 256
    assert (by_id["long"][1], by_id["fits"][1]) == (True, False)
    assert by_id["long"][0] == encode_solved(LLAMA, jsonl, items[0])[:256]


def test_a_text_without_tokens_is_an_error_that_names_its_item(jsonl, monkeypatch):
    monkeypatch.setattr("lesion.activations.calibration.solved_parts", lambda *_: ((), ()))
    with pytest.raises(LesionError, match=r"item i3 of .* has no tokens"):
        calibration(LLAMA, jsonl, 1, items=[jsonl.load()[3]])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "0 calibration texts were asked for"),
        ({"samples": (3, -1)}, "-1 calibration texts"),
        ({"samples": ()}, "ask for at least 1"),
        ({"samples": 21}, "21 calibration texts were asked for, and .* has 20"),
        ({"samples": 2, "repeats": 0}, "0 repeats"),
        ({"samples": 2, "items": []}, "no items to observe"),
        ({"samples": 2, "style": "plian"}, "nearest: plain"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_in_words(jsonl, settings, message):
    with pytest.raises(UsageError, match=message):
        calibration(LLAMA, jsonl, **settings)
