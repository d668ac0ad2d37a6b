"""Drift: the curve of planted layers, its floor and ceiling, and what cannot be clustered."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score

from lesion.activations.hidden_states import hidden_states
from lesion.errors import LesionError
from lesion.statistics.information import Alignment
from lesion.statistics.kmeans import kmeans
from lesion.studies.drift import measurement as module
from lesion.studies.drift.measurement import Settings, drift
from spooling import spooled
from tiny import model

TOKENS, WIDTH, KINDS = 300, 12, 6


def planted(keeps, seed=0, spread=0.05):
    """Layers in which a share of the tokens stays with its kind and the others are in kinds drawn anew."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, KINDS, TOKENS)
    layers, kinds = [], []
    for keep in keeps:
        now = np.where(rng.random(TOKENS) < keep, kind, rng.integers(0, KINDS, TOKENS))
        middle = 3 * rng.normal(size=(KINDS, WIDTH))
        layers.append(middle[now] + spread * rng.normal(size=(TOKENS, WIDTH)))
        kinds.append(now)
    return layers, kinds


def planted_states(layers):
    return spooled(layers, [[1] * 200, [2] * 100])


def test_the_curve_is_that_of_the_kinds_that_were_planted():
    layers, kinds = planted([1, 0.9, 0.5, 0])
    with planted_states(layers) as states:
        measured = drift(states, Settings(clusters=KINDS, null=5), labels={"kind": kinds[0], "same": np.zeros(TOKENS)})
    expected = [normalized_mutual_info_score(kinds[0], now) for now in kinds]
    np.testing.assert_allclose(measured.along("nmi"), expected, atol=1e-9)
    np.testing.assert_allclose([layer.labels["kind"] for layer in measured.layers], expected, atol=1e-9)
    assert [layer.labels["same"] for layer in measured.layers] == [0.0] * 4
    assert [layer.layer for layer in measured.layers] == [0, 1, 2, 3]
    assert measured.ceiling == pytest.approx(1.0)
    assert np.shape(measured.assignments) == (4, TOKENS)
    for layer in measured.layers:
        assert 0 < layer.null <= layer.null_high < 0.15
    # Where nothing is left, the curve is on its floor.
    assert measured.layers[3].nmi < 2 * measured.layers[3].null_high


def test_by_token_a_fall_by_spreading_goes_and_a_fall_by_regrouping_stays():
    rng = np.random.default_rng(0)
    tokens = np.repeat(np.arange(60), 10)
    groups, others = rng.integers(0, KINDS, 60), rng.integers(0, KINDS, 60)
    spread = np.where(rng.random(600) < 0.6, groups[tokens], rng.integers(0, KINDS, 600))
    layers = [3 * np.eye(KINDS, WIDTH)[kinds] for kinds in (groups[tokens], spread, others[tokens])]
    layers = [layer + 0.01 * rng.normal(size=layer.shape) for layer in layers]
    with spooled(layers, [[1] * 600]) as states:
        measured = drift(states, Settings(clusters=KINDS, null=5))
    own = [1.0, 1.0, normalized_mutual_info_score(groups[tokens], others[tokens])]
    np.testing.assert_allclose(measured.by_token(tokens, "arithmetic"), own, atol=1e-9)
    assert measured.layers[1].nmi < 0.5
    assert measured.layers[2].nmi == pytest.approx(own[2], abs=1e-9)


@pytest.mark.parametrize("room", [True, False])
def test_points_are_clustered_on_the_device_that_is_named_and_on_the_cpu_where_it_has_no_room(room, monkeypatch):
    asked = []

    def clustered(points, clusters, **settings):
        asked.append(points.device.type)
        if points.device.type == "meta" and not room:
            raise torch.OutOfMemoryError
        # A meta tensor has no numbers: those that it would have.
        there = torch.from_numpy(states.layer(0)) if points.device.type == "meta" else points
        return kmeans(there, clusters, **settings)

    monkeypatch.setattr(module, "kmeans", clustered)
    layers, _ = planted([1])
    with planted_states(layers) as states:
        elsewhere = drift(states, Settings(clusters=KINDS, null=1), device="meta")
        monkeypatch.undo()
        assert elsewhere == drift(states, Settings(clusters=KINDS, null=1))
    assert asked == (["meta"] if room else ["meta", "cpu"]) * 2


def test_the_null_is_the_mean_of_a_hundred_shuffles_and_its_height_their_quantile():
    layers, _ = planted([1, 0.5])
    with planted_states(layers) as states:
        measured = drift(states, Settings(clusters=KINDS, starts=1))
    first, last = measured.assignments
    rng = np.random.default_rng(11)
    floor = [normalized_mutual_info_score(first, rng.permutation(last)) for _ in range(400)]
    assert measured.layers[1].null == pytest.approx(np.mean(floor), rel=0.08)
    assert measured.layers[1].null_high == pytest.approx(np.quantile(floor, 0.975), rel=0.15)
    assert measured.layers[1].null < measured.layers[1].null_high < max(floor)


def test_cosine_and_cka_are_those_of_the_vectors():
    layers, _ = planted([1, 0.5, 0])
    with planted_states(layers) as states:
        measured = drift(states, Settings(clusters=KINDS))
        vectors = [states.layer(index).astype(np.float64) for index in range(3)]
    for layer in measured.layers:
        x, y = vectors[0], vectors[layer.layer]
        cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(x, y, strict=True)]
        assert layer.cosine == pytest.approx(np.mean(cosines), abs=1e-9)
        assert layer.cka == pytest.approx(Alignment(x).cka(y), rel=1e-9)


