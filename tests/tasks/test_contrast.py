"""Contrasts: what tempts against what is right, and when an answer counts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from commandline import write
from lesion.errors import LesionError, UsageError
from lesion.tasks import contrast
from lesion.tasks.catalogue import draw, find
from lesion.tasks.continuations import encode_choices, encode_contrast
from lesion.tasks.prompts import encode
from lesion.tasks.task import Answer, Verdict
from oneencoding import contrasted
from sentencepieces import KINDS, Speaker, speaker

ITEM = contrast.item("1", "The capital of France is", "Paris")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Answer(" Paris", 0, "stop", (-0.1, -3.0), (1, 2)), Verdict(True, "Paris")),
        (Answer(" the", 0, "stop", (-3.0, -0.1), (2, 1)), Verdict(False, "the")),
        (Answer("\n", 0, "stop", (-3.0, -4.0), (2, 3)), Verdict(False, "")),
        (Answer("", 0, "nonfinite", (float("nan"), float("nan"))), Verdict(False, None)),
    ],
)
def test_an_answer_is_right_when_the_right_token_ranks_first(answer, verdict):
    assert contrast.verdict(ITEM, answer) == verdict


def test_against_a_word_that_begins_like_the_another_tempts():
    assert contrast.item("1", "He studied", "theology").choices == ("theology", " a")
    assert contrast.item("1", "He studied", "The Hague").choices == ("The Hague", " the")
    assert contrast.item("1", "He studied", "theology", " her").choices == ("theology", " her", " a")
    assert contrast.item("1", "He studied", "law", "theology", "art").choices == ("law", "theology", "art", " the")


texts = st.sampled_from("abcd")
facts = st.lists(st.tuples(texts, st.sampled_from("xy")), min_size=1, max_size=20)


@given(facts)
def test_what_is_frequent_is_the_most_frequent_other_answer_of_the_group_counted_plainly(pairs):
    items = [contrast.item(str(n), "q", right, group=group) for n, (right, group) in enumerate(pairs)]
    if len({right for right, _ in pairs}) == 1:
        with pytest.raises(UsageError, match="have the same right answer"):
            list(contrast.frequent(items))
        return
    for item in contrast.frequent(items):
        near = Counter(right for right, group in pairs if group == item.group and right != item.gold)
        counts = near or Counter(right for right, _ in pairs if right != item.gold)
        assert item.choices[:2] == (item.gold, min(counts, key=lambda text: (-counts[text], text)))


@given(st.lists(st.tuples(st.sampled_from(["aa", "ab", "Ac", "ba", "ca"]), st.sampled_from("xy")), min_size=2))
def test_what_is_frequent_goes_on_until_a_text_begins_with_another_letter_than_any_right_one(pairs):
    rights = {right for right, _ in pairs}
    if len(rights) == 1:
        return
    for item in contrast.frequent([contrast.item(str(n), "q", r, group=g) for n, (r, g) in enumerate(pairs)]):
        *tempting, word = item.choices[1:]
        assert word == " the"
        assert item.gold not in tempting
        assert len(set(tempting)) == len(tempting)
        near = Counter(right for right, group in pairs if group == item.group)
        far = Counter(right for right, _ in pairs)
        place = {text: (text not in near, -near[text] or -far[text], text) for text in rights - {item.gold}}
        assert tempting == sorted(place, key=place.__getitem__)[: len(tempting)]
        letters = [text[0].lower() for text in tempting]
        assert len(set(letters[:-1])) <= 1
        assert len(tempting) == len(place) or letters[-1] != letters[0]


@pytest.mark.parametrize("before", ["", "shuffled:"])
@pytest.mark.parametrize("name", ["facts", "facts:{data}/counterfact/known_1000.json"])
def test_what_is_frequent_can_be_asked_of_a_small_vocabulary(shared, before, name):
    model = Speaker(AutoTokenizer.from_pretrained(shared / "models/stories260K"), "stories")
    task = find(f"{before}{name.format(data=shared / 'data')}?tempting=frequent")
    items = task.load() if name == "facts" else draw(task, 200, 1)
    first = 0
    for item in items:
        found = encode_contrast(model, task, item)
        _, (right, *others, _) = contrasted(model.tokenizer, item.question, item.choices)
        assert found.tokens[:-1] == (right, *dict.fromkeys(token for token in others if token != right))
        first += found.tempting == others[0]
    assert len(items) / 2 < first < len(items)  # most have the most frequent, and some would have ended the run


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_tokens_behind_the_prompt_are_contrasted(kind):
    model, task = speaker(kind), find("facts")
    item = contrast.item("1", "is the cat on", "it is", "the mat")
    found = encode_contrast(model, task, item)
    assert found.tokens[:2] == tuple(ids[0] for ids in encode_choices(model, task, item))[:2]
    whole = model.tokenizer.encode("is the cat on it is")
    assert found.prompt == encode(model, task, item)
    assert whole[len(found.prompt)] == found.right


def text_of(model, ids) -> str:
    return "".join(model.tokenizer.convert_ids_to_tokens(ids))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("right", "tempting", "tokens"),
    [
        ("Zoe", " the", ("Z", "the")),  # "▁the" is one token; behind the white space it stands without its own
        ("Zoe", "Xi", ("Z", "X")),  # both begin with a bare "▁"
        ("Zoe", "\n", ("Z", "\n")),
        (" \n Zoe", "Xi", ("Z", "X")),
    ],
)
def test_bare_white_space_before_the_right_word_belongs_to_the_prompt(kind, right, tempting, tokens):
    model, task = speaker(kind), find("facts")
    item = contrast.item("1", "is the cat on", right, tempting)
    found = encode_contrast(model, task, item)
    assert text_of(model, found.tokens[:1]) == tokens[0]
    assert text_of(model, found.tokens[1:2]).lstrip("▁") in (tokens[1], tokens[1][0])
    whole = model.tokenizer.encode("is the cat on" + (right if right[0] == " " else f" {right}"))
    assert (*found.prompt, found.right) == tuple(whole[: len(found.prompt) + 1])
    assert not text_of(model, found.prompt[len(encode(model, task, item)) :]).strip("▁\n")


@pytest.mark.parametrize(
    "name", ["ioi", "facts", "ioi:{data}/ioi/ioi.json", "facts:{data}/counterfact/known_1000.json"]
)
def test_no_right_token_of_a_real_checkpoint_is_white_space(shared, name):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/stories260K")
    model, task = Speaker(tokenizer, "stories"), find(name.format(data=shared / "data"))
    extended = 0
    for item in draw(task, 150, 1):
        found = encode_contrast(model, task, item)
        prompt, (right, *others) = contrasted(tokenizer, item.question, item.choices)
        assert (found.prompt, found.right) == (tuple(prompt), right)
        assert set(found.others) == set(others) - {right} or found.others[:-1] == tuple(dict.fromkeys(others[:-1]))
        assert tokenizer.decode([found.right]).strip()
        assert item.gold.startswith(tokenizer.decode([found.right]).strip()) or not item.gold[0].isascii()
        extended += len(prompt) > len(tokenizer(item.question)["input_ids"])
    assert extended > 30  # the vocabulary has no token for a space with most capital letters


def test_white_space_that_does_not_fit_the_context_is_told():
    model, task = speaker("first"), find("facts")
    item = contrast.item("nine", "is the cat on", "Zoe")
    room = len(encode_contrast(model, task, item).prompt)
    assert len(encode_contrast(replace(model, context=room), task, item).prompt) == room
    with pytest.raises(LesionError, match=r"item nine of facts fills the context .* before 'Zoe'"):
        encode_contrast(replace(model, context=room - 1), task, item)


def test_the_first_of_several_texts_that_differs_tempts():
    model, task = speaker("first"), find("facts")
    item = replace(ITEM, choices=("the mat", "the hat", "the mats", "Xi", "it"))
    with_one = replace(ITEM, choices=("the mat", "Xi"))
    assert encode_contrast(model, task, item).tempting == encode_contrast(model, task, with_one).tempting
    nested = ("the mat", "the mat on", "the mat on it", "Xi")
    with pytest.raises(LesionError, match=r"'the mat' and 'the mat on' .*nor do 1 others differ"):
        encode_contrast(model, task, replace(item, choices=nested))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_begin_with_the_same_token_are_no_contrast(kind):
    task = find("facts")
    item = contrast.item("seven", "is the cat on", "the mat", "the mat.")
    with pytest.raises(LesionError, match=r"'the mat' and 'the mat\.' of item seven of facts .*give another with"):
        encode_contrast(speaker(kind), task, item)


def test_of_a_file_the_line_is_what_to_change_where_a_text_cannot_tempt(tmp_path):
    row = {"answer": " the mat", "tempting": " the mat."}
    rows = [{"id": f"cat {number}", "prompt": f"Is cat {number} on", **row} for number in range(2)]
    for head in ("", "fewshot:1:"):
        task = find(f"{head}{write(tmp_path / 'q.jsonl', rows)}")
        with pytest.raises(LesionError, match=r"of item cat \d .*write another 'tempting' in its line of the file"):
            encode_contrast(speaker("first"), task, task.load()[0])


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=6))
def test_the_forced_answer_is_the_best_of_the_right_text_and_its_rivals(whole):
    best = [place for place, score in enumerate(whole) if score == max(whole)]
    assert contrast.forced(whole) == (None if len(whole) == 1 else best == [0])


@pytest.mark.parametrize("kind", KINDS)
def test_rivals_that_begin_with_the_right_token_or_with_each_others_are_left_out(kind):
    model, task = speaker(kind), find("facts")
    item = contrast.item("1", "is the cat on", "mat", "it is", "mat", "it was", "on")
    found = encode_contrast(model, task, item)
    tokens = [encode_contrast(model, task, contrast.item("1", "is the cat on", "mat", other)).tempting
              for other in ("it is", "it was", "on")]  # fmt: skip
    assert found.others[:-1] == tuple(dict.fromkeys(tokens))
    assert found.word == found.others[-1] != found.right


@pytest.mark.parametrize("kind", KINDS)
def test_whole_texts_are_compared_unless_one_begins_with_the_other(kind):
    model, task = speaker(kind), find("ioi")
    item = replace(task.load()[0], gold="mat", choices=("mat", "mats", "map", " the"), metadata={"subject": "map"})
    found = encode_contrast(model, task, item)
    right, nested, other, _ = encode_choices(model, task, item)
    begins = nested[: len(right)] == right
    behind = len(found.prompt) - len(encode(model, task, item))
    assert found.whole == tuple(ids[behind:] for ids in ((right, other) if begins else (right, nested, other)))
    assert found.right == found.whole[0][0]


def test_names_that_begin_alike_are_told_apart_by_what_follows():
    model, task = speaker(KINDS[0]), find("ioi")
    item = replace(task.load()[0], gold="Zoe", choices=("Zoe", "Zed", " the"), metadata={"subject": "Zed"})
    found = encode_contrast(model, task, item)
    assert (len(found.tokens), found.alike, found.word, len(found.whole)) == (2, True, None, 2)
