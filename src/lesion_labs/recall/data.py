"""Noisy in-context recall: sequences in which one trigger is followed by an answer of its own, or by noise.

Chen, Bruna and Bietti (2025). In every sequence an answer ȳ is drawn uniformly; z_1 ~ π_u; behind a token z_t = q
comes ȳ with probability 1 − α and τ with probability α; behind any other comes z_{t+1} ~ π_b(·|z_t).

A sequence is a function of (seed, purpose, step, index) alone: every number it is drawn by is a hash of these and of
its place. So it does not depend on batches, devices or workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.statistics.splitmix import mixed, shifted
from lesion_labs.recall.language import Language
from lesion_labs.recall.recipe import Recipe

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


def _wrapped(number: int) -> int:
    """An unsigned 64-bit number as the signed one with the same bits."""
    return number - (1 << 64) if number >> 63 else number


_STRIDES = tuple(map(_wrapped, (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7)))


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
