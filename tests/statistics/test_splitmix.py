"""SplitMix64 gives the numbers that are published for it."""

import torch

from lesion.statistics.splitmix import GAMMA, mixed, shifted

# The stream of seed 1234567, by which implementations are compared (Rosetta Code, "Pseudo-random numbers/Splitmix64").
PUBLISHED = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def test_the_stream_of_a_seed_is_the_published_one():
    stream = mixed(1234567 + torch.arange(1, 6) * GAMMA)
    assert [number % (1 << 64) for number in stream.tolist()] == PUBLISHED


def test_a_shift_is_that_of_unsigned_numbers():
    numbers = torch.tensor([-1, -(1 << 63), 5])
    assert shifted(numbers, 60).tolist() == [15, 8, 0]
