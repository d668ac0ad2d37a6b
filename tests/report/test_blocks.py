"""Examples of broken answers."""

import pandas as pd

from lesion.report.blocks import EXAMPLES, OF_EXAMPLE, examples


def shown(before: str, after: str):
    rows = [{"question": "How many?", "gold": "7", "answer_before": before, "answer_after": after}] * (EXAMPLES + 2)
    found = list(examples(pd.DataFrame(rows), "without block 3", "sums"))
    assert len(found) == EXAMPLES
    assert {(one.question, one.gold, one.edit, one.task) for one in found} == {
        ("How many?", "7", "without block 3", "sums")
    }
    return found[0].before, found[0].after


def test_short_answers_are_shown_whole_and_of_long_ones_the_end():
    chain = " ".join(f"word{number}" for number in range(100))
    before, after = shown("The  answer\nis 7.", f"{chain} = 8")
    assert before == "The answer is 7."
    assert after.endswith("word98 word99 = 8")
    assert after.startswith("… word")
    assert len(after) <= OF_EXAMPLE + 2


def test_an_answer_without_spaces_and_one_with_control_characters_are_shown_too():
    assert shown("七" * 300, "8\x00\u202e9") == ("… " + "七" * OF_EXAMPLE, "8��9")
