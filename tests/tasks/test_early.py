"""Early answers: what asks for them, and how what stands in the box is judged."""

import pytest

from lesion.tasks.catalogue import find
from lesion.tasks.early import ASKED, EarlyAnswers, boxed
from lesion.tasks.task import Answer, Item
from tiny import tokenizer

ITEM = Item("a", "Ann has 3 pears and buys 4. How many?", "7")


@pytest.mark.parametrize(
    ("text", "inside"),
    [("7}. So", "7"), ("\\frac{1}{2}$} or 3}", "\\frac{1}{2}$"), ("7", "7"), ("{a} and {b", "{a} and {b"), ("}", "")],
)
def test_a_box_ends_at_its_own_brace(text, inside):
    assert boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "right"), [("7}", True), ("7.0} and 8", True), ("8}. The answer is 7", False), ("7", True), ("", False)]
)
def test_the_answer_in_the_box_is_judged_by_the_rule_of_the_task(text, right):
    early = EarlyAnswers(find("gsm8k"), 64)
    assert early.judge(ITEM, Answer(text, finish="length")).correct is right
    assert not early.judge(ITEM, Answer(text, finish="nonfinite")).correct


def test_a_prompt_is_followed_by_the_beginning_of_the_chain_and_by_what_asks_for_the_answer():
    tokens, chain = tokenizer(), "3 + 4 = 7 pears"
    ids = tokens.encode(chain, add_special_tokens=False)
    for limit in (1, 3, 100):
        asked = EarlyAnswers(find("gsm8k"), limit).asked(tokens, (5, 6), chain)
        assert asked == (5, 6, *ids[:limit], *tokens.encode(ASKED, add_special_tokens=False))


def test_thinking_that_is_cut_off_is_closed_before_the_answer_is_asked_for():
    tokens, early = tokenizer(), EarlyAnswers(find("gsm8k"), 100)
    ids, tag = (tokens.encode(text, add_special_tokens=False) for text in ("3 + 4", "<think>"))
    closing = tokens.encode(f"\n</think>{ASKED}", add_special_tokens=False)
    assert early.asked(tokens, (), "<think>3 + 4") == (*tag, *ids, *closing)
    # A tag that ends the prompt stands before the stored text, and is not said twice.
    assert early.asked(tokens, (5, *tag), "<think>3 + 4") == (5, *tag, *ids, *closing)
    whole = tokens.encode("<think>3</think> 4", add_special_tokens=False)
    assert early.asked(tokens, (), "<think>3</think> 4") == (*whole, *tokens.encode(ASKED, add_special_tokens=False))
