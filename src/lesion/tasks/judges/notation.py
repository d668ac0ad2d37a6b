"""Notation: plain text and LaTeX as one sequence of tokens, in which equal ways of writing are the same."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

from lesion.tasks.judges.expressions import FUNCTIONS, Unreadable
from lesion.tasks.judges.units import is_unit
from lesion.tasks.source import packaged

# How numbers are written in prose and formulas, as pieces of regular expressions.
LONGEST = 500
"""Characters of an answer that is read; Python refuses to convert thousands of digits."""

EXPONENT = 999
"""Largest power of ten that is read; a number beyond it counts as not readable."""

SPACE = "[ \t\u00a0\u2009\u202f]"
VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
SUBSCRIPTS = "₀₁₂₃₄₅₆₇₈₉"
SIGN = r"(?:[-+−–±]|(?:negative|minus)\s)"
IDEOGRAPHS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Letters of Japanese, Chinese and Korean, which stand beside numbers without a space; for a class of characters."""
CURRENCY = r"\\?[$€£¥₹]"
_GROUPED = "|".join(rf"\d{{1,3}}(?:{mark}\d{{3}})+" for mark in (",", SPACE, "['’]", "_"))
WHOLE = rf"(?:(?:{_GROUPED}|\d{{1,2}}(?:,\d{{2}})+,\d{{3}})(?!\d)|\d+)"
DECIMAL = rf"(?:{WHOLE}(?:\.\d+)?|\.\d+)(?:[eE][-+−]?\d+)?"
MIXED = rf"(?:\d+(?:{SPACE}|\sand\s)\d+[/⁄]\d+|(?:\d+{SPACE}?)?[{VULGAR}])"
UNIT = rf"{SPACE}?(?:\\?%|per\s?cent\b|(?:dozen|hundred|thousand|million|billion|trillion)s?\b)"
THOUSANDS = r"[kKMB]\b"
_LARGE_UNIT = rf"{SPACE}(?:hundred|thousand|million|billion|trillion)s?\b"
COMPOUND = (
    rf"{DECIMAL}{_LARGE_UNIT}(?:(?:,?{SPACE}(?:and{SPACE})?{DECIMAL}{_LARGE_UNIT}){{1,4}}(?:{SPACE}\d{{1,3}}(?![\w.,]))?"
    rf"|{SPACE}\d{{1,3}}(?![\w.,:/%]))"
)
"""Such as `3 million 200 thousand` and `2 thousand 500`."""
_BASES = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen"
BASE = (
    rf"(?:_\{{\d{{1,2}}\}}|_\d{{1,2}}(?!\d)|[{SUBSCRIPTS}]{{1,2}}"
    rf"|[ \t]+(?:in[ \t]+)?\(?base[ \t-]+(?:\d{{1,2}}(?![\d.,]*\d)|(?:{_BASES})\b)\)?)"
)
"""What names the base behind a number: `4343_6`, `101 in base 2`."""

