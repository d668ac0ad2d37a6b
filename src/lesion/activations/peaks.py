"""Peaks: the largest values that flow into and out of every down projection of a model on some texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.activations.batching import budget_of, longest_first, run_in_batches
from lesion.activations.observation import TOKENS_ON_ACCELERATOR, TOKENS_ON_CPU
from lesion.activations.readers import probe, stopped_at_head
from lesion.activations.token_sums import Batch, by_row
from lesion.edits.selections.neurons import BEGINNINGS
from lesion.engines.checking import check_texts
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.models.owner import observing


@dataclass(frozen=True, eq=False)
class Peaks:
    """Largest magnitudes over all tokens of all texts, for one down projection: float32, on the CPU.

    Attributes:
        inputs: max_t |X_tj| of every input channel j.
        outputs: max_t |Y_ti| of every output channel i, a bias included.
    """

    inputs: Float[Tensor, " in"]
    outputs: Float[Tensor, " out"]


@observing("observed peaks", unedited=False)
def observe_peaks(model: Model, texts: Sequence[Sequence[int]], *, batch_tokens: int | None = None) -> dict[str, Peaks]:
    """The peaks of every matrix that ends a feed-forward branch (`down`, or `out`), by address, in one pass.

    Left out are those whose input or output is not one vector per token, as of routed experts.
    """
    budget = budget_of(model, batch_tokens, TOKENS_ON_CPU, TOKENS_ON_ACCELERATOR)
    check_texts(model, texts)
    places = [place for place in probe(model, texts).dense if _ends_branch(place.input.readers)]
    current: list[Batch] = []
    largest: dict[str, tuple[Tensor, Tensor]] = {}

    def watch(address: str, size: int) -> Callable[..., None]:
        rows, _ = model.anatomy.scored[address].shape

        def hook(module: nn.Module, args: tuple[object, ...], output: object) -> None:
            given = args[0] if args else None
            if not (isinstance(given, Tensor) and isinstance(output, Tensor)):
                return
            values = (by_row(given, current[0], size), by_row(output, current[0], rows))
            if values[0] is None or values[1] is None:
                return
            mask = current[0].mask(given.device)
            peaks = [value.abs()[mask].amax(0).float().cpu() for value in values if value is not None]
            before = largest.get(address, (torch.zeros(size), torch.zeros(rows)))
            largest[address] = (torch.maximum(before[0], peaks[0]), torch.maximum(before[1], peaks[1]))

        return hook

    def begin(numbers: list[int]) -> None:
        current[:] = [Batch(tuple(len(texts[number]) for number in numbers), len(texts[numbers[0]]))]

    with ExitStack() as stack:
        for place in places:
            hook = watch(place.input.key, place.input.size)
            stack.callback(place.module.register_forward_hook(hook).remove)
        stack.enter_context(torch.inference_mode())
        run = stack.enter_context(stopped_at_head(model))
        run_in_batches(model, texts, longest_first(texts), budget, run, begin, lambda numbers: None)
    if not largest:
        raise LesionError(f"What flows through the down projections of {model.name} cannot be followed.")
    for address, pair in largest.items():
        if not all(bool(peaks.isfinite().all()) for peaks in pair):
            raise LesionError(
                f"What flows through {address} of {model.name} is not finite; load the model in bfloat16 or float32."
            )
    return {address: Peaks(*pair) for address, pair in largest.items()}


def _ends_branch(readers: Sequence[str]) -> bool:
    """Whether an input is read by one matrix alone, the last of a feed-forward branch."""
    if len(readers) != 1:
        return False
    _, _, name = readers[0].partition(".")
    return name.startswith("mlp.") and name.rpartition(".")[2] in BEGINNINGS
