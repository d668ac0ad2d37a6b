"""Probe: a few tokens sent through an unknown architecture, watched and disturbed, and what that proves about it.

In the first pass two rows are alike but for what single modules are given: whether a module lets tokens see each other
shows itself. In the second one row is of other tokens, which shows whether all that a branch adds passes through one
matrix. In the third some heads give no numbers (NaN): which inputs of the output matrix lose theirs shows which of them
belong to which head, and that nothing mixes the heads before. NaN needs no tolerance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

from lesion.models.matrices import packed_shape

TOKENS = 6
"""In the probe. Enough for a convolution and a chunk, and every token sees the first."""
SEEN = 1e-5
"""A token sees another whose change changes it by a larger share of the largest number, and by more than rounding."""
_SOFTMAX = (nn.functional.softmax, torch.softmax, Tensor.softmax)
_PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)


@dataclass
class Trace:
    """One forward pass through a block; numbers are of the first row alone.

    Attributes:
        before, after: the stream, [tokens, width].
        outputs: by path, in the order in which modules end, what gives as many numbers as the stream has, of its shape.
        ended: every module that ran, in the order in which they ended.
        repeated: those that ran several times.
        mixes: by path of a child of the block, whether what it gives for a token depends on earlier tokens.
        calls: by path of a module that holds weights of three axes, what it was given.
        norms: by path of a norm, what it was given and what it gave, of the shape of the stream.
    """

    before: Tensor = field(default_factory=lambda: torch.empty(0))
    after: Tensor = field(default_factory=lambda: torch.empty(0))
    outputs: dict[str, Tensor] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    repeated: set[str] = field(default_factory=set)
    mixes: dict[str, bool] = field(default_factory=dict)
    calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    norms: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


def first_tensor(value: object) -> Tensor | None:
    """What a module gives or is given, where it is a tensor of numbers or begins with one."""
    while isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, Tensor) and value.is_floating_point() else None


def _given(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor | None:
    named = [kwargs[key] for key in ("hidden_states", "hidden_state", "x") if key in kwargs]
    return first_tensor(args) if args else first_tensor(named or list(kwargs.values()))


def _every_row_is_the_first(value: Any, rows: int) -> Any:
    """What a module gives, with the first row in the place of all others."""
    if isinstance(value, (tuple, list)):
        parts = [_every_row_is_the_first(part, rows) for part in value]
        return type(value)(parts) if type(value) in (tuple, list) else type(value)(*parts)
    if not isinstance(value, Tensor) or value.dim() == 0 or value.shape[0] % rows:
        return value
    by_row = value.reshape(rows, -1)
    return by_row[:1].expand_as(by_row).reshape(value.shape).clone()


def inside(path: str, modules: Iterable[str]) -> bool:
    """Whether a path is one of modules, or of what lies in one."""
    return any(path == module or path.startswith(f"{module}.") for module in modules)


def run(network: nn.Module, rows: int, other: int | None = None) -> None:
    """A pass over rows of the same tokens; row `other` has other ones."""
    embedding = network.get_input_embeddings().weight  # type: ignore[operator]
    tokens = torch.arange(TOKENS, device=embedding.device).repeat(rows, 1)
    if other is not None:
        tokens[other] = tokens[other].flip(0) + TOKENS
    network(input_ids=tokens % embedding.shape[0], use_cache=False)


def traced(network: nn.Module, stack: nn.ModuleList, children: Callable[[nn.Module], Iterable[str]]) -> list[Trace]:
    """Run a few tokens through a network and watch its blocks; `children` names the modules of one to tell apart."""
    traces = [Trace() for _ in stack]

    def enters(trace: Trace, _: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        for kept in (trace.outputs, trace.ended, trace.repeated, trace.norms):
            kept.clear()  # some architectures run a block several times
        stream = _given(args, kwargs)
        if stream is not None:
            trace.before = stream.clone()

    def leaves(trace: Trace, _: nn.Module, __: tuple[object, ...], output: object) -> None:
        stream = first_tensor(output)
        if stream is not None:
            trace.after = stream.clone()

    def ends(trace: Trace, name: str, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        if name in trace.ended:  # a module that runs twice is not in one place
            trace.repeated.add(name)
            trace.outputs.pop(name, None)
            trace.norms.pop(name, None)
            return
        trace.ended.append(name)
        tensor, given = first_tensor(output), first_tensor(args)
        # A copy: some architectures add in place to what a module gave.
        if tensor is not None and tensor.numel() == trace.before.numel():
            trace.outputs[name] = tensor.reshape(trace.before.shape)[0].clone()
            if given is not None and given.numel() == tensor.numel() and "norm" in type(module).__name__.lower():
                trace.norms[name] = given.reshape(trace.before.shape)[0].clone(), trace.outputs[name]

    def calls(trace: Trace, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        trace.calls[name] = (args, kwargs)

    def disturbs(trace: Trace, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        stream = _given(args, kwargs)
        if stream is None or stream.numel() != trace.before.numel() or trace.before.shape[0] != 2:
            return None
        changed = stream.clone()
        by_row = changed.view(2, -1, changed.shape[-1])
        by_row[1, 0] = by_row[1, 1]
        return tuple(changed if a is stream else a for a in args), {
            key: changed if value is stream else value for key, value in kwargs.items()
        }

    def settles(trace: Trace, name: str, _: nn.Module, __: tuple[object, ...], output: object) -> Any:
        tensor = first_tensor(output)
        if tensor is None or trace.before.shape[0] != 2 or tensor.numel() % trace.before[..., 0].numel():
            return None
        one, other = tensor.reshape(*trace.before.shape[:2], -1)[:, 1:]
        share = max(SEEN, 4 * torch.finfo(one.dtype).eps)
        trace.mixes[name] = bool((one - other).abs().max() > share * one.abs().max())
        return _every_row_is_the_first(output, 2)

    with ExitStack() as hooks, torch.no_grad():
        for trace, block in zip(traces, stack, strict=True):
            hooks.enter_context(block.register_forward_pre_hook(partial(enters, trace), with_kwargs=True))
            hooks.enter_context(block.register_forward_hook(partial(leaves, trace)))
            for name in children(block):
                child = block.get_submodule(name)
                hooks.enter_context(child.register_forward_pre_hook(partial(disturbs, trace), with_kwargs=True))
                hooks.enter_context(child.register_forward_hook(partial(settles, trace, name)))
            for name, module in block.named_modules():
                if name:
                    hooks.enter_context(module.register_forward_hook(partial(ends, trace, name)))
                if any(parameter.dim() == 3 for parameter in module.parameters(recurse=False)):
                    hooks.enter_context(module.register_forward_pre_hook(partial(calls, trace, name), with_kwargs=True))
        run(network, 2)
    for trace in traces:
        if trace.before.shape == trace.after.shape and len(trace.before):
            trace.before, trace.after = trace.before[0], trace.after[0]
    return traces


class _Attention(TorchFunctionMode):
    """Watches what the heads of an attention give, before anything else is done with it, and may take some of it away.

    It is the output of scaled dot-product attention, or the product of what a softmax gave (with a sink, of all but
    its last column) with the values.

    Args:
        silent: by block, which heads give no numbers in which row.
    """

    def __init__(self, rows: int, silent: Mapping[int, Bool[Tensor, "rows heads"]] | None = None) -> None:
        super().__init__()
        self.rows, self.silent = rows, silent
        self.block: int | None = None
        self.heads: dict[int, list[tuple[int, int]]] = {}
        self._weights: tuple[int, ...] = ()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if self.block is None:
            return output
        if func in _SOFTMAX:
            self._weights = tuple(output.shape)
        elif func is nn.functional.scaled_dot_product_attention:
            return self._given(output, (*args, *(kwargs or {}).values())[2])
        elif func in _PRODUCTS and self._weighted(args[0]):
            self._weights = ()
            return self._given(output, args[1])
        return output

    def _weighted(self, weights: Tensor) -> bool:
        seen = self._weights
        alike = len(seen) > 2 and weights.dim() > 2 and weights.shape[-2] == seen[-2]
        return alike and weights.shape[:-2].numel() == math.prod(seen[:-2]) and 0 <= seen[-1] - weights.shape[-1] <= 1

    def _given(self, output: Tensor, values: Tensor) -> Tensor:
        by_head = output.reshape(self.rows, -1, *output.shape[-2:])
        count = by_head.shape[1]
        assert self.block is not None
        of_block = self.heads.setdefault(self.block, [])
        of_block.append((count, _groups(values.reshape(self.rows, -1, *values.shape[-2:])[0], count)))
        silent = (self.silent or {}).get(self.block)
        if silent is None or len(of_block) > 1 or silent.shape[1] != count:
            return output
        silent = silent.to(output.device)[:, :, None, None]
        return by_head.masked_fill(silent, torch.nan).reshape(output.shape)


def _groups(values: Float[Tensor, "heads length size"], count: int) -> int:
    """How many groups of neighbouring heads read the same values; 0 where they do not stand side by side."""
    if len(values) < count:  # each read by several query heads
        return len(values) if count % len(values) == 0 else 0
    begins = [True, *((values[1:] != values[:-1]).flatten(1).any(1).tolist())]
    groups = sum(begins)
    share = count // groups
    return groups if begins == [number % share == 0 for number in range(count)] else 0


@contextmanager
def _within(stack: nn.ModuleList, modules: Sequence[Sequence[str]], mode: _Attention) -> Any:
    """The mode watches while modules of a block run, until the `with` ends."""

    def enters(index: int, *_: object) -> None:
        mode.block = index

    def leaves(*_: object) -> None:
        mode.block = None

    with ExitStack() as hooks:
        for index, (block, names) in enumerate(zip(stack, modules, strict=True)):
            for name in names:
                hooks.enter_context(block.get_submodule(name).register_forward_pre_hook(partial(enters, index)))
                hooks.enter_context(block.get_submodule(name).register_forward_hook(leaves))
        with mode, torch.no_grad():
            yield


Tail = tuple[int, str, str]
"""A block's number, a tail in it, and the path of the linear map that may end it."""


