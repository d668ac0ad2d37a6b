"""The result of a patching study: how much of the logit difference each patch restores or breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lesion.core.values import ModelAndTask, Summary
from lesion.report.rows import Row, column, derived
from lesion.report.values import NATS, SHARE, WHOLE_SHARE, Estimate, Value, decimals
from lesion.studies.patching.study import Kind, PatchingStudy

Direction = Literal["denoise", "noise"]
DIRECTIONS: tuple[Direction, ...] = ("denoise", "noise")

HALF = 0.5
"""From this share of the difference on, a place is said to carry the answer."""
PLACES: dict[Kind, str] = {
    "block": "Residual stream after the block",
    "attention": "What the attention adds",
    "mlp": "What the MLP adds",
    "head": "What a head gives",
}
"""Kinds of place as a heading names them."""


class PatchedCell(Row):
    """One place × class of positions, in one direction.

    Attributes:
        direction: `denoise` puts clean values into the corrupted run, `noise` corrupted values into the clean run.
        place: the residual stream after a block, what its attention or its MLP adds, or what a query head gives at the
            input of the attention's output matrix; head: its number.
        position: a class of positions (`POSITIONS`).
        items: pairs that have such positions.
        effect: the share of the mean logit difference between the two runs that the patch moves the logit difference
            by: 0 nothing, 1 all of it. The test is Student's on the items; corrected over all cells of model and task.
        log_probability: how much it moves the log-probability of the clean prompt's answer, in nats: a rise for
            `denoise`, a fall for `noise`.
    """

    direction: Direction = column("Direction", label=True)
    place: Kind = column("Place", label=True)
    layer: int = column("Block", label=True)
    head: int | None = column("Head", default=None, label=True)
    position: str = column("Position", label=True)
    items: int = column("Pairs")
    effect: Estimate = column("Effect", SHARE, p="p")
    log_probability: Estimate = column("Log-probability", NATS)

    @property
    def is_shown(self) -> bool:
        """Whether the effect is beyond chance after correction over all cells."""
        return self.effect.is_shown

    @property
    def carries(self) -> bool:
        """Whether it is shown to move at least half of the difference; of a head, anything."""
        return self.is_shown and (self.place == "head" or (self.effect.low or 0.0) >= HALF)

    @property
    def kind(self) -> str:
        """Its kind of place as a heading."""
        return PLACES[self.place]

    @property
    def size(self) -> float:
        """The effect without its sign."""
        return abs(self.effect.value or 0.0)


class Example(Value):
    """A pair as text: the two prompts and the answer that is right after each."""

    clean: str
    corrupted: str
    answers: tuple[str, str]


class PatchedTask(ModelAndTask):
    """One model on one task.

    Attributes:
        layers: the blocks that were patched; blocks: how many the model has.
        pairs: items with a corrupted prompt of their length; left_out: ids of the others.
        clean, corrupted: mean logit difference, right − tempting, of either run; difference: of the first minus the
            second, by which effects are divided.
        clean_right: share of pairs whose clean run prefers the right token; corrupted_right: whose corrupted run
            prefers the other one, which is right there.
        told: whether where the answer is carried can be told: the difference is above 0 by its interval, and more than
            half of the clean runs prefer the right token.
    """

    blocks: int
    layers: tuple[int, ...]
    pairs: int = column("Pairs")
    left_out: tuple[str, ...]
    clean: Estimate = column("Clean", decimals(2))
    corrupted: Estimate = column("Corrupted", decimals(2))
    difference: Estimate
    clean_right: float = column("Clean run right", WHOLE_SHARE)
    corrupted_right: float = column("Corrupted run right", WHOLE_SHARE)
    told: bool
    example: Example
    cells: tuple[PatchedCell, ...]

    @derived.column("Left out", key="left_out")
    def items_left_out(self) -> int:
        """Items without a corrupted prompt of their length."""
        return len(self.left_out)

    def of(self, direction: Direction, place: Kind) -> Sequence[PatchedCell]:
        """The cells of a direction and kind of place."""
        return [cell for cell in self.cells if cell.direction == direction and cell.place == place]


class PatchingSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["patching"] = "patching"
    study: PatchingStudy
    tasks: tuple[PatchedTask, ...]
