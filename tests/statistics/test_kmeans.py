"""k-means: inertia at most scikit-learn's, labels of nearest centres, repeated points, the same from a seed."""

from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from lesion.errors import UsageError
from lesion.statistics.kmeans import _in_one_order, kmeans


def clouds(tokens, width, centres, spread, seed=0):
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(centres, width)) * 3
    return (middle[rng.integers(0, centres, tokens)] + spread * rng.normal(size=(tokens, width))).astype(np.float32)


def squared_distances(points, centres):
    """[points, clusters], float64, the plain way."""
    return ((points[:, None].astype(np.float64) - centres[None].astype(np.float64)) ** 2).sum(axis=2)


def inertia_of(points, labels):
    """Σ over clusters of the squared distances to their mean, float64."""
    x = points.astype(np.float64)
    return sum(((x[labels == k] - x[labels == k].mean(axis=0)) ** 2).sum() for k in np.unique(labels))


DATA = {
    "clusters": lambda: clouds(600, 24, 12, 0.5),
    "overlapping clusters": lambda: clouds(600, 24, 12, 3.0),
    "noise": lambda: np.random.default_rng(1).normal(size=(600, 24)).astype(np.float32),
    "a wide stream, in a subspace at first": lambda: clouds(400, 300, 20, 1.0),
    "wide noise": lambda: np.random.default_rng(2).normal(size=(400, 300)).astype(np.float32),
    "few tokens, many dimensions": lambda: clouds(60, 400, 10, 1.0),
    "one dimension": lambda: clouds(300, 1, 12, 0.1),
    "far from the origin": lambda: clouds(400, 24, 12, 0.5) + 1000,
}


@pytest.mark.parametrize("name", DATA)
def test_inertia_is_at_most_that_of_scikit_learn_with_as_many_starts(name):
    points = DATA[name]()
    theirs = [KMeans(12, n_init=10, random_state=seed, tol=1e-4).fit(points).inertia_ for seed in range(4)]
    ours = [kmeans(torch.from_numpy(points), 12, seed=seed) for seed in range(4)]
    for found in ours:
        assert found.inertia == pytest.approx(inertia_of(points, found.labels), rel=1e-5)
    # Both search at random: a single search may be worse than a single one of theirs, the mean of several may not.
    assert np.mean([found.inertia for found in ours]) <= np.mean(theirs) * (1 + 1e-4)


@pytest.mark.parametrize("name", DATA)
def test_every_label_is_of_the_nearest_centre_and_every_centre_is_the_mean_of_its_cluster(name):
    points = DATA[name]()
    found = kmeans(torch.from_numpy(points), 12, seed=3)
    away = squared_distances(points, found.centres)
    size = ((points - points.mean(axis=0)).astype(np.float64) ** 2).sum(axis=1)
    own = away[np.arange(len(points)), found.labels]
    assert (own <= away.min(axis=1) + 1e-5 * size).all()
    assert set(found.labels) == set(range(12))
    means = np.stack([points[found.labels == k].mean(axis=0, dtype=np.float64) for k in range(12)])
    np.testing.assert_allclose(found.centres, means, rtol=1e-5, atol=1e-4)


def test_clusters_that_are_apart_are_found():
    points = clouds(500, 16, 8, 0.01)
    truth = np.random.default_rng(0)
    truth.normal(size=(8, 16))
    which = truth.integers(0, 8, 500)
    found = kmeans(torch.from_numpy(points), 8, seed=0)
    assert len(set(zip(which.tolist(), found.labels.tolist(), strict=True))) == 8


def test_in_many_dimensions_it_goes_where_lloyd_stops_short():
    points = DATA["wide noise"]()
    theirs = KMeans(20, n_init=10, random_state=0, tol=0).fit(points).inertia_
    assert kmeans(torch.from_numpy(points), 20, seed=0).inertia < 0.99 * theirs


