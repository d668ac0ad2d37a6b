"""Observation: one pass over calibration texts sums up what flows into every matrix of a model.

Text i sends X_i [tokens, in] into a matrix, of which s_ij = Σ_t X_i[t, j]² is kept, in float64. A draw adds up √s_ij
(Christ et al. 2024, section 3) and s_ij (Sun et al. 2023, eq. 1) over its texts, in float64, and is rounded to float32
once. Padding never enters.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lesion.activations.batching import budget_of, longest_first, run_in_batches
from lesion.activations.calibration import Calibration
from lesion.activations.readers import Input, probe
from lesion.activations.token_sums import Batch, TextSums, by_row
from lesion.arguments import validated
from lesion.atomic import replace
from lesion.edits.selections.inputs import Inputs, InputSums, Provenance
from lesion.edits.selections.neurons import BEGINNINGS
from lesion.engines.checking import check_texts
from lesion.errors import LesionError
from lesion.models.load import Model
from lesion.models.owner import observing
from lesion.progress import Silent, Watcher


class Partial:
    """Sums per input and draw, float64; those of a batch are gathered by `take` and added by `commit`.

    Attributes:
        texts: how many texts, in the order of the observation, are in the sums.
        unseen: keys of inputs that some batch did not show once, as the probe did; their sums mean nothing.
    """

    WORDS: ClassVar[tuple[str, ...]] = ("norms", "squares", "tokens", "active")

    def __init__(self, inputs: Sequence[Input], draws: int) -> None:
        self.texts = 0
        self.unseen: set[str] = set()
        self.sums: dict[str, Tensor] = {}
        self._pending: set[str] = set()
        self._times: dict[torch.device, Tensor] = {}
        for place in inputs:
            for word in self.WORDS if place.counted else self.WORDS[:3]:
                size = () if word == "tokens" else (place.size,)
                self.sums[f"{place.key}/{word}"] = torch.zeros(draws, *size, dtype=torch.float64, device=place.device)
        # Sums of the running batch lie in memory of their own from the start: small pieces that are taken between large
        # activations keep the allocator from using these again, which took many times the memory of a matrix.
        self._space = {name: torch.empty_like(values) for name, values in self.sums.items()}

    def begin(self, times: Float[Tensor, "draws rows"]) -> None:
        """A batch starts: how many times every draw uses its texts."""
        self._pending.clear()
        self._times = {times.device: times}

    def take(self, key: str, sums: TextSums) -> None:
        """Sums of the texts of the batch for one input."""
        parts: dict[str, Tensor | None] = {"squares": sums.squares, "tokens": sums.tokens, "active": sums.active}
        if sums.squares is not None:
            parts["norms"] = sums.squares.sqrt()
        for word, values in parts.items():
            if values is not None:
                name = f"{key}/{word}"
                if name in self._pending:  # twice in one pass: not what the probe saw
                    self.unseen.add(key)
                self._pending.add(name)
                if values.device not in self._times:
                    self._times[values.device] = next(iter(self._times.values())).to(values.device)
                torch.matmul(self._times[values.device], values, out=self._space[name])

    def commit(self, texts: int) -> None:
        """Add the batch of so many texts; inputs that it did not show as the probe did are `unseen` from now on."""
        for name in self._pending:
            self.sums[name] += self._space[name]
        self.texts += texts
        self.unseen |= {name.rpartition("/")[0] for name in self.sums.keys() - self._pending}

    def save(self, path: Path, identity: str) -> None:
        """Write the sums to a file, wholly or not at all."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            tensors = {name: values.cpu() for name, values in self.sums.items()}
            header = {"identity": identity, "texts": str(self.texts), "unseen": json.dumps(sorted(self.unseen))}
            replace(path, save(tensors, metadata=header))
        except (OSError, SafetensorError) as error:
            raise LesionError(
                f"What was observed so far cannot be kept in {path}: {error}. Name a place that can be written."
            ) from error

    def resume(self, path: Path, identity: str) -> None:
        """Go on from a file that `save` wrote for the same observation; any other file changes nothing."""
        try:
            with safe_open(path, "pt") as file:
                header: Mapping[str, str] = file.metadata() or {}
                if header.get("identity") != identity or set(file.keys()) != set(self.sums):
                    return
                texts, unseen = int(header["texts"]), set(json.loads(header["unseen"]))
                stored = {name: file.get_tensor(name) for name in self.sums}
        except (OSError, SafetensorError, KeyError, ValueError):
            return
        if all(stored[name].shape == own.shape and stored[name].dtype == own.dtype for name, own in self.sums.items()):
            self.texts, self.unseen = texts, unseen
            self.sums = {name: values.to(self.sums[name].device) for name, values in stored.items()}


# Tokens of a batch, padding included: more make a pass over it longer and not the work shorter.
TOKENS_ON_ACCELERATOR = 32_768
TOKENS_ON_CPU = 4_096
SECONDS_BETWEEN_SAVES = 20.0


