"""Replace: an edit that puts another contribution in the place of what a block or branch adds to the residual stream.

Zero ablation takes a model off the distribution that its later blocks were trained on; a mean or a contribution from
other texts keeps them nearer to it (Wang et al. 2023; Chan et al. 2022; Li and Janson 2024).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lesion.arguments import shown, validated
from lesion.brief import described
from lesion.errors import UsageError, nearest

if TYPE_CHECKING:  # needs torch, as whoever has a reference does
    from torch import Tensor

    from lesion.edits.reference import Reference

KINDS = ("mean", "position", "resample", "optimal")
MOST_DRAWS = 10**9
ADDRESS = re.compile(r"(?P<layer>[0-9]{1,9})(?:\.(?P<unit>attention|mlp))?")


@validated
@dataclass(frozen=True)
class Replace:
    """Put a contribution of a reference in the place of what a block, attention or MLP adds to the residual stream.

    `mean`: the mean over all tokens of the reference, at every position. `position`: at each position the mean over the
    texts of the reference at that position, which makes sense where prompts follow one template; behind the last
    position that enough texts reach, the mean over all tokens. `resample`: at each position what the place added at
    some token of the reference, drawn by a hash of draw and position: the same for every prompt and every place,
    however answers are batched, padded or cached. `optimal`: at every position the constant that hurts the model least
    (Li and Janson 2024), fitted by `lesion.optimal_reference`.

    Args:
        address: of the place: `23`, `23.attention` or `23.mlp`.
        kind: `mean`, `position`, `resample` or `optimal`.
        reference: from `lesion.reference` or `lesion.optimal_reference`, of the same model.
        draw: another number gives another draw of `resample`.

    Raises:
        UsageError: the address is not one of a place, or the reference has nothing of that kind there; or a kind
            other than `resample` is given a draw.
    """

    address: str
    kind: str
    reference: Reference
    draw: int = 0

    def __post_init__(self) -> None:
        from lesion.edits.reference import Reference

        given: object = self.reference
        if not isinstance(given, Reference):
            raise UsageError(f"Replace takes contributions from a reference (lesion.reference), not {shown(given)}.")
        match = ADDRESS.fullmatch(self.address)
        if match is None:
            raise UsageError(
                f"'{self.address}' is not the address of a block or branch; write 23, 23.attention or 23.mlp."
            )
        object.__setattr__(self, "address", f"{int(match['layer'])}{self.address[match.end('layer') :]}")
        if self.kind not in KINDS:
            raise UsageError(
                f"'{self.kind}' is no kind of replacement{nearest(self.kind, KINDS)}; there are {', '.join(KINDS)}."
            )
        if self.address not in given.vectors.get(self.kind, {}):
            there = list(given.vectors.get(self.kind, {}))
            held = f"it has those of {len(there)} places, from {there[0]} to {there[-1]}" if there else ""
            places = _made(self.kind, self.address) if self.kind == "optimal" or not there else held
            raise UsageError(
                f"The reference {given.digest} ({given.label}) has no {self.kind} of {self.address}; {places}."
            )
        if self.kind != "resample" and self.draw:
            raise UsageError(f"The {self.kind} is the same at every draw; leave draw out.")
        if not 0 <= self.draw < MOST_DRAWS:
            raise UsageError(f"Draws are counted from 0; {shown(self.draw)} is not one.")

    @property
    def layer(self) -> int:
        """The block, counted from 0."""
        return int(self.address.partition(".")[0])

    @property
    def unit(self) -> str:
        """`block`, `attention` or `mlp`."""
        return self.address.partition(".")[2] or "block"

    @property
    def vectors(self) -> Tensor:
        """What may be added: [vectors, width], float32; of mean and optimum a single one, of `position` one for each
        position and last that of all later positions.
        """
        return self.reference.vectors[self.kind][self.address]

    def __repr__(self) -> str:
        draw = f", draw={self.draw}" if self.draw else ""
        return described(self, repr(self.address), repr(self.kind), f"{self.reference!r}{draw}")

    def __str__(self) -> str:
        draw = f" {self.draw}" if self.draw else ""
        return f"{self.address}→{self.kind}{draw}@{self.reference.digest}"


def _made(kind: str, address: str) -> str:
    """How a reference is made that has a kind of a place."""
    if kind == "optimal":
        return f"lesion.optimal_reference(model, texts, ['{address}']) fits it"
    return f"lesion.reference(model, texts, kinds='{kind}') makes one"
