"""By hand: what a model says under an edit, by the simplest means there are, and by none that studies use.

A prompt alone is answered by the network's own greedy `generate`; where an edit acts at some positions only, the whole
text goes through the network anew for every token. Blocks and branches are multiplied in a hook of their own; all else
is a copy of a weight, changed in place and put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import GenerationConfig
from transformers.pytorch_utils import Conv1D

from lesion.edits.edit import Edit, Scale, Single, Truncate, parts
from lesion.edits.units import UnitEdit, site_of
from lesion.engines.checking import ends_of
from lesion.models.load import Model
from lesion.models.matrices import Matrix
from lesion.models.quiet import quiet
from lesion.models.units import Experts, Slices

CLOSE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Two logits closer than this share of the largest may change places by rounding alone (vLLM keeps some constants in
bfloat16); in half precision `COARSE`."""
COARSE = 0.02
Positions = Callable[[int], slice]
"""Of a prompt's length, the positions at which an edit acts."""
EVERYWHERE: Positions = lambda _: slice(None)  # noqa: E731
PROMPT: Positions = lambda length: slice(0, length)  # noqa: E731
DECODING: Positions = lambda length: slice(length, None)  # noqa: E731


class NoReferenceError(Exception):
    """An edit that is not made by hand here; its text says why."""


@dataclass(frozen=True)
class Said:
    """An answer: its tokens, and how many of them rounding cannot change.

    Attributes:
        tokens: as they were chosen, the one that ends the answer included.
        sure: so many of them that rounding cannot change.
    """

    tokens: tuple[int, ...]
    sure: int

    def agrees(self, tokens: Sequence[int]) -> bool:
        """Whether an answer is this one, as far as rounding lets it be told."""
        whole = self.sure == len(self.tokens)
        return tuple(tokens) == self.tokens if whole else tuple(tokens[: self.sure]) == self.tokens[: self.sure]


@torch.inference_mode()
def say(model: Model, prompt: Sequence[int], edit: Edit, limit: int, positions: Positions = EVERYWHERE) -> Said:
    """What the model says to a prompt, greedily, under an edit that acts at some positions."""
    tokens: list[int] = []
    sure: int | None = None
    close = CLOSE.get(model.dtype, COARSE)
    generates = positions is EVERYWHERE and hasattr(model.network, "generate")
    with changed(model, edit, positions(len(prompt))):
        for logits in _generated(model, prompt, limit) if generates else _passes(model, prompt, tokens):
            first, second = logits.topk(2).values.tolist()
            if sure is None and not first - second > close * float(logits.abs().max()):
                sure = len(tokens)
            tokens.append(int(logits.argmax()))
            if len(tokens) == limit or tokens[-1] in ends_of(model):
                break
    return Said(tuple(tokens), len(tokens) if sure is None else sure)


def _generated(model: Model, prompt: Sequence[int], limit: int) -> Sequence[Float[Tensor, " vocabulary"]]:
    """The logits of every step of the network's own `generate`, with its own cache."""
    network, ids = model.network, torch.tensor([list(prompt)], device=model.device)
    settings = GenerationConfig(
        **{"max_new_tokens": limit, "eos_token_id": sorted(ends_of(model)) or None, "pad_token_id": 0},
        **{"disable_compile": True, "return_dict_in_generate": True, "output_logits": True},
    )
    if hasattr(network, "_setup_cache"):  # RecurrentGemma's modules keep what they have read last
        network._setup_cache(network.config, 1, model.device, model.dtype)
    own, network.generation_config = network.generation_config, GenerationConfig()  # without penalties that came along
    try:
        with quiet():
            said = network.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    finally:
        network.generation_config = own
    return [logits[0].float() for logits in said.logits]


def _passes(model: Model, prompt: Sequence[int], tokens: list[int]) -> Iterator[Float[Tensor, " vocabulary"]]:
    """The logits behind a prompt and the tokens that are added to it, the whole text anew each time."""
    while True:
        ids = torch.tensor([[*prompt, *tokens]], device=model.device)
        yield model.network(input_ids=ids, use_cache=False).logits[0, -1].float()


@contextmanager
def changed(model: Model, edit: Edit, positions: slice = slice(None)) -> Iterator[None]:
    """The model under an edit at some positions of a single text, and put back bit for bit."""
    with ExitStack() as stack:
        weights: dict[tuple[nn.Module, str], Tensor] = {}
        for part in parts(edit):
            if isinstance(part, Scale) and not isinstance(part, UnitEdit):
                stack.enter_context(_place(model, part, positions))
            else:
                _change(model, part, weights)
        for (module, name), values in weights.items():
            whole = positions == slice(None)
            stack.enter_context(_written(module, name, values) if whole else _at(module, name, values, positions))
        yield


