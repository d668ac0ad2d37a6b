"""Running text: stretches that lose no word, the same for every model, and the tokens of them that are scored."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lesion.errors import LesionError, UsageError
from lesion.models.load import load
from lesion.tasks.catalogue import calibration_items, find
from lesion.tasks.continuations import encode_passage
from lesion.tasks.primer import atlas, document
from lesion.tasks.running import LAST, LONGEST, SHORTEST, stretches
from lesion.tasks.task import Answer, Item, Task


def words(count, start=0):
    return [f"w{start + index}" for index in range(count)]


texts = st.lists(
    st.tuples(st.integers(1, 120), st.sampled_from([" ", "\n", "\n\n", "\r\n \r\n", "\t", "\u2003"])), max_size=30
)


@given(texts)
def test_stretches_hold_every_word_once_in_order_and_white_space_inside_as_it_is(pieces):
    whole = "".join(" ".join(words(count)) + separator for count, separator in pieces)
    cut = list(stretches(whole))
    assert [word for stretch in cut for word in stretch.split()] == whole.split()
    place = 0
    for stretch in cut:
        assert stretch == stretch.strip()
        place = whole.index(stretch, place) + len(stretch)
    lengths = [len(stretch.split()) for stretch in cut]
    assert all(SHORTEST <= length <= LONGEST for length in lengths[:-1])
    assert not lengths[1:] or LAST <= lengths[-1] <= LONGEST


def test_a_stretch_ends_with_the_first_paragraph_between_its_bounds():
    paragraphs = [words(100), words(60, 100), words(20, 160), words(300, 200)]
    cut = list(stretches("\n\n".join(" ".join(paragraph) for paragraph in paragraphs)))
    assert cut[0].split() == words(160)
    assert "w99\n\nw100" in cut[0]


@pytest.mark.parametrize(
    ("count", "lengths"), [(1, [1]), (250, [250]), (251, [200, 51]), (449, [200, 249]), (451, [200, 200, 51]), (0, [])]
)
def test_what_is_left_at_the_end_is_no_scrap(count, lengths):
    assert [len(stretch.split()) for stretch in stretches(" ".join(words(count)))] == lengths


def test_a_script_without_spaces_is_cut_too():
    cut = list(stretches("雨" * 1000))
    assert "".join(cut) == "雨" * 1000
    assert [len(stretch) for stretch in cut] == [200] * 5
    assert max(map(len, stretches("x" * 100_000))) <= 40 * LONGEST


def test_a_text_file_is_a_task_of_its_stretches(tmp_path):
    path = tmp_path / "novel.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("é " * 500).encode())
    task = find(f"text:{path}")
    assert isinstance(task, Task)
    assert (task.name, task.kind) == (f"text:{path}", "score")
    items = task.load()
    assert [len(item.question.split()) for item in items] == [200, 200, 100]
    assert len({item.id for item in items}) == 3
    assert {(item.gold, item.choices, item.solution) for item in items} == {("", (), "")}
    assert calibration_items(task) == items


@pytest.mark.parametrize("data", [b"", b" \n\t ", b"\xef\xbb\xbf"])
def test_a_text_without_words_is_told(tmp_path, data):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"x\.txt has no words"):
        find(f"text:{path}").load()


@pytest.mark.parametrize(("name", "says"), [("text:", "Say which file"), ("text", "Say which file"),
                                             ("text:/no/where", "There is no file /no/where"),
                                             ("text:/", "is a folder"), ("wikitex", "nearest: wikitext")])  # fmt: skip
def test_a_name_that_is_none_is_told(name, says):
    with pytest.raises(UsageError, match=says):
        find(name)


def test_wikitext_is_one_text_of_the_lines_of_the_hub(monkeypatch):
    lines = ["", " = Robert Boulter = \n", "", " ".join(words(300)) + " \n", " ".join(words(40, 300)), "last"]
    asked = []
    monkeypatch.setattr(
        "lesion.tasks.benchmark.hub_rows", lambda *where: asked.append(where[1:]) or [{"text": line} for line in lines]
    )
    task = find("wikitext")
    first, second = task.load()
    assert first.question.startswith("= Robert Boulter = \n\n")
    assert [word for item in (first, second) for word in item.question.split()] == " ".join(lines).split()
    assert calibration_items(task)[0].question == first.question
    assert asked == [("Salesforce/wikitext", "wikitext-2-raw-v1", split) for split in ("test", "validation")]


def test_the_verdict_says_only_whether_the_score_is_finite():
    task, item = find("primer:text"), Item("1", "a b", "")
    assert (task.judge(item, Answer("")).correct, task.judge(item, Answer("")).parsed) == (True, "")
    assert not task.judge(item, Answer("", finish="nonfinite")).correct


def test_the_primers_text_is_half_facts_and_half_scenes_none_of_them_in_training_by_its_seed():
    task = find("primer:text")
    items = task.load()
    assert (task.name, task.kind, len(items)) == ("primer:text", "score", 600)
    assert abs(sum(item.group == "facts" for item in items) - 300) < 10
    assert len({item.question for item in items}) == 600
    trained = {document(0, index).text for index in range(0, 262_144, 400)}
    assert not trained & {item.question for item in items if item.group == "scene"}
    people = {fact.who for fact in atlas.facts()}
    assert all(any(who in item.question for who in people) for item in items if item.group == "facts")
    pool = calibration_items(task)
    assert len(pool) > 1900
    assert not {item.question for item in pool} & {item.question for item in items}
    assert not {item.id for item in pool} & {item.id for item in items}


def test_the_bundled_model_reads_the_primers_text_as_it_learned_it():
    model, task = load("bundled:llama-base"), find("primer:text")

    def nats(item: Item) -> tuple[float, int]:
        before, scored = encode_passage(model, task, item)
        tokens = torch.tensor([[*before, *scored]])
        with torch.no_grad():
            said = model.network(tokens).logits[0, len(before) - 1 : -1].log_softmax(-1)
        return -said[range(len(scored)), list(scored)].sum().item(), len(scored)

    items = task.load()[:40]
    total, tokens = map(sum, zip(*map(nats, items), strict=True))
    backwards = [replace(item, question=" ".join(item.question.split()[::-1])) for item in items]
    shuffled, _ = map(sum, zip(*map(nats, backwards), strict=True))
    assert total / tokens < 2  # 1.5 nats a token; stretches of 200 words, longer than it ever read, 3.1
    assert shuffled / tokens > 4


@dataclass(frozen=True)
class Speaker:
    tokenizer: Any
    context: int
    name: str = "someone"


def speaker(begin: str = "<s> ", context: int = 100) -> Speaker:
    """One token a word; `<s>` is a control token."""
    names = ["<unk>", "<s>", *words(60), "<", "s", ">"]
    fast = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    if begin:
        fast.post_processor = processors.TemplateProcessing(single=f"{begin}$A", special_tokens=[("<s>", 1)])
    return Speaker(PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="<unk>", bos_token="<s>"), context)


PASSAGE = Item("7", "w0 w1 w2 w3", "")


def test_behind_the_token_that_begins_a_text_every_token_is_scored():
    before, scored = encode_passage(speaker(), find("primer:text"), PASSAGE)
    assert (before, scored) == ((1,), (2, 3, 4, 5))


def test_without_such_a_token_the_first_of_the_text_stands_before():
    before, scored = encode_passage(speaker(begin=""), find("primer:text"), PASSAGE)
    assert (before, scored) == ((2,), (3, 4, 5))


def test_a_text_beyond_the_context_is_cut_at_its_end():
    for begin, expected in (("<s> ", ((1,), (2, 3))), ("", ((2,), (3, 4)))):
        assert encode_passage(speaker(begin, context=3), find("primer:text"), PASSAGE) == expected


def test_a_control_token_in_the_text_is_characters():
    before, scored = encode_passage(speaker(), find("primer:text"), Item("7", "<s> w0", ""))
    assert before == (1,)
    assert 1 not in scored
    assert scored[-1] == 2


@pytest.mark.parametrize(
    ("begin", "question", "context"), [("", "w0", 100), ("", "", 100), ("<s> ", "", 100), ("<s> ", "w0", 1)]
)
def test_a_text_without_a_token_to_predict_is_told(begin, question, context):
    with pytest.raises(LesionError, match=r"Item 7 of primer:text leaves someone no token to predict"):
        encode_passage(speaker(begin, context), find("primer:text"), Item("7", question, ""))
