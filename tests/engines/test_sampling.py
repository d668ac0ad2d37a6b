"""Sampling draws from the nucleus and nothing else, by noise that belongs to the item, and forgives rounding."""

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, gumbel_r, kstest

import lesion.engines.sampling
from alone import noise, nucleus, split_mix
from lesion.engines.sampling import TIE, gumbel, noise_key, sample

LOGITS = np.random.default_rng(0).normal(0, 2, 12)


def draw(logits, temperature, top_p, keys, positions) -> np.ndarray:
    """`sample` with arguments broadcast to as many rows as there are keys and positions."""
    keys, positions = np.broadcast_arrays(np.asarray(keys, np.int64), np.asarray(positions, np.int64))
    rows = len(keys)
    return sample(
        torch.tensor(np.broadcast_to(logits, (rows, np.shape(logits)[-1]))),
        torch.tensor(np.broadcast_to(np.float64(temperature), rows)),
        torch.tensor(np.broadcast_to(np.float64(top_p), rows)),
        torch.tensor(keys),
        torch.tensor(positions),
    ).numpy()


def noise_of(keys, positions, vocabulary: int) -> np.ndarray:
    keys, positions = np.broadcast_arrays(np.asarray(keys, np.int64), np.asarray(positions, np.int64))
    return gumbel(torch.tensor(keys), torch.tensor(positions), vocabulary).numpy()


def test_the_reference_generator_is_split_mix():
    """The numbers that every implementation of SplitMix64 gives from the state 1234567."""
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [split_mix(1234567, count) for count in range(1, 5)] == published


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 100_000), st.integers(1, 40))
def test_noise_is_the_gumbel_quantile_of_split_mix_in_split_mix(key, position, vocabulary):
    expected = [noise(key, position, token) for token in range(vocabulary)]
    # The logarithm of a number next to 1 is as exact as the processor's.
    np.testing.assert_allclose(noise_of([key], position, vocabulary)[0], expected, rtol=1e-9, atol=1e-9)


@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=9),
    temperature=st.floats(0.1, 5),
    top_p=st.floats(0.01, 1),
    key=st.integers(-(2**63), 2**63 - 1),
)
@example(logits=[0.0, 0.0, 0.0, 0.0], temperature=1.0, top_p=0.5, key=1)
@example(logits=[1.0, 5.0], temperature=1.0, top_p=0.01, key=2)
@settings(deadline=None)
def test_the_token_with_the_largest_sum_inside_the_nucleus_is_drawn(logits, temperature, top_p, key):
    values = np.array(logits)
    inside = nucleus(values, temperature, top_p)
    whole = np.cumsum(list(nucleus(values, temperature, 1.0).values()))
    gaps = np.abs(values[:, None] - values)
    # Where rounding decides who is inside, nothing may be said.
    assume(len(set(logits)) == 1 or np.abs(whole[:-1] - top_p).min(initial=1) > 1e-9)
    assume(np.abs(gaps - TIE).min() > 1e-9)
    sums = {token: values[token] / temperature + noise(key, 3, token) for token in inside}
    best, *others = sorted(sums.values(), reverse=True)
    assume(not others or best - others[0] > 1e-7)
    assert draw(values, temperature, top_p, [key], 3) == max(sums, key=sums.get)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (2.0, 0.5)])
@pytest.mark.parametrize("over", ["positions", "prompts", "seeds"])
def test_many_draws_have_the_probabilities_of_the_nucleus(temperature, top_p, over):
    count = 20_000
    keys = {
        "positions": [noise_key(3, (1, 2, 3))] * count,
        "prompts": [noise_key(3, (index, 7)) for index in range(count)],
        "seeds": [noise_key(seed, (1, 2, 3)) for seed in range(count)],
    }[over]
    positions = np.arange(count) if over == "positions" else 0
    counts = np.bincount(draw(LOGITS, temperature, top_p, keys, positions), minlength=len(LOGITS))
    expected = nucleus(LOGITS, temperature, top_p)
    assert set(np.flatnonzero(counts)) <= set(expected)
    tokens = [token for token, probability in expected.items() if probability * count >= 5]
    rest = count - counts[tokens].sum(), count * (1 - sum(expected[token] for token in tokens))
    found, due = [*counts[tokens]], [count * expected[token] for token in tokens]
    if rest[1] > 1e-6:
        found, due = [*found, rest[0]], [*due, rest[1]]
    assert chisquare(found, due).pvalue > 1e-4


def test_noise_is_gumbel_over_tokens_positions_and_prompts():
    keys = [noise_key(0, (index,)) for index in range(100)]
    assert kstest(noise_of(keys[:1], 0, 50_000)[0], gumbel_r.cdf).pvalue > 1e-3
    assert kstest(noise_of(keys[:1], np.arange(20_000), 1)[:, 0], gumbel_r.cdf).pvalue > 1e-3
    assert kstest(noise_of(keys, 5, 100).ravel(), gumbel_r.cdf).pvalue > 1e-3


