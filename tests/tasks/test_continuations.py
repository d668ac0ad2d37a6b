"""Continuations: what follows a prompt has the ids that it has behind the prompt in one encoding of both."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

import lesion.models
from lesion.errors import LesionError
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import REACH, encode_choices, encode_passage, encode_solved
from lesion.tasks.prompts import encode
from lesion.tasks.task import Item
from sentencepieces import CONTROLS, KINDS, Speaker, speaker

BUNDLED = Path(lesion.models.__file__).parent / "bundled/llama-base"
ITEM = Item("7", "is the cat on the mat?", "it is", choices=("A", "it is", "4", "(the cat)", "'"))
PROMPTS = {
    "raw": "{question}",
    "plain": "Question: {question}\nAnswer:",
    "answer": "{question}\nAnswer:",
    "chat": "<|user|>\n{question}<|end|>\n<|assistant|>\n",
}


@pytest.fixture(scope="module")
def bundled():
    return Speaker(AutoTokenizer.from_pretrained(BUNDLED), "bundled:llama-base")


@pytest.fixture(scope="module")
def stories(shared):
    return Speaker(AutoTokenizer.from_pretrained(shared / "models/stories260K"), "stories")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "x.jsonl"
    path.write_text('{"id": "1", "prompt": "p", "answer": "a"}', encoding="utf-8")
    return find(str(path))


def joint(model: Speaker, style: str, question: str, text: str) -> tuple[int, ...]:
    """Prompt and continuation as one text, encoded at once."""
    whole = PROMPTS[style].replace("{question}", question) + text
    return tuple(model.tokenizer.encode(whole, add_special_tokens=style != "chat"))


def spaced(style: str, question: str, text: str) -> str:
    ending = PROMPTS[style].replace("{question}", question)[-1:]
    return text if ending.isspace() or text[:1].isspace() else f" {text}"


@pytest.mark.parametrize("style", PROMPTS)
@pytest.mark.parametrize("kind", KINDS)
def test_behind_the_ids_of_the_prompt_stand_those_of_one_encoding_of_both(task, kind, style):
    model = speaker(kind)
    prompt = encode(model, task, ITEM, style)
    for choice, ids in zip(ITEM.choices, encode_choices(model, task, ITEM, style), strict=True):
        assert prompt + ids == joint(model, style, ITEM.question, spaced(style, ITEM.question, choice))


@pytest.mark.parametrize(
    ("ending", "between"),
    [("<|assistant|>", ""), ("<|assistant|>\n", ""), ("<|assistant|> Well,", " "), ("\nAnswer:", " ")],
)
def test_a_choice_follows_a_chat_at_once_behind_a_control_token_and_behind_text_after_a_space(task, ending, between):
    """The tokenizer of the bundled models has the control tokens, and no `▁` that could hide a space."""
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    tokenizer.chat_template = "<|user|>{{ messages[0]['content'] }}<|end|>" + ending.replace("\n", "{{ '\\n' }}")
    model = Speaker(tokenizer)
    prompt = encode(model, task, ITEM, "chat")
    for choice, ids in zip(ITEM.choices, encode_choices(model, task, ITEM, "chat"), strict=True):
        whole = f"<|user|>{ITEM.question}<|end|>{ending}{between}{choice}"
        assert prompt + ids == tuple(tokenizer.encode(whole, add_special_tokens=False))


@pytest.mark.parametrize("style", ["plain", "answer", "chat"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_solution_follows_as_in_one_encoding_of_both(task, kind, style):
    model = speaker(kind)
    item = Item("7", ITEM.question, "4", solution="it is on the mat:\nthat is it. #### 4")
    assert encode_solved(model, task, item, style) == joint(
        model, style, item.question, spaced(style, item.question, item.solution)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_and_answer_of_a_jsonl_file_are_one_text_as_they_stand(task, kind):
    model = speaker(kind)
    for question, answer in (("is the cat", " on the mat"), ("Answ", "er: A"), ("the </s>", "<|user|>")):
        assert encode_solved(model, task, Item("7", question, answer), "raw") == joint(model, "raw", question, answer)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gold_choice_of_a_jsonl_file_follows_as_it_does_when_it_is_scored(task, kind):
    model = speaker(kind)
    item = Item("7", "is the cat =", "mat", choices=("hat", "mat"))
    chosen = encode_choices(model, task, item)[1]
    assert encode_solved(model, task, item) == (*encode(model, task, item), *chosen)


words = st.lists(st.sampled_from(["the cat", "A", "Answer:", " ", "\n", ".", "4", "("]), min_size=1, max_size=6)


@given(words.map("".join), words.map("".join))
@pytest.mark.parametrize("style", PROMPTS)
@pytest.mark.parametrize("kind", KINDS)
def test_prompt_and_continuation_read_as_the_text_that_they_are(task, kind, style, question, choice):
    model = speaker(kind)
    if style == "chat":
        question = question.strip()  # as a message is
    item = Item("7", question, choice, choices=(choice,))
    prompt = encode(model, task, item, style)
    whole = joint(model, style, question, spaced(style, question, choice))
    (ids,) = encode_choices(model, task, item, style)
    if whole[: len(prompt)] == prompt and len(whole) > len(prompt):
        assert prompt + ids == whole
    if not (kind == "swallowing" and style == "chat" and choice[:1].isspace()):  # white space that is taken away
        assert model.tokenizer.decode(prompt + ids) == model.tokenizer.decode(whole)
    if task_solved := encode_solved(model, task, item, style) if style != "raw" else ():
        assert task_solved == prompt + ids


@given(
    st.lists(st.sampled_from([*CONTROLS, "a", " ", "\n"]), max_size=5).map("".join),
    st.lists(st.sampled_from([*CONTROLS, "a", " ", "\n"]), max_size=5).map("".join),
)
@pytest.mark.parametrize("style", ["plain", "chat"])
@pytest.mark.parametrize("kind", KINDS)
def test_names_of_control_tokens_in_question_and_continuation_stay_text(task, kind, style, question, choice):
    model = speaker(kind)
    item = Item("7", f"a{question}a", "", choices=(f"a{choice}", "a@"))
    hostile, harmless = encode_choices(model, task, item, style)
    assert not set(hostile) & set(model.tokenizer.convert_tokens_to_ids(CONTROLS))
    prompt = encode(model, task, item, style)
    assert model.tokenizer.decode(prompt + hostile) == model.tokenizer.decode(prompt + harmless).replace(
        "a@", f"a{choice}"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_behind_a_long_prompt_a_choice_follows_as_behind_a_short_one(task, kind):
    model = speaker(kind)
    item = replace(ITEM, question="the cat is on the mat. " * REACH + ITEM.question)
    prompt = encode(model, task, item, "plain")
    for choice, ids in zip(item.choices, encode_choices(model, task, item, "plain"), strict=True):
        assert prompt + ids == joint(model, "plain", item.question, f" {choice}")


@pytest.mark.parametrize("form", ["letter", "text"])
@pytest.mark.parametrize("style", ["plain", "answer", "raw"])
def test_options_of_mmlu_follow_as_in_one_encoding_under_a_real_sentencepiece_tokenizer(shared, stories, form, style):
    for item in (mmlu := find(f"mmlu:{shared}/data/mmlu/sociology_test.csv?form={form}")).load()[::4]:
        prompt = encode(stories, mmlu, item, style)
        for choice, ids in zip(item.choices, encode_choices(stories, mmlu, item, style), strict=True):
            assert prompt + ids == joint(stories, style, item.question, spaced(style, item.question, choice))


def test_solutions_follow_as_in_one_encoding_under_a_real_sentencepiece_tokenizer(shared, stories):
    gsm8k = find(f"gsm8k:{shared}/data/gsm8k/test.jsonl")
    for item in gsm8k.load()[:100]:
        assert encode_solved(stories, gsm8k, item, "plain") == joint(
            stories, "plain", item.question, f" {item.solution}"
        )


def alone(model: Speaker, text: str) -> tuple[int, ...]:
    return tuple(model.tokenizer.encode(text, add_special_tokens=False))


PRIMER = ["primer:arithmetic", "primer:atlas", "primer:reading"]


@pytest.mark.parametrize("name", PRIMER)
def test_of_a_byte_level_tokenizer_a_solution_is_encoded_behind_a_prompt_as_alone(bundled, name):
    task = find(name)
    for item in [*task.load()[:50], *calibration_items(task)[:50]]:
        for style in ("raw", "plain"):
            solution = spaced(style, item.question, item.solution or item.gold)
            assert encode_solved(bundled, task, item, style) == encode(bundled, task, item, style) + alone(
                bundled, solution
            )


@pytest.mark.parametrize("form", ["letter", "text"])
def test_of_a_byte_level_tokenizer_a_choice_is_encoded_behind_a_prompt_as_alone(shared, bundled, form):
    for item in (mmlu := find(f"mmlu:{shared}/data/mmlu/sociology_test.csv?form={form}")).load()[::4]:
        for style in ("raw", "plain", "answer"):
            expected = tuple(alone(bundled, spaced(style, item.question, choice)) for choice in item.choices)
            assert encode_choices(bundled, mmlu, item, style) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_running_text_begins_as_any_text_does(kind):
    model = speaker(kind)
    before, scored = encode_passage(model, find("primer:text"), Item("7", "the cat is", ""))
    assert before + scored == tuple(model.tokenizer.encode("the cat is"))


def test_choices_follow_after_one_space_a_prompt_without_and_a_chat_template_at_once(task):
    model = speaker("first")

    def follow(question: str, style: str) -> list[str]:
        item = Item("7", question, "4", choices=("4", " 5"))
        return ["".join(model.tokenizer.convert_ids_to_tokens(ids)) for ids in encode_choices(model, task, item, style)]

    assert follow("2 + 2 =", "raw") == ["▁4", "▁5"]
    assert follow("2 + 2 =\n", "raw") == ["4", "▁5"]
    assert follow("2 + 2 =", "plain") == ["▁4", "▁5"]
    assert follow("2 + 2 =", "chat") == ["4", "▁5"]


@dataclass
class Silent:
    """A tokenizer for which every text is empty."""

    added_tokens_decoder: dict[int, Any]

    def encode(self, text: str, **_: Any) -> list[int]:
        return []


def test_a_choice_without_tokens_is_told(task):
    with pytest.raises(LesionError, match=r"The choice 'A' of item 7 .* has no tokens"):
        encode_choices(Speaker(Silent({})), task, ITEM, "plain")
