"""The recall laboratory's languages: generated tables, and the character statistics of a text."""

import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lesion.errors import UsageError
from lesion_labs.recall.data import generated, of_text, read


def test_a_generated_language_has_unigrams_of_one_over_rank_and_rows_that_are_distributions():
    language = generated(32, 0)
    ranks = np.arange(1, 33)
    assert np.allclose(language.unigram * ranks, language.unigram[0])
    assert language.unigram.sum() == pytest.approx(1)
    assert np.allclose(language.bigram.sum(axis=1), 1)
    assert (language.bigram >= 0).all()
    assert (language.trigger, language.noise_token, language.symbols) == (0, 31, None)


def test_bigram_rows_come_from_the_dirichlet_distribution_around_the_unigrams():
    rows = np.concatenate([generated(20, seed).bigram for seed in range(400)])
    unigram = generated(20, 0).unigram
    concentration = 0.3 * 20
    error = np.sqrt(unigram * (1 - unigram) / (concentration + 1) / len(rows))
    assert (np.abs(rows.mean(axis=0) - unigram) < 5 * error).all()
    variance = unigram * (1 - unigram) / (concentration + 1)
    assert rows.var(axis=0)[:5] == pytest.approx(variance[:5], rel=0.1)  # of rarer tokens it takes more rows


def test_a_generated_language_is_a_function_of_the_seed():
    assert np.array_equal(generated(8, 3).bigram, generated(8, 3).bigram)
    assert not np.array_equal(generated(8, 3).bigram, generated(8, 4).bigram)


@given(st.text(alphabet="abcdefg \n", min_size=1, max_size=80))
def test_the_tables_of_a_text_are_its_counts(text):
    counts = Counter(text)
    if len(counts) < 4:
        with pytest.raises(UsageError, match=f"{len(counts)} distinct characters"):
            of_text(text, 4)
        return
    language = of_text(text, 4)
    symbols = language.symbols
    assert [counts[symbol] for symbol in symbols] == [count for _, count in counts.most_common(4)]
    kept = [symbol for symbol in text if symbol in symbols]
    for index, symbol in enumerate(symbols):
        assert language.unigram[index] == pytest.approx(kept.count(symbol) / len(kept))
        followers = [after for before, after in itertools.pairwise(kept) if before == symbol]
        for other, after in enumerate(symbols):
            expected = followers.count(after) / len(followers) if followers else language.unigram[other]
            assert language.bigram[index, other] == pytest.approx(expected)


def test_a_text_with_too_few_characters_is_refused_with_both_numbers_and_what_would_do():
    with pytest.raises(UsageError, match=r"story.txt has 5 distinct characters, fewer than .* 6; .*--vocabulary 5"):
        of_text("abcde" * 9, 6, "story.txt")
    with pytest.raises(UsageError, match="at least 4"):
        of_text("aab", 5)


def test_a_vocabulary_below_four_is_refused():
    for make in (lambda: generated(3, 0), lambda: of_text("abcd", 3)):
        with pytest.raises(UsageError, match="vocabulary of 3 is too small"):
            make()


def test_a_corpus_is_read_as_utf8_with_its_digest(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_bytes("naïve\r\n".encode())
    assert read(file) == ("naïve\r\n", hashlib.sha256(file.read_bytes()).hexdigest())
    with pytest.raises(UsageError, match="There is no file"):
        read(tmp_path / "none.txt")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="UTF-8"):
        read(file)
