"""Bands: rows of a batch that hold about as many tokens are attended to together.

All rows of a batch share one window of keys and values, as wide as its longest row needs (`slots.py`). Attention at one
token per row is little more than reading that window, and what it reads of a short row is mostly masked. So the rows
are cut into bands of neighbours, and each band attends only to the columns that its own longest row holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# Bands begin at multiples of so many rows.
ROWS = 32
# Masked columns, times rows, that two neighbouring bands read rather than have a call each. Of 200, 500 and 2,000, the
# second is quickest by a little.
WORTH = 512
# transformers' name of the attention whose call is cut up.
CUT = "sdpa"

Attend = Callable[..., tuple[Tensor, Tensor | None]]


class Band(NamedTuple):
    """Rows `start … stop` of a batch, the longest of which holds `width` tokens."""

    start: int
    stop: int
    width: int


def bands(lengths: Sequence[int]) -> list[Band]:
    """Rows of these lengths as bands, in their order."""
    found: list[Band] = []
    for start in range(0, len(lengths), ROWS):
        part = lengths[start : start + ROWS]
        band = Band(start, start + len(part), max(part))
        if found:
            before = found[-1]
            both = Band(before.start, band.stop, max(before.width, band.width))
            if _cells(both) - _cells(before) - _cells(band) <= WORTH:
                found.pop()
                band = both
        found.append(band)
    return found


def _cells(band: Band) -> int:
    return (band.stop - band.start) * band.width


def can_cut(config: PretrainedConfig) -> bool:
    """Whether a network of this configuration attends by the function that `by_bands` cuts up."""
    return getattr(config, "_attn_implementation", None) == CUT


@contextmanager
def by_bands(cut: Sequence[Band]) -> Iterator[None]:
    """While inside, passes of this thread over one token of every row attend band by band.

    Calls of other shapes, without a mask or with a bias of positions, are left as they are. Nothing is changed for
    those who come after: the function that attended before does so again, however the `with` ends.
    """
    rows, width = cut[-1].stop, max(band.width for band in cut)
    here = threading.get_ident()
    attend: Attend = ALL_ATTENTION_FUNCTIONS[CUT]

    def cut_up(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        shape = (*query.shape[:1], *query.shape[2:3], *key.shape[2:3])
        fits = attention_mask is not None and tuple(attention_mask.shape[-4::3]) == (rows, width)
        biased = args or kwargs.get("position_bias") is not None
        if shape != (rows, 1, width) or not fits or biased or threading.get_ident() != here:
            return attend(module, query, key, value, attention_mask, *args, **kwargs)
        assert attention_mask is not None
        outputs = []
        for start, stop, held in cut:
            first = width - held
            output, _ = attend(
                module,
                query[start:stop],
                key[start:stop, :, first:],
                value[start:stop, :, first:],
                attention_mask[start:stop, ..., first:],
                **kwargs,
            )
            outputs.append(output)
        return torch.cat(outputs), None

    replaced = ALL_ATTENTION_FUNCTIONS._local_mapping.get(CUT)
    ALL_ATTENTION_FUNCTIONS[CUT] = cut_up
    try:
        yield
    finally:
        if replaced is None:
            del ALL_ATTENTION_FUNCTIONS[CUT]
        else:
            ALL_ATTENTION_FUNCTIONS[CUT] = replaced
