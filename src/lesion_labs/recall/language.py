"""The language that sequences are drawn from: unigram and bigram tables, from a seeded generator or from a text."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from lesion.errors import UsageError
from lesion.files import existing, read_bytes
from lesion_labs.recall.study_file import SMALLEST

Table = np.ndarray
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

    unigram: Float[Table, " vocabulary"]
    bigram: Float[Table, "vocabulary vocabulary"]
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
    try:
        return content.decode("utf-8"), hashlib.sha256(content).hexdigest()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8.") from None
