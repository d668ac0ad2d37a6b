"""Recorded steps: a decoding step of all rows, with every row's edit, recorded once and replayed without Python.

What a step reads and writes lies in buffers that stay where they are: the newest tokens, keys and values
(`static_slots.py`), the factors of the edited places (`Standing` of the gates), and what was said. On a CUDA device a
step is recorded as a graph for each width of the window, in a long sweep fused before by torch's compiler. Several
steps run before anything is read back; what a row has said behind the end of its answer is dropped. How many rows there
are follows from what steps turn out to cost (`pace.py`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from transformers.cache_utils import DynamicCache

from lesion.edits.standing import Standing
from lesion.engines.transformers.batch import Batch, Finished, next_tokens
from lesion.engines.transformers.drafts import Drafts
from lesion.engines.transformers.memory import ran_out
from lesion.engines.transformers.pace import FUSING, Pace
from lesion.engines.transformers.prefill import Prefilled
from lesion.engines.transformers.prefix_cache import Recorder
from lesion.engines.transformers.prefixes import Prefixes
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.transformers.static_slots import WINDOW, Masks, StaticSlots
from lesion.engines.transformers.ways import cache_argument
from lesion.models.load import Model
from lesion.models.owner import held

# Steps between two looks at what was said, where no row needs one before.
STEPS = 8
# What torch compiles with, and how: what lies between two kernels is rounded as if it did not.
COMPILER: dict[str, Any] = {"backend": "inductor", "options": {"emulate_precision_casts": True}}

Step = Callable[[], None]
Record = Callable[[Step], Step]
"""Runs a step that works from buffers into buffers, any number of times, and gives back what repeats it."""


def cuda_graphs() -> Record:
    """Records steps as CUDA graphs that share their memory."""
    pool = torch.cuda.graph_pool_handle()

    def record(step: Step) -> Step:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up outside of a recording
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            step()
        return graph.replay

    return record


def fused(step: Step) -> Step:
    """The operations of a step, compiled into fewer kernels."""

    def run(nothing: Tensor) -> Tensor:
        step()
        return nothing

    step()  # what is set up in a first run is no part of the graph
    nothing = torch.zeros(1)
    # What hooks and caches do in Python is over once the operations are known, and the compiler sees these alone.
    compiled = torch.compile(make_fx(run)(nothing), fullgraph=True, dynamic=False, **COMPILER)
    compiled(nothing)  # the first call compiles
    return lambda: compiled(nothing)


class RecordedBatch(Batch):
    """A batch whose steps are recorded.

    Args:
        waiting: all rows that will enter, at least one.
        masks: how the network is told which columns a row sees.
        record: records a step; None runs it anew each time.
        most: rows that memory has room for.
    """

    def __init__(
        self, prefixes: Prefixes, waiting: Sequence[ActiveRequest], masks: Masks, record: Record | None, most: int
    ) -> None:
        super().__init__(prefixes)
        self.masks, self.most = masks, most
        self.record = None if self.model.network in _unrecordable else record
        self.longest = longest(self.model, waiting)
        self.pace = _paces.setdefault(self.model.network, Pace())
        self.fused = self.settled = False
        self._forget()
        device = self.model.device
        rows = min(most, self.pace.rows, len(waiting))
        begun = max(len(row.request.prompt) for row in waiting) + STEPS
        self.static = StaticSlots(self.model.network.config, rows, self._window(begun), device)
        self.slots = self.static
        self.columns = prefixes.table.truncating(torch.tensor([row.column for row in waiting]))
        self.standing = Standing(self.columns, rows)
        self._buffers(rows)

    def _buffers(self, rows: int) -> None:
        device = self.model.device
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.count = torch.zeros(1, dtype=torch.long, device=device)
        self.chosen = torch.zeros(STEPS, rows, dtype=torch.long, device=device)
        self.finite = torch.zeros(STEPS, rows, dtype=torch.bool, device=device)
        self.logits: Tensor | None = None
        self.wasted = 0.0  # seconds that slots without a row have cost since rows last entered

    def _forget(self) -> None:
        """Let recordings go, and the buffers that they hold: what was compiled holds them in cycles."""
        self.recordings: dict[int, Step] = {}
        if self.pace.fusing != FUSING:
            gc.collect()

    @property
    def size(self) -> int:
        """The number of rows that may be at work now."""
        return len(self.tokens)

    def _window(self, tokens: int) -> int:
        """The width of a window for rows of so many tokens; what is fused takes too long to be so for each."""
        return self.longest if self.fused else min(-(-tokens // WINDOW) * WINDOW, self.longest)

    def _seat(self, rows: Sequence[ActiveRequest], computed: Prefilled, chosen: Tensor) -> None:
        self._hold(max(len(row.request.prompt) + len(row.generated) for row in rows))
        super()._seat(rows, computed, chosen)
        self.wasted = 0.0
        number = {id(row): slot for slot, row in enumerate(self.rows)}
        slots = torch.tensor([number[id(row)] for row in rows])
        self.standing.seat(slots, torch.tensor([row.column for row in rows]))
        self._tell(slots.tolist())

    def _tell(self, slots: Sequence[int]) -> None:
        """Have the next step begin with what the rows in these slots said last."""
        last = [row.generated[-1] for slot in slots if (row := self.rows[slot])]
        where, tokens = torch.tensor([list(slots), last], dtype=torch.long).to(self.tokens.device)
        self.tokens[where] = tokens

    @torch.inference_mode()
    def step(self) -> Finished:
        """The next tokens of every row; the rows that they finish."""
        at_work = [(slot, row) for slot, row in enumerate(self.rows) if row is not None]
        plain = all(row.plain for _, row in at_work)
        left = max(row.limit - len(row.generated) for _, row in at_work)
        steps = min(STEPS, left) if plain else 1
        longest = max(len(row.request.prompt) + len(row.generated) for _, row in at_work)
        window = self._window(min(longest + steps, self.longest))
        known = window in self.recordings
        self._ready(window)
        began = _clock(self.model)
        for _ in range(steps):
            self.recordings[window]()
        if known:  # the first time a recording still settles
            self.pace.note(self.size, (_clock(self.model) - began) / steps)
        self.wasted += steps * self.pace.wasted(self.size, len(at_work))
        self.work.steps += steps
        self.work.replayed += steps if self.record else 0
        self.work.decoded += steps * len(at_work)
        self.work.idle += steps * (self.size - len(at_work))
        if not plain:
            assert self.logits is not None
            done = self._say(*next_tokens(self.logits[: len(self.rows)], [(row, 0) for row in self.rows]))
            self._tell([slot for slot, row in enumerate(self.rows) if row is not None])
            return done
        chosen, finite = self.chosen[:steps].tolist(), self.finite[:steps].tolist()
        return [
            each
            for tokens, numbers in zip(chosen, finite, strict=True)
            for each in self._say(tokens[: len(self.rows)], numbers[: len(self.rows)])
        ]

    def _hold(self, tokens: int) -> None:
        """Have room for rows of so many tokens."""
        if tokens > self.static.capacity:
            self.recordings.clear()
            # In few strides, since each copies everything and every recording is made anew.
            self.static.widen(self._window(max(tokens, self.static.capacity * 3 // 2)))

    def _ready(self, window: int) -> None:
        """Have a recording of steps that look at so many columns."""
        self._hold(window)
        if window not in self.recordings:
            began = _clock(self.model)
            self.recordings[window] = self._recorded(window)
            self.pace.recording = _clock(self.model) - began
        self.count.zero_()
        if self.record is None and not self.assigned:
            self.gates.assign_standing(self.standing)
            self.assigned = True

    def _recorded(self, window: int) -> Step:
        def step() -> None:
            self.static.window = window
            self._run()

        if self.record is None:
            return step
        states = [part for layer in self.static.recurrent for part in layer.tensors]
        before = [(part, part.clone()) for part in (self.tokens, self.count, self.static.lengths, *states)]
        self.gates.assign_standing(self.standing)
        try:
            if self.fused:
                began = time.perf_counter()
                repeated = self._tried(lambda record: record(fused(step)), _unfusable)
                self.pace.fusing = (time.perf_counter() - began) / len(self.model.anatomy.blocks)
                self.fused = repeated is not None
                if repeated is not None:
                    return repeated
            repeated = self._tried(lambda record: record(step), _unrecordable)
            self.record = self.record if repeated else None
            return repeated or step
        finally:
            for part, value in before:
                part.copy_(value)

    def _tried(self, make: Callable[[Record], Step], failures: WeakKeyDictionary[nn.Module, str]) -> Step | None:
        """A recording, or None where the network's code does what cannot be recorded so."""
        assert self.record is not None
        try:
            return make(self.record)
        except Exception as error:
            if isinstance(error, RuntimeError) and ran_out(error):
                raise
            failures[self.model.network] = f"{type(error).__name__}: {error}"
            return None

    def _run(self) -> None:
        """One token of every row, from buffers into buffers."""
        logits = decode(self.model, self.static, self.masks, self.tokens)
        if self.logits is None:
            self.logits = torch.empty_like(logits)
        self.logits.copy_(logits)
        largest, tokens = self.logits.max(-1)
        self.tokens.copy_(tokens)
        self.chosen.index_copy_(0, self.count, tokens[None])
        self.finite.index_copy_(0, self.count, largest.isfinite()[None])
        self.count.add_(1).clamp_(max=STEPS - 1)

    @torch.inference_mode()
    def grow(self, waiting: Drafts) -> bool:
        """Have room for more rows as long as steps of more turn out to pay; then have steps fused, if that pays."""
        if self.settled or self.size not in self.pace.seconds:
            return False
        rows = self.pace.next(self.size, min(self.most, self.size + len(waiting)))
        if rows > self.size:
            self._resize(rows)
            return True
        self.settled = True
        tokens = sum(row.limit - len(row.generated) for row in [*waiting.rows, *self.rows] if row is not None)
        cost, spared = self.pace.fusing * len(self.model.anatomy.blocks), self.pace.spared(self.size, tokens)
        if self.record is not None and self.model.network not in _unfusable and spared > cost:
            said = "Compiling the steps of %s: about %.0f s, to spare up to %.0f s of this sweep."
            logging.getLogger(__name__).warning(said, self.model.name, cost, spared)
            self.fused = True
            self.recordings.clear()
        return False

    @torch.inference_mode()
    def shrink(self) -> None:
        """Go on with fewer rows once the empty slots have cost as much as another recording will."""
        if self.live and self.wasted > self.pace.recording:
            self.fused = False
            self._resize(self.live)

    def _resize(self, rows: int) -> None:
        """Go on with so many slots, those at work first, in new buffers."""
        self._forget()
        kept = [slot for slot, row in enumerate(self.rows) if row is not None]
        self.static.keep(torch.tensor([*kept, *[kept[0]] * (rows - len(kept))]))
        self.static.vacate(torch.arange(len(kept), rows), torch.arange(len(kept)))
        self.rows = [self.rows[slot] for slot in kept]
        self.standing = Standing(self.columns, rows)
        self.standing.seat(torch.arange(len(kept)), torch.tensor([row.column for row in self.rows if row]))
        self._buffers(rows)
        self._tell(range(len(kept)))
        self.assigned = False


