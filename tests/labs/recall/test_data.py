"""Noisy recall's sequences: as the definition says, and the same in whatever batches and order they are made."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion_labs.recall import data
from lesion_labs.recall.data import Batch, Source, generated, uniforms
from lesion_labs.recall.model import Recipe

LANGUAGE = generated(8, 0)
MASK = (1 << 64) - 1


def recipe(noise: float = 0.5, length: int = 24, variant="released", *, own: bool = True, seed: int = 0) -> Recipe:
    return Recipe(vocabulary=8, noise=noise, length=length, variant=variant, own_answers=own, seed=seed)


def same(one: Batch, other: Batch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("tokens", "targets", "questions", "answers")
    )


def mixed(x: int) -> int:
    """SplitMix64's finalizer on Python's unbounded integers."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def number(seed: int, purpose: str, step: int, index: int, column: int) -> float:
    key = int.from_bytes(hashlib.sha256(f"recall {seed} {purpose}".encode()).digest()[:8], "big")
    x = mixed((key + step * 0x9E3779B97F4A7C15) & MASK)
    x = mixed((x + index * 0xD1B54A32D192ED03) & MASK)
    x = mixed((x + (column + 1) * 0x8CB92BA72F3D8DD7) & MASK)
    return (x >> (64 - data.BITS)) / 2**data.BITS


def follows(distribution: np.ndarray, value: float) -> int:
    """The token in whose part of [0, 1) a number falls."""
    total = 0.0
    for token, probability in enumerate(distribution):
        total += probability
        if value < total:
            return token
    return len(distribution) - 1


def naive(task: Recipe, seed: int, purpose: str, step: int, index: int) -> tuple[list[int], list[bool], int]:
    """One sequence by the definition, token by token: T + 1 tokens, where it asks, and ȳ."""
    language = LANGUAGE
    drawn = [number(seed, purpose, step, index, column) for column in range(task.length + 2)]
    choices = list(range(language.vocabulary)) if task.own_answers else list(range(1, language.vocabulary - 1))
    answer = choices[int(drawn[0] * len(choices))]
    tokens = [follows(language.unigram, drawn[1])]
    for place in range(1, task.length + 1):
        if task.variant == "paper" and place == task.length - 1:
            tokens.append(language.trigger)
        elif tokens[-1] == language.trigger:
            tokens.append(language.noise_token if drawn[place + 1] < task.noise else answer)
        else:
            tokens.append(follows(language.bigram[tokens[-1]], drawn[place + 1]))
    questions = []
    for place in range(task.length):
        again = tokens[place] == language.trigger and language.trigger in tokens[:place]
        questions.append(again if task.variant == "released" else place == task.length - 1)
    return tokens, questions, answer


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("own", [True, False])
def test_sequences_are_those_of_the_definition_token_by_token(variant, own):
    of = recipe(0.4, 20, variant, own=own, seed=5)
    made = Source(of, LANGUAGE).draw("training", torch.tensor([0, 0, 7, 7]), torch.tensor([0, 3, 0, 2]))
    for row, (step, index) in enumerate([(0, 0), (0, 3), (7, 0), (7, 2)]):
        tokens, questions, answer = naive(of, 5, "training", step, index)
        assert made.tokens[row].tolist() == tokens[:-1]
        assert made.targets[row].tolist() == tokens[1:]
        assert made.questions[row].tolist() == questions
        assert int(made.answers[row]) == answer


def test_sequences_are_the_same_whatever_the_split_into_batches(monkeypatch):
    source = Source(recipe(seed=1), LANGUAGE)
    whole = list(source.batches("training", 3, 9, 5))
    for at_once in (1, 150, 10**6):
        monkeypatch.setattr(data, "AT_ONCE", at_once)
        assert all(same(one, other) for one, other in zip(whole, source.batches("training", 3, 9, 5), strict=True))
    # A training that begins later meets the same batches.
    assert same(next(source.batches("training", 6, 9, 5)), whole[3])


