"""The result of a patching study: how much of the logit difference each patch restores or breaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from lesion.core.values import Summary
from lesion.report.values import Estimate, Value
from lesion.studies.patching.study import Kind, PatchingStudy

Direction = Literal["denoise", "noise"]
DIRECTIONS: tuple[Direction, ...] = ("denoise", "noise")


class PatchedCell(Value):
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

    direction: Direction
    place: Kind
    layer: int
    head: int | None = None
    position: str
    items: int
    effect: Estimate
    log_probability: Estimate


class Example(Value):
    """A pair as text: the two prompts and the answer that is right after each."""

    clean: str
    corrupted: str
    answers: tuple[str, str]


class PatchedTask(Value):
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

    model: str
    task: str
    blocks: int
    layers: tuple[int, ...]
    pairs: int
    left_out: tuple[str, ...]
    clean: Estimate
    corrupted: Estimate
    difference: Estimate
    clean_right: float
    corrupted_right: float
    told: bool
    example: Example
    cells: tuple[PatchedCell, ...]

    def of(self, direction: Direction, place: Kind) -> Sequence[PatchedCell]:
        """The cells of a direction and kind of place."""
        return [cell for cell in self.cells if cell.direction == direction and cell.place == place]

    def at(
        self, direction: Direction, place: Kind, layer: int, position: str, head: int | None = None
    ) -> PatchedCell | None:
        """The cell there; None where no pair has such positions or the block was not patched."""
        cells = self.of(direction, place)
        wanted = (layer, head, position)
        return next((cell for cell in cells if (cell.layer, cell.head, cell.position) == wanted), None)


class PatchingSummary(Summary):
    """All numbers of the study: what `summary.json` holds."""

    kind: Literal["patching"] = "patching"
    study: PatchingStudy
    tasks: tuple[PatchedTask, ...]