def last_linear(block: nn.Module, trace: Trace, scope: Iterable[str]) -> str | None:
    """The path of the linear map that was the last to end, of all inside some modules."""
    modules = tuple(scope)
    once = (name for name in reversed(trace.ended) if inside(name, modules) and name not in trace.repeated)
    return next((name for name in once if _is_linear(block.get_submodule(name))), None)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, Conv1D)) or packed_shape(module) is not None


def sole_ways(
    network: nn.Module, stack: nn.ModuleList, tails: Sequence[Tail], mixing: Sequence[Sequence[str]]
) -> tuple[set[Tail], dict[int, list[tuple[int, int]]]]:
    """Which linear maps are the only way to their tail: given the same there, a tail gives the same for all tokens.

    The second value is, by block, how many heads gave something in modules that mix tokens, and in how many groups.
    """
    sole: set[Tail] = set()
    differs: set[Tail] = set()

    def same(tail: Tail, _: nn.Module, __: object, output: object) -> Any:
        tensor = first_tensor(output)
        if tensor is not None and tensor.shape[0] % 2 == 0:
            by_row = tensor.reshape(2, -1)
            if not torch.equal(by_row[0], by_row[1]):
                differs.add(tail)
        return _every_row_is_the_first(output, 2)

    def compares(tail: Tail, _: nn.Module, __: object, output: object) -> None:
        tensor = first_tensor(output)
        if tensor is not None and tail in differs:
            one, other = tensor.reshape(2, -1).float()
            if bool((one - other).abs().max() <= 1e-6 * one.abs().max()):
                sole.add(tail)

    mode = _Attention(2)
    with ExitStack() as hooks, _within(stack, mixing, mode):
        for place in tails:
            index, tail, path = place
            hooks.enter_context(stack[index].get_submodule(path).register_forward_hook(partial(same, place)))
            hooks.enter_context(stack[index].get_submodule(tail).register_forward_hook(partial(compares, place)))
        run(network, 2, other=1)
    return sole, mode.heads


