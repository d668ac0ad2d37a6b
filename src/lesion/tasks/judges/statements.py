"""Which number a piece of prose states: none that it denies, corrects or leaves open, and no end of a range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from lesion.tasks.judges.grammar import readings
from lesion.tasks.judges.notation import (
    BASE,
    COMPOUND,
    CURRENCY,
    DECIMAL,
    IDEOGRAPHS,
    MIXED,
    SIGN,
    SPACE,
    SUPERSCRIPTS,
    THOUSANDS,
    UNIT,
)
from lesion.tasks.judges.values import same_value

_NOT = r"(?:\bnot|\bcannot|n['’]t|\bnever|\bneither|\bnor|\bhardly|\bno\s+longer)"
_BE = r"(?:is|are|was|were|be|being|been|equals?(?:\s+to)?)"
_DENIED = re.compile(
    rf"(?:{_NOT}|\b(?:unequal|not\s+equal)\s+to|\b(?:different|far)\s+from|\b(?:anything|everything|all)\s+but|\bnothing\s+like|\bexcept(?:\s+for)?|\bout\s+of|\bmod(?:ulo)?|\bremainder(?:\s+of)?(?=\s*$)"
    r"|(?<!no )(?<!none )\bother\s+than|\brather\s+than|\binstead\s+of"
    r"|\b(?:doubt|no\s+way|impossible|unlikely|wrong|incorrect|false|untrue)(?:\s+(?:that|for|to\s+say|to\s+answer))?"
    r"(?:\s+(?:it|this|that|the\s+answer))?(?=\s+(?:is|are|was|to\s+be|be|equals)\b))"
    rf"(?:\s+(?:{_BE}|to\s+be|exactly|quite|about|really|actually|possibly|necessarily"
    r"|the\s+(?:answer|number|value|result|solution)))*\s*$",
    re.IGNORECASE,
)
_VERB = r"(?:is|are|was|were|seems|looks|(?:would|must|may|might|could|can|has\s+to)\s+be)"
_ADVERB = r"(?:\s+(?:also|certainly|clearly|definitely|just|obviously|of\s+course|plainly|simply|therefore|thus))?"
_REJECTED = re.compile(
    r"[*_`'\"”)$\\\]}]*(?:\s+[a-z]{1,20}){0,2}?(?:,?\s+(?:but\s+|and\s+)?(?:which|that|this|it))?\s+"
    rf"(?:{_VERB}{_ADVERB}\s+(?:wrong|incorrect|false|untrue|impossible|invalid|mistaken|a\s+mistake|an\s+error"
    r"|ruled\s+out|excluded|no\s+(?:answer|solution)|out\s+of\s+the\s+question|too\s+(?:high|low|large|small|big))\b"
    rf"|(?:{_VERB}{_ADVERB}\s+not|(?:is|are|was|were)n['’]t|(?:ca|could|would|wo)n['’]t(?:\s+possibly)?\s+be"
    rf"|(?:cannot|(?:can|could|would|will)\s+not)(?:\s+possibly)?\s+be){_ADVERB}\s+(?:(?:the|an?|my|our|its)\s+)?"
    r"(?:(?:right|correct|final|true|valid|only)\s+)?(?:right|correct|true|possible|valid|answer|solution|result|it|so)\b"
    r"|(?:does|do|did|can|ca|could|will|wo|would|is)(?:\s*not|n['’]t)\s+(?:work|fit|satisfy|answer)\b)",
    re.IGNORECASE,
)
_RELATION = r"(?:[<>]=?|[≤≥≠⩽⩾≦≧≪≫≮≯]|(?<!\d)!=|=/=)"
_NOT_AT_MOST = r"(?<!no )(?<!not )(?<!none )"
_BOUND_BEFORE = re.compile(
    rf"(?:(?<![-=<>\n]){_RELATION}"
    rf"|{_NOT_AT_MOST}\b(?:more|less|(?!rather|other)[a-z]{{2,12}}er)\s+than(?:\s+or\s+equal\s+to)?"
    rf"|{_NOT_AT_MOST}\b(?:over|under|above|below|beyond|in\s+excess\s+of|upwards?\s+of)"
    r"|(?<!not )(?<!n't )(?<!n’t )(?<!cannot )(?<!never )\bexceed(?:s|ed|ing)?"
    r"|\bdivisible\s+by|\b(?:multiples?|factors?|divisors?|powers?|roots?|reciprocal|quarter|third|per\s?cent)\s+of)"
    rf"\s*(?:{CURRENCY})?$",
    re.IGNORECASE,
)
_BOUND_BEHIND = re.compile(r"\s*(?:>=?(?!>)|<=?(?![<|/!])(?![a-z][^<>\n]*>)|[≤≥≠⩽⩾≦≧≪≫≮≯]|(?<=\s)!=\s)", re.IGNORECASE)
_TAG = re.compile(r"<[^\s<>][^<>\n]{0,40}>\s*$")

_RAISED = r"[-−+*/\d. ]{1,30}"
_POWER = (
    rf"(?:{SPACE}?(?:\^|\*\*){SPACE}?(?:\{{{_RAISED}\}}|\({_RAISED}\)|[-−]?\d+(?:\.\d+)?)|[{SUPERSCRIPTS}]+){{0,3}}"
)
_LETTER = rf"(?:(?-i:{SPACE}?k|[KMB])\b(?!{SPACE}?[-+*/=^×÷·(]))"
_NUMBER = (
    rf"(?:{SIGN}{SPACE}?)?(?:{CURRENCY}{SPACE}?(?:[-−])?{DECIMAL}{THOUSANDS}|(?:{CURRENCY}{SPACE}?)?{COMPOUND}"
    rf"|(?:{CURRENCY}{SPACE}?)?[-−]?(?:{MIXED}|{DECIMAL}(?![.,]?\d|:\d\d?(?!\d)){_POWER}|\d+(?:[.,]\d+|:\d\d?(?!\d))+)(?:{UNIT}|{_LETTER})?)"
)
_TERM = rf"(?:\({SPACE}?){{0,3}}{_NUMBER}(?:{SPACE}?\)){{0,3}}"
_TIMES = rf"{SPACE}?(?:[-+*/×÷·⁄−x]{SPACE}?|(?=\([-\d+*/×. ]+\)))"
_RUN = re.compile(rf"(?<![^\W{IDEOGRAPHS}])(?<![./^]){_TERM}(?:{_TIMES}{_TERM}){{0,40}}", re.IGNORECASE)
"""A number, or numbers joined by signs of arithmetic."""

_SINGLE = re.compile(
    rf"(?:{SIGN}{SPACE}?)?(?:{CURRENCY}{SPACE}?(?:[-−])?{DECIMAL}{THOUSANDS}|(?:{CURRENCY}{SPACE}?)?{COMPOUND}"
    rf"|(?:{CURRENCY}{SPACE}?)?[-−]?(?:\d+\s?[/⁄]\s?\d+|{MIXED}|{DECIMAL}(?:\s?[x×·*]\s?10\s?(?:\^|\*\*)\s?\{{?[-−]?\d+\}}?)?)(?:{UNIT}|{_LETTER})?)(?:{BASE})?",
    re.IGNORECASE,
)
"""One number and no arithmetic."""
_THOUSANDS = re.compile(rf"([-+−]?{SPACE}?{DECIMAL}){SPACE}?([kKMB])")
_LISTED = re.compile(r"\d+(?:[.,]\d+|:\d\d?(?!\d))+")
_BASED = re.compile(BASE, re.IGNORECASE)
_BASE_BEFORE = re.compile(r"\bbase[ \t-]+$|(?<=\w)_\{?$", re.IGNORECASE)
_DASH = re.compile(rf"(?:[-+−–]|minus){SPACE}", re.IGNORECASE)
_OPENED = re.compile(r"\b(?:between|from)\s+(?:\w+\s+)?$", re.IGNORECASE)
_THROUGH = re.compile(r"\s*(?:(?:up\s+)?to|through|until|[–—])\s*", re.IGNORECASE)
_CLOSED = re.compile(r"\s*(?:\w+\s+)?(?:and|to)\s*", re.IGNORECASE)
_OR = re.compile(r"\s*(?:\w+\s+)?or\s+(?:maybe\s+|perhaps\s+|about\s+)?", re.IGNORECASE)
CORRECTION = (
    r"(?:(?:no|nope|wait|sorry|correction|actually)[,:!]\s*"
    r"|(?:i\s+mean|or\s+rather|rather(?!\s+than)|make\s+that),?\s+)+(?:it(?:['’]s|\s+is)\s+)?"
)
"""Words before what corrects a statement."""
_CORRECTED = re.compile(rf"[\s,;.:…–—(-]*(?:\w+[\s,;.:…–—(-]+)?{CORRECTION}", re.IGNORECASE)
_POWER_BEHIND = re.compile(r"\^|\*\*\(")
_IN_POWER = re.compile(r"(?:\^[({]?|\d\*\*\()[^(){}=\s]*$")
_TUPLE = re.compile(r"[(\[{](?:[^()\[\]{}\s,]{1,20},\s)+[^()\[\]{}\s,]{1,20}[)\]}]")
_PERCENTS = re.compile(rf"[^%]*\d{SPACE}?[-−]{SPACE}?{DECIMAL}{SPACE}?(?:%|per\s?cent)", re.IGNORECASE)
_AND = re.compile(r"\s*(?:and|&)\s*", re.IGNORECASE)
_BEGUN = re.compile(r"(?:^|\n|\b(?:is|are|be)|[:#=])[\s*_]*$", re.IGNORECASE)
_ENDED = re.compile(r"[\s*_.!]*(?:\n|$)")
_REASON = re.compile(rf"(?:{SPACE}[a-z]+)?(?:[,.;:–—-]{SPACE}?|{SPACE})(?:because|since)\b", re.IGNORECASE)
_ALONE = re.compile(rf"(?:{SPACE}*\([^()]*\))?[.!*_]*{SPACE}*")
_WITH_UNIT = re.compile(rf"(?:{SPACE}[a-z]+){{1,2}}[.!*_]*{SPACE}*", re.IGNORECASE)
_GOES_ON = re.compile(
    r"\s*(?:[^\w\s(*]|[\d(*]|(?:then|next|now|so|therefore|thus|plus|minus|times|and)\b)", re.IGNORECASE
)


def last(text: str) -> tuple[str, int] | None:
    """The last number that a text states and where it ends; of a final `7 = 10 - 3` the 7. None without one."""
    numbers = list(stated_numbers(text))
    if not numbers:
        return None
    number, begin, end = numbers[-1]
    if len(numbers) > 1 and not _single(number):
        before, _, close = numbers[-2]
        if text[close:begin].strip() == "=" and _single(before):
            number = before
    return number, end


def given_first(text: str) -> str | None:
    """The number that a text gives before it explains it; None where it does not.

    The first line is the number and nothing else, and the next one begins with a word that does not carry the
    calculation on; or it is a number and its unit, and an empty line follows; or "because" follows. "1. She buys …"
    is an item of a list.
    """
    text = text.lstrip(" \t\r\n*_")[:2000]
    match = _RUN.match(text)
    if match is None:
        return None
    number = _trimmed(match[0])
    if number is None or not _single(number):
        return None
    rest = text[match.end() :]
    line, _, below = rest.partition("\n")
    explained = below.strip() and not _GOES_ON.match(below)
    if (explained and _ALONE.fullmatch(line)) or (not below.strip() and re.match(rf"{SPACE}+\([^()]*\)\W*$", line)):
        return number
    if explained and not below.split("\n")[0].strip() and _WITH_UNIT.fullmatch(line):
        return number
    return number if _REASON.match(rest.lstrip("*_")) else None


def _single(number: str) -> bool:
    """Whether it is one number, or several with nothing between them but commas, points or colons."""
    return bool(_SINGLE.fullmatch(number) or _LISTED.fullmatch(number))


def spelled(number: str) -> str:
    """A number in prose with the letter behind it as a word, `20k` as `20 thousand`; other text as it is.

    In a formula such a letter is a variable.
    """
    match = _THOUSANDS.fullmatch(number)
    words = {"k": "thousand", "K": "thousand", "M": "million", "B": "billion"}
    return f"{match[1]} {words[match[2]]}" if match else number


def stated_numbers(text: str) -> Iterator[tuple[str, int, int]]:
    """The numbers that a text states, in order, each with its beginning and end."""
    runs = [_unsigned(text, match.start(), _with_base(text, match.end())) for match in _RUN.finditer(text)]
    tuples = [each.span() for each in _TUPLE.finditer(text)]
    dropped = {
        place
        for place, (begin, end) in enumerate(runs)
        if unstated(text, begin, end) or any(opening < end and begin < close for opening, close in tuples)
    }
    for place, ((begin, end), (following, close)) in enumerate(pairwise(runs)):
        gap = text[end:following]
        if len(gap) > 40:
            continue
        opened = _OPENED.search(text[max(0, begin - 30) : begin])
        if _THROUGH.fullmatch(gap) or (opened and _CLOSED.fullmatch(gap)):
            dropped |= {place, place + 1}
        elif (_OR.fullmatch(gap) and text[close : close + 2].strip() != "=") or (
            _AND.fullmatch(gap) and _BEGUN.search(text[max(0, begin - 30) : begin]) and _ENDED.match(text, close)
        ):
            first, second = readings(text[begin:end]), readings(text[following:close])
            if not any(same_value(one, other) for one, _ in first for other, _ in second):
                dropped |= {place, place + 1}
        elif _CORRECTED.fullmatch(gap):
            dropped.add(place)
    for place, (begin, end) in enumerate(runs):
        number = None if place in dropped else _trimmed(text[begin:end])
        if number:
            yield number, begin, end


def unstated(text: str, begin: int, end: int) -> bool:
    """Whether a number is denied, a bound, a base, part of a power that is not read, or a range of percentages."""
    before, behind = text[max(0, begin - 60) : begin], text[end : end + 60]
    bold = before.endswith("**")
    if (_POWER_BEHIND.match(behind) and not bold) or _IN_POWER.search(before) or _BASE_BEFORE.search(before):
        return True
    return _denied(before, behind) or bool(_PERCENTS.fullmatch(text, begin, end)) or _bounded(before, behind)


def denies(text: str) -> bool:
    """Whether a text denies the first number in it, as in `12 is wrong`."""
    match = _RUN.search(text)
    return match is not None and _denied(
        text[max(0, match.start() - 60) : match.start()], text[match.end() : match.end() + 60]
    )


def _with_base(text: str, end: int) -> int:
    """Where a number ends with the base that is named behind it."""
    base = _BASED.match(text, end)
    return base.end() if base else end


def _unsigned(text: str, begin: int, end: int) -> tuple[int, int]:
    """The place of a number without a dash that is no sign: one with a space behind it, where a word or line ends."""
    dash = _DASH.match(text, begin, end)
    before = text[:begin].rstrip(" \t")[-1:] if dash else ""
    return (dash.end(), end) if dash and before and before not in "=:(" else (begin, end)


def _trimmed(number: str) -> str | None:
    """The number without parentheses that have no partner in it, or that stand around the whole of it."""
    number = number.strip()
    while number.startswith("(") and number.count("(") > number.count(")"):
        number = number[1:].strip()
    while number.endswith(")") and number.count(")") > number.count("("):
        number = number[:-1].strip()
    if number.startswith("(") and _SINGLE.fullmatch(number[1:-1]):
        number = number[1:-1].strip()
    return number or None


def _denied(before: str, behind: str) -> bool:
    """Whether the text before a number or behind it says that the number is not the answer."""
    return bool(_DENIED.search(before) or _REJECTED.match(behind))


def _bounded(before: str, behind: str) -> bool:
    """Whether a relation or a comparison, such as `≥`, `over` or `less than`, makes a number a bound."""
    if before.endswith("<") and behind.startswith(">"):  # a number in angle brackets, as in `<12>`
        return False
    return bool((_BOUND_BEFORE.search(before) and not _TAG.search(before)) or _BOUND_BEHIND.match(behind))
