"""Replacing: rows of a batch whose place adds a contribution of a reference instead of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lesion.edits.replace import Replace
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model


def refuse_other_models(replacements: Iterable[Replace], model: Model) -> None:
    """Refuse contributions of another model."""
    for part in replacements:
        if part.reference.fingerprint != model.fingerprint:
            raise UsageError(
                f"'{part}' takes contributions of {part.reference.model} (fingerprint {part.reference.fingerprint}),"
                f" and {model.name} (fingerprint {model.fingerprint}) has other weights: make the reference of this"
                " model with lesion.reference."
            )


def positions_of(args: Sequence[object], kwargs: Mapping[str, Any]) -> Int[Tensor, "_ length"] | None:
    """The position of every token of a forward pass, from the arguments of the network; a single row may stand for all.

    They are `position_ids` where given; else counted over what the mask of the tokens shows, else from the length of
    the cache on. None where the pass has no tokens of its own.
    """
    inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1])
    tokens = next((tensor for tensor in inputs if isinstance(tensor, Tensor)), None)
    if tokens is None:
        return None
    length = tokens.shape[1]
    given, mask, cache = (kwargs.get(key) for key in ("position_ids", "attention_mask", "past_key_values"))
    if isinstance(given, Tensor):
        return given
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]
    past = 0 if cache is None else int(cache.get_seq_length())
    return torch.arange(past, past + length, device=tokens.device)[None]


class Vectors:
    """Vectors of replacements on the devices that add them, as long as the gates of a model hang there."""

    def __init__(self) -> None:
        self._on: dict[tuple[str, str, str, int, torch.device], Tensor] = {}
        self._put: Mapping[Replace, Tensor] = {}

    def put(self, vectors: Mapping[Replace, Tensor]) -> None:
        """Give these vectors for the replacements named, with their gradients, in the place of a reference's."""
        self._put = vectors

    def of(self, part: Replace, device: torch.device) -> Float[Tensor, "positions width"]:
        """What a replacement adds at each position, float32; the last at all later positions too."""
        if part in self._put:
            return self._put[part].to(device)
        key = (part.reference.digest, part.kind, part.address, part.draw, device)
        if key not in self._on:
            self._on[key] = part.vectors.to(device)
        return self._on[key]


class Replacing:
    """What the rows of a batch put at one place under one assignment.

    Args:
        numbers: of every row, which of `replacements` it has; below 0, none.
        everywhere: whether the only row stands for all rows of any batch.
    """

    def __init__(
        self, numbers: Int[Tensor, " rows"], replacements: Sequence[Replace], everywhere: bool, vectors: Vectors
    ) -> None:
        self._vectors = vectors
        self._everywhere = everywhere
        chosen = sorted({number for number in numbers.tolist() if number >= 0})
        self._rows = [(replacements[number], (numbers == number).nonzero()[:, 0]) for number in chosen]
        self.positional = any(part.vectors.shape[0] > 1 for part, _ in self._rows)

    def __call__(
        self,
        output: Float[Tensor, "rows length width"],
        before: Float[Tensor, "rows length width"] | None,
        positions: Int[Tensor, "_ _"] | None,
    ) -> Float[Tensor, "rows length width"]:
        """What comes out of the place: each replaced row's vectors, on top of `before` where that is given.

        The sum is taken in float32 at least and rounded once to the dtype of `output`, which is overwritten.
        """
        dtype = torch.promote_types(output.dtype, torch.float32)
        for part, rows in self._rows:
            vectors = self._vectors.of(part, output.device).to(dtype)
            chosen = slice(None) if self._everywhere else rows.to(output.device)
            if len(vectors) > 1:
                at = _at(positions, output).to(output.device)
                at = at if len(at) == 1 or self._everywhere else at[chosen]
                vectors = vectors[at.clamp(0, len(vectors) - 1)]
            added = vectors if before is None else before[chosen].to(dtype) + vectors
            output[chosen] = added.to(output.dtype)
        return output


def _at(positions: Tensor | None, output: Tensor) -> Tensor:
    """Positions of the tokens of a place: counted from 0 where no pass of the network told them."""
    rows, length = output.shape[:2]
    if positions is None:
        return torch.arange(length)[None]
    if positions.shape[1] != length or positions.shape[0] not in (1, rows):
        raise LesionError(
            f"Positions of {list(positions.shape)} came with {rows} rows of {length} tokens, so that no contributions"
            " can be chosen for them; give position_ids of the same shape as the tokens."
        )
    return positions