Reader = tuple[int, str, int]
"""A block's number, the path of the output matrix of an attention in it, and how many heads it may read."""


def _patterns(count: int) -> Bool[Tensor, "patterns units"]:
    """Of every bit of a unit's number a pattern of the units that have it, and one of those that have it not."""
    bits = torch.arange(max(1, (count - 1).bit_length()))
    has = (torch.arange(count)[None] >> bits[:, None]) & 1 == 1
    return torch.stack([has, ~has], 1).flatten(0, 1)


def _owners(lost: Bool[Tensor, "patterns columns"]) -> Int[Tensor, " columns"]:
    """Which unit each column depends on; −1 where it is none or more than one."""
    has, has_not = lost.unflatten(0, (-1, 2)).unbind(1)
    bits = torch.arange(len(has))
    numbers = (has.long() << bits[:, None]).sum(0)
    return torch.where((has != has_not).all(0), numbers, -1)


def _side_by_side(owners: Int[Tensor, " columns"], count: int) -> bool:
    size, rest = divmod(len(owners), count)
    return rest == 0 and torch.equal(owners, torch.arange(count).repeat_interleave(size))


def _lost(given: Tensor, rows: int) -> Bool[Tensor, "rows columns"]:
    return given.isnan().reshape(rows, -1, given.shape[-1]).any(1).cpu()