def test_a_seed_gives_the_same_clusters_again_and_another_seed_others():
    points = torch.from_numpy(DATA["noise"]())
    first, again, other = (kmeans(points, 10, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.labels, again.labels)
    assert np.array_equal(first.centres, again.centres)
    assert first.inertia == again.inertia
    assert not np.array_equal(first.labels, other.labels)


def test_an_accelerator_adds_up_in_one_order_and_other_code_is_left_as_it_was():
    for device, expected in (("cpu", False), ("meta", True)):
        with suppress(ZeroDivisionError), _in_one_order(torch.device(device)):
            assert torch.are_deterministic_algorithms_enabled() is expected
            raise ZeroDivisionError
        assert not torch.are_deterministic_algorithms_enabled()


def test_points_that_occur_several_times_count_as_often():
    rng = np.random.default_rng(0)
    points = clouds(40, 6, 5, 0.5)
    repeated = points[rng.integers(0, 40, 400)]
    found = kmeans(torch.from_numpy(repeated), 5, seed=0)
    theirs = KMeans(5, n_init=10, random_state=0, tol=0).fit(repeated)
    assert found.inertia == pytest.approx(inertia_of(repeated, found.labels), rel=1e-5)
    assert found.inertia <= theirs.inertia_ * (1 + 1e-5)
    for point in np.unique(repeated, axis=0):  # the same vector is in the same cluster everywhere
        assert len(set(found.labels[(repeated == point).all(axis=1)])) == 1


def test_as_many_clusters_as_points_leave_nothing_over():
    points = clouds(30, 5, 30, 1.0)
    found = kmeans(torch.from_numpy(np.repeat(points, 2, axis=0)), 30, seed=0)
    assert sorted(found.labels.tolist()) == sorted([*range(30)] * 2)
    assert found.inertia == pytest.approx(0, abs=1e-6)


def test_clusters_far_smaller_than_their_distance_from_an_outlier_are_still_told_apart():
    points = clouds(300, 16, 6, 0.1)
    outlier = np.zeros((3, 16), dtype=np.float32)
    outlier[:, 0] = 3000, 3001, 3002
    found = kmeans(torch.from_numpy(np.concatenate([points, outlier])), 7, seed=0)
    assert len(set(found.labels[:300])) == 6
    assert len(set(found.labels[300:])) == 1


def test_empty_clusters_are_filled(monkeypatch):
    points = clouds(200, 8, 6, 0.5)
    monkeypatch.setattr("lesion.statistics.kmeans.beginnings", lambda *_: [torch.zeros(200, dtype=torch.int64)])
    found = kmeans(torch.from_numpy(points), 6, seed=0)
    assert set(found.labels) == set(range(6))
    assert found.inertia == pytest.approx(inertia_of(points, found.labels), rel=1e-5)


def test_the_points_are_left_as_they_were_unless_they_may_be_overwritten():
    points = torch.from_numpy(clouds(100, 6, 4, 0.5))
    before = points.clone()
    found = kmeans(points, 4, seed=0)
    assert torch.equal(points, before)
    assert kmeans(points, 4, seed=0, overwrite=True).inertia == found.inertia


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_points_of_any_dtype_are_clustered_in_float32(dtype):
    points = torch.from_numpy(clouds(100, 6, 4, 0.2)).to(dtype)
    found = kmeans(points, 4, seed=0)
    assert found.centres.dtype == np.float32
    assert found.inertia == kmeans(points.float(), 4, seed=0).inertia


def test_more_clusters_than_distinct_points_is_an_error_that_names_all_three_numbers():
    points = torch.from_numpy(np.repeat(clouds(7, 4, 7, 1.0), 3, axis=0))
    with pytest.raises(UsageError, match=r"8 clusters .* 7 distinct points among 21"):
        kmeans(points, 8, seed=0)
    with pytest.raises(UsageError, match=r"2 clusters .* 1 distinct points among 9"):
        kmeans(torch.ones(9, 3), 2, seed=0)
    with pytest.raises(UsageError, match="not finite"):
        kmeans(torch.tensor([[0.0], [torch.nan], [1.0]]), 2, seed=0)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 12), st.integers(0, 2**62), st.booleans())
def test_any_points_get_the_clusters_asked_for(tokens, width, clusters, seed, whole):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(tokens, width)).astype(np.float32)
    if whole:  # many ties, many repeats
        points = np.round(points)
    clusters = min(clusters, len(np.unique(points + 0.0, axis=0)))
    found = kmeans(torch.from_numpy(points), clusters, seed=seed)
    assert set(found.labels) == set(range(clusters))
    assert found.inertia == pytest.approx(inertia_of(points, found.labels), rel=1e-4, abs=1e-5)
