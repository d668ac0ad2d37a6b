"""Expert inputs: what flows into each expert of a mixture, whose weights are slices of fused tensors.

Transformers computes experts by one of several kernels, none of which shows what an expert was given. So the inputs are
computed again from the hidden states and the routing; a probe compares with what the model's own kernel gave.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lesion.activations.token_sums import Batch, TextSums
from lesion.models.matrices import Matrix

# How far the output may be from the one computed again, as a share of its largest value, in any dtype.
ERROR = 0.05


@dataclass(frozen=True, eq=False)
class Expert:
    """One expert: its gated MLP by address and matrix."""

    gate: tuple[str, Matrix]
    up: tuple[str, Matrix]
    down: tuple[str, Matrix]


@dataclass(frozen=True, eq=False)
class Experts:
    """The fused experts of one block: down(act(gate(x)) · up(x)) for every token that is routed to them."""

    module: nn.Module
    activation: nn.Module
    members: tuple[Expert, ...]

    @property
    def device(self) -> torch.device:
        """Of their weights."""
        return self.members[0].gate[1].tensor.device

    def inputs(self) -> Iterator[tuple[str, int, tuple[str, ...], bool]]:
        """Of every input: key, size, addresses of its readers, and whether its activations are counted."""
        for expert in self.members:
            (gate, matrix), (up, _), (down, last) = expert.gate, expert.up, expert.down
            yield gate, matrix.shape[1], (gate, up), False
            yield down, last.shape[1], (down,), True

    def sums(
        self, args: tuple[object, ...], kwargs: Mapping[str, object], batch: Batch
    ) -> Iterator[tuple[str, TextSums]]:
        """The sums of every input over the tokens of every text that were routed to its expert."""
        call = _call(args, kwargs)
        rows, width = len(batch.lengths), batch.width
        if call is None or call[0].shape[0] != rows * width:
            return
        hidden, index, _ = call
        real = batch.mask(hidden.device).reshape(-1)
        for number, expert in enumerate(self.members):
            token = torch.nonzero((index == number).any(-1) & real)[:, 0]
            row = token // width
            given = hidden[token]
            active, product = self._inside(expert, given)
            tokens = torch.zeros(rows, dtype=torch.float64, device=hidden.device)
            tokens.index_add_(0, row, torch.ones_like(row, dtype=torch.float64))
            yield expert.gate[0], TextSums(_added(given.double().square_(), row, rows), tokens, None)
            counts = _added((active > 0).double(), row, rows)
            yield expert.down[0], TextSums(_added(product.double().square_(), row, rows), tokens, counts)

    def explains(self, args: tuple[object, ...], kwargs: Mapping[str, object], output: object) -> bool:
        """Whether the module gave what is computed here from what it was given."""
        call = _call(args, kwargs)
        if call is None or not isinstance(output, Tensor) or output.numel() != call[0].numel():
            return False
        hidden, index, weights = call
        total = torch.zeros_like(hidden, dtype=torch.float64)
        for number, expert in enumerate(self.members):
            token, place = torch.nonzero(index == number, as_tuple=True)
            _, product = self._inside(expert, hidden[token])
            last = nn.functional.linear(product, expert.down[1].view())
            total.index_add_(0, token, last.double() * weights[token, place, None].double())
        error = float((total - output.reshape(total.shape).double()).abs().max())
        return error <= ERROR * float(total.abs().max()) + 1e-30

    def _inside(self, expert: Expert, given: Tensor) -> tuple[Tensor, Tensor]:
        """act(gate(x)), and its product with up(x)."""
        gate, up = (nn.functional.linear(given, matrix.view()) for _, matrix in (expert.gate, expert.up))
        active = self.activation(gate)
        return active, active * up


def find_experts(module: nn.Module, held: Sequence[tuple[str, Matrix]]) -> Experts | None:
    """The experts whose matrices a module holds, where each has a gate, an up and a down and nothing else."""
    by_number: dict[int, dict[str, tuple[str, Matrix]]] = defaultdict(dict)
    for address, matrix in held:
        if matrix.storage.expert is None or matrix.storage.groups != 1:
            return None
        by_number[matrix.storage.expert][matrix.name.rpartition(".")[2]] = (address, matrix)
    activation = getattr(module, "act_fn", None)
    complete = all(set(parts) == {"gate", "up", "down"} for parts in by_number.values())
    numbered = sorted(by_number) == list(range(len(by_number)))
    if not (by_number and numbered and complete and isinstance(activation, nn.Module)):
        return None
    members = tuple(Expert(parts["gate"], parts["up"], parts["down"]) for _, parts in sorted(by_number.items()))
    return Experts(module, activation, members)


def _call(args: tuple[object, ...], kwargs: Mapping[str, object]) -> tuple[Tensor, Tensor, Tensor] | None:
    """(hidden states [tokens, width], expert numbers [tokens, k], their weights [tokens, k])."""
    values = [*args, *(kwargs[name] for name in ("hidden_states", "top_k_index", "top_k_weights") if name in kwargs)]
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(values) != 3 or len(tensors) != 3:
        return None
    hidden, index, weights = tensors
    hidden = hidden.reshape(-1, hidden.shape[-1])
    if index.is_floating_point() or index.dim() != 2 or index.shape != weights.shape or len(index) != len(hidden):
        return None
    return hidden, index, weights


def _added(values: Tensor, row: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, values.shape[1], dtype=values.dtype, device=values.device).index_add_(0, row, values)
