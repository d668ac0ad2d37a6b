"""Sampling: from logits to a drawn token by the Gumbel-max trick, with noise that belongs to the item.

A token drawn with probability softmax(logits / temperature) is the one for which logits / temperature + noise is
largest, each token with its own standard Gumbel noise (Gumbel 1954; Maddison et al. 2014). The noise is a function of
the seed, the prompt, the position in the answer and the token id: an item meets the same noise under every edit,
temperature and top_p (common random numbers), on every engine, whoever shares its batch. Rounding changes a drawn token
only where the two largest sums are within rounding of each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lesion.statistics.splitmix import GAMMA, mixed, shifted

SAMPLING = "gumbel"
"""Name of this way of sampling, part of the key of sampled answers: change it when drawn tokens change."""

# Tokens whose logits differ by less count as equally likely where the nucleus ends: more than float32 rounds by.
TIE = 1e-4
# Entries of the noise, rows × vocabulary, that are computed together: what a processor's caches hold.
ENTRIES = 1 << 20


def noise_key(seed: int, prompt: Sequence[int]) -> int:
    """What the noise of one answer is computed from, a signed 64-bit number: a hash of the seed and the prompt.

    Temperature and top_p are no part of it, so that answers at two temperatures are coupled as those under two edits
    are; for independent answers use another seed.
    """
    digest = hashlib.sha256(f"{seed}|".encode() + np.asarray(prompt, dtype=np.int64).tobytes()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def gumbel(
    keys: Int[Tensor, " rows"], positions: Int[Tensor, " rows"], vocabulary: int
) -> Float[Tensor, "rows vocabulary"]:
    """Standard Gumbel noise of every token at one position of each answer, float64.

    SplitMix64 in its splittable form: number `position` of the stream that begins with the key is where a stream over
    the tokens begins. Of number `token` in that stream the upper 52 bits k give u = (k + 1/2) / 2⁵², and the noise is
    −ln(−ln u), between −3.6 and 36.8.
    """
    tokens = torch.arange(1, vocabulary + 1, device=keys.device)
    begins = mixed(keys + (positions + 1) * GAMMA)
    bits = mixed(begins[:, None] + tokens * GAMMA)
    uniform = (shifted(bits, 12).double() + 0.5) * 2.0**-52
    return uniform.log_().neg_().log_().neg_()


def sample(
    logits: Float[Tensor, "rows vocabulary"],
    temperature: Float[Tensor, " rows"],
    top_p: Float[Tensor, " rows"],
    keys: Int[Tensor, " rows"],
    positions: Int[Tensor, " rows"],
) -> Int[Tensor, " rows"]:
    """One token per row, drawn from its nucleus.

    The nucleus is the smallest set of most likely tokens whose probability reaches `top_p` (Holtzman et al. 2020). Here
    a token is inside if the tokens more likely than it, by more than `TIE` in the logits, have less than `top_p`
    together: tokens as likely as its last one are all inside. Rounding decides only at the edges of `top_p` and `TIE`,
    and changes a drawn token only if it was that very token, or would be.

    Args:
        logits: finite in their largest; −inf takes a token away.
        temperature: float64, above 0.
        top_p: float64, in (0, 1].
        keys: from `noise_key`, int64.
        positions: of the token in its answer, from 0.
    """
    size = max(1, ENTRIES // logits.shape[-1])
    parts = zip(*(whole.split(size) for whole in (logits, temperature, top_p, keys, positions)), strict=True)
    return torch.cat([_sample(*part) for part in parts])


def _sample(logits: Tensor, temperature: Tensor, top_p: Tensor, keys: Tensor, positions: Tensor) -> Tensor:
    logits = logits.double()
    # The largest becomes 0 first, for a temperature next to 0 would make it infinite.
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature[:, None]
    scores = gumbel(keys, positions, logits.shape[-1]).add_(scaled)
    tokens = scores.argmax(-1)
    rows = (top_p < 1).nonzero()[:, 0]
    probabilities = scaled[rows].softmax(-1)
    # Who is outside is less likely than all who are inside: the best of those that are more likely comes next. The most
    # likely token is inside, so this ends; and as most of the probability is inside, it ends soon.
    while len(rows):
        least = logits[rows].gather(1, tokens[rows, None])
        outside = (probabilities * (logits[rows] > least + TIE)).sum(-1) >= top_p[rows]
        rows, probabilities, least = rows[outside], probabilities[outside], least[outside]
        tokens[rows] = scores[rows].masked_fill(logits[rows] <= least, float("-inf")).argmax(-1)
    return tokens
