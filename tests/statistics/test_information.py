"""Information: NMI as scikit-learn's, cosine and CKA by their definitions in float64."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from lesion.statistics import information
from lesion.statistics.information import Alignment, cosine, normalised_mutual_information, shuffled

NORMALISATIONS = ("arithmetic", "geometric", "min", "max")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 3)), min_size=1, max_size=60), st.data())
def test_nmi_is_that_of_scikit_learn_for_every_normalisation(pairs, data):
    a, b = (np.array(labels) for labels in zip(*pairs, strict=True))
    normalisation = data.draw(st.sampled_from(NORMALISATIONS))
    expected = normalized_mutual_info_score(a, b, average_method=normalisation)
    assert normalised_mutual_information(a, b, normalisation) == pytest.approx(expected, abs=1e-12)


def test_shuffled_labels_keep_their_sizes_and_lose_their_relation():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 10, 2000)
    floor = shuffled(a, a, 20, np.random.default_rng(1))
    assert floor.shape == (20,)
    independent = [
        normalized_mutual_info_score(a, np.random.default_rng(seed).permutation(a)) for seed in range(100, 120)
    ]
    assert floor.mean() == pytest.approx(np.mean(independent), rel=0.1)
    assert floor.max() < 0.05
    again = shuffled(a, a, 20, np.random.default_rng(1))
    assert np.array_equal(floor, again)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_the_quick_count_of_a_shuffle_is_the_nmi_of_the_permuted_labels(normalisation):
    draw = np.random.default_rng(4)
    a, b = draw.integers(0, 7, 90), draw.integers(0, 5, 90)
    rng = np.random.default_rng(2)
    expected = [normalized_mutual_info_score(a, rng.permutation(b), average_method=normalisation) for _ in range(6)]
    assert shuffled(a, b, 6, np.random.default_rng(2), normalisation) == pytest.approx(expected, abs=1e-12)
    assert shuffled(a, np.zeros(90), 3, rng, normalisation).tolist() == [0.0] * 3
    assert shuffled(np.ones(90), np.zeros(90), 3, rng, normalisation).tolist() == [1.0] * 3


def test_cosine_is_the_mean_over_tokens_and_a_vector_of_zeros_counts_as_0(monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50, 7)).astype(np.float32)
    x[3] = 0
    expected = np.mean(
        [0.0 if not a.any() else a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(x.astype(float), y, strict=True)]
    )
    assert cosine(x, y) == pytest.approx(expected, abs=1e-7)
    assert cosine(x[:1], 5 * x[:1]) == pytest.approx(1.0)
    monkeypatch.setattr(information, "_PIECE", 16)
    assert cosine(x, y) == pytest.approx(expected, abs=1e-7)


def by_definition(x, y):
    """HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)) with K = XXᵀ, L = YYᵀ, both centred by H = I − 11ᵀ/n."""
    n = len(x)
    h = np.eye(n) - 1 / n
    k, m = (h @ (z.astype(np.float64) @ z.astype(np.float64).T) @ h for z in (x, y))
    return np.trace(k @ m) / math.sqrt(np.trace(k @ k) * np.trace(m @ m))


@pytest.mark.parametrize("piece", [7, 64, 1 << 21])
@pytest.mark.parametrize(("tokens", "width", "other"), [(40, 6, 6), (40, 6, 9), (5, 30, 30), (30, 30, 12), (2, 3, 3)])
def test_cka_is_what_its_definition_says_however_it_is_cut(tokens, width, other, piece, monkeypatch):
    monkeypatch.setattr(information, "_PIECE", piece)
    rng = np.random.default_rng(tokens + width)
    x = (rng.normal(size=(tokens, width)) + 5).astype(np.float32)
    y = (x @ rng.normal(size=(width, other)) + rng.normal(size=(tokens, other))).astype(np.float32)
    assert Alignment(x).cka(y) == pytest.approx(by_definition(x, y), rel=1e-9)
    assert Alignment(y).cka(x) == pytest.approx(by_definition(x, y), rel=1e-9)


def test_cka_does_not_see_rotation_shift_and_scale_and_knows_what_has_nothing_to_align():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 8))
    q, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    assert Alignment(x).cka(3 * x @ q + 7) == pytest.approx(1.0, abs=1e-12)
    equal = np.full((50, 8), 0.1, dtype=np.float32)
    assert math.isnan(Alignment(x).cka(equal))
    assert math.isnan(Alignment(equal).cka(x))
    assert math.isnan(Alignment(x[:1]).cka(x[:1]))
