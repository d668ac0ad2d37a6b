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

_MIXED = re.compile(rf"(?<![\w.,}}/^])(\d+){SPACE}(\d+)/(\d+)(?![\d.,/%\\])")
_NUMBER_ALONE = re.compile(rf"[-−]?{SPACE}?{DECIMAL}")


def math_answer(text: str, gold: str, aliases: Sequence[str] = (), complete: bool = True) -> Verdict:
    r"""Judge a solution written in words and mathematics by the answer it arrives at.

    The answer is read at the first of these that is there and not empty: the last `\boxed{…}`; the
    last value behind `####`; the last "answer is …" or "answer: …"; a first line that is a number alone and is
    explained below it ("12", then "Because …"); the end of the text (its last number or formula). Where the text has
    `<answer>` tags or ends its thinking with `</think>`, these places are looked for behind the tag first.

    What can be taken in several ways is decided so (`lesion.tasks.judges.numerals`, `lesion.tasks.judges.statements`):

    | written | read as |
    |---|---|
    | `1,200`, `1 200`, `1'200`, `1_200`, `$1,200.00` | 1200; spaces may be thin or unbreakable; a point is decimal |
    | `1,5`, `1.200,50`, `2:30` | right only for a gold answer written alike: no decimal commas, no times in hours |
    | `3 1/2`, `1½`, `½`, `\frac12` | 7/2, 3/2, 1/2, 1/2 |
    | `1e6`, `1.2e3`, `6.02 × 10^23` | their values, up to an exponent of 999 |
    | `12.5%` | 12.5 or 0.125, whichever the question asks for; `12.5%` is not `0.125%` |
    | `1.5 million`, `$20k`, `2 dozen` | 1500000, 20000, 24; or 1.5, 20, 2, if that is the gold answer |
    | `20k`, `20 k`, `20K`, `1.5M`, `2B` in prose | like `20 thousand`, `1.5 million`; in a formula they are variables |
    | `3 million 200 thousand`, `2 thousand 500` | 3200000, 2500 |
    | `2^3`, `2^(1+2)`, `10 - 3`, `3 x 4` | 8, 8, 7, 12 |
    | `0.1 + 0.2`, `$1.10 + $2.20`, `1½ * 2`, `0.1x + 0.2x` | 3/10, 33/10, 3, 3/10 x: exact, not in binary |
    | `0.1\overline{6}` | 1/6 |
    | `4343_6`, `4343₆`, `4343 in base 6` | digits and base; without a base, right for the same digits in any base |
    | `5!` | 120 in a formula and alone behind `####`; 5 in a sentence, where it may be an exclamation |
    | `3 : 4` where the answer begins | the ratio `3:4` |
    | `30 - 16 = 14`, `7 = 10 - 3` | 14, 7: the last side that is one number |
    | `−3`, `–3`, `negative 3`, `±3` | -3, -3, -3; `±3` is two numbers and not 3 |
    | `not 10 but 12`, `12, not 10`, `10, no, 12` | 12 |
    | `between 10 and 12, namely 12` | 12 |
    | `between 10 and 12`, `10–12`, `10 to 12`, `10 or 12` | nothing: neither 10 nor 12 is stated |
    | `12 and 10` | nothing: two answers that differ; of `12 apples and 3 pears` the 12 |
    | `not 12`, `cannot be 12`, `12 is wrong`, `12 is not the answer`, `neither 10 nor 12` | nothing: it is denied |
    | `$3$ or $4$`, `not $x$`, `over $12$` | as without dollar signs |
    | `10 < x < 12`, `x ≥ 12`, `more than 12`, `higher than 12`, `over 12`, `exceeds 12` in prose | nothing: a bound |
    | `> 12`, `\geq 12`, `\neq 12`, `more than 12`, also in a box | right only for a gold answer written alike |
    | `at least 12`, `at most 12`, `12 or more` | 12: that is how "at least how many" is answered |
    | `12 - 13%` | nothing: a range of percentages or a difference |
    | `10-12` | the difference -2, and neither 10 nor 12 |
    | `18 dollars`, `18 €`, `90°`, `12 m²`, `**12**.` | 18, 18, 90, 12, 12: units are not compared |
    | `twelve` | nothing, unless the gold answer has no digits |

    Numbers are compared exactly: 15.0000001 is not 15. Where both have six decimals or more, as `0.333333` and 1/3
    have, they may differ by half a unit in the last place of the coarser one. Everything else goes to math-verify,
    without its signals (they work in the main thread only) and within limits of its own: answers longer than
    `LONGEST` characters are not read, numbers of more than `BITS` bits are not computed, and a comparison of more than
    `SECONDS` counts as unequal.

    Args:
        text: what the model wrote.
        gold: the right answer.
        aliases: other right answers.
        complete: whether the model ended the text itself. In a text cut off at the token limit the last
            number is the place where it was cut, not an answer: only a marked answer is read there.

    Returns:
        The verdict; `parsed` is the answer as written (`20k` as `20 thousand`), or None when none could be read.
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
    numbers = statements.found(plain)
    spans = [(begin, end) for _, begin, end in numbers]

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
    one, other = quantity(answer), quantity(gold)
    if one is not None and other is not None:
        return same(one, other)
    if _plain_latex(answer) == _plain_latex(gold):
        return True
    if _is_no_value(answer) or _is_no_value(gold) or other_bases(answer, gold):
        return False
    one_based, other_based = based(answer), based(gold)
    if one_based and other_based:
        return one_based == other_based
    if one_based or other_based:  # the question says in which base the other is
        return _equal(one_based[0] if one_based else answer, other_based[0] if other_based else gold)
    one, other = _computed(answer), _computed(gold)
    if one is not None and other is not None:
        return same(one, other)
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
        found = readable or parse(text, parsing_timeout=None, fallback_mode="no_fallback") or boxed
        computable = [part for part in found if isinstance(part, str) or bits(part) <= BITS]
        return [part if isinstance(part, str) else exact_decimals(part) for part in computable]

    try:
        return tuple(within(SECONDS, read))
    except (TimeoutError, RecursionError, MemoryError, OverflowError):
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
    except (TimeoutError, RecursionError, MemoryError, OverflowError):
        return False


@lru_cache(maxsize=1)
def _silence() -> None:
    """math-verify warns once that its timeouts are off; they are, and `within` stands in for them."""
    for name in ("math_verify.parser", "math_verify.grader"):
        logging.getLogger(name).setLevel(logging.ERROR)
