"""Hooks on the layers of vLLM's model: every token of the flattened batch is under the edit of its request."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lesion.edits.place import UNITS
from lesion.edits.table import scale_contribution, scale_output, scale_slices
from lesion.errors import LesionError
from lesion.models.families import families

# vLLM's own decoder layers: the modules whose output is what attention and MLP add to the residual stream.
TAILS: Mapping[str, tuple[str, str]] = {
    "LlamaDecoderLayer": ("self_attn", "mlp"),
    "MistralDecoderLayer": ("self_attn", "mlp"),
    "Qwen2DecoderLayer": ("self_attn", "mlp"),
    "Qwen3DecoderLayer": ("self_attn", "mlp"),
    "Gemma2DecoderLayer": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "Gemma3DecoderLayer": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "GPT2Block": ("attn", "mlp"),
    "OPTDecoderLayer": ("self_attn", "fc2"),
}


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer inside vLLM.

    Attributes:
        module: it takes and gives the residual stream.
        attention, mlp: the modules whose output (its first element, where it is a tuple) a branch adds to the stream.
        parameters: names of the arguments of its `forward`, in order.
        apart: whether the stream travels as two tensors, `hidden_states` and `residual`, which the next layer's norm
            adds up.
    """

    module: nn.Module
    attention: nn.Module
    mlp: nn.Module
    parameters: tuple[str, ...]
    apart: bool


def layers_of(network: nn.Module, blocks: int, family: str, name: str) -> tuple[Layer, ...]:
    """The decoder layers of a network that vLLM has built, in order; `family` is for those taken from transformers."""
    stack = _stack(network, blocks)
    if stack is None:
        raise LesionError(
            f"vLLM builds {name} as {type(network).__name__}, in which no list of {blocks} decoder layers was found;"
            f" use --engine transformers."
        )
    return tuple(_layer(module, family, name) for module in stack)


def _stack(network: nn.Module, blocks: int) -> nn.ModuleList | None:
    for module in network.modules():  # from the outside in: experts are inside layers
        if isinstance(module, nn.ModuleList) and len(module) == blocks:
            return module
    return None


def _layer(module: nn.Module, family: str, name: str) -> Layer:
    kind = type(module).__name__
    tails = TAILS.get(kind) if type(module).__module__.startswith("vllm.") else None
    known = families().get(family)
    if tails is None and type(module).__module__.startswith("transformers.models.") and known is not None:
        attention, mlp = known.attention[0], known.mlp[0]
        if attention is not None and mlp is not None:
            tails = (attention.tail, mlp.tail)
    if tails is None:
        raise LesionError(
            f"vLLM builds {name} of {kind}, a decoder layer whose structure is not known here, so that no edit can be"
            f" made in it; use --engine transformers."
        )
    parameters = tuple(inspect.signature(module.forward).parameters)
    try:
        attention_tail, mlp_tail = (module.get_submodule(path) for path in tails)
    except AttributeError as error:
        raise LesionError(
            f"vLLM builds {name} of {kind} in another way than is known here ({error}); use --engine transformers."
        ) from error
    return Layer(module, attention_tail, mlp_tail, parameters, "residual" in parameters)


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
        self.inputs: dict[tuple[int, str], _Inputs] = {}
        self._active: list[_Gate] = []
        self._last: tuple[bytes, bytes] | None = None

    def add(self, factors: Sequence[Sequence[Sequence[float]]], units: Sequence[Sequence[Any]] = ()) -> None:
        """Further edits behind those that are known.

        Args:
            factors: per edit, block and unit (as in `UNITS`) a factor.
            units: heads and neurons, for each module at whose input they lie: its block, its path in the block, how
                many slices its input has and of what size; which of these edits, counted from 0, multiply any, which
                slices, and by what.
        """
        known = len(self.factors)
        for layer, path, count, size, edits, numbers, products in units:
            if (layer, path) not in self.inputs:
                self.inputs[layer, path] = _Inputs(self.layers[layer], layer, path, count, size)
            of_columns = self.inputs[layer, path].of_columns
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
        for gate in self.inputs.values():
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


class _Inputs(_Gate):
    """Equal slices of the input of a linear module: heads before the output matrix of attention, neurons before the
    last matrix of an MLP.

    Attributes:
        of_columns: of the edits that multiply any slice, by column, the factors by number of the slice.
    """

    def __init__(self, layer: Layer, index: int, path: str, count: int, size: int) -> None:
        super().__init__(f"{index}.{path}")
        self.count, self.size = count, size
        self.of_columns: dict[int, dict[int, float]] = {}
        modules = dict(layer.module.named_modules())
        if path not in modules:
            raise LesionError(
                f"vLLM builds block {index} without {path}, at whose input heads or neurons are multiplied; use --engine"
                " transformers."
            )
        modules[path].register_forward_pre_hook(self.scale)

    def table(self, columns: Sequence[int]) -> np.ndarray:
        """What these columns multiply every slice by, [columns, slices]."""
        table = np.ones((len(columns), self.count))
        for row, column in enumerate(columns):
            for number, factor in self.of_columns.get(column, {}).items():
                table[row, number] = factor
        return table

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
            branch = layer.attention if UNITS[unit] == "attention" else layer.mlp
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
