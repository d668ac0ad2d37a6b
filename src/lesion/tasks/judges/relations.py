"""Relations in formulas: `≥` in all its spellings, and relations that have one side only, such as `> 12`."""

from __future__ import annotations

import re

_SPELLINGS = [
    (re.compile(pattern), relation)
    for pattern, relation in (
        (r"<=|\\leqslant(?![a-z])|\\leq?q?(?![a-z])|[⩽≦≯]|\\not\s*>|\\ngtr(?![a-z])", "≤"),
        (r">=|\\geqslant(?![a-z])|\\geq?q?(?![a-z])|[⩾≧≮]|\\not\s*<|\\nless(?![a-z])", "≥"),
        (r"(?<!\d)!=|=/=|\\neq?(?![a-z])|\\not\s*=", "≠"),
        (r"\\lt(?![a-z])|\\ll(?![a-z])|≪", "<"),
        (r"\\gt(?![a-z])|\\gg(?![a-z])|≫", ">"),
    )
]
_ONE_SIDED = re.compile(r"(?!<[^<>]*>$)(?:[<>≤≥≠].*|.*(?<![-=])[<>≤≥≠])", re.DOTALL)
"""All but a text in angle brackets, such as the vector `<1, 2>`, and one that ends with an arrow."""


def one_way(text: str) -> str:
    r"""The text with every relation as one character: `\geq`, `\geqslant` and `>=` are `≥`."""
    for spellings, relation in _SPELLINGS:
        text = spellings.sub(relation, text)
    return text


def is_one_sided(text: str) -> bool:
    r"""Whether a text begins or ends with a relation, as `> 12` and `\neq 12` do: it says what a value is not."""
    plain = re.sub(r"\\(?:text|mathrm|mbox|displaystyle|[,;: ])|[{}$]", " ", one_way(text)).strip()
    return _ONE_SIDED.fullmatch(plain) is not None
