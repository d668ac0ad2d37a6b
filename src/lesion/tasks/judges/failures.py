"""Failures: how a chain of thought fails, by the first of a few rules that its text meets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal, get_args

from lesion.tasks.judges.equations import LONGEST, equations
from lesion.tasks.judges.mathematics import math_answer
from lesion.tasks.task import TRUNCATED, Finish, Verdict

Failure = Literal[
    "not language", "loop", "cut off", "no answer", "format", "wrong equation", "no equation", "wrong plan"
]
FAILURES: tuple[Failure, ...] = get_args(Failure)
"""In the order in which they are looked for."""
FEWEST, SIGNS = 5, 60
"""Of a text of fewer pairs of words it cannot be told whether it is language, unless it has so many other signs."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_NUMBER = re.compile(r"\d+")
_PIECE, _TIMES, _LEAST = 300, 4, 40
"""A loop says a piece of so many characters at most so many times or more, over so many characters at least."""
_COUNTED = 8
"""So many times where a number of the piece changes."""
_RULE = re.compile(r"(?<![-=_*#~])[-=_*#~]{1,99}$")


@dataclass(frozen=True)
class Language:
    """What an unedited model writes, by its pairs of neighbouring words; any number is one word.

    Attributes:
        asked: the pairs of the questions; said: in how many unedited answers a pair stands; answers: these.
        least: a text is language where at least this share of its pairs is among them: half of what unedited answers
            have, in the median, of the pairs of the questions and the other answers.
    """

    asked: frozenset[tuple[str, str]]
    said: Mapping[tuple[str, str], int]
    answers: frozenset[str]
    least: float

    @classmethod
    def of(cls, questions: Iterable[str], answers: Sequence[str]) -> Language:
        """The language of unedited answers."""
        asked = frozenset(pair for text in questions for pair in _pairs(text))
        own = [_pairs(text) for text in answers]
        said = Counter(pair for pairs in own for pair in set(pairs))
        shares = [sum(pair in asked or said[pair] > 1 for pair in pairs) / len(pairs) for pairs in own if pairs]
        return cls(asked, said, frozenset(answers), median(shares) / 2 if shares else 0.0)

    def holds(self, text: str) -> bool:
        """Whether a text is language, or too short to tell; an unedited answer by the questions and the others."""
        pairs = _pairs(text)
        if len(pairs) < FEWEST:
            return len("".join(text.split())) < SIGNS
        own = text in self.answers
        known = sum(pair in self.asked or self.said.get(pair, 0) > own for pair in pairs)
        return known >= self.least * len(pairs)


def _pairs(text: str) -> list[tuple[str, str]]:
    words = ["0" if word[0].isdecimal() else word.lower() for word in _WORD.findall(text[:LONGEST])]
    return list(pairwise(words))


def failure(text: str, finish: Finish, verdict: Verdict, gold: str, language: Language) -> Failure | None:
    """How an answer fails; None where it is right.

    The first of these that holds:

    - *not language*: its words do not follow one another as those of unedited answers do (`Language`);
    - *loop*: the text ends in a piece that it says four times or more (`loops`);
    - *cut off*: at the token limit;
    - *no answer*: it ended, and no answer can be read;
    - *format*: its last equation, a right one, results in the gold answer, and another answer is read; also in LaTeX,
      in percent, or with a unit (`judges.mathematics`);
    - *wrong equation*: one of its equations is wrong (`equations`);
    - *no equation*: it has none;
    - *wrong plan*: all its equations are right.
    """
    if verdict.correct:
        return None
    if not language.holds(text):
        return "not language"
    if finish == "loop" or loops(text):
        return "loop"
    if finish in TRUNCATED:
        return "cut off"
    if verdict.parsed is None:
        return "no answer"
    found = equations(text)
    if found and found[-1].correct and math_answer(str(found[-1].result), gold).correct:
        return "format"
    if any(not equation.correct for equation in found):
        return "wrong equation"
    return "wrong plan" if found else "no equation"


def loops(text: str) -> bool:
    """Whether a text ends in a piece that it says four times or more in a row; where a number changes, eight times.

    Of a piece one number may change: `Step 1: add 3`, `Step 2: add 3`. Where several do, it calculates. A rule drawn
    below an answer is no loop.
    """
    tail = _RULE.sub("", text.rstrip())[-_COUNTED * _PIECE :].rstrip()[::-1]
    bare, numbers = _NUMBER.sub("0", tail), _NUMBER.findall(tail)
    for piece in range(1, min(_PIECE, len(tail) // _TIMES) + 1):
        if _repeats(tail, piece, _TIMES):
            return True
        if _repeats(bare, piece, _COUNTED):
            each = bare[:piece].count("0")
            if sum(len(set(numbers[place::each][:_COUNTED])) > 1 for place in range(each)) <= 1:
                return True
    return False


def _repeats(text: str, piece: int, times: int) -> bool:
    length = max(_LEAST, times * piece)
    return len(text) >= length and text[: length - piece] == text[piece:length]