def read_side_by_side(
    network: nn.Module, stack: nn.ModuleList, readers: Sequence[Reader], mixing: Sequence[Sequence[str]]
) -> set[Reader]:
    """Which output matrices read the heads of their attention side by side, with nothing that mixes them before."""
    if not readers:
        return set()
    rows = max(len(_patterns(count)) for _, _, count in readers)
    silent, patterns = {}, {}
    for index, _, count in readers:
        patterns[index] = len(_patterns(count))
        silent[index] = torch.cat([_patterns(count), torch.zeros(rows - patterns[index], count, dtype=torch.bool)])
    proved: set[Reader] = set()

    def reads(reader: Reader, _: nn.Module, args: tuple[Any, ...]) -> Any:
        index, count = reader[0], reader[2]
        lost = _lost(args[0], rows)[: patterns[index]]
        if _side_by_side(_owners(lost), count):
            proved.add(reader)
        return (args[0].nan_to_num(), *args[1:])

    with ExitStack() as hooks, _within(stack, mixing, _Attention(rows, silent)):
        for reader in readers:
            module = stack[reader[0]].get_submodule(reader[1])
            hooks.enter_context(module.register_forward_pre_hook(partial(reads, reader)))
        run(network, rows)
    return proved


class _Stop(Exception):  # noqa: N818  (nothing is wrong)
    """What is looked for has come."""


