"""Noisy in-context recall: sequences in which one trigger is followed by an answer of its own, or by noise.

Chen, Bruna and Bietti (2025). In every sequence an answer ȳ is drawn uniformly; z_1 ~ π_u; behind a token z_t = q
comes ȳ with probability 1 − α and τ with probability α; behind any other comes z_{t+1} ~ π_b(·|z_t). The unigram and
bigram tables are those of a language from a seeded generator or from a text.

A sequence is a function of (seed, purpose, step, index) alone: every number it is drawn by is a hash of these and of
its place. So it does not depend on batches, devices or workers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.errors import UsageError
from lesion.files import decoded, existing, read_bytes
from lesion.statistics.splitmix import mixed, shifted
from lesion_labs.recall.model import Recipe
from lesion_labs.recall.study_file import SMALLEST

CORPUS_BYTES = 1 << 30
"""The largest text that tables are counted in, 1 GiB."""


@dataclass(frozen=True)
class Language:
    """Tokens from the most frequent, 0, to the rarest, and how they follow one another.

    The trigger q is the most frequent token, as in the released code. The noise token τ is the rarest, so that a model
    learns of it only behind q. (The released code takes one character by its index.)

    Attributes:
        unigram: π_u, by which the first token of a sequence is drawn.
        bigram: π_b, row z is the distribution of what follows z. The row of q is not used.
        symbols: the characters that the tokens stand for; None for a generated language.
    """

    unigram: Float[np.ndarray, " vocabulary"]
    bigram: Float[np.ndarray, "vocabulary vocabulary"]
    symbols: str | None = None

    def __post_init__(self) -> None:
        if self.vocabulary < SMALLEST:
            raise UsageError(
                f"A vocabulary of {self.vocabulary} is too small: a trigger, a noise token and two answers need"
                f" {SMALLEST}."
            )

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return len(self.unigram)

    @property
    def trigger(self) -> int:
        """The token q."""
        return 0

    @property
    def noise_token(self) -> int:
        """The token τ."""
        return self.vocabulary - 1


def generated(vocabulary: int, seed: int) -> Language:
    """A language with unigrams ∝ 1/rank and bigram rows from Dirichlet(0.3 · V · π_u)."""
    unigram = 1 / np.arange(1, vocabulary + 1)
    unigram /= unigram.sum()
    generator = np.random.default_rng([seed, vocabulary])
    return Language(unigram, generator.dirichlet(0.3 * vocabulary * unigram, size=vocabulary))


def of_text(text: str, vocabulary: int, origin: str = "The corpus") -> Language:
    """The statistics of the `vocabulary` most frequent characters of a text, as if no others stood in it.

    A character that nothing follows (the last of the text) is followed as the unigrams say. Equally frequent
    characters are ordered by their code points.
    """
    counts = Counter(text)
    if len(counts) < vocabulary:
        enough = len(counts) >= SMALLEST
        advice = f"longer text, or --vocabulary {len(counts)} or less" if enough else f"text with at least {SMALLEST}"
        raise UsageError(
            f"{origin} has {len(counts)} distinct characters, fewer than the vocabulary of {vocabulary}; give a"
            f" {advice}."
        )
    symbols = "".join(sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[:vocabulary])
    token = {symbol: index for index, symbol in enumerate(symbols)}
    tokens = np.array([token[symbol] for symbol in text if symbol in token])
    unigram = np.bincount(tokens, minlength=vocabulary) / len(tokens)
    pairs = np.bincount(tokens[:-1] * vocabulary + tokens[1:], minlength=vocabulary**2).reshape(vocabulary, vocabulary)
    followed = pairs.sum(axis=1, keepdims=True)
    bigram = np.where(followed > 0, pairs / np.maximum(followed, 1), unigram)
    return Language(unigram, bigram, symbols)


def read(corpus: str | Path) -> tuple[str, str]:
    """The text of a corpus file and its SHA-256."""
    path = existing(corpus, "--corpus")
    content = read_bytes(path, limit=CORPUS_BYTES)
    return decoded(content, path, UsageError), hashlib.sha256(content).hexdigest()


# Random bits of a number: few enough that token + number is exact in float64 for any vocabulary below 2 ** 9.
BITS = 44
AT_ONCE = 65_536  # tokens made at once: the cost of a step in time is one of calls, not of numbers


@dataclass(frozen=True)
class Batch:
    """Sequences z_1 … z_T, their targets z_2 … z_{T+1}, and ȳ of each.

    A question is a position whose token is a trigger after which ȳ is to be recalled.
    """

    tokens: Int[Tensor, "rows length"]
    targets: Int[Tensor, "rows length"]
    questions: Bool[Tensor, "rows length"]
    answers: Int[Tensor, " rows"]


# 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03 and 0x8CB92BA72F3D8DD7 as signed numbers with the same 64 bits.
_STRIDES = (-0x61C8864680B583EB, -0x2E4AB5CD2E6D12FD, -0x7346D458D0C27229)


def uniforms(
    seed: int, purpose: str, steps: Int[Tensor, " rows"], indices: Int[Tensor, " rows"], columns: int
) -> Float[Tensor, "rows columns"]:
    """Numbers in [0, 1), float64: number c of the sequence with that index in that step."""
    key = hashlib.sha256(f"recall {seed} {purpose}".encode()).digest()
    bits = mixed(int.from_bytes(key[:8], "big", signed=True) + steps * _STRIDES[0])
    bits = mixed(bits + indices * _STRIDES[1])
    places = torch.arange(1, columns + 1, device=steps.device) * _STRIDES[2]
    bits = mixed(bits[:, None] + places)
    return shifted(bits, 64 - BITS).double() / (1 << BITS)


class Source:
    """Draws the sequences of a recipe on a device, with its own noise or another."""

    def __init__(
        self, recipe: Recipe, language: Language, device: str | torch.device = "cpu", noise: float | None = None
    ) -> None:
        self.recipe, self.language, self.device = recipe, language, torch.device(device)
        self.noise = recipe.noise if noise is None else noise
        self._first = _ladder(torch.from_numpy(language.unigram)[None]).to(self.device)
        self._next = _ladder(torch.from_numpy(language.bigram)).to(self.device)

    def draw(self, purpose: str, steps: Int[Tensor, " rows"], indices: Int[Tensor, " rows"]) -> Batch:
        """The sequences with these indices within these steps; draws for different purposes are independent."""
        recipe, language = self.recipe, self.language
        trigger, noise_token = language.trigger, language.noise_token
        numbers = uniforms(recipe.seed, purpose, steps.to(self.device), indices.to(self.device), recipe.length + 2)
        numbers = numbers.T.contiguous()
        # Where ȳ is neither, it is one of the tokens between q, which is the first, and τ, which is the last.
        lowest, choices = (0, language.vocabulary) if recipe.own_answers else (1, language.vocabulary - 2)
        answers = lowest + (numbers[0] * choices).long()
        tokens = [torch.searchsorted(self._first, numbers[1], right=True)]
        for place in range(1, recipe.length + 1):
            before, number = tokens[-1], numbers[place + 1]
            if recipe.variant == "paper" and place == recipe.length - 1:
                tokens.append(torch.full_like(before, trigger))
                continue
            follows = torch.searchsorted(self._next, before + number, right=True) - before * language.vocabulary
            behind = torch.where(number < self.noise, noise_token, answers)
            tokens.append(torch.where(before == trigger, behind, follows))
        sequence = torch.stack(tokens, dim=1)
        read = sequence[:, :-1]
        triggers = read == trigger
        questions = triggers & (triggers.cumsum(dim=1) >= 2)
        if recipe.variant == "paper":
            questions[:] = torch.arange(recipe.length, device=self.device) == recipe.length - 1
        return Batch(read.contiguous(), sequence[:, 1:].contiguous(), questions, answers)

    def sequences(self, purpose: str, count: int) -> Batch:
        """The first `count` sequences of a purpose."""
        return self.draw(purpose, torch.zeros(count, dtype=torch.long), torch.arange(count))

    def batches(self, purpose: str, first: int, last: int, size: int) -> Iterator[Batch]:
        """One batch of `size` sequences for every step from `first` up to, not including, `last`."""
        together = max(1, AT_ONCE // (size * self.recipe.length))
        for begin in range(first, last, together):
            steps = torch.arange(begin, min(begin + together, last))
            made = self.draw(purpose, steps.repeat_interleave(size), torch.arange(size).repeat(len(steps)))
            for number in range(len(steps)):
                rows = slice(number * size, (number + 1) * size)
                yield Batch(made.tokens[rows], made.targets[rows], made.questions[rows], made.answers[rows])


def _ladder(rows: Float[Tensor, "rows tokens"]) -> Float[Tensor, " steps"]:
    """Row r's cumulated probabilities plus r, one behind the other: r + number falls on the token that it draws."""
    cumulated = rows.double().cumsum(dim=1)
    cumulated = cumulated / cumulated[:, -1:]  # the last is exactly 1
    return (cumulated + torch.arange(len(rows))[:, None]).flatten()