def test_sequences_are_the_same_for_any_number_of_workers_in_any_order():
    together = Source(recipe(seed=1), LANGUAGE).draw("training", torch.tensor([2] * 30), torch.arange(30))

    def alone(index: int) -> tuple[int, Batch]:
        return index, Source(recipe(seed=1), LANGUAGE).draw("training", torch.tensor([2]), torch.tensor([index]))

    order = random.Random(0).sample(range(30), 30)
    for workers in (1, 4):
        with ThreadPoolExecutor(workers) as pool:
            for index, made in pool.map(alone, order):
                assert torch.equal(made.tokens[0], together.tokens[index])
                assert torch.equal(made.targets[0], together.targets[index])


def test_seed_purpose_step_and_index_each_make_another_sequence():
    def tokens(seed: int, purpose: str, step: int, index: int) -> list[int]:
        return (
            Source(recipe(seed=seed), LANGUAGE)
            .draw(purpose, torch.tensor([step]), torch.tensor([index]))
            .tokens[0]
            .tolist()
        )

    base = (0, "clean", 0, 0)
    others = [(1, "clean", 0, 0), (0, "noisy", 0, 0), (0, "clean", 1, 0), (0, "clean", 0, 1)]
    assert all(tokens(*base) != tokens(*other) for other in others)


@given(st.integers(0, 2**40), st.integers(0, 2**31), st.integers(0, 2**20))
@settings(max_examples=30)
def test_numbers_are_the_hash_of_their_place(seed, step, index):
    made = uniforms(seed, "any", torch.tensor([step]), torch.tensor([index]), 3)
    assert made[0].tolist() == [number(seed, "any", step, index, column) for column in range(3)]


def test_numbers_are_spread_evenly_and_neighbours_know_nothing_of_each_other():
    made = uniforms(0, "even", torch.arange(300), torch.arange(300), 300)
    assert float(made.min()) >= 0
    assert float(made.max()) < 1
    share, error = 1 / 16, (1 / 16 * 15 / 16 / made.numel()) ** 0.5
    assert (torch.histc(made, 16, 0, 1) / made.numel() - share).abs().max() < 5 * error
    for before, after in ((made[:-1], made[1:]), (made[:, :-1], made[:, 1:])):
        correlation = float(torch.corrcoef(torch.stack([before.flatten(), after.flatten()]))[0, 1])
        assert abs(correlation) < 5 / before.numel() ** 0.5


def test_behind_a_trigger_comes_the_answer_or_noise_and_without_noise_the_answer_always():
    for noise in (0.0, 0.35):
        made = Source(recipe(noise, 64, own=False, seed=2), LANGUAGE).sequences("any", 2000)
        rows, places = (made.tokens == LANGUAGE.trigger).nonzero(as_tuple=True)
        behind, answers = made.targets[rows, places], made.answers[rows]
        noisy = behind == LANGUAGE.noise_token
        assert (behind[~noisy] == answers[~noisy]).all()
        error = (noise * (1 - noise) / len(noisy)) ** 0.5
        assert abs(float(noisy.double().mean()) - noise) <= 5 * error


def test_answers_are_uniform_and_exclude_trigger_and_noise_where_asked_to():
    inside = Source(recipe(own=False), LANGUAGE).sequences("any", 6000).answers
    assert sorted(set(inside.tolist())) == list(range(1, 7))
    anything = Source(recipe(own=True), LANGUAGE).sequences("any", 6000).answers
    assert sorted(set(anything.tolist())) == list(range(8))
    for answers, count in ((inside, 6), (anything, 8)):
        shares = torch.bincount(answers, minlength=8)[torch.bincount(answers, minlength=8) > 0] / len(answers)
        assert (shares - 1 / count).abs().max() < 5 * (1 / count / len(answers)) ** 0.5


def test_in_the_papers_variant_the_last_token_is_a_trigger_and_alone_asks():
    made = Source(recipe(variant="paper"), LANGUAGE).sequences("any", 50)
    assert (made.tokens[:, -1] == LANGUAGE.trigger).all()
    assert made.questions[:, -1].all()
    assert made.questions.sum() == 50
