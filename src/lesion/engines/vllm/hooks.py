"""Hooks on the layers of vLLM's model: every token of the flattened batch is under the edit of its request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lesion.edits.place import UNITS
from lesion.edits.table import scale_contribution, scale_output, scale_slices
from lesion.errors import LesionError

# Modules of a block that vLLM may call by another name than transformers.
RENAMED = {"self_attn": "attn", "mlp": "block_sparse_moe"}


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer inside vLLM.

    Attributes:
        module: it takes and gives the residual stream.
        branches: the modules whose output (its first element, where it is a tuple) attention and MLP add to the stream;
            None where it has no module of that name.
        parameters: names of the arguments of its `forward`, in order.
        apart: whether the stream travels as two tensors, `hidden_states` and `residual`, which the next layer's norm
            adds up.
    """

    module: nn.Module
    branches: Mapping[str, nn.Module | None]
    parameters: tuple[str, ...]
    apart: bool


def layers_of(network: nn.Module, tails: Sequence[Mapping[str, str]], name: str) -> tuple[Layer, ...]:
    """The decoder layers of a network that vLLM has built, in order.

    Args:
        tails: of every block, the paths within it of the modules that end attention and MLP in transformers. That vLLM
            calls them so proves nothing: `VllmEngine` compares what edits of them do.
    """
    for stack in network.modules():  # from the outside in: experts are inside layers
        if isinstance(stack, nn.ModuleList) and len(stack) == len(tails):
            return tuple(_layer(module, paths) for module, paths in zip(stack, tails, strict=True))
    raise LesionError(
        f"vLLM builds {name} as {type(network).__name__}, in which no list of {len(tails)} decoder layers was found;"
        f" use --engine transformers."
    )


def _layer(module: nn.Module, tails: Mapping[str, str]) -> Layer:
    known = dict(module.named_modules())
    branches = {unit: known.get(renamed(module, path)) for unit, path in tails.items()}
    parameters = tuple(inspect.signature(module.forward).parameters)
    return Layer(module, branches, parameters, "residual" in parameters)


def renamed(block: nn.Module, path: str) -> str:
    """What vLLM calls a module of a block that has this path in transformers."""
    name, dot, rest = path.partition(".")
    return path if hasattr(block, name) else f"{RENAMED.get(name, name)}{dot}{rest}"


BLOCK = UNITS.index("block")


