"""Loops: an answer that says one piece over and over, found in its tokens as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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
