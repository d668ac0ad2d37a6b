"""Recorded steps: a decoding step of all rows, with every row's edit, recorded once and replayed without Python.

What a step reads and writes lies in buffers that stay where they are: the newest tokens, keys and values
(`static_slots.py`), the factors of the edited places (`Standing` of the gates), and what was said. On a CUDA device a
step is recorded as a graph for each width of the window. Several steps run before anything is read back; what a row has
said behind the end of its answer is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from lesion.edits.standing import Standing
from lesion.engines.transformers.batch import Batch, Finished, next_tokens
from lesion.engines.transformers.memory import ran_out
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
# Every recording stands for a number of rows: they are made fewer once this share of them is still at work.
SHRINK = 0.5

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


class RecordedBatch(Batch):
    """A batch whose steps are recorded.

    Args:
        waiting: all rows that will enter, at least one.
        masks: how the network is told which columns a row sees.
        record: records a step; None runs it anew each time.
    """

    def __init__(
        self, prefixes: Prefixes, waiting: Sequence[ActiveRequest], masks: Masks, record: Record | None
    ) -> None:
        super().__init__(prefixes)
        self.masks = masks
        self.record = None if self.model.network in _unrecordable else record
        self.longest = min(max(len(row.request.prompt) + row.limit for row in waiting), self.model.context)
        device = self.model.device
        rows = min(self.work.batch_size, len(waiting))
        begun = max(len(row.request.prompt) for row in waiting) + STEPS
        self.static = StaticSlots(self.model.network.config, rows, self._window(begun), device)
        self.slots = self.static
        self.standing = Standing(prefixes.table, rows)
        self._buffers(rows)

    def _buffers(self, rows: int) -> None:
        device = self.model.device
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.count = torch.zeros(1, dtype=torch.long, device=device)
        self.chosen = torch.zeros(STEPS, rows, dtype=torch.long, device=device)
        self.finite = torch.zeros(STEPS, rows, dtype=torch.bool, device=device)
        self.logits: Tensor | None = None
        self.recordings: dict[int, Step] = {}

    def _window(self, tokens: int) -> int:
        """The width of a window for rows of so many tokens."""
        return min(-(-tokens // WINDOW) * WINDOW, self.longest)

    def _seat(self, rows: Sequence[ActiveRequest], computed: Prefilled, chosen: Tensor) -> None:
        self._hold(max(len(row.request.prompt) + len(row.generated) for row in rows))
        super()._seat(rows, computed, chosen)
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
        self._repeat(self._window(min(longest + steps, self.longest)), steps)
        self.work.steps += steps
        self.work.replayed += steps if self.record else 0
        self.work.decoded += steps * len(at_work)
        self.work.idle += steps * (len(self.tokens) - len(at_work))
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

    def _repeat(self, window: int, steps: int) -> None:
        self._hold(window)
        self.count.zero_()
        if window not in self.recordings:
            self.recordings[window] = self._recorded(window)
        if self.record is None and not self.assigned:
            self.gates.assign_standing(self.standing)
            self.assigned = True
        for _ in range(steps):
            self.recordings[window]()

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
            return self.record(step)
        except Exception as error:  # whatever its code does that cannot be recorded
            if isinstance(error, RuntimeError) and ran_out(error):
                raise
            _unrecordable[self.model.network] = f"{type(error).__name__}: {error}"
            self.record = None
            return step
        finally:
            for part, value in before:
                part.copy_(value)

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
    def shrink(self) -> None:
        """Go on with fewer rows once enough of them stand empty."""
        kept = [slot for slot, row in enumerate(self.rows) if row is not None]
        if kept and len(kept) <= SHRINK * len(self.tokens):
            self.static.keep(torch.tensor(kept))
            self.rows = [self.rows[slot] for slot in kept]
            self.standing = Standing(self.prefixes.table, len(kept))
            self.standing.seat(torch.arange(len(kept)), torch.tensor([row.column for row in self.rows if row]))
            self._buffers(len(kept))
            self._tell(range(len(kept)))
            self.assigned = False


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
