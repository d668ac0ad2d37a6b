"""Classes of gold tokens: spans written by hand, tokenizers that cut a text in different ways, who names classes."""

import pytest

import lesion
from lesion.tasks.catalogue import find
from lesion.tasks.given import given
from lesion.tasks.gold_classes import DERIVATION, PLAIN, UNKNOWN, GoldClasses, Span, classes_of, classified, gold_text
from lesion.tasks.task import Item

QUESTION = "Falk brought 81 mirrors. He finds 93 more, gives 34 to Sandor and doubles them. A box costs 47."
ITEM = Item("1", QUESTION, "280", solution="81+93=174. 174-34=140. 140*2=280. #### 280")
NAMES = {
    "c": "copied number", "o": "operation", "f": "form", "r": "result", "n": "step or end", "x": "other number",
    "a": "final answer",
}  # fmt: skip


class Pieces:
    """A tokenizer of given pieces; their ids are their places."""

    def __init__(self, *pieces, strip=False):
        self.pieces, self.strip = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces], strip

    @property
    def ids(self):
        return range(len(self.pieces))

    def decode(self, ids, **settings):
        text = b"".join(self.pieces[token] for token in ids).decode(errors="replace")
        return text.removeprefix(" ") if self.strip else text


def names(tokenizer, item=ITEM, classes=DERIVATION):
    return list(classified(tokenizer, tokenizer.ids, item, classes))


def by_hand(letters):
    return [NAMES[letter] for letter in letters]


def test_numbers_are_copied_where_the_question_or_an_earlier_step_has_them():
    text = gold_text(ITEM)
    letters = "ccocc" + "f" + "rrr" + "fn" + "cccocc" + "f" + "rrr" + "fn" + "cccox" + "f" + "rrr" + "fnnnnnfaaa"
    assert len(letters) == len(text)
    assert names(Pieces(" ", *text)) == ["form", *by_hand(letters)]


@pytest.mark.parametrize("strip", [False, True])
def test_a_token_of_several_characters_has_the_class_of_its_number(strip):
    pieces = Pieces(" 81", "+", "93", "=", "174", ". ", "174", "-", "34=", "140", ".", strip=strip)
    assert names(pieces) == by_hand("cocfrfcocrf")


def test_the_mark_of_the_end_decides_as_the_space_before_another_step_does():
    item = Item("1", "1 and 2", "3", solution="1+2=3. 3-1=2. #### 2")
    pieces = Pieces("1+", "2", "=3", ".", " ", "3", "-", "1", "=2.", " ####", " 2")
    assert names(pieces, item) == by_hand("ccrfncocrna")


def test_numbers_of_a_solution_in_sentences_are_told_apart_likewise():
    text = "Ida pays 3 * $4 = $12.\nSo 20 - 12 = 8 are left.\nThat is 8/2 = 4.5 each."
    item = Item("1", "Ida has 20 and buys 3 at $4 each. 2 share the rest.", "4.5", solution=text)
    kinds = [(text[span.start : span.stop], span.name) for span in DERIVATION.spans(item) if span.name != "step or end"]
    copied = [
        ("3", "c"), ("4", "c"), ("12", "r"), ("20", "c"), ("12", "c"), ("8", "r"), ("8", "c"), ("2", "c"),
        ("4.5", "r"),
    ]  # fmt: skip
    assert kinds == [(word, NAMES[letter]) for word, letter in [*copied, ("*", "o"), ("-", "o"), ("/", "o")]]
    assert classes_of(find("gsm8k")) is classes_of(find("svamp")) is DERIVATION


def test_a_negative_result_is_a_result_and_other_signs_are_operations():
    item = Item("1", "It is 3 degrees and falls by 5.", "-6", solution="3-5=-2. 3−5 = −2. 3·-2=-$6")
    kinds = [(item.solution[span.start : span.stop], span.name) for span in DERIVATION.spans(item)]
    letters = zip("352352326", "ccrccrccr", strict=True)
    assert kinds[:9] == [(word, NAMES[letter]) for word, letter in letters]
    assert [word for word, name in kinds if name == "operation"] == ["-", "−"]


def test_a_space_that_a_tokenizer_strips_from_the_whole_is_form():
    pieces = Pieces(" ", "8", "1", "+", strip=True)
    assert names(pieces) == by_hand("fcco")


def test_tokens_that_are_parts_of_a_character_have_its_class():
    euro = "€".encode()
    item = Item("1", "3", "", solution="a€=3")
    classes = GoldClasses(("sign", "form"), lambda item: (Span(1, 2, "sign"),))
    pieces = Pieces("a", euro[:1], euro[1:2], euro[2:], "=", "3")
    assert names(pieces, item, classes) == ["form", "sign", "sign", "sign", "form", "form"]


def test_a_tokenizer_that_does_not_give_the_text_back_leaves_its_tokens_unassigned():
    assert names(Pieces("A", "b"), Item("1", "", "", solution="ab")) == [UNKNOWN, UNKNOWN]


def test_tasks_without_classes_have_the_first_token_and_the_rest():
    assert classes_of(find("primer:atlas")) is PLAIN
    pieces = Pieces(" ", "Farrow", "dale")
    assert names(pieces, Item("1", "", "Farrowdale"), PLAIN) == ["rest", "first token", "rest"]


@pytest.mark.parametrize(
    ("task", "right"),
    [
        ("arithmetic:add", "result"),
        ("arithmetic:multiply", "result"),
        ("arithmetic:compare", "copied number"),
        ("arithmetic:copy", "copied number"),
        ("arithmetic:words", "number in digits"),
        ("shuffled:arithmetic:add", "result"),
        ("fewshot:2:arithmetic:add", "result"),
    ],
)
def test_generated_arithmetic_names_what_its_answer_is(task, right):
    task = find(task)
    item = task.load()[0]
    assert names(Pieces(" ", *item.gold), item, classes_of(task)) == ["form", *[right] * len(item.gold)]


def test_a_task_of_your_own_names_its_classes():
    class Own:
        name, kind, max_new_tokens, stop, style = "own", "generate", 4, (), "raw"
        gold_classes = GoldClasses(("vowel", "form"), lambda item: (Span(1, 2, "vowel"),))

        def load(self):
            return [Item("1", "Say", "tat")]

        def judge(self, item, answer):
            raise NotImplementedError

    assert classes_of(given(Own())).names == ("vowel", "form")
    result = lesion.effects("bundled:llama-base", Own(), unit="block", items=1)
    assert set(result.tables["classes"]["token_class"]) == {"vowel", "form"}
