"""What runs inside every worker of vLLM: it puts edits on the model that the worker holds and looks at its logits.

vLLM mixes `LesionWorker` into its worker class (`worker_extension_cls`). Arguments and results of what the engine calls
are text, numbers and lists: nothing that would have to be trusted to be unpacked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lesion.engines.answers import looked_up
from lesion.engines.vllm.hooks import TokenGates, layers_of
from lesion.engines.vllm.slices import Slices
from lesion.engines.vllm.wishes import Draw, Wish, draw
from lesion.errors import LesionError

KEY = "lesion"


class LesionWorker:
    """The one method that the engine calls in every worker."""

    model_runner: Any

    def lesion(self, method: str, *arguments: Any) -> Any:
        """What a method of the worker's `Watch` gives, or of its `gates` or `slices`, such as `slices.restore`.

        The first is `begin`, with the arguments of `Watch`: it hangs the hooks that serve all edits.
        """
        if method == "begin":
            self._lesion = Watch(self.model_runner, *arguments)
            return self._lesion.describe()
        return attrgetter(method)(self._lesion)(*arguments)


class Watch:
    """The hooks on one worker's model, and what its requests want.

    `tails` as of `layers_of`. Broken rows are made to say the token `end`, that of an answer's end; −1 where none is.
    """

    def __init__(self, runner: Any, tails: Sequence[Mapping[str, str]], name: str, end: int) -> None:
        for needed in ("input_batch", "execute_model", "model"):
            if not hasattr(runner, needed):
                raise LesionError(
                    f"This vLLM runs models by a {type(runner).__name__} without `{needed}`, which is not known here;"
                    f" use --engine transformers."
                )
        self.runner = runner
        self.end = end
        self.model: nn.Module = runner.model
        self.layers = layers_of(self.model, tails, name)
        self.gates = TokenGates(self.layers)
        self.slices = Slices(self.model, self.layers, name)
        self.lookups: dict[int, Any] = {}
        self._wishes: dict[str, Wish] = {}
        self._counts = np.zeros(0, dtype=np.int64)
        self._batch: list[Wish | None] = []
        self._expected = False
        self._compute: Callable[..., Any] = self.model.compute_logits
        self._execute: Callable[..., Any] = runner.execute_model
        runner.execute_model = self.execute
        self.model.compute_logits = self.compute_logits
        # In place of hooks on the model, which do not run where vLLM compiles all of it.
        self._forward: Callable[..., Any] = self.model.forward
        self.model.forward = self.forward
        self._scheduled: Any = None

    def describe(self) -> str:
        """vLLM's name of what computes attention, and the device."""
        groups = [group for groups in self.runner.attn_groups for group in groups]
        device = next(self.model.parameters()).device
        attention = "+".join(dict.fromkeys(group.backend.get_name() for group in groups))
        return f"{attention}, {torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type}"

    def found(self) -> str:
        """What was found since the last call, as JSON: request number → what it looked up, or where it broke."""
        found, self.lookups = self.lookups, {}
        return json.dumps(found)

    def execute(self, scheduled: Any, *args: Any, **kwargs: Any) -> Any:
        """One step of vLLM, with what is scheduled for it at hand."""
        for new in scheduled.scheduled_new_reqs:
            wish = (new.sampling_params.extra_args or {}).get(KEY) if new.sampling_params else None
            if wish is not None:
                self._wishes[new.req_id] = Wish.of(wish)
        for gone in scheduled.finished_req_ids:
            self._wishes.pop(gone, None)
        self._scheduled = scheduled
        try:
            return self._execute(scheduled, *args, **kwargs)
        finally:
            self._scheduled = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass of the whole model."""
        self._before_pass()
        output = self._forward(*args, **kwargs)
        self._after_pass(output)
        return output

    def _before_pass(self) -> None:
        if self._scheduled is None:  # a trial run of vLLM's own
            self._batch, self._counts = [], np.zeros(0, dtype=np.int64)
        else:
            order = self.runner.input_batch.req_ids
            self._batch = [self._wishes.get(request) for request in order]
            counts = self._scheduled.num_scheduled_tokens
            self._counts = np.fromiter((counts[request] for request in order), dtype=np.int64, count=len(order))
        columns = np.fromiter((wish.column if wish else 0 for wish in self._batch), dtype=np.int64)
        self.gates.begin(columns, self._counts, self.runner.device)
        self._expected = self._scheduled is not None

    def _positions(self) -> np.ndarray:
        """Of each request of the batch, the position of its first token that is computed now."""
        computed: np.ndarray = self.runner.input_batch.num_computed_tokens_cpu[: len(self._batch)]
        return computed

    def _after_pass(self, output: Any) -> None:
        self.gates.end()
        if not any(wish is not None and wish.targets for wish in self._batch):
            return
        starts = np.cumsum(self._counts) - self._counts
        rows: list[int] = []
        wanted: list[tuple[int, int, Sequence[int], Sequence[int]]] = []
        for wish, start, count, position in zip(self._batch, starts, self._counts, self._positions(), strict=True):
            if wish is None:
                continue
            for index, tokens in enumerate(wish.targets):
                offset = wish.first + index - int(position)
                if 0 <= offset < count:
                    rows.append(int(start) + offset)
                    wanted.append((wish.number, index, tokens, wish.forbidden))
        # A part at a time, for all logits of a large vocabulary are large.
        for begin in range(0, len(rows), 256):
            some = slice(begin, begin + 256)
            states = output.index_select(0, torch.tensor(rows[some], device=output.device))
            logits = self._compute(states)
            if logits is None:  # another worker gathers them
                continue
            _, _, targets, forbidden = zip(*wanted[some], strict=True)
            lookups = looked_up(logits, targets, forbidden=forbidden)
            for (number, index, _, _), lookup in zip(wanted[some], lookups, strict=True):
                self.lookups.setdefault(number, {})[index] = lookup

    def compute_logits(self, states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """vLLM's logits; of those that the next tokens come from, broken rows are noted and drawn tokens chosen."""
        logits = self._compute(states, *args, **kwargs)
        if not self._expected or logits is None:
            return logits
        self._expected = False
        if len(logits) != len(self._batch):
            raise LesionError(
                f"vLLM computes {len(logits)} rows of logits for {len(self._batch)} requests, which is not known here;"
                f" use --engine transformers."
            )
        steps = self._positions() + self._counts
        finite = logits.amax(-1).isfinite().tolist()
        drawn: list[Draw] = []
        for row, wish in enumerate(self._batch):
            if wish is None or wish.targets:
                continue
            step = int(steps[row]) - wish.prompt
            if step < 0:  # a part of a prompt, after which nothing is said yet
                continue
            if not finite[row]:
                self.lookups.setdefault(wish.number, step)
                logits[row] = 0.0
                logits[row, self.end] = 1.0
                continue
            if step == 0:
                logits[row, list(wish.forbidden)] = float("-inf")
            if wish.draw:
                drawn.append(Draw(row, step, wish.draw))
        if drawn:
            draw(logits, drawn)
        return logits