def longest(model: Model, waiting: Sequence[ActiveRequest]) -> int:
    """Tokens that the longest row may come to."""
    return min(max(len(row.request.prompt) + row.limit for row in waiting), model.context)


def _clock(model: Model) -> float:
    """Seconds, with all work on the device done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter()


def decode(model: Model, slots: StaticSlots, masks: Masks, tokens: Tensor) -> Tensor:
    """Logits [rows, vocabulary] behind the newest token of every row, which its slot then holds."""
    output = model.network(
        input_ids=tokens[:, None],
        attention_mask=masks.of(slots),
        position_ids=slots.lengths[:, None],
        use_cache=True,
        **{cache_argument(model.network): slots},
    )
    slots.advance()
    return output.logits[:, -1]


_masks: WeakKeyDictionary[nn.Module, Masks | str] = WeakKeyDictionary()
"""How networks that were tried are told what a row sees, or why their steps are not recorded."""
_unrecordable: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""Networks whose step could not be recorded, and why."""
_unfusable: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
"""Networks whose step could not be compiled, and why."""
_paces: WeakKeyDictionary[nn.Module, Pace] = WeakKeyDictionary()
"""What the steps of networks were found to cost."""


def masks_of(model: Model) -> Masks | str:
    """How a network in static slots is told what a row sees, as a trial showed, or why it does not run in them."""
    if model.network not in _masks:
        _masks[model.network] = _tried(model)
    return _masks[model.network]


