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
    merged: list[Band] = []
    for start in range(0, len(lengths), ROWS):
        part = lengths[start : start + ROWS]
        band = Band(start, start + len(part), max(part))
        if merged:
            before = merged[-1]
            both = Band(before.start, band.stop, max(before.width, band.width))
            if _cells(both) - _cells(before) - _cells(band) <= WORTH:
                merged.pop()
                band = both
        merged.append(band)
    return merged


def _cells(band: Band) -> int:
    return (band.stop - band.start) * band.width


def can_cut(config: PretrainedConfig) -> bool:
    """Whether a network of this configuration attends by the function that `by_bands` cuts up."""
    return getattr(config, "_attn_implementation", None) == CUT


# Holds the bands of the present thread as `cut`, while something is cut.
_here = threading.local()
_lock = threading.Lock()
# The attention functions that were there, the last of them in use while nothing is cut; and how many threads cut now.
_stock: list[Attend] = []
_cutting = 0


@contextmanager
def by_bands(cut: Sequence[Band]) -> Iterator[None]:
    """While inside, passes of this thread over one token of every row attend band by band.

    Calls of other shapes, without a mask or with a bias of positions are left as they are, and so are other threads.
    The attention function from before is back afterwards.
    """
    _install()
    _here.cut = cut
    try:
        yield
    finally:
        _here.cut = ()
        _take_away()


def _install() -> None:
    global _cutting
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # takes seconds to load

    with _lock:
        if not _cutting:
            _stock[:] = [ALL_ATTENTION_FUNCTIONS[CUT]]
            ALL_ATTENTION_FUNCTIONS[CUT] = _attend
        _cutting += 1


def _take_away() -> None:
    global _cutting
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    with _lock:
        _cutting -= 1
        if not _cutting:
            del ALL_ATTENTION_FUNCTIONS[CUT]  # what is registered for all comes to light again
            if ALL_ATTENTION_FUNCTIONS[CUT] is not _stock[0]:
                ALL_ATTENTION_FUNCTIONS[CUT] = _stock[0]


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *args: Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    attend, cut = _stock[0], getattr(_here, "cut", ())
    if not cut or args or attention_mask is None or kwargs.get("position_bias") is not None:
        return attend(module, query, key, value, attention_mask, *args, **kwargs)
    rows, width = cut[-1].stop, max(band.width for band in cut)
    shapes = (*query.shape[::2][:2], *key.shape[::2][:2], attention_mask.shape[0], attention_mask.shape[-1])
    if shapes != (rows, 1, rows, width, rows, width):
        return attend(module, query, key, value, attention_mask, **kwargs)
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