class TokenGates:
    """Factors of all edits, and which edit each token of the present forward pass is under.

    vLLM flattens a batch: the tokens of all requests, of long prompts and of single decoding steps, stand in one row of
    [tokens, width]. A place gets its hooks when an edit of it is first known.
    """

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        # Column 0 is the baseline; of [columns, blocks, units].
        self.factors = np.ones((1, len(layers), len(UNITS)))
        self.places: dict[tuple[int, int], _Place] = {}
        self.units: dict[tuple[int, str], _Units] = {}
        self._active: list[_Gate] = []
        self._last: tuple[bytes, bytes] | None = None

    def add(self, factors: Sequence[Sequence[Sequence[float]]], units: Sequence[Sequence[Any]] = ()) -> None:
        """Further edits behind those that are known.

        Args:
            factors: per edit, block and unit (as in `UNITS`) a factor.
            units: heads and neurons, for each module at whose input they lie: its block, its path in the block, how
                many slices its input has and of what size; which of these edits, counted from 0, multiply any, which
                slices, and by what. The experts of a block have an empty path.
        """
        known = len(self.factors)
        for layer, path, count, size, edits, numbers, products in units:
            if (layer, path) not in self.units:
                new = _Inputs(self.layers[layer], layer, path, count, size) if path else None
                self.units[layer, path] = new or _Experts(self.layers[layer], layer, count)
            of_columns = self.units[layer, path].of_columns
            for edit, number, product in zip(edits, numbers, products, strict=True):
                of_columns.setdefault(known + edit, {})[number] = product
        more = np.asarray(factors, dtype=np.float64).reshape(-1, len(self.layers), len(UNITS))
        self.factors = np.concatenate([self.factors, more])
        for layer, unit in np.argwhere((more != 1).any(0)).tolist():
            if (layer, unit) not in self.places:
                self.places[layer, unit] = _Place(self.layers[layer], layer, unit)
        self._last = None

    def begin(self, columns: np.ndarray, counts: np.ndarray, device: torch.device) -> None:
        """Say what the next forward pass is made of: of each request, its edit and the number of its tokens."""
        now = (columns.tobytes(), counts.tobytes())
        for gate in self._active:
            gate.passed = False
        if now == self._last:
            return
        self._last = now
        for gate in self._active:
            gate.rows = None
        self._active = []
        of_token = np.repeat(columns, counts)
        for layer, unit in np.argwhere((self.factors[columns] != 1).any(0)).tolist():
            self._assign(self.places[layer, unit], self.factors[of_token, layer, unit], device)
        distinct, of_distinct = np.unique(of_token, return_inverse=True)
        for gate in self.units.values():
            if any(column in gate.of_columns for column in distinct.tolist()):
                self._assign(gate, gate.table(distinct.tolist())[of_distinct], device)

    def _assign(self, gate: _Gate, factors: np.ndarray, device: torch.device) -> None:
        """Give a gate the tokens that it edits; `factors` has a row for every token."""
        rows = np.flatnonzero((factors != 1).reshape(len(factors), -1).any(1))
        if len(rows):
            gate.assign(torch.from_numpy(rows).to(device), torch.from_numpy(factors[rows]).to(device))
            self._active.append(gate)

    def end(self) -> None:
        """After a forward pass: refuse one that has not run through every place that it edits."""
        missed = [gate.name for gate in self._active if not gate.passed]
        if missed:
            raise LesionError(
                f"The edit of {', '.join(missed)} did not take hold: vLLM ran the model without that place; use"
                f" --engine transformers."
            )


