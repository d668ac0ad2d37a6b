"""Endings of an answer, in its tokens: stop strings, loops, and the tag that closes a trace of thinking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from lesion.engines.engine import Request
from lesion.tasks.style import CLOSE, answer_start, opening


class StopStrings:
    """Looks for stop strings in what a row has tokens, decoding only its last few tokens at each step.

    `opened`: whether the prompt ends in the opening tag of thinking.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...], opened: bool = False) -> None:
        self.tokenizer = tokenizer
        self.opened = opened
        self.stop = tuple(s for s in stop if s)
        # A token spells at least one byte, so a stop string lies within its last `reach` tokens.
        self.reach = max((len(s.encode()) for s in self.stop), default=0) + 4
        self._completes: dict[int, bool] = {}

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, requests: Iterable[Request]) -> dict[str, StopStrings]:
        """What looks for the stop strings of every request that generates an answer, by its key."""
        shared: dict[tuple[tuple[str, ...], bool], StopStrings] = {}
        opened: dict[tuple[int, ...], bool] = {}
        by_key = {}
        for request in requests:
            if request.choices or request.tokens:
                continue
            prompt, stop = request.prompt, request.decoding.stop
            if prompt not in opened:
                opened[prompt] = bool(opening(tokenizer, prompt))
            if (stop, opened[prompt]) not in shared:
                shared[stop, opened[prompt]] = cls(tokenizer, stop, opened[prompt])
            by_key[request.key] = shared[stop, opened[prompt]]
        return by_key

    def hit(self, tokens: Sequence[int]) -> bool:
        """Whether the text of the tokens has a stop string, which its last token completed."""
        if not self.stop or not self._may_complete(tokens[-1]):
            return False
        # A tail that begins inside a character may lose the whole run of bytes after it: begin earlier then.
        for more in range(4):
            tail = self._text(tokens[-self.reach - more :])
            if self._found(tail):
                text = self._text(tokens)
                start = answer_start(text, self.opened)
                return start is not None and self._found(text[start:])
            if "\ufffd" not in tail:
                return False
        return False

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def _found(self, text: str) -> bool:
        return any(s in text for s in self.stop)

    def _may_complete(self, token: int) -> bool:
        """Whether the last character of a stop string can come with this token; most tokens need no closer look."""
        if token not in self._completes:
            # Twice, for the space before the first token of a text may be dropped; what is not ASCII may be a part of
            # a character that other tokens complete.
            spelt = self._text([token, token])
            self._completes[token] = not spelt.isascii() or any(s[-1] in spelt for s in self.stop)
        return self._completes[token]

    def cut(self, text: str) -> str:
        """The text before the first stop string that stands behind the thinking."""
        start = answer_start(text, self.opened)
        ends = [] if start is None else [text.index(s, start) for s in self.stop if s in text[start:]]
        return text[: min(ends)] if ends else text


FORCED = f"\n{CLOSE}\n\n"
"""What is put behind a trace that is too long (budget forcing, Muennighoff et al. 2025, arXiv:2501.19393)."""


class Closing:
    """Closes the trace of an answer after `limit` tokens, if it is open then."""

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


LEAST = 32
"""A loop is at least so many tokens long: a number with many zeros, a rule of dashes or a short list is none."""

# Any loop's last so many tokens stood one piece before, too: it is LEAST tokens long and at most half of it one piece.
_GRAM = LEAST // 2


class Loop:
    """Hears an answer token by token, and says when its end has become a loop.

    A loop is a piece of one or more tokens said at least `times` times in a row, over at least `LEAST` tokens in all. A
    single token has to come `LEAST` times, or `times` if that is more. Greedy decoding seldom leaves such a loop, but
    it may: one that would have ended after one more round is taken for endless.

    Kept are the places of every run of `LEAST` / 2 tokens, since a loop has said its last ones before: one look into a
    dictionary a token where nothing repeats.

    Args:
        times: how often in a row, from 2.
        limit: tokens that the answer may have; longer pieces than a `times`-th of it are not looked for.
    """

    def __init__(self, times: int, limit: int) -> None:
        self.times = times
        self.longest = limit // times
        self._places: dict[tuple[int, ...], deque[int]] = {}
        # Per length of a piece, how many of the last tokens each stood so many tokens before.
        self._matched: dict[int, int] = {}

    def hit(self, tokens: Sequence[int]) -> bool:
        """Whether the answer so far ends in a loop; to be called after each of its tokens, from the first one on."""
        if len(tokens) < _GRAM or not self.longest:
            return False
        here = len(tokens)
        places = self._places.setdefault(tuple(tokens[-_GRAM:]), deque())
        while places and here - places[0] > self.longest:
            places.popleft()
        # A piece whose match is new here has matched for these last tokens and no longer.
        self._matched = {here - place: self._matched.get(here - place, _GRAM - 1) + 1 for place in places}
        places.append(here)
        return any(matched + piece >= max(self.times * piece, LEAST) for piece, matched in self._matched.items())
