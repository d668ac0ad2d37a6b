"""Whether the mathematical answer in a text is the gold answer, compared by math-verify where need be."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from lesion.tasks.judges import statements
from lesion.tasks.judges.arithmetic import BITS, bits, computed, exact_decimals
from lesion.tasks.judges.bases import based, other_bases
from lesion.tasks.judges.deadline import within
from lesion.tasks.judges.numerals import (
    CURRENCY,
    DECIMAL,
    SPACE,
    VULGAR,
    Quantity,
    plain_fractions,
    quantity,
    repeating,
    same,
    spelled,
    superscripts,
    undressed,
)
from lesion.tasks.judges.relations import is_one_sided, one_way
from lesion.tasks.task import Verdict

SECONDS = 2.0
"""Time limit for one comparison; a comparison that takes longer counts as unequal."""

LONGEST = 500
"""Characters of an answer that are still read."""

TAIL = 20_000
"""Characters at the end of a text in which an answer is looked for."""

_PHRASE = re.compile(
    r"\banswer(?:\s+is|\s*:|\s+would\s+be|\s+equals|\s*=)(?:\s*:)?[\s*]*"
    r"(?:(?:therefore|thus|approximately|about)\s+)?",
    re.IGNORECASE,
)
_HASHES = re.compile(r"####[ \t]*([^\n#]+)")
_FACTORIAL = re.compile(r"[-+*/×÷().\d\s]*\d![-+*/×÷().!\d\s]*")
_MEASURE = re.compile(r"^\\(?:text|mathrm|mbox)\{([^{}\\]*\d[^{}\\]*)\}$")
_SENTENCE_END = re.compile(r"\n|(?<!\\)[.!?](?=\s|$)|[.](?=[A-Z])")
# A dollar sign opens or closes a formula only where no space follows or precedes it and no digit comes after:
# the rest are amounts of money, as in "$5 x 3 = $15".
_MATH = re.compile(
    r"(?<![\\$])\$\$?(?=\S)((?:[^$\\]|\\.){1,500}?)(?<=\S)\$\$?(?!\d)|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]",
    re.DOTALL,
)

_TOO_MUCH = (TimeoutError, RecursionError, MemoryError, OverflowError)
_MIXED = re.compile(rf"(?<![\w.,}}/^])(\d+){SPACE}(\d+)/(\d+)(?![\d.,/%\\])")
_NUMBER_ALONE = re.compile(rf"[-−]?{SPACE}?{DECIMAL}")


def math_answer(text: str, gold: str, aliases: Sequence[str] = (), complete: bool = True) -> Verdict:
    r"""Judge a solution written in words and mathematics by the answer it arrives at.

    The answer is read at the first of these places that is not empty: the last `\boxed{…}`; the last value behind
    `####`; the last "answer is …" or "answer: …"; a first line that is a number alone and is explained below it ("12",
    then "Because …"); the end of the text (its last number or formula). Where the text has `<answer>` tags or ends its
    thinking with `</think>`, these places are looked for behind the tag first.

    What can be taken in several ways is decided as the table in `docs/internals.md` says (`numerals.py`,
    `statements.py`).

    Numbers are compared exactly: 15.0000001 is not 15. Where both have six decimals or more, as `0.333333` and 1/3
    have, they may differ by half a unit in the last place of the coarser one. Everything else goes to math-verify,
    without its signals (they work in the main thread only) and within limits: answers longer than `LONGEST` characters
    are not read, numbers of more than `BITS` bits are not computed, a comparison of more than `SECONDS` is unequal.

    Args:
        text: what the model wrote.
        gold: the right answer.
        aliases: other right answers.
        complete: whether the model ended the text itself. In a text cut off at the token limit the last
            number is the place where it was cut, not an answer: only a marked answer is read there.
    """
    words_allowed = not any(character.isdigit() or character in VULGAR for character in gold)
    for candidate in _candidates(text[-TAIL:], complete, words_allowed):
        answer = _clean(candidate)
        if answer:  # the first place decides: a number found elsewhere is not what an unreadable box says
            if len(answer) <= LONGEST and (quantity(answer) is not None or _is_no_value(answer) or _parsed(answer)):
                return Verdict(any(_equal(answer, _clean(right)) for right in (gold, *aliases)), answer)
            break
    return Verdict(False, None)


def _candidates(text: str, complete: bool, words_allowed: bool) -> Iterator[str]:
    """Places where the answer may stand, the most explicit first."""
    scopes = [text]
    if "</think>" in text:
        scopes.insert(0, text.rsplit("</think>", 1)[1])
    if "<answer>" in text:
        scopes.insert(0, text.rsplit("<answer>", 1)[1].split("</answer>", 1)[0])
    for scope in scopes:
        yield from _marked(scope, words_allowed)
        yield spelled(statements.given_first(scope) or "")
        if complete or "</answer>" in text:
            yield _last_value(scope) or (scope if words_allowed and scope is not text else "")


def _marked(text: str, words_allowed: bool) -> Iterator[str]:
    yield from _boxed(text)
    for match in reversed(list(_HASHES.finditer(text))):
        if _FACTORIAL.fullmatch(match[1]):
            yield match[1]
        elif words_allowed or not match[1].lstrip("*_ ")[:1].isupper():  # and not a heading such as "#### Step 3"
            yield _first_value(match[1]) or (match[1] if words_allowed else "")
    for match in reversed(list(_PHRASE.finditer(text))):
        yield _stated(text[match.end() : match.end() + LONGEST], words_allowed) or ""


def _boxed(text: str) -> Iterator[str]:
    r"""The contents of `\boxed{…}`, the last first, braces balanced; unclosed boxes are left out."""
    for match in reversed(list(re.finditer(r"\\f?boxed\s*\{", text))[-20:]):
        depth = 1
        for position in range(match.end(), min(len(text), match.end() + LONGEST)):
            if text[position - 1] == "\\":
                continue
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                yield text[match.end() : position]
                break


def _stated(rest: str, words_allowed: bool) -> str | None:
    """The value in what follows "the answer is": its first formula or number, behind the last equals sign."""
    sentence = _SENTENCE_END.split(rest.lstrip(), maxsplit=1)[0].strip()
    value = _first_value(sentence)
    if value or _MATH.search(sentence):
        return value
    return sentence if sentence and (words_allowed or "\\" in sentence) else None


def _first_value(sentence: str) -> str | None:
    formulas = list(_MATH.finditer(sentence))
    if formulas:
        return next((_content(formula) for formula in _stated_formulas(sentence)), None)
    if "\\" in sentence:
        value = re.search(r"[\\\d]", sentence)
        return None if value and statements.unstated(sentence, value.start(), len(sentence)) else sentence
    return spelled(statements.stated(sentence) or "")


def _last_value(text: str) -> str | None:
    """The last formula or number of a text, whichever ends later."""
    last = statements.last(_undelimited(text))
    formula = max(_stated_formulas(text), key=re.Match.end, default=None)
    if formula and (last is None or formula.end() > last[1]):
        return _content(formula)
    return spelled(last[0]) if last else None


def _stated_formulas(text: str) -> list[re.Match[str]]:
    """The formulas of a text without those that its words deny or leave open, as in "not $x$" and "$3$ or $4$"."""
    plain = _undelimited(text)
    spans = [(begin, end) for _, begin, end in statements.stated_numbers(plain)]

    def is_stated(formula: re.Match[str]) -> bool:
        if _NUMBER_ALONE.fullmatch(_content(formula)):
            return any(begin < formula.end() and formula.start() < end for begin, end in spans)
        return not statements.unstated(plain, *formula.span())

    return [formula for formula in _MATH.finditer(text) if is_stated(formula)]


def _undelimited(text: str) -> str:
    """The text with the delimiters of formulas that are one number as spaces, so that every place stays the same."""

    def bare(formula: re.Match[str]) -> str:
        content = _content(formula)
        return content.center(len(formula[0])) if _NUMBER_ALONE.fullmatch(content) else formula[0]

    return _MATH.sub(bare, text)


def _content(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group)


def _clean(answer: str) -> str:
    r"""The answer without what only dresses it: dollar signs, `\!`, a full stop at the end, spaces."""
    answer = re.sub(r"\\!\s*", "", answer.replace("\\$", "$")).replace("{,}", ",").replace("−", "-").strip()
    answer = _MEASURE.sub(r"\1", answer).removesuffix(".").strip()
    if len(answer) > 1 and answer[0] == answer[-1] == "$":
        answer = answer.strip("$").strip()
    return answer


def _equal(answer: str, gold: str) -> bool:
    answer_value, gold_value = quantity(answer), quantity(gold)
    if answer_value is not None and gold_value is not None:
        return same(answer_value, gold_value)
    if _plain_latex(answer) == _plain_latex(gold):
        return True
    if _is_no_value(answer) or _is_no_value(gold) or other_bases(answer, gold):
        return False
    answer_based, gold_based = based(answer), based(gold)
    if answer_based and gold_based:
        return answer_based == gold_based
    if answer_based or gold_based:  # the question says in which base the other is
        return _equal(answer_based[0] if answer_based else answer, gold_based[0] if gold_based else gold)
    answer_value, gold_value = _computed(answer), _computed(gold)
    if answer_value is not None and gold_value is not None:
        return same(answer_value, gold_value)
    return _verified(_parsed(gold), _parsed(answer))


def _is_no_value(answer: str) -> bool:
    """Whether an answer says what the value is not: `> 12`, `more than 12`; it equals only what is written alike."""
    if is_one_sided(answer):
        return True
    plain = undressed(answer)
    in_words = re.search("[A-Za-z]{3}", plain) and not re.search(r"[\\<>=≤≥≠]", plain)
    return bool(in_words) and statements.only_unstated(plain)


def _plain_latex(answer: str) -> str:
    """The answer with equivalent ways of typesetting made one, for comparison as text."""
    answer = re.sub(r"\\(?:left|right|displaystyle|[,;: ])|\\?\s+|\$", "", one_way(answer))
    answer = re.sub(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}", r"\1", answer)
    return re.sub(r"\\[dt]frac", r"\\frac", answer)


def _computed(answer: str) -> Quantity | None:
    """The exact value of an answer that is a number or arithmetic on numbers."""
    number = quantity(answer)
    if number is not None:
        return number
    expressions = [part for part in _parsed(answer) if not isinstance(part, str)]
    return computed(expressions[0]) if len(expressions) == 1 else None


@lru_cache(maxsize=4096)
def _parsed(answer: str) -> tuple[Any, ...]:
    """What math-verify reads in an answer; empty when it reads nothing or would compute too long on it."""
    from math_verify import parse

    _silence()
    number = quantity(answer)
    text = _typeset(answer) if number is None else str(number.value)

    def read() -> list[Any]:
        boxed = parse(f"\\boxed{{{text}}}", parsing_timeout=None)
        readable = [part for part in boxed if not isinstance(part, str)]
        parts = readable or parse(text, parsing_timeout=None, fallback_mode="no_fallback") or boxed
        computable = [part for part in parts if isinstance(part, str) or bits(part) <= BITS]
        return [part if isinstance(part, str) else exact_decimals(part) for part in computable]

    try:
        return tuple(within(SECONDS, read))
    except _TOO_MUCH:
        return ()


def _typeset(answer: str) -> str:
    """Arithmetic as it is typed, in LaTeX: `×`, `x`, `÷`, `**`, raised digits, currencies, mixed numbers, `1e3`."""
    text = repeating(superscripts(re.sub(rf"{CURRENCY}(?={SPACE}?[-−]?[.\d])", "", answer)))
    if text.count("**") == 1:
        text = re.sub(r"(?<=[\d)])\s?\*\*\s?(?=[-\d(])", "^", text)
    text = re.sub(r"\^\s?\(([-+*/\d. ]+)\)", r"^{\1}", text)
    if re.search(r"[\d)]\s?[-+*/×x·÷]", text):
        text = re.sub(r"(?<![\d,(])\d{1,3}(?:,\d{3})+(?![\d,)])", lambda match: match[0].replace(",", ""), text)
    text = _MIXED.sub(
        lambda match: rf"\left({match[1] or 0}+\frac{{{match[2]}}}{{{match[3]}}}\right)", plain_fractions(text)
    )
    text = re.sub(r"(?<![\w.\\])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])", r"\\left(\1 \\cdot 10^{\2}\\right)", text)
    text = re.sub(r"(?<=[\d)])\s?[×x·]\s?(?=[\d(\\])", r" \\cdot ", text)
    return re.sub(r"\^(-?\d+(?:\.\d+)?)", r"^{\1}", text).replace("÷", "/").replace("±", r"\pm ")


def _verified(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    from math_verify import verify

    try:
        return within(SECONDS, lambda: bool(verify(list(gold), list(answer), timeout_seconds=None)))
    except _TOO_MUCH:
        return False


@lru_cache(maxsize=1)
def _silence() -> None:
    """math-verify warns once that its timeouts are off; they are, and `within` stands in for them."""
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.ERROR)