@validated
@observing("observed inputs", unedited=True)
def observe(
    model: Model,
    calibration: Calibration,
    *,
    batch_tokens: int | None = None,
    watcher: Watcher | None = None,
    progress: Path | None = None,
) -> tuple[Inputs, ...]:
    """Sum up what flows into every matrix of `model.anatomy.scored`, for every draw, in one pass over the texts.

    A matrix whose input cannot be followed (its module is not called exactly once in a pass, or with something other
    than one vector per token) is not among the readers of the result.

    Args:
        model: which is only read.
        calibration: the texts and which draw uses which.
        batch_tokens: the most tokens of a batch, padding included; a longer text is a batch of its own.
        watcher: who is told how it goes.
        progress: a file of partial sums, from which a later call with the same model and calibration goes on. It is
            removed at the end.

    Returns:
        For every draw of the calibration, in order, its sums; vectors on the CPU.

    Raises:
        UsageError: `batch_tokens` is below 1.
        LesionError: no input of any matrix can be followed, a value was not finite, the network does not know a token
            of the texts, memory does not suffice for one text, or `progress` cannot be written.
    """
    budget = budget_of(model, batch_tokens, TOKENS_ON_CPU, TOKENS_ON_ACCELERATOR)
    watcher = watcher or Silent()
    texts = calibration.texts
    check_texts(model, texts)
    readers = probe(model, texts)
    if not readers.inputs:
        raise LesionError(f"What flows into the matrices of {model.name} cannot be followed; it cannot be observed.")
    identity = _identity(model, calibration, readers.inputs)
    partial = Partial(readers.inputs, len(calibration.draws))
    if progress is not None:
        partial.resume(progress, identity)
    times = _times(calibration)
    # Batches begin anew where an earlier call stopped: at the same ends.
    order = longest_first(texts)
    watcher.begin(model.name, len(order), partial.texts, f"texts of {calibration.data}")
    saved = time.monotonic()
    current: list[Batch] = []

    def begin(places: list[int], batch: Batch) -> None:
        current[:] = [batch]
        partial.begin(times[:, places])

    def end(places: list[int]) -> None:
        nonlocal saved
        partial.commit(len(places))
        watcher.answered(len(places))
        if progress is not None and partial.texts < len(order) and time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            partial.save(progress, identity)
            saved = time.monotonic()

    with readers.watched(lambda: current[0], partial.take):
        run_in_batches(model, texts, budget, begin, end, order[partial.texts :])
    kept = [place for place in readers.inputs if place.key not in partial.unseen]
    inputs = tuple(_inputs(model, calibration, number, partial, kept) for number in range(len(calibration.draws)))
    if progress is not None:
        with suppress(OSError):
            progress.unlink()
    return inputs


def _times(calibration: Calibration) -> Tensor:
    """How many times a draw uses a text: [draws, texts], float64."""
    times = torch.zeros(len(calibration.draws), len(calibration.texts), dtype=torch.float64)
    for row, draw in zip(times, calibration.draws, strict=True):
        row += torch.bincount(torch.tensor(draw.places), minlength=len(row))
    return times


def _identity(model: Model, calibration: Calibration, inputs: Sequence[Input]) -> str:
    draws = [draw.places for draw in calibration.draws]
    parts = (model.fingerprint, calibration.texts, draws, [(place.key, place.size, place.counted) for place in inputs])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _inputs(model: Model, calibration: Calibration, number: int, partial: Partial, kept: Sequence[Input]) -> Inputs:
    sums = {}
    for place in kept:
        norms, squares, tokens = (partial.sums[f"{place.key}/{word}"][number].cpu() for word in Partial.WORDS[:3])
        if not bool((norms.float().isfinite() & squares.float().isfinite()).all()):
            raise LesionError(
                f"What flows into {', '.join(place.readers)} of {model.name} is not finite on the calibration texts;"
                f" load the model in bfloat16 or float32."
            )
        active = partial.sums[f"{place.key}/active"][number].cpu().long() if place.counted else None
        sums[place.key] = InputSums(norms.float(), squares.float(), int(tokens), active)
    draw = calibration.draws[number]
    provenance = Provenance(
        model.name,
        model.fingerprint,
        calibration.data,
        calibration.seed,
        draw.repeat,
        calibration.replacement,
        tuple(calibration.ids[place] for place in draw.places),
        sum(calibration.cut[place] for place in draw.places),
        calibration.style,
    )
    return Inputs(
        sums,
        {address: place.key for place in kept for address in place.readers},
        len(draw.places),
        sum(len(calibration.texts[place]) for place in draw.places),
        (provenance,),
    )


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
    ends = re.compile(rf"\d+\.mlp\.(.*\.)?({'|'.join(BEGINNINGS)})")
    dense = probe(model, texts).dense  # read by one matrix alone, the last of a feed-forward branch
    places = [place for place in dense if len(place.input.readers) == 1 and ends.fullmatch(place.input.key)]
    current: list[Batch] = []
    largest: dict[str, tuple[Tensor, Tensor]] = {}

    def watch(address: str, size: int) -> Callable[..., None]:
        rows, _ = model.anatomy.scored[address].shape

        def hook(module: nn.Module, args: tuple[object, ...], output: object) -> None:
            inputs = args[0] if args else None
            if not (isinstance(inputs, Tensor) and isinstance(output, Tensor)):
                return
            values = (by_row(inputs, current[0], size), by_row(output, current[0], rows))
            if values[0] is None or values[1] is None:
                return
            mask = current[0].mask(inputs.device)
            peaks = [value.abs()[mask].amax(0).float().cpu() for value in values if value is not None]
            before = largest.get(address, (torch.zeros(size), torch.zeros(rows)))
            largest[address] = (torch.maximum(before[0], peaks[0]), torch.maximum(before[1], peaks[1]))

        return hook

    def begin(numbers: list[int], batch: Batch) -> None:
        current[:] = [batch]

    with ExitStack() as stack:
        for place in places:
            hook = watch(place.input.key, place.input.size)
            stack.enter_context(place.module.register_forward_hook(hook))
        run_in_batches(model, texts, budget, begin, lambda numbers: None)
    if not largest:
        raise LesionError(f"What flows through the down projections of {model.name} cannot be followed.")
    for address, pair in largest.items():
        if not all(bool(peaks.isfinite().all()) for peaks in pair):
            raise LesionError(
                f"What flows through {address} of {model.name} is not finite; load the model in bfloat16 or float32."
            )
    return {address: Peaks(*pair) for address, pair in largest.items()}
