"""Hidden states: what every token of some texts is at every layer of a model, spooled to disk layer by layer.

Layer 0 is what enters block 0 (the embedding output, with whatever the architecture adds to it before the first block);
layer l is the residual stream after block l − 1. The last layer is therefore the stream before the final norm: it is
read at the block itself, since the last of transformers' `output_hidden_states` has been through the norm.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Bool, Float32, Int
from torch import Tensor, nn

from lesion.activations.batching import Budget, budget_of, run_in_batches
from lesion.activations.token_sums import Batch
from lesion.engines.checking import check_texts
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.owner import observing
from lesion.plain import amount
from lesion.progress import Silent, Watcher

_PREFIX = "lesion-states-"

# Tokens of a batch, padding included. One layer's states of a batch are what a pass holds beyond the model's own work.
TOKENS_ON_ACCELERATOR = 16_384
TOKENS_ON_CPU = 2_048


class HiddenStates:
    """The states of all tokens at all layers, in files that go when this is closed. A context manager.

    Attributes:
        name: of the model, for messages.
        layers, tokens, width: blocks + 1, tokens of all texts, width of the residual stream (of all streams together,
            where a network has several).
        text_of: [tokens] the text of a token, from 0.
        folder: where the files lie.
    """

    def __init__(
        self,
        layers: int,
        width: int,
        texts: Sequence[Sequence[int]],
        *,
        folder: Path | None = None,
        name: str = "the model",
    ) -> None:
        """Room on disk for the states of `texts`, not yet filled; see `hidden_states`."""
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self.name = name
        self.layers, self.width, self.tokens = layers, width, int(lengths.sum())
        self.text_of: Int[np.ndarray, " tokens"] = np.repeat(np.arange(len(lengths)), lengths)
        self.starts = np.concatenate(([0], np.cumsum(lengths)))
        self._directory = _room(folder, layers * self.tokens * width * 4)
        self.folder = Path(self._directory.name)

    def path(self, index: int) -> Path:
        """The file of a layer: float32 in the machine's byte order, token after token."""
        return self.folder / f"layer-{index:04d}.float32"

    def layer(
        self, index: int, where: Bool[np.ndarray, " tokens"] | None = None
    ) -> Float32[np.ndarray, "chosen width"]:
        """A copy in memory of the states of one layer, of the tokens `where` (None: all); raises as `mapped`."""
        states = self.mapped(index)
        return np.array(states) if where is None else np.asarray(states[where])

    def mapped(self, index: int) -> Float32[np.ndarray, "tokens width"]:
        """The states of one layer (0: what enters block 0) as a read-only map of its file."""
        return np.memmap(self.path(index), dtype=np.float32, mode="r", shape=(self.tokens, self.width))

    def close(self) -> None:
        """Remove the files. Closing twice is fine."""
        self._directory.cleanup()

    def __enter__(self) -> HiddenStates:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@observing("hidden states", unedited=False)
def hidden_states(
    model: Model,
    texts: Sequence[Sequence[int]],
    folder: Path | None = None,
    *,
    batch_tokens: int | None = None,
    watcher: Watcher | None = None,
) -> HiddenStates:
    """Run texts through a model once and spool the residual stream at every layer to disk, as float32.

    Padding is never read. What a batch holds changes a state by the float noise of the forward pass alone. Beside the
    model, memory holds one layer of one batch.

    Args:
        texts: token ids; each at least one token, at most the context of the model.
        folder: of the files, (blocks + 1) · tokens · width · 4 bytes; None for the system's temporary folder.
        batch_tokens: the most tokens of a batch, padding included; a longer text is a batch of its own.
    """
    budget = budget_of(model, batch_tokens, TOKENS_ON_CPU, TOKENS_ON_ACCELERATOR)
    check_texts(model, texts)
    if too_long := [place for place, text in enumerate(texts) if len(text) > model.context]:
        place, most = too_long[0], model.context
        raise UsageError(f"Text {place} has {len(texts[place])} tokens; {model.name} takes at most {most}.")
    watcher = watcher or Silent()
    watcher.begin(model.name, len(texts), 0, "texts")
    width = model.network.config.get_text_config().hidden_size
    stream = _Stream.of(model) if budget.equal else _Stream(width, before=False)
    states = HiddenStates(len(model.anatomy.blocks) + 1, stream.width, texts, folder=folder, name=model.name)

    def end(places: list[int]) -> None:
        spool.check()
        watcher.answered(len(places))

    try:
        with ExitStack() as stack:
            spool = _Spool(model, stream, states, [stack.enter_context(_file(states, i)) for i in range(states.layers)])
            stack.enter_context(spool.watched())
            run_in_batches(model, texts, budget, spool.begin, end)
    except BaseException as error:
        states.close()
        if isinstance(error, OSError):
            raise LesionError(
                f"Hidden states cannot be kept in {states.folder}: {error}. Name another folder."
            ) from error
        raise
    return states


