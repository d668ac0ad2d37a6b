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
from lesion.edits.table import scale_contribution, scale_output
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
        self._active: list[_Place] = []
        self._last: tuple[bytes, bytes] | None = None

    def add(self, factors: Sequence[Sequence[Sequence[float]]]) -> None:
        """Further edits behind those that are known: per edit, block and unit a factor."""
        more = np.asarray(factors, dtype=np.float64).reshape(-1, len(self.layers), len(UNITS))
        self.factors = np.concatenate([self.factors, more])
        for layer, unit in np.argwhere((more != 1).any(0)).tolist():
            if (layer, unit) not in self.places:
                self.places[layer, unit] = _Place(self.layers[layer], layer, unit)
        self._last = None

    def begin(self, columns: np.ndarray, counts: np.ndarray, device: torch.device) -> None:
        """Say what the next forward pass is made of: of each request, its edit and the number of its tokens."""
        now = (columns.tobytes(), counts.tobytes())
        for place in self._active:
            place.passed = False
        if now == self._last:
            return
        self._last = now
        for place in self._active:
            place.rows = None
        self._active = []
        edited = (self.factors[columns] != 1).any(0)
        if not edited.any():
            return
        of_token = np.repeat(columns, counts)
        for layer, unit in np.argwhere(edited).tolist():
            factor = self.factors[of_token, layer, unit]
            rows = np.flatnonzero(factor != 1)
            if len(rows):
                place = self.places[layer, unit]
                place.assign(torch.from_numpy(rows).to(device), torch.from_numpy(factor[rows]).to(device))
                self._active.append(place)

    def end(self) -> None:
        """After a forward pass: refuse one that has not run through every place that it edits."""
        missed = [place.name for place in self._active if not place.passed]
        if missed:
            raise LesionError(
                f"The edit of {', '.join(missed)} did not take hold: vLLM ran the model without that place; use"
                f" --engine transformers."
            )


class _Place:
    """A block or a branch, the tokens that are edited there in the present pass, and its hooks."""

    def __init__(self, layer: Layer, index: int, unit: int) -> None:
        self.layer = layer
        self.name = str(index) if unit == BLOCK else f"{index}.{UNITS[unit]}"
        self.rows: Tensor | None = None
        self.factor = torch.ones(0)
        self.ends = False
        self.passed = False
        self.before: Tensor | None = None
        if unit == BLOCK:
            layer.module.register_forward_pre_hook(self.look_at_input, with_kwargs=True)
            layer.module.register_forward_hook(self.scale_contribution)
        else:
            branch = layer.attention if UNITS[unit] == "attention" else layer.mlp
            branch.register_forward_hook(self.scale_output)

    def assign(self, rows: Tensor, factor: Tensor) -> None:
        self.rows, self.factor = rows, factor
        self.ends = bool((factor == 0).all())
        self.passed = False

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

    def _factor(self, like: Tensor) -> Tensor:
        # Half precision would make 1.1 into 1.1016: the factor and its product are float32 at least.
        return self.factor.to(torch.promote_types(like.dtype, torch.float32))


def _flat(stream: Tensor) -> Tensor:
    """[tokens, width], sharing memory; models that vLLM takes from transformers have a batch of one around it."""
    if stream.dim() == 2:
        return stream
    return stream.view(-1, stream.shape[-1])


def _rows(stream: Tensor, rows: Tensor) -> Tensor:
    return _flat(stream).index_select(0, rows)
