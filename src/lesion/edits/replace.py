"""Replace: an edit that puts another contribution in the place of what a block, branch or query head gives.

Zero ablation takes a model off the distribution that its later blocks were trained on; a mean or a contribution from
other texts keeps them nearer to it (Wang et al. 2023; Chan et al. 2022; Li and Janson 2024).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from lesion.arguments import shown, validated
from lesion.edits.place import address
from lesion.errors import UsageError, nearest
from lesion.plain import short
from lesion.reprs import described

if TYPE_CHECKING:  # needs torch, as whoever has a reference does
    from torch import Tensor

    from lesion.edits.reference import Reference

ReplacedUnit = Literal["block", "attention", "mlp", "head"]
REPLACED_UNITS: tuple[ReplacedUnit, ...] = get_args(ReplacedUnit)
"""What a contribution of a reference can replace."""
KINDS = ("mean", "position", "resample", "optimal")
ADDRESS = re.compile(r"(?P<layer>[0-9]{1,9})(?:\.(?P<unit>attention|mlp))?")
HEAD = re.compile(r"(?P<layer>[0-9]{1,9})\.attention\.head\.(?P<head>[0-9]{1,9})")


def place_of(address: str) -> tuple[int, ReplacedUnit, int | None]:
    """Block, unit (`block`, `attention`, `mlp` or `head`) and number of the head of what can be replaced."""
    if (match := ADDRESS.fullmatch(address)) is not None:
        unit: ReplacedUnit = match["unit"] or "block"  # type: ignore[assignment]
        return int(match["layer"]), unit, None
    if (match := HEAD.fullmatch(address)) is not None:
        return int(match["layer"]), "head", int(match["head"])
    raise UsageError(
        f"'{short(address)}' is not the address of a block, branch or query head, which are all that can be replaced;"
        " write 23, 23.attention, 23.mlp or 23.attention.head.4."
    )


@validated
@dataclass(frozen=True)
class Replace:
    """Put a contribution of a reference in the place of what a block, attention or MLP adds to the residual stream, or
    of what a query head gives at the input of the attention's output matrix.

    `mean`: the mean over the tokens of the reference's texts, where the first token of a text has a mean of its own:
    many models keep activations there that are a thousand times larger than elsewhere (Sun et al. 2024, massive
    activations). `position`: at each position the mean over the texts at that position, which makes sense where prompts
    follow one template; behind the last position that enough texts reach, the mean over all tokens but the first.
    `resample`: what the place added at the same position of another text, one text of the reference for each draw, the
    same for every prompt and every place, however answers are batched, padded or cached. `optimal`: the constant that
    hurts the model least (Li and Janson 2024), fitted by `lesion.optimal_reference`, and the mean at the first token.

    Attention adds W_O [head_0; head_1; …] + b: head_h is replaced before W_O mixes it with the others (as in the mean
    ablation of Wang et al. 2023, section 2.2), so that the other heads and the bias b stay.

    Args:
        address: of the place: `23`, `23.attention`, `23.mlp` or `23.attention.head.4`.
        kind: `mean`, `position`, `resample` or `optimal`.
        reference: from `lesion.reference` or `lesion.optimal_reference`, of the same model.
        draw: number of the text of `resample`.
        name: text form of the edit, where its reference is one of several that stand for one (`lesion.studies`).

    Raises:
        UsageError: the address is not one of a place, or the reference has nothing of that kind there, or no text of
            that number; or a kind other than `resample` is given a draw.
    """

    address: str
    kind: str
    reference: Reference
    draw: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        from lesion.edits.reference import Reference

        given: object = self.reference
        if not isinstance(given, Reference):
            raise UsageError(f"Replace takes contributions from a reference (lesion.reference), not {shown(given)}.")
        object.__setattr__(self, "address", address(*place_of(self.address)))
        if self.kind not in KINDS:
            raise UsageError(
                f"'{self.kind}' is no kind of replacement{nearest(self.kind, KINDS)}; there are {', '.join(KINDS)}."
            )
        if self.address not in given.vectors.get(self.kind, {}):
            alike = [place for place in given.vectors.get(self.kind, {}) if place_of(place)[1] == self.unit]
            held = f"it has those of {len(alike)} places, from {alike[0]} to {alike[-1]}" if alike else ""
            places = _made(self.kind, self.address) if self.kind == "optimal" or not alike else held
            raise UsageError(
                f"The reference {given.digest} ({given.label}) has no {self.kind} of {self.address}; {places}."
            )
        if self.kind != "resample" and self.draw:
            raise UsageError(f"The {self.kind} is the same at every draw; leave draw out.")
        if self.kind == "resample" and not 0 <= self.draw < len(given.texts):
            raise UsageError(
                f"Draw {shown(self.draw)} is none of the reference {given.digest}: it has {len(given.texts)} texts,"
                f" counted from 0; lesion.reference(…, draws={max(self.draw, 0) + 1}) takes more."
            )

    @property
    def layer(self) -> int:
        """The block, counted from 0."""
        return place_of(self.address)[0]

    @property
    def unit(self) -> ReplacedUnit:
        """`block`, `attention`, `mlp` or `head`."""
        return place_of(self.address)[1]

    @property
    def head(self) -> int | None:
        """The number of the query head; None of a block or branch."""
        return place_of(self.address)[2]

    @property
    def vectors(self) -> Tensor:
        """What is put at each position, the last at all later positions too: [positions, width], of a head [positions,
        size of a head], float32.
        """
        held = self.reference.vectors[self.kind][self.address]
        return held[self.reference.tokens_of(self.draw)] if self.kind == "resample" else held

    def __repr__(self) -> str:
        draw = f", draw={self.draw}" if self.draw else ""
        return described(self, repr(self.address), repr(self.kind), f"{self.reference!r}{draw}")

    def __str__(self) -> str:
        if self.name:
            return self.name
        draw = f" {self.draw}" if self.draw else ""
        return f"{self.address}→{self.kind}{draw}@{self.reference.digest}"


def _made(kind: str, address: str) -> str:
    """How a reference is made that has a kind of a place."""
    if kind == "optimal":
        return f"lesion.optimal_reference(model, texts, ['{address}']) fits it"
    units = ", units='head'" if HEAD.fullmatch(address) else ""
    return f"lesion.reference(model, texts, kinds='{kind}'{units}) makes one of a place that is one module"