def _tried(model: Model) -> Masks | str:
    why = ""
    for by_kind in (True, False):
        try:
            masks = Masks(model, by_kind)
            if _alike(model, masks):
                return masks
            why = "it gives other logits in static slots"
        except Exception as error:  # whatever its code raises
            why = f"{type(error).__name__}: {error}"
    return why


@torch.inference_mode()
def _alike(model: Model, masks: Masks) -> bool:
    """Whether two steps of three rows in static slots give the logits that each row has alone."""
    network, device, argument = model.network, model.device, cache_argument(model.network)
    config = network.config.get_text_config(decoder=True)
    count = network.get_input_embeddings().num_embeddings
    prompts = [[(5 * place + 3 * row + 1) % count for place in range(length)] for row, length in enumerate((3, 7, 5))]
    tokens = [[(7 * row + step + 2) % count for row in range(3)] for step in range(2)]
    slots = StaticSlots(network.config, 3, max(map(len, prompts)) + len(tokens), device)
    wanted = []
    with held(model, "a look at its steps", calls=True):
        for row, prompt in enumerate(prompts):
            ids = torch.tensor([prompt], device=device)
            cache, whole = DynamicCache(config=config), Recorder(network.config)
            for kept in (cache, whole):
                network(input_ids=ids, use_cache=True, **{argument: kept})
            first = torch.zeros(1, dtype=torch.long)
            slots.insert([(layer, first) for layer in whole.layers], torch.ones_like(ids).bool(), first + row, first)
            for step in tokens:
                token = torch.tensor([[step[row]]], device=device)
                wanted.append(network(input_ids=token, use_cache=True, **{argument: cache}).logits[0, -1])
        stepped = [decode(model, slots, masks, torch.tensor(step, device=device)) for step in tokens]
    alone, together = torch.stack(wanted).float(), torch.stack(stepped, 1).flatten(0, 1).float()
    tolerance = (1e-3 if model.dtype == torch.float32 else 0.1) * float(alone.abs().max())
    return bool(alone.isfinite().all()) and bool((alone - together).abs().max() <= tolerance)