_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname|emph|boldsymbol|bold|bf|rm)\s*\{([^{}]*)\}"
)
_PER = re.compile(
    r"\\[dt]?frac\s*\{\s*\\(?:text|mathrm|mbox)\s*\{\s*([A-Za-z]+)\s*\}\s*\}\s*\{\s*\\(?:text|mathrm|mbox)\s*\{\s*([A-Za-z]+)\s*\}\s*\}"
)
_BLACKBOARD = re.compile(r"\\(?:mathbb|Bbb|mathbf)\s*(?:\{\s*([RZNQC])\s*\}|\s([RZNQC])\b|([RZNQC])\b)")
_DROPPED = re.compile(
    r"\\(?:(?:text)?color\s*\{[^{}]*\}|underline|normalsize|[lL]arge|small|[hH]uge|left|right|displaystyle|textstyle|limits|[bB]igg?[lr]?|mathstrut|quad|qquad|hspace\{[^{}]*\}|phantom\{[^{}]*\})(?![A-Za-z])\.?"
)
_SPACING = re.compile(r"\\[,;: ]|~|[\u00a0\u2009\u202f\u2003\u2002]")
_DEGREE = re.compile(r"\^\s*\{?\s*\\?(?:circ|degree)\s*\}?|\\degree|\^\s*[∘o°](?![a-z])|º|˚")
_BARRED = re.compile(
    r"(?<![\d.,])(\d{0,20})\.(\d{0,20})(?:\\(?:overline|bar|dot)\s?\{?(\d{1,20})\}?|\((\d{1,9})\)|((?:\d\u0305){1,20}))"
)
WORDS = packaged("judges/words.toml")
_NUMERALS = WORDS["numerals"]
_ENGLISH = {
    **{word: count for count, word in enumerate(_NUMERALS["ones"])},
    **{word: 10 * count for count, word in enumerate(_NUMERALS["tens"], start=2)},
}
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = WORDS["parts"]
_NUMERAL = "|".join(sorted([*_ENGLISH, *_LARGE], key=len, reverse=True))
_COUNTED = re.compile(
    rf"\b(?:(?:a|an)\s+(?={'|'.join(_LARGE)}))?(?:{_NUMERAL})(?:(?:(?:(?<=hundred)|(?<=thousand)|(?<=million))\s+and\s+|[\s-]+)(?:{_NUMERAL}))*\b",
    re.IGNORECASE,
)
_COMPOUND = re.compile(COMPOUND, re.IGNORECASE)
_PART = rf"(?:{'|'.join(_PARTS)})"
_FRACTION = re.compile(
    rf"(?<![\d/])\b(?P<above>\d+)[\s-]+(?:a\s+)?(?P<part>{_PART})s?\b(?!\s+of\b)|\b(?:a|one)[\s-]+(?P<only>{_PART})\b|^half$",
    re.IGNORECASE,
)
_ORDINAL = re.compile(
    rf"(?<=\d)(?:st|nd|rd|th)\b|^\s*(?:the\s+)?(?:(?P<tens>{'|'.join(_NUMERALS['tens'])})[\s-])?(?P<rank>{'|'.join(_NUMERALS['ranks'])})"
    r"(?=\s*$|\s+(?:place|floor|day|one|term|row|grade|position)\b)",
    re.IGNORECASE,
)
_AMOUNT = r"-?\d[\d.]*(?:/\d+)?"
_OPERATORS = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\b(?:the\s+)?(?:positive\s+)?square\s+root\s+(?:of\s+)?|\broot\s+(?=\d)", "√"),
        (r"\b(?:the\s+)?cube\s+root\s+(?:of\s+)?", "∛"),
        (r"\b(?:the\s+)?fourth\s+root\s+(?:of\s+)?", "∜"),
        (r"\b(?:twice|double)\s+(?=[\d√π\\(])", "2*"),
        (r"\b(?:thrice|triple)\s+(?=[\d√π\\(])", "3*"),
        (r"\bhalf\s+(?:of\s+)?(?=[\d√π\\(])", "1/2*"),
        (r"(?<=\d/\d)\s+of\s+(?=\d)", "*"),
        (rf"\b(?:the\s+)?square\s+of\s+({_AMOUNT})", r"(\1)^2"),
        (rf"\b(?:the\s+)?cube\s+of\s+({_AMOUNT})", r"(\1)^3"),
        (rf"\b(?:the\s+)?reciprocal\s+of\s+({_AMOUNT})", r"1/(\1)"),
        (r"\s*(?:\bper\s?mille?\b|‰)", "/1000"),
        (r"(?<=\d)\s+out\s+of\s+(?=\d)", "/"),
        (r"(?<=\d),?\s+(?:with\s+)?(?:a\s+)?remainder\s+(?:of\s+)?(?=\d)", " R "),
        (r"\bplus\s+or\s+minus\b|\+\s?/\s?[-−]|\+-(?=\s?[\d√\\])", "±"),
        (r"\s+squared\b", "^2"),
        (r"\s+cubed\b", "^3"),
        (r"\s+to\s+the\s+power\s+(?:of\s+)?", "^"),
        (r"(?<=[\d)π])\s+times\s+(?=[-\d(√π\\])", "*"),
        (r"(?<=[\d)πa-z])\s+plus\s+(?=[-\d(√π\\a-z]{1,9}\b)", "+"),
        (r"(?<=[\d)πa-z])\s+minus\s+(?=[\d(√π\\a-z]{1,9}\b)", "-"),
        (r"(?<=[\d)π])\s+divided\s+by\s+(?=[-\d(√π\\])", "/"),
        (r"(?:^\s*|\bis\s+)(?:just\s+|slightly\s+)?(?:over|above|exceeding|beyond)\s+(?=[-$€£\d\\.])", ">"),
        (r"(?:^\s*|\bis\s+)(?:just\s+|slightly\s+)?(?:under|below)\s+(?=[-$€£\d\\.])", "<"),
        (r"(?<!not )\bexceeds\s+(?=[-$€£\d\\.])", ">"),
        (r"(?<=\d)-(?=[a-z]{2,})", " "),
        (r"(?<=\d)\s*\(?(?:in\s+)?base[\s-]+(\d{1,2})\)?", r"_{\1}"),
        (r"(?<=\b[a-z])\s+(?:is|must\s+be)\s+(?:at\s+least|no\s+less\s+than|not\s+less\s+than)\s+", "≥"),
        (r"(?<=\b[a-z])\s+(?:is|must\s+be)\s+(?:at\s+most|no\s+more\s+than|not\s+more\s+than)\s+", "≤"),
        (r"(?<![\w])(?:negative|minus)\s+(?=[\d√π∞.$\\a-z])", "-"),
        (r"\bdegrees?\s+(celsius|fahrenheit)\b", r"°\1"),
        (r"\bdegrees?\b|\bdeg\b", "°"),
        (r"\bper\s?cent\b|\bpercent\b|\bpercentage\s+points?\b", "%"),
        (r"(?<=\bor )(?:maybe|perhaps|possibly|even)\s+", ""),
        (r"\binfinity\b|\binfty\b|\binf\b|\boo\b", "∞"),
        (r"(?<!no )(?<!not )\b(?:is\s+)?(?:greater|more|larger|bigger)\s+than\s+or\s+equal\s+to\b", "≥"),
        (r"(?<!no )(?<!not )\b(?:is\s+)?(?:less|smaller|fewer|lower)\s+than\s+or\s+equal\s+to\b", "≤"),
        (r"(?<!no )(?<!not )(?<!none )\b(?:is\s+)?(?:strictly\s+)?(?:greater|more|larger|bigger|higher)\s+than\b", ">"),
        (r"(?<!no )(?<!not )(?<!none )\b(?:is\s+)?(?:strictly\s+)?(?:less|smaller|fewer|lower)\s+than\b", "<"),
        (r"\b(?:is\s+)?not\s+equal\s+to\b", "≠"),
        (r"\b(?:is\s+)?equals?(?:\s+to)?\b", "="),
        (r"\b(?:is\s+)?an?\s+element\s+of\b|\bis\s+in\b|\bbelongs\s+to\b", "∈"),
        (r"\bunion\b", "∪"),
    )
]
_CHARACTERS = WORDS["characters"]
_COMMANDS = {**WORDS["commands"], "\\": "⏎"}
_LEXED, _LEXED_LOOSELY = (
    re.compile(
        rf"(?P<number>{number})"
        r"|\\begin\{(?P<begin>[a-z]*matrix|array)\}(?:\{[clr|]*\})?|\\end\{(?P<end>[a-z]*matrix|array)\}"
        r"|\\(?P<command>[A-Za-z]+|.)"
        r"|(?P<word>[A-Za-z]{2,}(?:-[A-Za-z]{2,}|'[A-Za-z]+)*|[A-Za-z])"
        r"|(?P<sign>\.\.\.|\*\*|<=|>=|=/=|!=|==|=>|->|[^\sA-Za-z\d])",
        re.DOTALL,
    )
    for number in (DECIMAL, r"\d+(?:\.\d+)?|\.\d+")
)
_SIGNS = {"**": "^", "<=": "≤", ">=": "≥", "!=": "≠", "=/=": "≠", "==": "=", "=>": "→", "->": "→"}
_NAMED = frozenset(WORDS["formula"]["symbols"])