@pytest.mark.parametrize("apart", ["position", "prompt", "seed", "token"])
def test_noise_of_neighbours_is_independent(apart):
    base = (0, (1, 2, 3), 4)
    other = {"position": (0, (1, 2, 3), 5), "prompt": (0, (1, 2, 4), 4), "seed": (1, (1, 2, 3), 4), "token": base}
    first, second = (
        noise_of([noise_key(seed, prompt)], position, 40_001)[0] for seed, prompt, position in (base, other[apart])
    )
    quantiles = gumbel_r.ppf(np.arange(1, 5) / 5)
    pairs = np.digitize(first[:-1], quantiles), np.digitize(second[1:] if apart == "token" else second[:-1], quantiles)
    table = np.zeros((5, 5))
    np.add.at(table, pairs, 1)
    assert chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300, 5e-324])
def test_towards_temperature_zero_the_most_likely_token_is_drawn_whatever_the_noise(temperature):
    keys = np.arange(40)
    assert set(draw(LOGITS, temperature, 1.0, keys, 0)) == {int(LOGITS.argmax())}
    # Of equally likely ones the noise still chooses, as at any other temperature.
    assert set(draw([1.0, 3.0, 3.0], temperature, 1.0, keys, 0)) == {1, 2}
    assert set(draw([1.0, 3.0, 3.0], temperature, 0.3, keys, 0)) == {1, 2}


def test_a_token_that_is_taken_away_is_never_drawn():
    logits = np.where(np.arange(12) == LOGITS.argmax(), -np.inf, LOGITS)
    for top_p in (0.5, 1.0):
        assert int(LOGITS.argmax()) not in draw(logits, 5.0, top_p, np.arange(500), 0)


def test_rows_with_settings_of_their_own_are_drawn_as_each_would_be_alone(monkeypatch):
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, (20, 12))
    temperature, top_p, keys = rng.uniform(0.2, 2, 20), rng.uniform(0.1, 1, 20), rng.integers(-(2**63), 2**63 - 1, 20)
    rows = list(zip(logits, temperature, top_p, keys, range(20), strict=True))
    alone = [int(draw(row, t, p, [key], position)[0]) for row, t, p, key, position in rows]
    for entries in (1, 50, 1 << 20):
        monkeypatch.setattr(lesion.engines.sampling, "ENTRIES", entries)
        assert draw(logits, temperature, top_p, keys, np.arange(20)).tolist() == alone


def test_the_noise_of_a_token_does_not_depend_on_how_many_there_are():
    keys, positions = np.arange(5), np.arange(5) + 7
    np.testing.assert_allclose(noise_of(keys, positions, 100), noise_of(keys, positions, 333)[:, :100], rtol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.05, 3.0])
@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (1.3, 0.3)])
def test_logits_that_differ_by_rounding_draw_the_same_tokens_but_at_near_ties(spread, temperature, top_p):
    """Logits of an untrained network nearly tie, so that rounding puts them in another order."""
    rng = np.random.default_rng(2)
    logits = spread * rng.normal(size=(400, 500))
    rounded = logits + rng.uniform(-1e-6, 1e-6, logits.shape)
    keys = rng.integers(-(2**63), 2**63 - 1, 400)
    before, after = (draw(each, temperature, top_p, keys, 0) for each in (logits, rounded))
    sums = logits / temperature + noise_of(keys, 0, 500)
    two = np.arange(400), before, after
    near = np.abs(sums[two[0], two[1]] - sums[two[0], two[2]]) < 4e-6 / temperature
    # Of a token at the nucleus's end, rounding may decide whether it is inside: of 400 draws, hardly one meets that.
    assert ((before != after) & ~near).sum() <= 1
    assert (before != after).sum() <= 2
    if spread:
        order = [each.argsort(-1) for each in (logits, rounded)]
        assert spread > 1 or (order[0] != order[1]).any(-1).mean() > 0.3


def test_tokens_that_tie_at_the_end_of_the_nucleus_are_all_inside_in_whatever_order_rounding_puts_them():
    rng = np.random.default_rng(3)
    tied = np.log([0.4] + [0.1] * 6)
    keys = np.arange(3000)
    jittered = [tied + rng.uniform(-1e-6, 1e-6, 7) for _ in range(4)]
    drawn = [draw(each, 1.0, 0.75, keys, 0) for each in (tied, *jittered)]
    assert set(drawn[0]) == set(range(7))
    for each in drawn[1:]:
        assert (each != drawn[0]).sum() <= 1


def test_logits_that_change_a_little_change_few_tokens():
    """Of all couplings of two distributions none differs less often than the total variation; this is near to it."""
    rng = np.random.default_rng(4)
    logits = rng.normal(0, 2, 50)
    edited = logits + rng.normal(0, 0.02, 50)
    keys = np.arange(20_000)
    before, after = (draw(each, 1.0, 1.0, keys, 0) for each in (logits, edited))
    p, q = (np.exp(each) / np.exp(each).sum() for each in (logits, edited))
    variation = np.abs(p - q).sum() / 2
    assert variation * 0.8 < (before != after).mean() < 2.2 * variation
