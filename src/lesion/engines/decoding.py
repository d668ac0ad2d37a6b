"""Decoding: from logits to the next token, and when an answer is finished."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from lesion.engines.engine import Decoding


def luck(decoding: Decoding, prompt: Sequence[int]) -> np.ndarray:
    """The uniform draws of one answer, [max_new_tokens] float64: a function of the seed and the prompt alone.

    The same item draws the same numbers under every edit (common random numbers), whoever shares its batch.
    """
    words = np.asarray(prompt, dtype=np.int64).tobytes()
    digest = hashlib.sha256(f"{decoding.seed}|{decoding.temperature}|{decoding.top_p}|".encode() + words).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little"))).random(decoding.max_new_tokens)


def sample(
    logits: Float[Tensor, "rows vocabulary"],
    temperature: Float[Tensor, " rows"],
    top_p: Float[Tensor, " rows"],
    uniform: Float[Tensor, " rows"],
) -> Int[Tensor, " rows"]:
    """One token per row by inverting the distribution function of the nucleus at `uniform`.

    The nucleus is the smallest set of most likely tokens whose probability reaches `top_p` (Holtzman et al. 2020);
    among equally likely tokens the one with the smaller id comes first.
    """
    # The largest becomes 0 first, for a temperature next to 0 would make it infinite.
    scaled = (logits.double() - logits.amax(-1, keepdim=True)) / temperature[:, None]
    probabilities, order = scaled.softmax(-1).sort(dim=-1, descending=True, stable=True)
    cumulative = probabilities.cumsum(-1)
    inside = cumulative - probabilities < top_p[:, None]
    cumulative = (probabilities * inside).cumsum(-1)
    target = uniform[:, None] * cumulative[:, -1:]
    index = (cumulative <= target).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    return order.gather(1, torch.minimum(index, inside.sum(-1, keepdim=True) - 1))[:, 0]


class StopStrings:
    """Looks for stop strings in what a row has said, decoding only its last few tokens at each step."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: tuple[str, ...]) -> None:
        self.tokenizer = tokenizer
        self.stop = tuple(s for s in stop if s)
        # A token spells at least one byte, so a stop string lies within its last `reach` tokens.
        self.reach = max((len(s.encode()) for s in self.stop), default=0) + 4
        self._completes: dict[int, bool] = {}

    def hit(self, said: Sequence[int]) -> bool:
        """Whether the text of `said` has a stop string, which its last token completed."""
        if not self.stop or not self._may_complete(said[-1]):
            return False
        # A tail that begins inside a character may lose the whole run of bytes after it: begin earlier then.
        for more in range(4):
            tail = self._text(said[-self.reach - more :])
            if self._found(tail):
                return self._found(self._text(said))
            if "\ufffd" not in tail:
                return False
        return False

    def _text(self, said: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(said), skip_special_tokens=True)
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
        """The text before the first stop string."""
        ends = [text.index(s) for s in self.stop if s in text]
        return text[: min(ends)] if ends else text
