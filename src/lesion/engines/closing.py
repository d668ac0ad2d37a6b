"""Closing: a trace that has met its limit is closed by the tokens of the closing tag; the model goes on behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lesion.engines.engine import Request
from lesion.tasks.thinking import CLOSE, answer_start, opening

FORCED = f"\n{CLOSE}\n\n"
"""What is put behind a trace that is too long (budget forcing, Muennighoff et al. 2025, arXiv:2501.19393)."""


class Closing:
    """Closes the trace of an answer after `limit` tokens, if it is open then.

    Args:
        tokenizer: of the model.
        limit: tokens of the trace, from 1.
        opened: whether the prompt ends in the opening tag.
    """

    def __init__(self, tokenizer: Any, limit: int, opened: bool) -> None:
        self.tokenizer = tokenizer
        self.limit = limit
        self.opened = opened
        self.tokens: tuple[int, ...] = tuple(tokenizer.encode(FORCED, add_special_tokens=False))

    def due(self, said: Sequence[int]) -> bool:
        """Whether the answer so far is a trace that has just met its limit."""
        return len(said) == self.limit and self._open(said)

    def instead(self, said: Sequence[int], token: int) -> int:
        """What follows the answer so far: a token of the closing tag where that is due, else the model's own token."""
        place = len(said) - self.limit
        return self.tokens[place] if 0 <= place < len(self.tokens) and self._open(said[: self.limit]) else token

    def _open(self, said: Sequence[int]) -> bool:
        text = self.tokenizer.decode(list(said), skip_special_tokens=True)
        return answer_start(text, self.opened) is None


def closing_of(tokenizer: Any, request: Request) -> Closing | None:
    """What closes the trace of a request; None where it may think on."""
    limit = request.decoding.thinking_tokens
    return Closing(tokenizer, limit, bool(opening(tokenizer, request.prompt))) if limit else None