@dataclass(frozen=True)
class Token:
    """A token of a text: a number, symbol, function, word, command or sign.

    Attributes:
        kind: `number`, `symbol`, `function`, `word`, `command`, `begin`, `end`, or `sign`.
        text: what it is, by the same name in every notation.
        spaced: whether white space stands before it.
        place: where it begins in the plain text.
        close: where it ends there.
    """

    kind: str
    text: str
    spaced: bool
    place: int
    close: int
    source: str = ""

    def __bool__(self) -> bool:
        return bool(self.text)


_ODD = re.compile("[\U0001d400-\U0001d7ff\uff01-\uff5e⅐⅑⅒]")
_TYPED = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\ufe63", "-")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff✓✔✅∎🎉", None)
    | {"。": "."}
)
_ENDING = re.compile(
    r"\s\$?(?:\\(?:checkmark|blacksquare|square|qed|Box)\$?|[:;]-?\)|[□■\U0001f300-\U0001faff])(?=[}\s.$]*(?:\n|$))"
)


def typed(text: str) -> str:
    """The text in common characters, without invisible ones and without signs that only say that it ends here."""
    if not text.isascii():
        text = _ODD.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text.translate(_TYPED))
    return _ENDING.sub("", text)


def plain(text: str) -> str:
    r"""The text with typeface and spacing commands gone and words for operations as signs: `5 \text{ cm}` is `5 cm`."""
    text = text.replace("\\\\", "⏎").replace("{,}", ",").replace("\\$", "$")
    text = re.sub(r"\\!\s*", "", text)
    text = re.sub(r"\\(?:mathrm|rm|text|mathbf)\s+(?=[A-Za-z0-9](?![A-Za-z]))", "", text)
    text = _BLACKBOARD.sub(
        lambda match: {"R": "ℝ", "Z": "ℤ", "N": "ℕ", "Q": "ℚ", "C": "ℂ"}[match[1] or match[2] or match[3]], text
    )
    text = _BARRED.sub(_repeating, text)
    text = _PER.sub(r" \1/\2", text)
    for _ in range(3):
        text = _WRAPPED.sub(_unwrapped, text)
    text = _SPACING.sub(" ", _DROPPED.sub(" ", text))
    text = _DEGREE.sub("°", text)
    text = re.sub(r"\^\s*\{?\s*((?:\\prime\s*){1,3})\}?", lambda match: "'" * match[1].count("p"), text)
    text = superscripts(text)
    text = re.sub(f"[{VULGAR}]", lambda match: " " + unicodedata.normalize("NFKC", match[0]).replace("⁄", "/"), text)
    text = re.sub(f"[{SUBSCRIPTS}]+", lambda match: f"_{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    text = re.sub(r"(?<=\d)\s?[–—]\s?(?=[$\d])", "…to…", text)
    text = "".join(_CHARACTERS.get(character, character) for character in text)
    text = re.sub(r"(?<=[\d)])\s+x\s+(?=[\d(])|(?<=\d)x(?=\d)", "*", text)
    text = re.sub(r"(?<!\w)\((\w*\d\w*)\)(?=\s*_)", r"\1", _words_as_signs(text))  # (101)_2
    return text.strip()


def superscripts(text: str) -> str:
    """The text with raised digits as powers: `10⁶` as `10^{6}`."""
    return re.sub(
        f"[⁻⁺]?[{SUPERSCRIPTS}]+|ⁿ",
        lambda match: f"^{{{unicodedata.normalize('NFKC', match[0]).replace('−', '-')}}}",
        text,
    )


def _unwrapped(match: re.Match[str]) -> str:
    content = match[1].strip()
    if "operatorname" in match[0] and content.lower() not in FUNCTIONS and not is_unit(content):
        return f" ƒ{content} "  # a function of no known value, not the unit that a word behind a number may be
    return match[1] if len(content) == 1 else f" {match[1]} "


def _repeating(match: re.Match[str]) -> str:
    whole, fixed = match[1] or "0", match[2]
    period = match[3] or match[4] or match[5].replace("\u0305", "")
    once, ever = 10 ** len(fixed), 10 ** len(period) - 1
    value = Fraction(int(whole) * once + int(fixed or 0)) / once + Fraction(int(period), ever * once)
    return f"({value.numerator}/{value.denominator})" if value.denominator > 1 else str(value.numerator)


def _words_as_signs(text: str) -> str:
    if not re.search(r"[A-Za-z+]{2}|[+‰]", text):
        return text
    text = _ORDINAL.sub(_ordinal, text)
    text = re.sub(r"\b(half\s+)?an?\s+dozen\b", lambda match: "6" if match[1] else "12", text, flags=re.IGNORECASE)
    text = _COUNTED.sub(_counted, _COMPOUND.sub(_summed, text))
    text = _FRACTION.sub(
        lambda match: f"{match['above'] or 1}/{_PARTS[(match['part'] or match['only'] or 'half').lower()]}", text
    )
    text = re.sub(r"(?<=\d)\s+and\s+(?=(?:a\s+)?\d+/\d)", " ", text)
    for words, sign in _OPERATORS:
        text = words.sub(sign, text)
    return text


def _ordinal(match: re.Match[str]) -> str:
    if not match["rank"]:
        return ""
    return str(
        (_ENGLISH[match["tens"].lower()] if match["tens"] else 0) + _NUMERALS["ranks"].index(match["rank"].lower()) + 1
    )


def _summed(match: re.Match[str]) -> str:
    """The value of `3 million 200 thousand`; as it stands where a part is not below the unit of the one before it."""
    total, unit = Fraction(0), None
    for digits, word in re.findall(rf"({DECIMAL})(?:\s([a-z]+?)s?\b)?", match[0].replace(" and ", " "), re.IGNORECASE):
        factor = _LARGE.get(word.lower(), 1)
        amount = Fraction(re.sub(r"[\s,'’_]", "", digits)) * factor
        if unit is not None and amount >= unit:
            return match[0]
        total, unit = total + amount, factor
    return str(total) if total.denominator == 1 else match[0]


def _counted(match: re.Match[str]) -> str:
    total = group = 0
    words = re.split(r"[\s-]+", match[0].lower())
    last = 10**15
    for word in words:
        if word in ("a", "an", "and"):
            continue
        if word in _LARGE and not group and not total and words[0] not in ("a", "an"):
            return match[0]  # "million" behind digits is a unit
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in _LARGE:
            total, group, last = total + max(group, 1) * _LARGE[word], 0, 10**15
        else:
            amount = _ENGLISH[word]
            if group and not (group % 100 == 0 or (group % 10 == 0 and group % 100 >= 20 and 0 < amount < 10)):
                return match[0]
            group += amount
    return str(total + group) if last else match[0]


def tokens(text: str, grouped: bool = True) -> list[Token]:
    """The tokens of a plain text; with `grouped`, `1,200` is one number."""
    result: list[Token] = []
    place = 0
    while (match := _next(text, place, grouped)) is not None:
        result += _token(match, match.start() > place or place == 0)
        place = match.end()
    if text[place:].strip():
        raise Unreadable(text[place:])
    return result


def _next(text: str, place: int, grouped: bool) -> re.Match[str] | None:
    start = place + len(text[place:]) - len(text[place:].lstrip())
    match = _LEXED.match(text, start)
    return match if match is None or grouped or not match["number"] else _LEXED_LOOSELY.match(text, start)


def _token(match: re.Match[str], spaced: bool) -> list[Token]:
    place, close = match.span()

    def one(kind: str, text: str) -> Token:
        return Token(kind, text, spaced, place, close, match[0])

    if match["number"]:
        return [one("number", match[0])]
    if match["begin"] or match["end"]:
        return [one("begin" if match["begin"] else "end", match["begin"] or match["end"])]
    if match["command"]:
        name = str(_COMMANDS.get(match["command"], match["command"]))
        if name in FUNCTIONS:
            return [one("function", FUNCTIONS[name] if name != "sqrt" else "sqrt")]
        if name in ("frac", "binom", "sqrt", "overline", "bar", "pmod"):
            return [one("command", name)]
        if name in ("and", "or"):
            return [one("word", name)]
        if name == "i":
            return [one("symbol", "i")]
        if not name.isascii() or not name.isalpha():
            return [one("sign", name)]
        if name in _NAMED or name.removeprefix("var") in _NAMED:
            return [one("symbol", name.removeprefix("var"))]
        raise Unreadable(match[0])
    if match["word"]:
        return _letters(match, spaced)
    sign = _SIGNS.get(match["sign"], match["sign"])
    return [one("sign", sign)]


def _letters(match: re.Match[str], spaced: bool) -> list[Token]:
    """A run of letters: a function, a variable, a word, or a product of variables such as `xy`."""
    word, place = match[0], match.start()
    joined = re.fullmatch(r"(arc(?:sin|cos|tan)|sin|cos|tan|cot|ln|log|exp)([a-z])", word)
    if joined and word.lower() not in FUNCTIONS:
        middle = place + len(joined[1])
        return [
            Token("function", FUNCTIONS[joined[1]], spaced, place, middle, joined[1]),
            Token("symbol", joined[2], False, middle, match.end(), joined[2]),
        ]
    if word.lower() in FUNCTIONS and len(word) > 1:
        return [Token("function", FUNCTIONS[word.lower()], spaced, place, place + len(word), word)]
    if word in ("pi", "Pi", "PI"):
        return [Token("sign", "π", spaced, place, match.end(), word)]
    if word.lower() == "theta":
        return [Token("symbol", "theta", spaced, place, match.end(), word)]
    if len(word) == 1:
        return [Token("symbol", word, spaced, place, place + 1, word)]
    return [Token("word", word, spaced, place, match.end(), word)]
