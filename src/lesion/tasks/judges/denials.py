"""What stands before or behind a number in prose and says that it is not the answer: a denial or a bound."""

from __future__ import annotations

import re

from lesion.tasks.judges.numerals import CURRENCY

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


def denied(before: str, behind: str) -> bool:
    """Whether the text before a number or behind it says that the number is not the answer."""
    return bool(_DENIED.search(before) or _REJECTED.match(behind))


def bounded(before: str, behind: str) -> bool:
    """Whether a relation or a comparison, such as `≥`, `over` or `less than`, makes a number a bound."""
    if before.endswith("<") and behind.startswith(">"):  # a number in angle brackets, as in `<12>`
        return False
    return bool((_BOUND_BEFORE.search(before) and not _TAG.search(before)) or _BOUND_BEHIND.match(behind))
