"""Judges: whether an answer is right, by a rule that stands in the name of the function."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from lesion.tasks.judges.mathematics import math_answer as math
from lesion.tasks.task import Verdict

__all__ = [
    "MATH",
    "RULES",
    "UNREAD",
    "aliases",
    "contains",
    "exact",
    "first_line",
    "math",
    "normalise",
    "stands",
    "substring",
]

RULES = ("words", "exact", "substring")
"""What `aliases` may go by."""

MATH = "mathematics 4"
"""The rule of `math` and its version: verdicts by another are not mixed with these in one folder."""

UNREAD = Verdict(False, None)
"""The verdict on an answer in which nothing could be read, or that broke off on non-finite logits."""


def exact(text: str, gold: str, aliases: Sequence[str] = ()) -> Verdict:
    """Right when the whole answer, spaces around it stripped, is the gold answer or an alias."""
    answer = text.strip()
    return Verdict(answer in {right.strip() for right in (gold, *aliases)}, answer) if answer else UNREAD


def contains(text: str, gold: str, aliases: Sequence[str] = ()) -> Verdict:
    """Right when the gold answer or an alias stands anywhere in the answer, in any case, as whole words and numbers.

    "Art" does not stand in "party", nor 5 in 15 or 2.5. Scripts without spaces between words have no whole words.
    """
    answer = text.strip()
    rights = [right.strip().casefold() for right in (gold, *aliases)]
    return (
        Verdict(any(right and _stands_whole(right, answer.casefold()) for right in rights), answer)
        if answer
        else UNREAD
    )


def substring(text: str, gold: str, aliases: Sequence[str] = ()) -> Verdict:
    """As `contains`, also inside a word: the rule of Nepal et al. (2025) for TriviaQA, who give it no aliases."""
    answer = text.strip()
    rights = [right.strip().casefold() for right in (gold, *aliases)]
    return Verdict(any(right and right in answer.casefold() for right in rights), answer) if answer else UNREAD


def aliases(text: str, gold: str, aliases: Sequence[str] = (), rule: str = "words") -> Verdict:
    """Judge an answer to a trivia question by its `first_line`, against the gold answer and its aliases.

    By the rule `words` the normalised answer is, or contains as consecutive whole words, a normalised right answer: "It
    was Mark Twain." counts, "party" does not contain "art". By `exact` it is one, the exact match of Joshi et al.
    (2017). `substring` looks at the whole answer (`substring`).
    """
    if rule == "substring":
        return substring(text, gold, aliases)
    answer = first_line(text)
    words = normalise(answer)
    if not words:
        return UNREAD
    rights = [right for right in map(normalise, (gold, *aliases)) if right]
    if rule == "exact":
        return Verdict(words in rights, answer)
    return Verdict(any(f" {right} " in f" {words} " for right in rights), answer)


def stands(text: str, gold: str, aliases: Sequence[str] = ()) -> bool:
    """Whether the gold answer or an alias stands anywhere in a text, as whole words."""
    words = f" {normalise(text)} "
    return any(f" {right} " in words for right in map(normalise, (gold, *aliases)) if right)


_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Letters of Thai, Lao, Burmese, Khmer, Japanese, Chinese and Korean."""


def _stands_whole(right: str, text: str) -> bool:
    """Whether a text has `right` with no letter or digit of the same word or number beside it."""
    begin, end = right[0], right[-1]
    before = "" if not begin.isalnum() or _UNSPACED.match(begin) else r"(?<![^\W_])"
    behind = "" if not end.isalnum() or _UNSPACED.match(end) else r"(?![^\W_])"
    before += r"(?<!\d[.,])" * begin.isdigit()
    behind += r"(?![.,]\d)" * end.isdigit()
    return re.search(f"{before}{re.escape(right)}{behind}", text) is not None


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’“”´`«»", " "))


def normalise(answer: str) -> str:
    """The answer as TriviaQA compares it (Joshi et al. 2017): lower case, no articles, no punctuation.

    Apostrophes vanish and other punctuation becomes a space, so that "Sgt. Pepper's" is "sgt peppers" and
    "half-life" two words. An answer that consists of articles and punctuation only, such as the letter "A" or
    the band "The The", keeps its articles, since nothing would be left of it.
    """
    lowered = re.sub(r"['’‘´`]", "", answer.lower()).translate(_PUNCTUATION)
    kept = " ".join(_ARTICLES.sub(" ", lowered).split())
    return kept or " ".join(lowered.split())


def first_line(text: str) -> str:
    """The first line that is not empty, behind `</think>` and inside `<answer>` where these are written."""
    text = text.rsplit("</think>", 1)[-1]
    if "<answer>" in text:
        text = text.split("<answer>", 1)[1].split("</answer>", 1)[0]
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
