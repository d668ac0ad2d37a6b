"""Stop strings: texts that end an answer, looked for in its tokens; those in a trace of thinking end nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from transformers import PreTrainedTokenizerBase

from lesion.engines.engine import Request
from lesion.tasks.thinking import answer_start, opening


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
