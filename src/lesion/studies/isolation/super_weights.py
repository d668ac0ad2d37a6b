"""Super weights: the few weights with the largest activation spikes, and which selections hold them.

Yu et al. (2024, arXiv 2411.07191) find a super weight in one forward pass: in a block where both the input
and the output of the down projection have an extreme maximum, it is the weight that joins these two channels. Here the
weights of all down projections are ranked by the largest product with their input, |W_ij| · max_t |X_tj|, and the first
so many are taken. The paper's weight comes first where it makes the spike, and several of one block are found as well.
There is no threshold, so that rather too many are taken than too few; `spike` marks those of the paper's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lesion.activations.calibration import Calibration
from lesion.activations.peaks import Peaks, observe_peaks
from lesion.edits.selections.listed import Listed
from lesion.models.load import Model
from lesion.studies.isolation.result import SuperWeight
from lesion.studies.isolation.selections import Made

NAME = "super-weights"
TEXTS = 16
"""Calibration texts of each task that are read for the spikes; the paper reads one prompt."""


@dataclass(frozen=True)
class SuperWeights:
    """The super weights of a model, largest product first, and the blocks that could not be searched."""

    weights: tuple[SuperWeight, ...]
    unsearched: tuple[int, ...]

    @property
    def selection(self) -> Listed:
        """They as a selection, which can be taken away from others and cut alone."""
        return Listed(tuple(each.name for each in self.weights), NAME)

    def held_by(self, made: Sequence[Made], model: Model) -> list[tuple[int, ...]]:
        """Of every selection those that it holds, by their places in `weights`."""
        held: list[list[int]] = [[] for _ in made]
        for address in dict.fromkeys(each.address for each in self.weights):
            weight = model.anatomy.scored[address].read()
            for places, each in zip(held, made, strict=True):
                mask = each.selection.mask(address, weight)
                places += [
                    place
                    for place, own in enumerate(self.weights)
                    if own.address == address and bool(mask[own.row, own.column])
                ]
        return [tuple(sorted(places)) for places in held]


def find_super_weights(
    model: Model, texts: Mapping[str, Calibration], number: int, observed: Model | None = None
) -> SuperWeights:
    """The weights of down projections with the largest products with their input.

    Args:
        model: whose weights they are.
        texts: by data set; the first `TEXTS` of each are read.
        number: how many.
        observed: the model whose activations are read, where that is another: its quantised form.
    """
    read = [text for drawn in texts.values() for text in drawn.texts[:TEXTS]]
    peaks = observe_peaks(observed or model, read)
    searched = {int(address.partition(".")[0]) for address in peaks}
    unsearched = tuple(block.index for block in model.anatomy.blocks if block.index not in searched)
    return SuperWeights(tuple(ranked(model, peaks, number)), unsearched)


def ranked(model: Model, peaks: Mapping[str, Peaks], number: int) -> list[SuperWeight]:
    """The `number` weights of largest |W_ij| · max_t |X_tj| of all matrices with known peaks."""
    candidates: list[SuperWeight] = []
    for address, peak in peaks.items():
        weight = model.anatomy.scored[address].read()
        products = weight.abs().float() * peak.inputs.to(weight.device)
        row_of_spike, column_of_spike = int(peak.outputs.argmax()), int(peak.inputs.argmax())
        largest = products.flatten().topk(min(number, products.numel()))
        block, _, matrix = address.partition(".")
        for product, place in zip(largest.values.tolist(), largest.indices.tolist(), strict=True):
            row, column = divmod(place, weight.shape[1])
            candidates.append(
                SuperWeight(
                    block=int(block),
                    matrix=matrix,
                    row=row,
                    column=column,
                    value=float(weight[row, column]),
                    product=product,
                    largest_input=float(peak.inputs[column]),
                    largest_output=float(peak.outputs[row]),
                    spike=(row, column) == (row_of_spike, column_of_spike),
                )
            )
    return sorted(candidates, key=lambda each: (-each.product, each.block, each.row, each.column))[:number]
