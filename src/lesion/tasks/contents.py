"""Contents: whether a text stands in a prompt, as the filters of a chat template leave it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

ENOUGH = 12
"""So many characters of the beginning or the end of a text tell that it was cut, not left out."""
_ESCAPES = {r"\"": '"', r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\\": "\\"}
_ESCAPE = re.compile("|".join(map(re.escape, _ESCAPES)))


def whole(content: str, prompt: str) -> bool:
    """Whether all of a text is in a prompt; white space, letter case and escapes of HTML and JSON may differ."""
    return content.strip() in prompt or any(_plain(content) in each for each in _readings(prompt))


def kept(content: str, prompt: str) -> bool:
    """Whether a text is in a prompt, or so much of its beginning or its end that it was cut."""
    if whole(content, prompt):
        return True
    plain = _plain(content)
    ends = (plain[:ENOUGH], plain[-ENOUGH:]) if len(plain) > ENOUGH else ()
    return any(end in each for each in _readings(prompt) for end in ends)


def in_order(texts: Sequence[str], prompt: str) -> bool:
    """Whether texts stand in a prompt in their order."""
    prompt = _plain(prompt)
    start = 0
    for text in map(_plain, texts):
        place = prompt.find(text, start)
        if place < 0:
            return False
        start = place + len(text)
    return True


def as_data(prompt: str) -> bool:
    """Whether a template wrote a list of parts as Python or JSON shows it, not its text."""
    return re.search(r"""["']type["']:\s*["']text["']""", html.unescape(prompt)) is not None


def _readings(prompt: str) -> tuple[str, str]:
    """A prompt as it stands, and with the escapes of JSON undone."""
    return _plain(prompt), _plain(_ESCAPE.sub(lambda match: _ESCAPES[match[0]], prompt))


def _plain(text: str) -> str:
    return "".join(html.unescape(text).casefold().split())
