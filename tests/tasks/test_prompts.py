"""Prompt styles: which one is used, what it writes, and that a question stays data."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from lesion.errors import LesionError, UsageError
from lesion.tasks.catalogue import find
from lesion.tasks.continuations import encode_choices
from lesion.tasks.prompts import encode, resolve, styles
from lesion.tasks.task import Item, Task

CONTROLS = [
    "<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>",
]  # fmt: skip
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def characters(begin: str = "<bos> ", end: str = "", chat: str | None = None) -> PreTrainedTokenizerFast:
    """One token a character, and the control tokens of ChatML and Llama 3."""
    vocabulary = ["<unk>", *CONTROLS, *map(chr, range(32, 127)), "\n"]
    fast = Tokenizer(WordLevel({token: index for index, token in enumerate(vocabulary)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    fast.post_processor = processors.TemplateProcessing(
        single=f"{begin}$A{end}", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token="<unk>", bos_token="<bos>", eos_token="<eos>",
        additional_special_tokens=CONTROLS[2:],
    )  # fmt: skip
    tokenizer.chat_template = chat
    return tokenizer


@dataclass(frozen=True)
class Speaker:
    name: str = "someone"
    tokenizer: Any = field(default_factory=characters)
    context: int = 4096


BASE, CHATTY = Speaker(), Speaker("chatty", characters(chat=CHAT))
ITEM = Item("7", "What is 2 + 2?", "4")


def question(text: str) -> Item:
    return Item("7", text, "4")


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1", "prompt": "p", "answer": "a"}', encoding="utf-8")
    return find(str(path))


def written(model: Speaker, task: Any, item: Item = ITEM, style: str | None = None) -> str:
    """The prompt as text, control tokens and characters alike."""
    return model.tokenizer.decode(encode(model, task, item, style))


BOXED = "Please reason step by step, and put your final answer within \\boxed{}."


def test_raw_is_the_question_behind_the_tokenizers_own_beginning(raw):
    assert written(BASE, raw) == "<bos>What is 2 + 2?"
    assert written(CHATTY, raw, style="raw") == "<bos>What is 2 + 2?"


def test_a_beginning_that_the_prompt_has_is_not_written_twice(raw):
    assert written(BASE, raw, question("<bos>Hello")) == "<bos>Hello"


def test_an_end_of_text_that_the_tokenizer_appends_is_left_off(raw):
    ending = Speaker(tokenizer=characters(end=" <eos>"))
    assert written(ending, raw) == "<bos>What is 2 + 2?"
    assert written(Speaker(tokenizer=characters(begin="")), raw) == "What is 2 + 2?"


def test_plain_asks_and_leaves_the_answer_to_the_model():
    assert written(BASE, find("gsm8k")) == "<bos>Question: What is 2 + 2?\nAnswer:"


def test_chat_is_the_models_template_with_the_instruction_of_the_task():
    def chat(message: str) -> str:
        return f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"

    assert written(CHATTY, find("gsm8k")) == chat(f"What is 2 + 2?\n{BOXED}")
    assert written(CHATTY, find("triviaqa")).count("directly and concisely") == 1
    assert written(CHATTY, find("primer:atlas"), style="chat") == chat("What is 2 + 2?")


@pytest.mark.parametrize(
    ("name", "task", "style"),
    [
        ("Qwen/Qwen2.5-7B", "gsm8k", "qwen-boxed"),
        ("Qwen/Qwen2.5-7B", "triviaqa", "qwen-boxed"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "gsm8k", "r1-zero"),
        ("Open-Reasoner-Zero/Open-Reasoner-Zero-7B", "triviaqa", "r1-zero"),
        ("meta-llama/Llama-3.1-8B", "gsm8k", "step-by-step"),
        ("hkust-nlp/Llama-3.1-8B-SimpleRL-Zoo", "gsm8k", "step-by-step"),
        ("meta-llama/Llama-3.1-8B-Instruct", "gsm8k", "llama-boxed"),
        ("Qwen/Qwen2.5-14B", "gsm8k", "chat"),
    ],
)
def test_the_papers_checkpoints_get_the_papers_prompts(name, task, style):
    assert resolve(Speaker(name, CHATTY.tokenizer), find(task)) == style


def test_the_papers_prompts_are_written_with_control_tokens_and_begin_once():
    def begin(name: str, task: str) -> str:
        return written(Speaker(name), find(task))

    assert begin("Qwen/Qwen2.5-7B", "gsm8k") == (
        f"<|im_start|>system\n{BOXED}<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert begin("Qwen/Qwen2.5-7B", "triviaqa").startswith(
        "<|im_start|>system\nPlease answer the trivia question directly and concisely.<|im_end|>"
    )
    assert begin("meta-llama/Llama-3.1-8B", "gsm8k") == (
        "<bos>Question: What is 2 + 2?\nAnswer: Let's think step by step."
    )
    assert begin("meta-llama/Llama-3.1-8B-Instruct", "gsm8k").startswith("<|begin_of_text|><|start_header_id|>system")
    zero = begin("Open-Reasoner-Zero/Open-Reasoner-Zero-7B", "gsm8k")
    assert zero.startswith("<bos>A conversation between User and Assistant.")
    assert zero.endswith("User: What is 2 + 2?\nAssistant: <think>")
    ids = encode(Speaker("Qwen/Qwen2.5-7B"), find("gsm8k"), ITEM)
    assert sum(BASE.tokenizer.convert_ids_to_tokens(id) == "<|im_start|>" for id in ids) == 3


def test_without_a_papers_prompt_auto_is_chat_where_there_is_a_template_else_plain(raw):
    assert resolve(CHATTY, find("gsm8k")) == "chat"
    assert resolve(BASE, find("gsm8k")) == "plain"
    assert resolve(Speaker("Qwen/Qwen2.5-7B", CHATTY.tokenizer), raw, "auto") == "chat"  # no instruction for it
    assert (resolve(CHATTY, raw), resolve(BASE, raw)) == ("chat", "raw")  # questions of a file


def test_a_file_of_questions_says_its_own_style_and_contrasts_go_on_where_their_prompt_ends(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "p", "answer": "a", "style": "raw"}\n{"prompt": "q", "answer": "b"}', encoding="utf-8")
    assert resolve(CHATTY, find(str(path))) == "raw"
    path.write_text('{"prompt": "p", "answer": "a", "tempting": "b"}', encoding="utf-8")
    assert resolve(CHATTY, find(str(path))) == "raw"


@pytest.mark.parametrize(
    ("style", "says"),
    [
        ("chat", "has no chat template"),
        ("plane", "nearest: plain"),
        ("qwen-boxed", "instructions for math, trivia only"),
    ],
)
def test_a_style_that_cannot_be_meant_is_told(raw, style, says):
    with pytest.raises(UsageError, match=says):
        resolve(BASE, raw, style)


hostile = st.lists(
    st.sampled_from([*CONTROLS, "a", " ", "\n", "{question}", "{instruction}", "{{ x }}", "4"]), min_size=1
)


@given(hostile)
@pytest.mark.parametrize("style", [style for style in styles() if style not in ("auto", "raw")])
def test_control_tokens_in_a_question_stay_text(style, pieces):
    text = "".join(pieces)
    item, task = question(f"-{text}-"), find("gsm8k")
    ids = encode(CHATTY, task, item, style)
    harmless = encode(CHATTY, task, question("-a-"), style)
    controls = set(range(1, 1 + len(CONTROLS)))
    assert [id for id in ids if id in controls] == [id for id in harmless if id in controls]
    assert CHATTY.tokenizer.decode(ids) == CHATTY.tokenizer.decode(harmless).replace("-a-", f"-{text}-")


def test_in_raw_whoever_writes_the_prompt_may_write_control_tokens(raw):
    ids = encode(BASE, raw, question("<|im_start|>user"))
    assert BASE.tokenizer.convert_ids_to_tokens(ids[1]) == "<|im_start|>"


def test_a_template_that_rewrites_its_message_is_told_when_control_tokens_are_in_it():
    shouting = Speaker("shouting", characters(chat=CHAT.replace("message['content']", "message['content'] | upper")))
    assert "WHAT IS 2 + 2?" in written(shouting, find("gsm8k"))
    with pytest.raises(LesionError, match=r"Item 7 .*--prompt-style plain"):
        encode(shouting, find("gsm8k"), question("what is <|im_end|>?"))


def test_a_prompt_that_leaves_no_room_for_the_answer_is_told():
    small = Speaker("small", context=60)
    length = len(encode(BASE, find("gsm8k"), ITEM))
    # The last token of an answer needs no position.
    assert encode(small, find("gsm8k"), ITEM, max_new_tokens=61 - length)
    with pytest.raises(LesionError) as error:
        encode(small, find("gsm8k"), ITEM, max_new_tokens=62 - length)
    for part in ("Item 7 of gsm8k", "small", f"{length} tokens", f"prompts of {length - 1}.", "--max-new-tokens"):
        assert part in str(error.value)


def test_a_prompt_without_a_token_is_told(raw):
    with pytest.raises(LesionError, match="no tokens"):
        encode(Speaker(tokenizer=characters(begin="")), raw, question(""))


def test_a_real_sentencepiece_tokenizer_keeps_its_text(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/stories260K")
    model = Speaker("stories", tokenizer)
    ids = encode(model, find("gsm8k"), ITEM, "plain")
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids[1:]) == "Question: What is 2 + 2?\nAnswer:"
    told = encode(model, find("gsm8k"), question("what is </s>?"), "plain")
    assert tokenizer.decode(told[1:]) == "Question: what is </s>?\nAnswer:"
    assert tokenizer.eos_token_id not in told
    assert list(told).count(tokenizer.bos_token_id) == 1


SHOTS = (("What is 1?", "It is 1."), ("What is 2?", "2"))
SHOT = Item("3", "What is 3?", "3", choices=("3", "4"), shots=SHOTS)
ATLAS = find("primer:atlas")


def said(model: Speaker, item: Item, style: str, task: Task = ATLAS) -> str:
    return model.tokenizer.decode(encode(model, task, item, style))


def test_in_text_every_shot_has_the_form_of_the_question():
    assert said(BASE, SHOT, "raw") == "<bos>What is 1? It is 1.\n\nWhat is 2? 2\n\nWhat is 3?"
    assert said(BASE, SHOT, "plain") == (
        "<bos>Question: What is 1?\nAnswer: It is 1.\n\nQuestion: What is 2?\nAnswer: 2\n\n"
        "Question: What is 3?\nAnswer:"
    )
    assert said(BASE, SHOT, "answer") == (
        "<bos>What is 1?\nAnswer: It is 1.\n\nWhat is 2?\nAnswer: 2\n\nWhat is 3?\nAnswer:"
    )
    without = replace(SHOT, shots=())
    for style in ("raw", "plain", "answer", "step-by-step"):
        assert said(BASE, SHOT, style).endswith(said(BASE, without, style).removeprefix("<bos>"))
        assert encode_choices(BASE, ATLAS, SHOT, style) == encode_choices(BASE, ATLAS, without, style)


def test_in_a_chat_shots_are_earlier_turns():
    assert said(CHATTY, SHOT, "chat") == "".join(
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{solved}<|im_end|>\n"
        for question, solved in SHOTS
    ) + said(CHATTY, replace(SHOT, shots=()), "chat")


def test_no_instruction_stands_in_a_chat_since_the_shots_show_what_is_wanted(shared):
    path = f"gsm8k:{shared}/data/gsm8k/test.jsonl"
    speaker = Speaker("chatty", CHATTY.tokenizer, 100_000)
    one = find(f"fewshot:1:{path}")
    assert "boxed" in said(speaker, find(path).load()[0], "auto", find(path))
    assert "boxed" not in said(speaker, one.load()[0], "auto", one)


def test_control_tokens_in_a_shot_are_characters_in_text_and_refused_in_a_chat():
    hostile = replace(SHOT, shots=(("What is <|im_end|>?", "<eos>"),))
    ids = encode(BASE, ATLAS, hostile, "plain")
    assert not set(ids[1:]) & set(BASE.tokenizer.convert_tokens_to_ids(["<|im_end|>", "<eos>", "<bos>"]))
    assert "<|im_end|>" in BASE.tokenizer.decode(ids)
    with pytest.raises(LesionError, match="Item 3 or a solved question before it contains control tokens"):
        encode(CHATTY, ATLAS, hostile, "chat")


@pytest.mark.parametrize("style", ["r1-zero", "qwen-boxed", "llama-boxed"])
def test_a_papers_prompt_has_no_place_for_shots(style):
    with pytest.raises(UsageError, match=f"'{style}' has no place for .* of gsm8k; choose raw, chat, plain, answer"):
        encode(BASE, find("gsm8k"), SHOT, style)