@contextmanager
def _place(model: Model, part: Scale, positions: slice) -> Iterator[None]:
    """What a block or branch adds to the stream, multiplied."""
    block = model.anatomy.block(part.layer)
    before: list[Tensor] = []

    def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        streams = (args[0] if args else kwargs["hidden_states"]), kwargs.get("prev_attn_output")
        before[:] = [stream.clone() for stream in streams if stream is not None]

    def multiplied(given: Tensor, start: Tensor) -> Tensor:
        stream = given.clone().view(1, -1, given.shape[-1])
        held = start.to(stream).view_as(stream)[:, positions] if part.unit == "block" else 0.0
        stream[:, positions] = held + part.factor * (stream[:, positions] - held)
        return stream.view_as(given)

    def multiply(_: nn.Module, __: tuple[Any, ...], output: Any) -> Any:
        if isinstance(output, Tensor):
            return multiplied(output, before[0])
        if part.unit == "block" and len(before) == 2:  # Reformer has two streams
            streams = multiplied(output.hidden_states, before[0]), multiplied(output.attn_output, before[1])
            return output._replace(hidden_states=streams[0], attn_output=streams[1])
        parts = multiplied(output[0], before[0]), *output[1:]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)

    branch = None if part.unit == "block" else getattr(block, part.unit)
    modules = (block.module,) if branch is None else branch.tails
    with ExitStack() as hooks:
        hooks.enter_context(block.module.register_forward_pre_hook(remember, with_kwargs=True))
        for module in modules:
            hooks.enter_context(module.register_forward_hook(multiply))
        yield


def _change(model: Model, part: Single, weights: dict[tuple[nn.Module, str], Tensor]) -> None:
    """Enter the parameters that a part of an edit changes, each a changed copy, into `weights`."""

    def copy_of(matrix: Matrix) -> Tensor:
        if matrix.packed:
            raise NoReferenceError(f"the weights of {matrix.address} are packed")
        key = matrix.module, matrix.attribute
        weights.setdefault(key, getattr(matrix.module, matrix.attribute).detach().clone())
        return matrix.storage.view(weights[key])

    if isinstance(part, UnitEdit):
        site, numbers = site_of(part, model.anatomy)
        if isinstance(site, Experts):
            matrix = site.outputs[numbers[0]]
            copy_of(matrix).mul_(part.factor)
            if matrix.bias is not None:
                key = matrix.module, matrix.bias
                bias = weights.setdefault(key, getattr(matrix.module, matrix.bias).detach().clone())
                bias[numbers[0]] *= part.factor
            return
        columns = slice(None)
        if isinstance(site, Slices):
            columns = slice(numbers[0] * site.size, (numbers[-1] + 1) * site.size)
        copy_of(site.matrix)[..., columns] *= part.factor
    elif isinstance(part, Truncate) and part.side != "random":
        matrix = model.anatomy.matrix(part.address)
        view = copy_of(matrix)
        start, stop = part.kept(min(matrix.shape))
        view.copy_(_kept(view.reshape(matrix.shape), start, stop).view_as(view))
    else:
        raise NoReferenceError(f"no weights are written by hand for a {type(part).__name__}")


def _kept(matrix: Float[Tensor, "out in"], start: int, stop: int) -> Float[Tensor, "out in"]:
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left[:, start:stop] * values[start:stop]) @ right[start:stop]


@contextmanager
def _written(module: nn.Module, name: str, values: Tensor) -> Iterator[None]:
    data = getattr(module, name).data
    before = data.clone()
    data.copy_(values)
    try:
        yield
    finally:
        data.copy_(before)


@contextmanager
def _at(module: nn.Module, name: str, values: Tensor, positions: slice) -> Iterator[None]:
    """A linear map that computes with other weights at some positions."""
    if name != "weight" or type(module) not in (nn.Linear, Conv1D):
        raise NoReferenceError(f"{type(module).__name__} is not computed position by position")

    def again(_: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        changed = output.clone().view(1, -1, output.shape[-1])
        given = args[0].reshape(1, -1, args[0].shape[-1])[:, positions]
        weight = values.T if isinstance(module, Conv1D) else values
        bias = module.bias if isinstance(module.bias, Tensor) else None
        changed[:, positions] = nn.functional.linear(given, weight, bias)
        return changed.view_as(output)

    with module.register_forward_hook(again):
        yield
