"""Answers in unusual forms: `odd_answers.tsv` has, by kind, what a mathematician says of each.

A line has a kind, the gold answer, what the model writes (`\\n` is a line break), and whether that is right.
"""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from lesion.tasks.judges.grammar import readings
from lesion.tasks.judges.judge import math
from lesion.tasks.judges.meanings import variants
from lesion.tasks.judges.values import same_value

LINES = [
    line.split("\t")
    for line in (Path(__file__).parent / "odd_answers.tsv").read_text(encoding="utf-8").splitlines()[1:]
]
KINDS = list(dict.fromkeys(kind for kind, *_ in LINES))


def wrongly_judged(kind: str) -> list[tuple[str, str, str]]:
    return [
        (gold, answer, verdict)
        for own, gold, answer, verdict in LINES
        if own == kind and math(re.sub(r"\\n(?![a-z])", "\n", answer), gold).correct is not (verdict == "right")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_in_an_unusual_form_is_judged_as_a_mathematician_would(kind):
    assert wrongly_judged(kind) == []


def test_every_kind_has_right_and_wrong_answers():
    verdicts = Counter((kind, verdict) for kind, _, _, verdict in LINES)
    assert all(verdicts[kind, verdict] for kind in KINDS for verdict in ("right", "wrong"))


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("The answer is 3 ∘ 4.", "3"),
        (r"\boxed{3 \oint 4}", "3"),
        (r"\boxed{3 \mapsto 4}", "4"),
        ("#### 5 of 6 @ 7", "5"),
        ("The answer is (3, 4", "3"),
        ("The answer is 3)(4.", "3"),
    ],
)
def test_what_cannot_be_read_whole_is_not_judged_by_a_number_in_it(answer, gold):
    assert not math(answer, gold).correct


@pytest.mark.parametrize("written", [r"3 \oint 4", r"\langle x | y \rangle", "3)(4", r"a \equiv b \pmod 5"])
def test_what_cannot_be_read_is_compared_as_text(written):
    assert math(rf"\boxed{{{written}}}", written).correct
    assert not math(rf"\boxed{{{written.replace('4', '6').replace('b', 'c').replace('y', 'z')}}}", written).correct


def test_no_answer_of_math_500_is_that_of_another_problem_unless_the_values_are(shared):
    import json

    text = (shared / "data/math500/test.jsonl").read_text(encoding="utf-8")
    golds = sorted({json.loads(line)["answer"] for line in text.splitlines()})
    values = {gold: [variants(value) for value, _ in readings(gold)] for gold in golds}
    equal = {
        frozenset(pair)
        for pair in combinations([gold for gold in golds if not re.fullmatch(r"-?[\d.]+", gold)], 2)
        if any(same_value(left, right) for left in values[pair[0]] for right in values[pair[1]])
    }
    # Spellings of one value, a pair without its brackets, and half a turn in degrees and radians.
    assert equal == {
        frozenset(pair)
        for pair in (
            ("(-2,1)", "-2,1"),
            ("-2,1", "1,-2"),
            (r"2 \sqrt{5}", r"2\sqrt{5}"),
            (r"\frac14", r"\frac{1}{4}"),
            (r"\pi", r"180^\circ"),
        )
        if all(gold in golds for gold in pair)
    }