def sweep(folder: Path) -> None:
    """Remove the hidden states that a process which was killed left in `folder`, and the folder where nothing is left.

    The caller holds the lock of the folder: states that another process still reads would go too.
    """
    for leftover in folder.glob(f"{_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with suppress(OSError):  # absent, or other files are in it
        folder.rmdir()


@dataclass(frozen=True)
class _Stream:
    """How the residual stream of a network lies: some have several, which all belong to the state of a token.

    Attributes:
        width: of all streams together.
        before: whether the streams stand before rows and tokens, [streams, rows, length, width], not behind them.
    """

    width: int
    before: bool

    @classmethod
    def of(cls, model: Model) -> _Stream:
        """The stream that enters block 0 in a short pass."""
        seen: list[tuple[int, ...]] = []

        def look(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            stream = args[0] if args else kwargs.get("hidden_states")
            seen.append(tuple(stream.shape) if isinstance(stream, Tensor) else ())

        rows, length = 2, 3
        first = model.anatomy.blocks[0].module
        with first.register_forward_pre_hook(look, with_kwargs=True):
            run_in_batches(model, [(0,) * length] * rows, Budget(rows * length), lambda *_: None, lambda _: None)
        shape = seen[0]
        before = len(shape) == 4 and shape[1:3] == (rows, length)
        parts = (shape[0], *shape[3:]) if before else shape[2:]
        if (rows, length) != (shape[1:3] if before else shape[:2]):
            raise LesionError(
                f"The residual stream of {model.name} cannot be read: of {rows} texts of {length} tokens, what enters"
                f" block 0 has the shape {list(shape)}."
            )
        return cls(math.prod(parts), before)

    def by_token(self, stream: Tensor) -> Tensor:
        """A stream as [rows, length, width]."""
        return (stream.movedim(0, 2) if self.before and stream.dim() == 4 else stream).flatten(2)


class _Spool:
    """The hooks of one pass: they write what every block gets and gives into the files of the layers."""

    def __init__(self, model: Model, stream: _Stream, states: HiddenStates, files: Sequence[BinaryIO]) -> None:
        self.model, self.stream, self.states, self.files = model, stream, states, files

    def begin(self, places: list[int], batch: Batch) -> None:
        """A batch of the texts at `places` starts."""
        self.places, self.lengths = places, batch.lengths
        self.times = [0] * self.states.layers

    def check(self) -> None:
        """See that a pass came once through every layer."""
        if wrong := [layer for layer, times in enumerate(self.times) if times != 1]:
            raise LesionError(
                f"A pass of {self.model.name} ran {self.times[wrong[0]]} times through layer {wrong[0]}, not once; its"
                f" hidden states cannot be told apart."
            )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Until the `with` ends, every pass is written."""

        def enters(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            self.take(0, args[0] if args else kwargs.get("hidden_states"))

        def leaves(layer: int) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[object, ...], output: object) -> None:
                self.take(layer, output[0] if isinstance(output, tuple | list) else output)

            return hook

        blocks = [block.module for block in self.model.anatomy.blocks]
        with ExitStack() as hooks:
            hooks.enter_context(blocks[0].register_forward_pre_hook(enters, with_kwargs=True))
            for index, module in enumerate(blocks):
                hooks.enter_context(module.register_forward_hook(leaves(index + 1)))
            yield

    def take(self, layer: int, stream: object) -> None:
        """Write the stream of a layer, row by row, without its padding."""
        expected = (len(self.places), self.lengths[0], self.states.width)
        if isinstance(stream, Tensor) and stream.dim() > 2:
            stream = self.stream.by_token(stream)
        if not isinstance(stream, Tensor) or tuple(stream.shape) != expected:
            shape = list(stream.shape) if isinstance(stream, Tensor) else type(stream).__name__
            raise LesionError(
                f"The residual stream of {self.model.name} cannot be read at layer {layer}: {list(expected)} is"
                f" expected there, found {shape}."
            )
        self.times[layer] += 1
        for place, row, length in zip(self.places, stream, self.lengths, strict=True):
            values = row[:length].float()
            if not bool(values.isfinite().all()):
                where = "what enters block 0" if layer == 0 else f"what block {layer - 1} gives"
                raise LesionError(
                    f"The hidden states of {self.model.name} at layer {layer} ({where}) are not finite on text {place};"
                    f" load the model in bfloat16 or float32."
                )
            file = self.files[layer]
            file.seek(int(self.states.starts[place]) * self.states.width * 4)
            file.write(values.cpu().numpy().tobytes())


def _file(states: HiddenStates, index: int) -> BinaryIO:
    file = states.path(index).open("wb")
    file.truncate(states.tokens * states.width * 4)
    return file


def _room(folder: Path | None, needed: int) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder with `needed` bytes free."""
    place = Path(tempfile.gettempdir()) if folder is None else folder
    try:
        place.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(place).free
        if free >= needed:
            return tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place)
    except OSError as error:
        raise LesionError(f"Hidden states cannot be kept in {place}: {error}. Name another folder.") from error
    way = " (TMPDIR)" if folder is None else ""
    raise LesionError(
        f"Hidden states of these texts take {amount(needed)}, and {place} has {amount(free)} free; use"
        f" fewer or shorter texts, or a folder on a larger disk{way}."
    )