class _Gate:
    """A place, and the tokens that are edited there in the present pass, each with its factor or factors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: Tensor | None = None
        self.factor = torch.ones(0)
        self.ends = False
        self.passed = False

    def assign(self, rows: Tensor, factor: Tensor) -> None:
        self.rows, self.factor = rows, factor
        self.ends = bool(((factor == 0) | (factor == 1)).all())
        self.passed = False

    def _factor(self, like: Tensor) -> Tensor:
        # Half precision would make 1.1 into 1.1016: the factor and its product are float32 at least.
        return self.factor.to(torch.promote_types(like.dtype, torch.float32))


class _Units(_Gate):
    """Units of which a block has several.

    Attributes:
        of_columns: of the edits that multiply any, by column, the factors by number of the unit.
    """

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name)
        self.count = count
        self.of_columns: dict[int, dict[int, float]] = {}

    def table(self, columns: Sequence[int]) -> np.ndarray:
        """What these columns multiply every unit by, [columns, units]."""
        table = np.ones((len(columns), self.count))
        for row, column in enumerate(columns):
            for number, factor in self.of_columns.get(column, {}).items():
                table[row, number] = factor
        return table


class _Inputs(_Units):
    """Equal slices of the input of a linear module: heads before the output matrix of attention, neurons before the
    last matrix of an MLP.
    """

    def __init__(self, layer: Layer, index: int, path: str, count: int, size: int) -> None:
        super().__init__(f"{index}.{path}", count)
        self.size = size
        module = dict(layer.module.named_modules()).get(renamed(layer.module, path))
        if module is None:
            raise _absent(index, path, "heads and neurons are multiplied at its input")
        module.register_forward_pre_hook(self.scale)

    def scale(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self.rows is None or not args:
            return None
        part = _rows(args[0], self.rows)
        width, shares = part.shape[-1], int(getattr(module, "tp_size", 1))
        if width not in (self.count * self.size, self.count * self.size // shares):
            return None  # not what the checkpoint's matrix is given: `TokenGates.end` refuses it
        self.passed = True
        factors = self._factor(part).repeat_interleave(self.size, 1)
        if width != factors.shape[1]:  # of a matrix that is split over workers, each is given its own slices
            factors = factors.chunk(shares, 1)[int(getattr(module, "tp_rank", 0))]
        scaled = scale_slices(part[:, None, :, None], factors, self.ends)[:, 0, :, 0]
        return _flat(args[0]).index_copy(0, self.rows, scaled).view_as(args[0]), *args[1:]


class _Experts(_Units):
    """Experts, by the weights that the router gives to those that it chooses."""

    def __init__(self, layer: Layer, index: int, count: int) -> None:
        super().__init__(f"{index}.mlp", count)
        modules: list[Any] = list(layer.module.modules())
        routers = [module.router for module in modules if hasattr(getattr(module, "router", None), "select_experts")]
        if len(routers) != 1:
            raise _absent(index, "a router", "experts are multiplied by what it gives")
        self.select: Callable[..., tuple[Tensor, Tensor]] = routers[0].select_experts
        routers[0].select_experts = self.scaled

    def scaled(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """What the router gives, the weights of the chosen experts and their numbers, [tokens, chosen]."""
        weights, experts = self.select(*args, **kwargs)
        if self.rows is None:
            return weights, experts
        self.passed = True
        of_chosen = self._factor(weights).gather(1, experts.index_select(0, self.rows).long())
        part = scale_slices(weights.index_select(0, self.rows)[:, None, :, None], of_chosen, self.ends)
        return weights.index_copy(0, self.rows, part[:, 0, :, 0]), experts


def _absent(index: int, path: str, why: str) -> LesionError:
    return LesionError(f"vLLM builds block {index} without {path}, and {why}; use --engine transformers.")


class _Place(_Gate):
    """A block or a branch, and its hooks."""

    def __init__(self, layer: Layer, index: int, unit: int) -> None:
        super().__init__(str(index) if unit == BLOCK else f"{index}.{UNITS[unit]}")
        self.layer = layer
        self.before: Tensor | None = None
        if unit == BLOCK:
            layer.module.register_forward_pre_hook(self.look_at_input, with_kwargs=True)
            layer.module.register_forward_hook(self.scale_contribution)
        else:
            branch = layer.branches.get(UNITS[unit])
            if branch is None:
                raise _absent(index, f"a module known as its {UNITS[unit]}", "blocks can be edited as a whole")
            branch.register_forward_hook(self.scale_output)

    def look_at_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.rows is None:
            return
        given = {**dict(zip(self.layer.parameters, args, strict=False)), **kwargs}
        # A sum or a copy of its own: norms add in place.
        self.before = _rows(given["hidden_states"], self.rows)
        if self.layer.apart and given.get("residual") is not None:
            self.before = self.before + _rows(given["residual"], self.rows)

    def scale_contribution(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        rows, before = self.rows, self.before
        if rows is None or before is None:
            return
        self.passed, self.before = True, None
        stream = _flat(output[0] if isinstance(output, tuple) else output)
        if not self.layer.apart:
            after = stream.index_select(0, rows)
            stream.index_copy_(0, rows, scale_contribution(before, after, self._factor(after), self.ends))
            return
        residual = _flat(output[1])
        after = stream.index_select(0, rows) + residual.index_select(0, rows)
        # The next norm adds the two: 0 + what is wanted is exactly that.
        residual.index_copy_(0, rows, scale_contribution(before, after, self._factor(after), self.ends))
        stream.index_fill_(0, rows, 0)

    def scale_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.rows is None:
            return
        self.passed = True
        given = _flat(output[0] if isinstance(output, tuple) else output)
        part = given.index_select(0, self.rows)
        given.index_copy_(0, self.rows, scale_output(part, self._factor(part), self.ends))


def _flat(stream: Tensor) -> Tensor:
    """[tokens, width], sharing memory; models that vLLM takes from transformers have a batch of one around it."""
    if stream.dim() == 2:
        return stream
    return stream.view(-1, stream.shape[-1])


def _rows(stream: Tensor, rows: Tensor) -> Tensor:
    return _flat(stream).index_select(0, rows)