def read_by_parameter(
    network: nn.Module, stack: nn.ModuleList, readers: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], int]:
    """By output matrix, how many heads it reads side by side of a layer that has numbers of each of its heads.

    Such are the decays, step sizes and skips of state-space layers and linear attention: a parameter with one number a
    head, in the module that holds the output matrix.
    """
    calls: dict[tuple[int, str], tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def keeps(reader: tuple[int, str], _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        stateless = {key: None if "cache" in key or "past" in key else value for key, value in kwargs.items()}
        calls[reader] = (args, stateless)

    with ExitStack() as hooks, torch.no_grad():
        for reader in readers:
            holder = stack[reader[0]].get_submodule(reader[1].rpartition(".")[0])
            hooks.enter_context(holder.register_forward_pre_hook(partial(keeps, reader), with_kwargs=True))
        run(network, 1)
        counts = {}
        for (index, path), (args, kwargs) in calls.items():
            parent, _, own = path.rpartition(".")
            holder = stack[index].get_submodule(parent)
            count = _heads_by_parameter(holder, own, args, kwargs)
            if count is not None:
                counts[index, path] = count
    return counts


def _heads_by_parameter(holder: nn.Module, own: str, args: Any, kwargs: Any) -> int | None:
    given: list[Tensor] = []

    def reads(_: nn.Module, args: tuple[Any, ...]) -> None:
        given.append(args[0])
        raise _Stop

    def reaches(parameters: dict[str, Tensor]) -> Tensor:
        given.clear()
        with suppress(_Stop):
            functional_call(holder, parameters, args, kwargs)
        return given[0]

    def side_by_side(name: str, parameter: Tensor) -> bool:
        count = parameter.numel()
        lost = [
            _lost(reaches({name: parameter.masked_fill(silent.view(parameter.shape), torch.nan)}), 1)
            for silent in _patterns(count).to(parameter.device)
        ]
        return _side_by_side(_owners(torch.cat(lost)), count)

    with holder.get_submodule(own).register_forward_pre_hook(reads):
        columns = reaches({}).shape[-1]
        single = {
            name: parameter
            for name, parameter in holder.named_parameters()
            if parameter.numel() == max(parameter.shape, default=0) and 1 < parameter.numel() < columns
        }
        counts = [p.numel() for name, p in single.items() if columns % p.numel() == 0 and side_by_side(name, p)]
        return max(counts, default=None)


@dataclass(frozen=True)
class Stacked:
    """Experts that lie in parameters with an axis of experts, of one module.

    Attributes:
        count: how many.
        last: the name of the parameter with the last matrix of each.
        transposed: whether it holds [in, out] of each.
        gated: the name of the parameter with the gate and, behind it, the linear part of each; empty where none has.
        side_by_side: whether each is given all tokens, those that it was not chosen for times 0 (Llama 4).
    """

    count: int
    last: str
    transposed: bool
    gated: str = ""
    side_by_side: bool = False


def stacked_experts(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Stacked | None:
    """The experts of a module that was called with the numbers and weights of those that a router chose, or with the
    tokens of all experts one after the other.

    Proved are: what the module gives is a sum over the chosen experts, each multiplied by its weight, or what each
    gives of its own tokens; which matrix of an expert makes what it gives: without numbers in its first row, the first
    number of the output alone is lost; and which is a gate with a linear part: its second half doubled, and not its
    first, doubles all that the expert gives.
    """
    routed = routing(args, kwargs)
    stacked = {name: p for name, p in module.named_parameters(recurse=False) if p.dim() == 3}
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    if len({len(parameter) for parameter in stacked.values()}) != 1 or (routed is None and len(tensors) != 1):
        return None
    start = tensors[0] if routed is None else routed[1]

    def given(put: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        swapped = [put if arg is start else arg for arg in args]
        named = {key: put if arg is start else arg for key, arg in kwargs.items()}
        output = first_tensor(functional_call(module, dict(parameters or {}), tuple(swapped), named))
        return torch.empty(0) if output is None else output.reshape(-1, output.shape[-1])

    with torch.no_grad():
        whole = given(start)
        tolerance = 16 * torch.finfo(whole.dtype).eps * float(whole.abs().max()) if len(whole) else 0.0
        count = len(next(iter(stacked.values())))
        if not (_side_by_side_given(given, start, count) if routed is None else _weighted(given, start, tolerance)):
            return None
        for name, axis in itertools.product(stacked, (1, 2)):
            parameter = stacked[name]
            if parameter.shape[axis] != whole.shape[-1]:
                continue
            silent = parameter.clone()
            silent.select(axis, 0).fill_(torch.nan)
            lost = given(start, {name: silent}).isnan()
            if not bool(lost[:, 0].all()) or bool(lost[:, 1:].any()):
                continue

            def from_double(fused: str, half: int, axis: int = axis) -> float:
                doubled = stacked[fused].clone()
                doubled.chunk(2, axis)[half].mul_(2)
                return float((given(start, {fused: doubled}).double() - 2 * whole).abs().max())

            # In half precision a gate, too, is nearly linear for small numbers; doubling is exact.
            gated = ""
            for fused in stacked:
                if fused != name and stacked[fused].shape[axis] % 2 == 0:
                    gate, linear = from_double(fused, 0), from_double(fused, 1)
                    gated = fused if linear <= tolerance and linear < gate / 4 else gated
            return Stacked(count, name, axis == 2, gated, routed is None)
    return None


def _weighted(given: Callable[[Tensor], Tensor], weights: Tensor, tolerance: float) -> bool:
    """Whether what a module gives is a sum over experts, each multiplied by its weight."""
    part = weights * (torch.arange(weights.shape[1], device=weights.device) % 2 == 0)
    part[::2] = weights[::2] - part[::2]
    whole, one, other = (given(put) for put in (weights, part, weights - part))
    apart = float((one.double() + other - whole).abs().max()) if len(whole) else torch.inf
    return apart <= tolerance and not torch.equal(one, whole)


def _side_by_side_given(given: Callable[[Tensor], Tensor], tokens: Tensor, count: int) -> bool:
    """Whether the tokens of two rows are given to each of so many experts, one after the other, in one order.

    Those of all experts are the same but for a number each; the rows are alike behind their first token (`traced`);
    where the tokens of some experts are lost, all that the module gives for these is lost, and nothing else.
    """
    by_expert = tokens.reshape(count, 2, TOKENS, -1)  # fails where there are others
    largest = by_expert.norm(dim=-1, keepdim=True).argmax(0, keepdim=True)
    direction = nn.functional.normalize(by_expert.take_along_dim(largest, 0), dim=-1)
    along = (by_expert * direction).sum(-1, keepdim=True) * direction
    close = 1e-4 if tokens.dtype == torch.float32 else 0.02
    if not torch.allclose(along, by_expert, rtol=0, atol=close * float(tokens.abs().max())):
        return False
    if not torch.allclose(by_expert[:, 0, 1:], by_expert[:, 1, 1:], rtol=close, atol=close):
        return False
    for silent in _patterns(count).to(tokens.device):
        lost = given(by_expert.masked_fill(silent[:, None, None, None], torch.nan).view_as(tokens)).isnan()
        if not torch.equal(lost.reshape(count, -1), silent[:, None].expand(count, lost.numel() // count)):
            return False
    return True


def routing(args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Tensor, Tensor] | None:
    """Among what a module is given, the numbers of chosen experts and their weights, both [tokens, chosen]."""
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    numbers = [t for t in given if not t.is_floating_point() and t.dtype != torch.bool and t.dim() == 2]
    if len(numbers) != 1:
        return None
    weights = [t for t in given if t.is_floating_point() and t.shape == numbers[0].shape]
    # Hidden states come before, and may be as wide as there are chosen experts.
    return (numbers[0], weights[-1]) if weights else None
