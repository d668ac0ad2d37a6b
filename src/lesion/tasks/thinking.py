"""Thinking: the trace that a model writes before its final answer, between `<think>` and `</think>`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

OPEN, CLOSE = "<think>", "</think>"

# Tokens at the end of a prompt among which the opening tag and white space behind it lie.
_REACH = 16


def opening(tokenizer: Any, prompt: Sequence[int]) -> str:
    """The opening tag, with the white space behind it, that ends a prompt; "" where a prompt does not end in one."""
    ending: str = tokenizer.decode(list(prompt[-_REACH:]), skip_special_tokens=False)
    return ending[ending.rfind(OPEN) :] if ending.rstrip().endswith(OPEN) else ""


def answer_start(text: str, opened: bool = False) -> int | None:
    """Where the final answer begins in a text.

    Behind the last closing tag and the white space after it; 0 where nothing was thought; None where the thinking,
    which the prompt may have `opened`, was never closed, and there is no final answer.
    """
    place = text.rfind(CLOSE)
    if place >= 0:
        return len(text) - len(text[place + len(CLOSE) :].lstrip())
    return None if opened or text.lstrip().startswith(OPEN) else 0


def parted(text: str) -> tuple[str, str | None]:
    """The trace of a stored answer, with its tags, and the final answer; None for one that was never begun."""
    start = answer_start(text)
    return (text, None) if start is None else (text[:start], text[start:])


def unclosed(text: str) -> bool:
    """Whether a stored answer never closed its thinking."""
    return answer_start(text) is None