def test_noise_stays_on_the_floor_and_its_ceiling_is_low():
    rng = np.random.default_rng(0)
    with planted_states(rng.normal(size=(3, TOKENS, WIDTH))) as states:
        measured = drift(states, Settings(clusters=10, null=20))
    for layer in measured.layers[1:]:
        assert abs(layer.nmi - layer.null) < 0.05
    assert measured.ceiling < 0.9  # two good clusterings of the same noise do not agree


def test_the_output_of_block_0_may_be_layer_zero():
    layers, kinds = planted([1, 0.7, 0.7])
    with planted_states(layers) as states:
        measured = drift(states, Settings(clusters=KINDS, layer_zero="block"))
    assert [layer.layer for layer in measured.layers] == [1, 2]
    expected = [normalized_mutual_info_score(kinds[1], now) for now in kinds[1:]]
    np.testing.assert_allclose(measured.along("nmi"), expected, atol=1e-9)
    assert measured.layers[0].cosine == pytest.approx(1.0)
    assert measured.layers[0].cka == pytest.approx(1.0)


def test_only_the_tokens_that_are_named_count():
    layers, kinds = planted([1, 0.5])
    prompt = np.arange(TOKENS) % 200 < 150
    with planted_states(layers) as states:
        for chosen in (prompt, ~prompt, prompt | True):
            measured = drift(states, Settings(clusters=KINDS), where=chosen, labels={"kind": kinds[1]})
            assert np.shape(measured.assignments) == (2, chosen.sum())
            expected = normalized_mutual_info_score(kinds[0][chosen], kinds[1][chosen])
            assert measured.layers[1].nmi == pytest.approx(expected, abs=1e-9)
            assert measured.layers[1].labels["kind"] == pytest.approx(1.0)
            x, y = (states.layer(index)[chosen] for index in range(2))
            assert measured.layers[1].cka == pytest.approx(Alignment(x).cka(y), rel=1e-9)


def test_vectors_are_normalised_before_clustering_only_where_asked():
    rng = np.random.default_rng(0)
    kind = np.arange(TOKENS) % 4
    points = (np.eye(4)[kind] + 0.01 * rng.normal(size=(TOKENS, 4))) * rng.uniform(1, 50, size=(TOKENS, 1))
    points = np.concatenate([points, np.full((TOKENS, 1), 0.3)], axis=1)  # and a dimension that never varies
    raw = np.concatenate([points[:, :4], 0 * points[:, 4:]], axis=1)
    with planted_states([raw, raw]) as states:
        unit = drift(states, Settings(clusters=4, normalise="unit"), labels={"kind": kind})
        none = drift(states, Settings(clusters=4), labels={"kind": kind})
    assert unit.layers[1].labels["kind"] == pytest.approx(1.0)
    assert none.layers[1].labels["kind"] < 0.9  # lengths are what it clusters
    assert unit.layers[1].cosine == pytest.approx(none.layers[1].cosine)
    with planted_states([points, points]) as states:
        vectors = module._prepared(states.layer(0), "standardise")
    np.testing.assert_allclose(vectors.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(vectors.std(axis=0), [1, 1, 1, 1, 0], atol=1e-4)


def test_a_seed_gives_the_same_drift_again_and_no_layer_has_the_draws_of_another(monkeypatch):
    rng = np.random.default_rng(0)
    seeds = []

    def watched(points, clusters, **settings):
        seeds.append(settings["seed"])
        return kmeans(points, clusters, **settings)

    monkeypatch.setattr(module, "kmeans", watched)
    with planted_states(rng.normal(size=(3, TOKENS, WIDTH))) as states:
        first, again, other = (drift(states, Settings(clusters=8, seed=seed)) for seed in (1, 1, -1))
    assert first.layers == again.layers
    assert first.assignments == again.assignments
    assert first.layers != other.layers
    assert seeds[:4] == seeds[4:8]
    assert len(set(seeds)) == 8


def test_a_model_with_rotary_positions_has_one_point_a_token_id_at_layer_zero():
    texts = [torch.randint(3, 20, (30,), generator=torch.Generator().manual_seed(n)).tolist() for n in range(4)]
    with hidden_states(model("llama"), texts) as states:
        tokens = np.concatenate(texts)
        ids = len(set(tokens.tolist()))
        whole = drift(states, Settings(clusters=ids), labels={"token": tokens})
        assert whole.layers[0].labels["token"] == pytest.approx(1.0)
        with pytest.raises(LesionError, match=rf"Layer 0 of .* {ids} distinct points"):
            drift(states, Settings(clusters=ids + 1))
        assert len(drift(states, Settings(clusters=ids + 1, layer_zero="block")).layers) == 3
    with hidden_states(model("gpt2"), texts) as states:  # where positions are added to what enters block 0
        assert len(drift(states, Settings(clusters=ids + 1)).layers) == 4


def test_a_layer_of_too_few_different_vectors_is_named():
    layers, _ = planted([1, 0.5])
    with (
        planted_states([layers[0], np.ones((TOKENS, WIDTH))]) as states,
        pytest.raises(LesionError, match=r"Layer 1 of the model: 5 clusters .* 1 distinct"),
    ):
        drift(states, Settings(clusters=5))
