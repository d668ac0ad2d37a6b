"""Written prompts: text in which some names of control tokens are meant and others are characters, as token ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Written:
    """A prompt as text.

    Attributes:
        before: what a template has before the question; names of control tokens in it are control tokens.
        question: the data; names of control tokens in it are characters.
        behind: what a template has behind the question; as `before`.
        begin: whether the tokenizer's own beginning stands before it all.
    """

    before: str
    question: str = ""
    behind: str = ""
    begin: bool = False

    def ids(self, tokenizer: Any) -> list[int]:
        """The token ids: of the whole text in one, or in pieces where the question names control tokens."""
        start = beginning(tokenizer) if self.begin else []
        if not names_control(tokenizer, self.question):
            ids: list[int] = list(tokenizer.encode(self.before + self.question + self.behind, add_special_tokens=False))
            return ids if start and ids[: len(start)] == start else start + ids
        first, *others = self.pieces(tokenizer)
        ids = [*start, *section(tokenizer, "", first)]
        for control, text in zip(others[::2], others[1::2], strict=True):
            ids += [tokenizer.convert_tokens_to_ids(control), *section(tokenizer, control, text)]
        return ids

    def pieces(self, tokenizer: Any) -> list[str]:
        """Texts and the control tokens that are meant in turn, a text first and last."""
        names = "|".join(map(re.escape, _controls(tokenizer)))
        control = re.compile(f"({names})" if names else "(?!)")  # the latter is found nowhere
        *head, near = control.split(self.before)
        close, *tail = control.split(self.behind)
        return [*head, near + self.question + close, *tail]


def apart(ending: str, text: str) -> str:
    """A text as it follows an ending: after one space, unless there is white space already."""
    return text if ending[-1:].isspace() or text[:1].isspace() else f" {text}"


def section(tokenizer: Any, control: str, text: str) -> list[int]:
    """The ids of a text that stands behind a control token ("": at the beginning), as in one encoding of both.

    Names of control tokens in the text are characters. Tokenizers differ in what they do there. Those that put `▁`
    before every text do so behind every control token too (Llama 2 as first released), or at the beginning of the whole
    alone; some control tokens swallow white space.
    """
    if control and not names_control(tokenizer, text):
        behind = _behind_control(tokenizer, control, text)
        if behind is not None:
            return behind
    # One encoding cannot both mean the control token and spell the text: what it would do is found out in parts.
    if _swallows(tokenizer, control):
        text = text.lstrip()
    if control and _behind_control(tokenizer, control, "a") not in (None, spell(tokenizer, "a")):
        # Nothing begins anew behind this control token, and nothing does behind a line break.
        behind = continued(spell(tokenizer, "\n"), spell(tokenizer, f"\n{text}"))
        if behind:
            return behind
    return spell(tokenizer, text)


def continued(before: list[int], whole: list[int]) -> list[int]:
    """The ids that a whole has behind those of what stands before; none where it does not begin with them."""
    return whole[len(before) :] if whole[: len(before)] == before else []


def spell(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text that stands alone, in which names of control tokens are characters."""
    # Not verbose: what does not fit the context is said by lesion.
    return list(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False))


def names_control(tokenizer: Any, text: str) -> bool:
    """Whether a text contains the name of a control token."""
    return any(control in text for control in _controls(tokenizer))


def beginning(tokenizer: Any) -> list[int]:
    """The special tokens that a tokenizer begins every text with, without those that it appends."""
    probe = "a"
    plain = list(tokenizer.encode(probe, add_special_tokens=False))
    full = list(tokenizer.encode(probe, add_special_tokens=True))
    for start in range(len(full) - len(plain) + 1):
        if plain and full[start : start + len(plain)] == plain:
            return full[:start]
    return []


def _behind_control(tokenizer: Any, control: str, text: str) -> list[int] | None:
    """The ids behind a control token in one encoding with it; None where it is not read as that token."""
    ids = list(tokenizer.encode(control + text, add_special_tokens=False))
    return ids[1:] if ids[:1] == [tokenizer.convert_tokens_to_ids(control)] else None


def _swallows(tokenizer: Any, control: str) -> bool:
    """Whether a control token takes away the white space behind it, as those of Phi-3 do."""
    return any(token.rstrip for token in tokenizer.added_tokens_decoder.values() if token.content == control)


def _controls(tokenizer: Any) -> list[str]:
    """The control tokens of a tokenizer as text, the longest first."""
    contents = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted(contents, key=len, reverse=True)
