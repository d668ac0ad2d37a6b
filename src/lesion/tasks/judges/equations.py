r"""Equations: what a chain of thought calculates, `a op b = c` in text, LaTeX and `<<…>>`, and whether it is right.

Only what can be evaluated is an equation: numbers on both sides, an operation on one of them at least. `x = 7` states a
value, and `x + 3 = 7` cannot be judged without x.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Literal
from unicodedata import category, normalize

from lesion.tasks.judges.expressions import FUNCTIONS
from lesion.tasks.judges.notation import SPACE, SUBSCRIPTS, VULGAR, superscripts
from lesion.tasks.judges.units import SCALES, is_unit, size

LONGEST = 20_000
"""Characters of a text that are read."""
MOST = 40
"""Signs of one side that are read; of a longer side, those next to the sign of equality."""
WORDS = 4
"""So many words behind a number may be its unit."""
_VARIABLE = re.compile(r"[^\W\d_\u0900-\uffff]|[√∛∜]")
"""Letters of a name, and roots; other scripts have units of one letter, or no spaces (Hindi, Chinese)."""
_PRODUCT = re.compile(r"(?!st|nd|rd|th)[A-Za-z]{2,3}")
"""Right behind a number, two or three letters that are no unit are a product, as in 2xy."""
_HOUR = re.compile(r"[ap]m", re.IGNORECASE)
_UNITS = frozenset("mghlL")
_FUNCTIONS = frozenset(
    {name for name in FUNCTIONS if not is_unit(name) and name != "floor"}
    | {"mod", "bmod", "pmod", "plus", "minus", "multiplied"}
)
_ARTICLE = re.compile("[aàáвскоу]")
"""Letters that are words also right behind a number: `$19 a day`."""
_LETTER_WORD = re.compile("[aàáyeéèiIoóuwzkвискоуая]")
"""Letters that are words behind a unit: `9 eggs a day`."""
_AND = re.compile("[yeiи]")
_NO_LABEL = frozenset(("of", "than", "by", "to", "from", "with", "as", "at", "in", "per", "and"))
_NO_UNIT = frozenset(("where", "when", "for", "with"))
_LABEL = re.compile(r"[^\W\d_a-z].*|day|week|month|year|step|round|case")
"""Words that a number may count, as in `Day 2 - 5 + 3 = 8`."""
_POINTED = re.compile(r"[1-9]\d{0,2}\.\d{3}")
"""A decimal, or thousands as German writes them."""
_POWER, _DIGITS = 12, 30

_REPLACED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), by)
    for pattern, by in (
        (r"\\(?:boxed|fbox)\s*\{([^{}]*)\}", r" \1 "),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])|[×·⋅∗✕]", "*"),
        (r"\\div(?![A-Za-z])|÷", "/"),
        (r"\\(?:approx|simeq)(?![A-Za-z])|[≈≃]", "≈"),
        (r"\\!", ""),
        (r"\\(?:left|right)(?=[()])", ""),
        (r"\\(?:left|right|displaystyle|quad|qquad)(?![A-Za-z])\.?|\\[,;:]|&|\\[()]", " "),
        (rf"\\(?=(?:{'|'.join(sorted(_FUNCTIONS))})(?![A-Za-z]))", " "),
        (r"\\\\|\\[\[\]]", "\n"),
        (r"\\([%$])", r"\1"),
        (r"[−–]", "-"),
        (r"\{,\}", ","),
        (r"(?<=[^\W\d_])_(\d+)", r"_{\1}"),  # a_1 has no number
        (r"(?<=\d)_\{(\d+)\}", r"_\1"),  # of another base
        (r"\d*\.\d*(?=\\(?:overline|bar|dot)(?![A-Za-z]))", "√"),  # no decimal that ends
        (r"(?<!\d)\*\*|\*\*(?!\d)|__|`", " "),  # bold and code in Markdown
        (r"(?<=\d)\*\*(?=\d)", "^"),
        (r"(?<==)[ \t]*([*_])(?=\S)([^*_=\n]*)(?<=\S)\1(?![\w(*]|[ \t]*[$\d(])", r" \2"),  # = *8*
        (r"=[ \t]*\n\s*(?!\d{1,2}[.)][ \t])(?=[$€£]?\d[\d,.]*%?(?:[ \t]+[^\W\d_]+){0,3}[.*]*[ \t]*$)", "= "),
        (r"^[ \t]*(?:[-*•+#>]+|\d{1,2}[.)]|\(?[\da-z]{1,2}\)(?![ \t]*[-*+/^=]))[ \t]+", " "),  # the mark of a list
        (r"(?<=\d)[ \t]+\(([^\W\d_]{2,}(?:[ \t][^\W\d_]{2,}){0,3})\)", r" \1 "),  # a unit in brackets
        *((vulgar, f" {normalize('NFKC', vulgar).replace('⁄', '/')}") for vulgar in VULGAR),
        (r"(?<=[\w)}%])[ \t]+[xX][ \t]*(?=[\d(\\$]|\.\d)|(?<=\d)[xX](?=\d)", " * "),
        (r"\b(?:multiplied|times)(?:[ \t]+by)?\b(?=[ \t]*[$(\d])", "*"),
        (r"\bdivided[ \t]+by\b", "/"),
        (r"\bplus\b(?=[ \t]*[$(\d])", "+"),
        (r"\bminus\b(?=[ \t]*[$(\d])", "-"),
        (r"\bequals\b", "="),
        (r"(?<=\d)[ \t]*per[ \t]?cent\b", "%"),
        (r"(?<=\d)([ \t]+(?:hours?|minutes?|days?|weeks?|feet|foot|pounds?|dollars?))[ \t]+and(?=[ \t]+\d)", r"\1"),
        # The quotient alone, and what is rounded, are no results.
        (r"(?<=\d)[ \t]*(?:…+|⋯+|\.{3,}|余|\b(?:[Rr]este?|[Rr]esto)\b)[ \t]*(?=\d)", " r "),
        (r"(?<=\d),?[ \t]+\(?(?:with[ \t]+)?(?:an?[ \t]+)?remainder\b|,?[ \t]+\(?round(?:ed|ing)\b", " r "),
        (r"(?<=\d),?[ \t]+with[ \t]+(?=\d+[ \t]+(?:[^\W\d_]+[ \t]+)?(?:left|remaining|over)\b)", " r "),
        (r"(?<=[%\d])[ \t]+of[ \t]+(?=[$\d(])", " * "),
        (r"[$€£¥₹]", ""),
        (r"(?:(?<=[^\W\d_]{2})|(?<=[ /]m))[ \t]*\^[ \t]*(?:\{\d\}|\d)", ""),  # cm^2
        (r"\^[ \t]*\{([^{}]*)\}", r"^(\1)"),
    )
)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{([^{}]*)\}|(\d))\s*(?:\{([^{}]*)\}|(\d))")
_MIXED = re.compile(r"(?<=\d)[ \t]*\\[dtc]?frac\s*(?:\{(\d{1,3})\}|(\d))\s*(?:\{(\d{1,3})\}|(\d))")
_WIDE = {wide: wide - 0xFEE0 for wide in map(ord, "％（）＋－＝")}
_MARK = re.compile(r"<<([^<>\n]{1,200})>>")
_NUMBER = (
    rf"(?:\d{{1,3}}(?P<mark>,|['’_]|{SPACE})\d{{3}}(?:(?P=mark)\d{{3}})*(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?![,.'’_:]?\d)"
)
_TOKEN = re.compile(
    rf"(?P<mixed>(?:\d{{1,4}}[ \t]+|(?<=/ ))\d{{1,3}}/\d{{1,3}}(?![\d.]))|(?P<number>{_NUMBER})"
    r"|(?P<unread>\d(?:[,.'’_:]?\d)+)"  # 10:30, 3,5
    r"|(?P<sign>[-+*/^()])|(?P<equal>[=≈])"
    r"|(?P<percent>%)|(?P<end>\n|[.;:!?,](?=\s|$))|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*|[√∛∜])"
    rf"|(?P<space>{SPACE}+)|(?P<other>.)",
    re.DOTALL,
)
_ENDS = re.compile(
    "and|or|is|are|was|were|so|then|which|if|because|since|has|have|had|gives?|gets?|we|times", re.IGNORECASE
)
"""Words that are no unit: what stands before them is another clause."""


_Reading = Literal["part", "number", "change", "sized"]


@dataclass(frozen=True)
class Equation:
    """What a text calculates.

    Attributes:
        written: its two sides, as they were read.
        correct: whether they are equal; of a decimal or behind ≈, whether the one side is the other rounded. Of a
            result that is calculated on with (`5 + 3 = 8 * 2 = 16`), whether it is right.
        result: the value of the right side.
        place: where its sign of equality stands, in characters of the text with LaTeX and marks of lists replaced.
    """

    written: str
    correct: bool
    result: Fraction
    place: int


@dataclass(frozen=True)
class _Sign:
    """A sign of a text: a number, an operation, a bracket, a word, an unread number, a sign of equality or an end."""

    kind: Literal["number", "sign", "equal", "word", "unread", "end"]
    text: str
    place: int
    value: Fraction = Fraction(0)
    places: int = 0
    percent: bool = False
    spaced: bool = True
    unit: str = ""
    size: Fraction = Fraction(1)


@dataclass(frozen=True)
class _Side:
    """One side of an equation: its values in every reading, each with its decimals, and how it is written.

    `mixed`: a sum of units of one kind, as in `1 hour + 30 minutes`. `unit`: the word behind the last number.
    """

    values: dict[Fraction, int]
    written: str
    calculated: bool
    mixed: bool
    unit: str


def equations(text: str) -> list[Equation]:
    """The equations of a text, in its order; what stands twice in the marks `<<…>>` and beside them counts once."""
    marks = [found for mark in _MARK.findall(text[:LONGEST]) for found in _read(mark)]
    own = _read(_MARK.sub("", text[:LONGEST]))
    known = {(found.written.replace(" ", ""), found.result) for found in own}
    return own + [found for found in marks if (found.written.replace(" ", ""), found.result) not in known]


def _read(text: str) -> list[Equation]:
    signs = _apart(_words_and_labels([*_signs(_replaced(text))]))
    others = [other for other in (_in_thousands(signs), _without_labels(signs)) if other != signs]
    equals = [index for index, sign in enumerate(signs) if sign.kind == "equal"]
    found = []
    named: dict[str, int] = {}  # x = 17 - 9, and in a later line x = 8
    for index in equals:
        left, right, origin = _left(signs, index), _right(signs, index), None
        if left is None and right is not None and (name := _name(signs, index)):
            origin = None if right.calculated else named.pop(name, None)
            left = None if origin is None else _right(signs, origin)
            end = _end(signs, index)
            follows = end < len(signs) and signs[end].kind == "equal"
            if right.calculated and not follows and _side(signs[index + 1 : end]):
                named[name] = index
        if left is None or right is None or not (left.calculated or right.calculated):
            continue
        correct = _correct(signs, index, left, right)
        for other in others if correct is False else ():
            sides = _left(other, index) if origin is None else _right(other, origin), _right(other, index)
            if sides[0] and sides[1] and _correct(other, index, sides[0], sides[1]):
                correct = None
        if correct is None:
            continue
        written = f"{left.written} {signs[index].text} {right.written}"
        found.append(Equation(written, correct, [*right.values][-1], signs[index].place))
    return found


def _correct(signs: Sequence[_Sign], index: int, left: _Side, right: _Side) -> bool | None:
    """Whether two sides are equal; None where it depends on how they are read."""
    about = signs[index].text == "≈"
    correct = any(_same(a, b, left, right, about) for a in left.values for b in right.values)
    exact = _same(next(iter(left.values)), next(iter(right.values)), left, right, about)
    if left.mixed and not exact and (not right.unit or (correct and size(right.unit))):  # 1 hour + 30 minutes = 31
        return None
    share = right.written.endswith("%") and [*right.values][-1] <= 1
    if correct and share and not exact and "/" in left.written and "100" not in left.written:  # 50/200 = 0.25%
        return None
    first = signs[index + 1]  # 5 + 3 = 8 * 2 = 16: the result is calculated on with
    return correct or (first.kind == "number" and right.calculated and first.value in left.values)


def _name(signs: Sequence[_Sign], equal: int) -> str:
    """The words alone that stand before a sign of equality; empty where there is something else."""
    words = []
    while equal > 0 and signs[equal - 1].kind not in {"equal", "end"}:
        equal -= 1
        words.append(signs[equal])
    return " ".join(sign.text.lower() for sign in words) if all(sign.kind == "word" for sign in words) else ""


def _same(left: Fraction, right: Fraction, of_left: _Side, of_right: _Side, about: bool) -> bool:
    """Whether two values are the same, the result rounded or cut off to the decimals that it has."""
    if left == right:
        return True
    for exact, stated, side in ((left, right, of_right), (right, left, of_left)):
        if not side.calculated and (side.values[stated] or about):
            unit = Fraction(1, 10 ** side.values[stated])
            if abs(stated) >= 10**15 * unit:  # a machine number, of which the last digits may be off
                unit *= 20
            if abs(exact - stated) <= unit / 2 or floor(abs(exact) / unit) * unit == abs(stated):
                return True
    return False


def _replaced(text: str) -> str:
    """LaTeX, Markdown and words for operations as plain signs."""
    if not text.isascii():
        text = "".join(sign for sign in text.translate(_WIDE) if not category(sign).startswith("M"))
        text = superscripts(re.sub(f"(?<![{SUBSCRIPTS}])(?=[{SUBSCRIPTS}])", "_", text))
        text = text.translate({ord(sign): str(digit) for digit, sign in enumerate(SUBSCRIPTS)})
    text = _MIXED.sub(r" \1\2/\3\4 ", _TEXT.sub(r" \1 ", text))
    for _ in range(4):  # fractions within fractions
        text, count = _FRACTION.subn(r" ((\1\2)/(\3\4))", text)
        if not count:
            break
    for pattern, by in _REPLACED:
        text = pattern.sub(by, text)
    return text


def _signs(text: str) -> Iterator[_Sign]:
    """The signs of a text; a line break before a sign of equality is none."""
    waiting: _Sign | None = None
    spaced = True
    for match in _TOKEN.finditer(text):
        kind, written, place = str(match.lastgroup), match[0], match.start()
        if kind == "space":
            spaced = True
            continue
        if kind == "percent":
            if waiting is not None and waiting.kind == "number":
                waiting = _Sign("number", f"{waiting.text}%", waiting.place, waiting.value, waiting.places, True, True)
            continue
        if kind == "equal" and waiting is not None and waiting.text == "\n":
            waiting = None
        if waiting is not None:
            yield waiting
        if kind in {"number", "mixed"}:
            if kind == "mixed":
                *whole, part = written.split()
                above, below = map(int, part.split("/"))
                value = sum(map(int, whole)) + (Fraction(above, below) if below else Fraction(0))
                waiting = _Sign("number", written, place, Fraction(value), spaced=spaced)
            else:
                digits = re.sub(r"[^\d.]", "", written)
                if len(digits) > _DIGITS:
                    waiting = _Sign("end", written, place)
                else:
                    places = len(digits.partition(".")[2])
                    waiting = _Sign("number", written, place, Fraction(digits), places, spaced=spaced)
        elif kind == "word":
            waiting = _Sign("end" if _ENDS.fullmatch(written) else "word", written, place, spaced=spaced)
        elif kind in {"sign", "unread"}:
            waiting = _Sign("sign" if kind == "sign" else "unread", written, place, spaced=spaced)
        elif kind == "equal":
            waiting = _Sign("equal", written, place)
        elif kind == "end" and waiting is not None and waiting.text == "\n":
            pass  # an empty line is one end
        else:
            waiting = _Sign("end", written, place)
        spaced = False
    if waiting is not None:
        yield waiting


def _words_and_labels(signs: Sequence[_Sign]) -> list[_Sign]:
    """The signs without letters that are words or labels, as in `9 eggs a day`, `9 cats in box A`, `7 y 7 * 2 = 14`."""
    kept, around = [], [_Sign("end", "", 0), *signs, _Sign("end", "", 0)]
    for before, sign, behind in zip(around, signs, around[2:], strict=False):
        if sign.kind == "word" and len(sign.text) == 1 and sign.spaced:
            unit = before.kind == "word" and len(before.text) > 1 and before.text not in _FUNCTIONS
            word = behind.kind == "word" and len(behind.text) > 1 and behind.text not in _FUNCTIONS | _NO_UNIT
            letter = _LETTER_WORD if unit else _ARTICLE
            if word and (unit or before.kind == "number") and letter.fullmatch(sign.text):
                continue
            if unit and sign.text.isupper() and before.text not in _NO_LABEL and (word or behind.kind == "end"):
                continue
            if (unit or before.kind == "number") and behind.kind == "number" and _AND.fullmatch(sign.text):
                sign = _Sign("end", "and", sign.place)
        kept.append(sign)
    return kept


def _apart(signs: list[_Sign]) -> list[_Sign]:
    """The signs with `8,8` as two numbers where the first is the result of what stands before: `5+3=8,8*2=16`."""
    place = 1
    while (place := place + 1) < len(signs) - 1:
        sign = signs[place]
        first, _, second = sign.text.partition(",")
        if not (first.isdecimal() and second.isdecimal() and second[0] != "0" and signs[place + 1].kind == "sign"):
            continue
        left = _left(signs, place - 1) if signs[place - 1].kind == "equal" else None
        if left and left.calculated and Fraction(first) in left.values:
            apart = [_Sign("number", digits, sign.place, Fraction(digits)) for digits in (first, second)]
            signs[place : place + 1] = [apart[0], _Sign("end", ",", sign.place), apart[1]]
    return signs


def _in_thousands(signs: Sequence[_Sign]) -> list[_Sign]:
    """The signs with `1.500` as 1500."""
    return [
        replace(sign, value=sign.value * 1000, places=0) if _POINTED.fullmatch(sign.text) else sign for sign in signs
    ]


def _without_labels(signs: Sequence[_Sign]) -> list[_Sign]:
    """The signs with the dash behind a label as an end: `Day 2 - 5 + 3 = 8`."""
    triples = zip(signs, signs[1:], signs[2:], strict=False)
    labels = {
        dash
        for word, number, dash in triples
        if word.kind == "word"
        and _LABEL.fullmatch(word.text)
        and re.fullmatch(r"\d\d?", number.text)
        and dash.text == "-"
    }
    return [_Sign("end", ":", sign.place) if sign in labels else sign for sign in signs]


def _left(signs: Sequence[_Sign], equal: int) -> _Side | None:
    """The longest expression that ends at a sign of equality; None where a name takes part in it."""
    begin = equal
    while begin > 0 and signs[begin - 1].kind not in {"equal", "end"} and equal - begin < MOST:
        begin -= 1
    for start in range(begin, equal):
        side = _side(signs[start:equal])
        if side is not None:
            before = list(signs[begin:start])
            follows = signs[begin - 1].text.lower() if begin else ""
            label = before or follows in {",", "and", "or"} or (signs[equal - 1].kind == "word" and follows != "=")
            return None if (label and not side.calculated) or _takes_part(before, signs[start]) else side
    return None


def _takes_part(before: list[_Sign], first: _Sign) -> bool:
    """Whether what stands before an expression is calculated with it: `x + 3`, `books - 3`, `1/2 (68)`, `3 + his 4`,
    `sqrt(16)`, `4 boxes of 6`, `1 hour 30 minutes`.
    """
    if not before:
        return False
    name = before[-1].text if before[-1].kind == "word" and not first.spaced else ""
    if _VARIABLE.fullmatch(name if first.text != "(" else name[-1:]):
        return True
    if first.text == "-" and before[-1].text != "(":
        return True
    words = []
    while before and before[-1].kind == "word":
        words.append(before.pop().text)
    if words and words[0] in _FUNCTIONS:
        return True
    if before and before[-1].kind == "number":
        amount = len(words) == 1 and size(words[0]) is not None
        return first.text == "(" or amount or (len(words) <= 2 and words[:1] == ["of"])
    return bool(before) and before[-1].kind == "sign" and before[-1].text != "("


def _right(signs: Sequence[_Sign], equal: int) -> _Side | None:
    """The longest expression that begins at a sign of equality; None where a name takes part in it."""
    end = _end(signs, equal)
    for stop in range(end, equal + 1, -1):
        side = _side(signs[equal + 1 : stop])
        if side is not None:
            if stop == end:
                return side
            (before, last), behind = signs[stop - 2 : stop], signs[stop]
            variable = behind.kind == "word" and _is_variable(behind, last)
            amount = (before.kind, last.kind, behind.kind) == ("number", "word", "number") and last.text != "in"
            amount = amount and size(last.text) is not None  # 1 hour 30 minutes; but 120 in 2 weeks
            words = [sign for sign in signs[stop + 1 : stop + 3] if sign.kind == "word"]
            remark = words and not _is_variable(words[0], behind)  # 8 (5 from Ann)
            factor = behind.text == "(" and not remark
            return None if variable or amount or factor or behind.text in set("+-*/^") else side
    return None


def _is_variable(word: _Sign, before: _Sign) -> bool:
    if word.text in _UNITS and (word.spaced or before.text == "/"):
        return False
    if _HOUR.fullmatch(word.text) or _VARIABLE.fullmatch(word.text):
        return True
    if before.text == "/":  # 5 degrees/log
        return False
    product = not word.spaced and before.text != "(" and _PRODUCT.fullmatch(word.text) is not None
    return word.text in _FUNCTIONS or (product and not is_unit(word.text))


def _end(signs: Sequence[_Sign], equal: int) -> int:
    """Where what stands behind a sign of equality ends: at the next one, or at the end of a clause."""
    end = equal + 1
    while end < len(signs) and signs[end].kind not in {"equal", "end"} and end - equal <= MOST:
        end += 1
    return end


def _side(signs: Sequence[_Sign]) -> _Side | None:
    """What signs say, read whole: a number or an expression of numbers, units behind them left out."""
    bare = _without_units(signs)
    if bare is None or not bare:
        return None
    try:
        values = [_Reader(bare, reading).whole() for reading in _readings(bare)]
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    written = " ".join(sign.text for sign in bare)
    last = bare[-1]
    places = [last.places + 2 * (last.percent and reading != "number") for reading in _readings(bare)]
    numbers = [sign for sign in bare if sign.kind == "number"]
    sizes = {size(sign.unit) for sign in numbers}
    kinds = {known[0] if known else None for known in sizes}
    mixed = len(sizes) > len(kinds) == 1 and not {"*", "/", "^", "("} & {sign.text for sign in bare}
    return _Side(dict(zip(values, places, strict=True)), written, len(numbers) > 1, mixed, numbers[-1].unit)


def _readings(signs: Sequence[_Sign]) -> list[_Reading]:
    """What these signs may mean; the last is what they result in."""
    numbers = [sign for sign in signs if sign.kind == "number"]
    percentages = [sign for sign in numbers if sign.percent]
    alone = len(percentages) == len(numbers) or all(sign.value == 100 for sign in percentages)
    possible: dict[_Reading, bool] = {
        "sized": any(sign.size != 1 for sign in signs),
        "change": bool(percentages),
        "part": True,
        "number": bool(percentages) and alone,
    }
    return [reading for reading, applies in possible.items() if applies]


def _without_units(signs: Sequence[_Sign]) -> list[_Sign] | None:
    """The signs without the words behind numbers and brackets (`5 apples`, `3 dollars/apple`); None where a word is no
    unit: it stands before every number, is one letter, or one of too many.
    """
    bare: list[_Sign] = []
    words = 0
    for index, sign in enumerate(signs):
        if sign.kind == "unread":
            return None
        if sign.kind == "word":
            words += 1
            if words == 1 and bare and bare[-1].kind == "number":
                bare[-1] = replace(bare[-1], unit=sign.text, size=_size(sign.text))
            if (
                not bare
                or words > WORDS
                or _is_variable(sign, signs[index - 1])
                or not (bare[-1].kind == "number" or bare[-1].text == ")")
            ):
                return None
        elif sign.text == "/" and index + 1 < len(signs) and signs[index + 1].kind == "word":
            if not words and (sign.spaced or signs[index + 1].spaced):
                return None
            # of a unit, as in dollars/apple and $3/kg
        else:
            bare.append(sign)
            words = 0
    return bare


def _size(word: str) -> Fraction:
    """What a word behind a number multiplies it by: 12 of a dozen, 60 of a minute beside a second; else 1."""
    known = size(word)
    return SCALES.get(word.lower().removesuffix("s"), known[1] if known else Fraction(1))


class _Reader:
    """Evaluates signs by the usual precedence; it raises `ValueError` where they are no expression.

    Args:
        reading: whether 20% is 20, 1/5, or that of what it is added to (200 + 20% = 240); `sized`: whether numbers
            count in one unit of their kind (1 hour + 30 minutes = 90 minutes).
    """

    def __init__(self, signs: Sequence[_Sign], reading: _Reading) -> None:
        self.signs, self.reading, self.place = signs, reading, 0

    def whole(self) -> Fraction:
        """All signs as one value."""
        value = self._sum()
        if self.place < len(self.signs):
            raise ValueError
        return value

    def _next(self, among: str) -> str | None:
        """The next sign where it is one of these, which is taken."""
        if self.place < len(self.signs):
            sign = self.signs[self.place]
            if sign.kind == "sign" and sign.text in among:
                self.place += 1
                return sign.text
        return None

    def _sum(self) -> Fraction:
        value = self._product()
        while sign := self._next("+-"):
            begin = self.place
            other = self._product()
            if self.reading == "change" and self.place == begin + 1 and self.signs[begin].percent:
                other *= value
            value = value + other if sign == "+" else value - other
        return value

    def _product(self) -> Fraction:
        value = self._power()
        while True:
            sign = self._next("*/")
            if sign is None and not self._beside():
                return value
            other = self._power()
            value = value / other if sign == "/" else value * other

    def _beside(self) -> bool:
        """Whether a bracket follows a factor without a sign and a space, as in 2(3 + 4)."""
        if not 0 < self.place < len(self.signs):
            return False
        sign = self.signs[self.place]
        return sign.text == "(" and (not sign.spaced or self.signs[self.place - 1].text == ")")

    def _power(self) -> Fraction:
        if self._next("-"):
            return -self._power()
        base = self._atom()
        if self._next("^"):
            exponent = self._atom()
            if exponent.denominator != 1 or abs(exponent) > _POWER:
                raise ValueError
            return base ** int(exponent)
        return base

    def _atom(self) -> Fraction:
        if self._next("-"):
            return -self._atom()
        if self._next("("):
            value = self._sum()
            if not self._next(")"):
                raise ValueError
            return value
        if self.place >= len(self.signs) or self.signs[self.place].kind != "number":
            raise ValueError
        sign = self.signs[self.place]
        self.place += 1
        value = sign.value / 100 if sign.percent and self.reading != "number" else sign.value
        return value * sign.size if self.reading == "sized" else value
