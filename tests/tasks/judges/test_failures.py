"""How a chain of thought fails: each kind by an answer of it, and the order in which kinds are looked for."""

import pytest

from lesion.tasks.judges.failures import Language, failure, loops
from lesion.tasks.task import Verdict

QUESTIONS = ("How many apples does Ann have if she has 3 apples and buys 4?",)
ANSWERS = (
    "Ann has 3 apples and buys 4, so she has 3 + 4 = 7 apples. The answer is 7.",
    "She has 5 apples and buys 6, so she has 5 + 6 = 11 apples. The answer is 11.",
    "Ann has 2 apples and buys 2, so Ann has 2 + 2 = 4 apples. The answer is 4.",
)
LANGUAGE = Language.of(QUESTIONS, ANSWERS)
SALAD = "apples of the if Ann is has so 4 the buys of an and = answer she 7 the the does."


@pytest.mark.parametrize(
    ("text", "finish", "parsed", "kind"),
    [
        (SALAD, "stop", "7", "not language"),
        (SALAD, "length", None, "not language"),
        ("She has 3 apples. " * 12, "length", None, "loop"),
        ("Ann has 3 apples and buys 4, so", "loop", None, "loop"),
        ("Ann has 3 apples and buys 4, so", "length", None, "cut off"),
        ("Ann has 3 apples.", "stop", None, "no answer"),
        ("She has 3 + 4 = 7 apples. The answer is 3.", "stop", "3", "format"),
        ("She has 3 + 4 = 8 apples. The answer is 8.", "stop", "8", "wrong equation"),
        ("She has 4 - 3 = 1 apples. The answer is 1.", "stop", "1", "wrong plan"),
        ("Ann has 3 apples. The answer is 3.", "stop", "3", "no equation"),
    ],
)
def test_a_wrong_answer_fails_in_one_way(text, finish, parsed, kind):
    assert failure(text, finish, Verdict(False, parsed), "7", LANGUAGE) == kind


@pytest.mark.parametrize(
    ("equation", "gold"),
    [
        ("1/4 + 1/4 = 1/2", r"\frac{1}{2}"), ("20/80 = 25%", r"25\%"), ("3 - 5 = -2", "−2"),
        ("3 * 6 = 18", "18 dollars"), ("3 * 600 = 1,800", "1{,}800"), ("3 * 6 = 18", "€18"), ("10 / 4 = 2.5", "5/2"),
    ],
)  # fmt: skip
def test_the_gold_answer_is_known_in_every_form_in_which_the_judge_knows_it(equation, gold):
    text = f"{equation}. The answer is 3."
    assert failure(text, "stop", Verdict(False, "3"), gold, LANGUAGE) == "format"
    assert failure(text, "stop", Verdict(False, "3"), "77", LANGUAGE) == "wrong plan"


def test_a_right_answer_does_not_fail():
    assert failure(SALAD, "stop", Verdict(True, "7"), "7", LANGUAGE) is None


def test_what_unedited_answers_say_is_language_and_so_is_a_text_too_short_to_tell():
    assert all(LANGUAGE.holds(text) for text in (*QUESTIONS, *ANSWERS, "zzz yyy xxx www vvv", ""))
    assert not LANGUAGE.holds("zzz yyy xxx www vvv uuu")
    assert not LANGUAGE.holds("... ly. " * 2 + "." * 60)


def test_an_unedited_answer_is_no_language_because_it_is_its_own():
    language = Language.of(QUESTIONS, (*ANSWERS, SALAD))
    assert not language.holds(SALAD)
    assert all(map(language.holds, ANSWERS))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 5\n" * 20, True),
        ("".join(f"Step {step}: add 3 apples.\n" for step in range(9)), True),
        ("!" * 100, True),
        ("0+1=1\n1+2=3\n2+3=5\n3+4=7\n4+5=9\n5+6=11\n6+7=13\n7+8=15\n8+9=17", False),
        ("".join(f"Week {week}: 5 apples are left.\n" for week in range(1, 6)), False),
        ("".join(f"Week {week}: {20 - week} apples are left.\n" for week in range(1, 13)), False),
        ("Week 1: 5 apples are left.\n" * 5, True),
        ("The answer is 18.\n" + "=" * 60, False),
        ("=" * 300, True),
        ("ha " * 3, False),
        ("1000000 + 2000000 = 3000000", False),
        ("A table.\n" + "-" * 20, False),
        ("Ann buys 3 apples. Ben buys 3 apples. Cid buys 3 apples.", False),
    ],
)
def test_a_loop_says_a_piece_four_times_over_forty_characters(text, says):
    assert loops(text) == says
