"""Structure: the plan of an unknown architecture, by what a few tokens sent through it prove.

For a few tokens, every block's output must equal its input plus what its modules give; which of them is the attention
shows in whether a token sees others there. What does not agree is left out, with the reason. Names serve only as names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.errors import LesionError
from lesion.models.families import BranchPaths, Entry, Proved
from lesion.models.matrices import packed_shape
from lesion.models.probe import (
    TOKENS,
    Reader,
    Stacked,
    Tail,
    Trace,
    inside,
    last_linear,
    read_by_parameter,
    read_side_by_side,
    sole_ways,
    stacked_experts,
    traced,
)
from lesion.models.quantised import quantisation

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedModel

# The last part of a module's name, where it leaves no doubt; `w1`, `dense`, `c_proj` keep their own name.
WORDS = {
    "q": ("q", "q_proj", "wq", "query", "q_lin"),
    "k": ("k", "k_proj", "wk", "key", "k_lin"),
    "v": ("v", "v_proj", "wv", "value", "v_lin"),
    "o": ("o", "o_proj", "wo", "out_proj"),
    "gate": ("gate_proj",),
    "up": ("up_proj",),
    "down": ("down_proj",),
    "in": ("fc1", "fc_in", "c_fc", "dense_h_to_4h"),
    "out": ("fc2", "fc_out", "dense_4h_to_h"),
}
BRANCH_WORDS = {"attention": ("q", "k", "v", "o"), "mlp": ("gate", "up", "down", "in", "out")}
# Two additions round twice, by at most half a unit of numbers twice as large as any of the terms.
ADDITIONS_ERROR = 4.0
SMALLEST, FEW = 1e-4, 6
NORMS_IN_STREAM = (
    "The norms of a block stand in the residual stream itself: removing both branches of a block leaves its norms,"
    " removing the block removes them too."
)
NO_UNITS = "no single matrix ends its MLP, and no one module has experts with what a router gives each of them"
FAILURES = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError, KeyError)
"""What the code of an unknown architecture may raise on a few tokens."""


@dataclass(frozen=True)
class Structure:
    """The inferred structure.

    Attributes:
        path: dotted name of the list of decoder layers.
        numbers: which modules of that list are blocks: those that ran.
        plans: per block, the plans of its attention and of its MLP, empty where none is certain.
        notes: sentences on what was taken for what, and what was not found.
        reasons: parameter name → why no matrix is seen in it.
    """

    path: str
    numbers: tuple[int, ...]
    plans: tuple[tuple[tuple[BranchPaths, ...], tuple[BranchPaths, ...]], ...]
    notes: tuple[str, ...]
    reasons: dict[str, str]


def _stacks(network: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    """Every list of modules that does not lie inside another one (the experts of a block do)."""
    inside: tuple[str, ...] = ()
    for path, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1 and not path.startswith(inside or ("\0",)):
            inside += (f"{path}.",)
            yield path, module


@dataclass(frozen=True)
class _Found:
    """One branch of a block, confirmed by the sum.

    Attributes:
        modules: paths of what belongs to it.
        tails: paths of the modules whose outputs, added up, are what it adds to the stream.
        factors: by what the block multiplies each of these before it adds them.
        owners: of each tail, the module of the block in which it lies or after which it comes.
        normed: whether norms of the block stand in the stream itself.
    """

    modules: tuple[str, ...] = ()
    tails: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()
    owners: tuple[str, ...] = ()
    width: int = 0
    normed: bool = False


@dataclass(frozen=True)
class _State:
    """A tensor in a block that is the stream plus what some modules gave, or a norm of that.

    Attributes:
        tails: factor by path of these modules.
        normed: whether a norm stands in the stream before it.
    """

    tensor: Tensor
    tails: Mapping[str, float]
    normed: bool = False


def _sum(target: Tensor, state: Tensor, added: Mapping[str, Tensor], plain: bool) -> Mapping[str, float] | None:
    """The factors with which outputs of modules and a multiple of a state add up to a tensor; None where they do not.

    Those that take part have a factor that is not 0 in the sum of all. With `plain` all factors must be 1.
    """
    eps = torch.finfo(target.dtype).eps
    least = max(SMALLEST, ADDITIONS_ERROR * eps)
    names, columns = [], [state.double().flatten()]
    for name, output in added.items():
        column = output.double().flatten()
        # A module and a map inside it may give the same: the outer one, which comes first, is meant.
        if not any(torch.allclose(column, other, rtol=8 * eps, atol=0) for other in columns):
            names.append(name)
            columns.append(column)
    goal = target.double().flatten()
    weight = 1 / (goal.abs() + state.double().flatten().abs() + torch.finfo(torch.float32).tiny)

    def fitted(chosen: Sequence[int]) -> Float[Tensor, " chosen"]:
        matrix = torch.stack([columns[number] for number in chosen], 1) * weight[:, None]
        scale = matrix.norm(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
        return torch.linalg.lstsq(matrix / scale, (goal * weight)[:, None], driver="gelsd").solution[:, 0] / scale

    def fits(chosen: Sequence[int], factors: Float[Tensor, " chosen"]) -> bool:
        terms = torch.stack([columns[number] for number in chosen], 1) * factors
        # Every addition and multiplication rounds by at most half a unit of a number no larger than this.
        size = terms.abs().sum(1) + goal.abs()
        apart = (terms.sum(1) - goal).abs()
        return abs(float(factors[0])) > least and bool((apart <= ADDITIONS_ERROR * eps * size).all())

    factors = fitted(range(len(columns)))
    chosen = [number for number in range(1, len(columns)) if abs(float(factors[number])) > least]
    # What a norm is given and gives may point the same way: the fewest that will do are meant.
    sizes = range(len(chosen) + 1) if len(chosen) <= FEW else [len(chosen)]
    for part in ((0, *part) for size in sizes for part in itertools.combinations(chosen, size)):
        own = torch.ones(len(part), dtype=torch.float64, device=goal.device) if plain else fitted(part)
        if fits(part, own):
            return dict(zip([names[number - 1] for number in part[1:]], own.tolist()[1:], strict=True))
    return None


def _side_of(trace: Trace, wide: Sequence[str]) -> dict[str, str]:
    """By path of every module that gives as many numbers as the stream has: the child of the block that it belongs to.

    It lies in it, or, as a norm does, comes next after it.
    """
    owners, last = {}, ""
    for path in trace.outputs:
        last = next((name for name in wide if inside(path, [name])), last)
        if last:
            owners[path] = last
    return owners


def _confirmed(block: nn.Module, trace: Trace, quantised: bool) -> tuple[_Found, _Found]:
    """The attention and the MLP of a block; without tails where the sum does not come out.

    The attention is what lets a token see others (a state-space layer or a convolution does so too), the MLP what does
    not. Norms may stand in the stream itself, behind a sum.
    """
    wide = [name for name in _children(block) if name in trace.mixes and _wide(block.get_submodule(name), quantised)]
    sides = tuple(tuple(name for name in wide if trace.mixes[name] == mixes) for mixes in (True, False))
    owners = _side_of(trace, wide)
    children = set(_children(block))
    outer = {path: trace.outputs[path] for path in (path for path in owners if path in children)}
    inner = {path: trace.outputs[path] for path in [*outer, *(path for path in owners if path not in children)]}
    for added in (outer, inner):
        state = _reached(trace, added, inner=added is inner)
        if state is not None:
            width = trace.before.shape[-1]
            attention, mlp = (
                _Found(side, tuple(tails), tuple(tails.values()), tuple(owners[t] for t in tails), width, state.normed)
                for side in sides
                for tails in [{path: f for path, f in state.tails.items() if owners[path] in side}]
            )
            return attention, mlp
    return _Found(sides[0]), _Found(sides[1])


def _reached(trace: Trace, added: Mapping[str, Tensor], inner: bool) -> _State | None:
    """What a block gives, as the stream plus what modules gave, with norms between; None where it is not that.

    Args:
        added: what modules gave, by path, in the order in which they ended.
        inner: whether a module may give the stream with something added.
    """
    states = [_State(trace.before, {})]
    free = dict(added)

    def reach(target: Tensor, earlier: Sequence[str]) -> _State | None:
        for plain, state in itertools.product((True, False), states):
            others = {path: free[path] for path in earlier if path in free and path not in state.tails}
            if (factors := _sum(target, state.tensor, others, plain)) is not None:
                return _State(target, {**state.tails, **factors}, state.normed)
        return None

    ended = list(trace.outputs)
    for number, path in enumerate(ended):
        if path in trace.norms and (state := reach(trace.norms[path][0], ended[:number])) is not None:
            states.append(replace(state, tensor=trace.norms[path][1], normed=True))
        elif inner and path in added and (state := reach(added[path], ended[:number])) is not None and state.tails:
            states.append(state)
            del free[path]
    last = reach(trace.after, ended)
    return last if last is not None and last.tails else None


def _children(block: nn.Module) -> Iterator[str]:
    """The names of a block's modules; a list stands for those in it."""
    for name, child in block.named_children():
        yield from (
            (f"{name}.{path}" for path, _ in child.named_children()) if isinstance(child, nn.ModuleList) else [name]
        )


def _wide(module: nn.Module, quantised: bool) -> bool:
    """Whether a module has weights of two axes; some quantised storages keep theirs as buffers."""
    if any(p.dim() >= 2 for p in module.parameters()):
        return True
    return quantised and any(packed_shape(part) is not None for part in module.modules())


def _linear(module: nn.Module, quantised: bool) -> tuple[int, int] | None:
    if isinstance(module, nn.Linear):
        return module.out_features, module.in_features
    return packed_shape(module) if quantised else None


def _word(path: str, branch: str, shape: tuple[int, int], width: int) -> str | None:
    """The field's word for a weight of a shape (out, in), where its module's name leaves no doubt and that agrees."""
    out, into = shape
    last = path.rpartition(".")[2]
    for word in BRANCH_WORDS[branch]:
        if last in WORDS[word]:
            return word if (out if word in ("o", "down", "out") else into) == width else None
    return None


def _plan(
    block: nn.Module, branch: str, found: _Found, experts: Mapping[str, Stacked], ended: Sequence[str], quantised: bool
) -> list[Entry]:
    """Every linear map of a branch as one matrix, by the field's word or, where in doubt, by its own name; experts that
    lie in one parameter expert by expert, the last matrix of each last.
    """
    names: dict[str, tuple[str, str | None]] = {}
    width = found.width
    for module in found.modules:
        for path, part in block.get_submodule(module).named_modules(prefix=module):
            into_out = tuple(part.weight.shape) if isinstance(part, Conv1D) else None
            shape = _linear(part, quantised) if into_out is None else into_out[::-1]
            if shape is not None:
                own = path.removeprefix(f"{module}.") if len(found.modules) == 1 else path
                names[path] = own, _word(path, branch, (shape[0], shape[1]), width)
    words = [word for _, word in names.values()]
    entries = []
    for path, (own, word) in names.items():
        prefix = own.rpartition(".")[0]
        alone = word is not None and words.count(word) == 1 and not (experts and prefix)
        name = word if alone else f"{prefix}.{word}" if experts and prefix and word is not None else own
        entries.append(Entry((name or own,), path, called=path in ended))
    for path, stacked in experts.items():
        parameters = [name for name, p in block.get_submodule(path).named_parameters(recurse=False) if p.dim() == 3]
        for name in sorted(parameters, key=lambda name: name == stacked.last):
            words_of = ("gate", "up") if name == stacked.gated else (name.removesuffix("_proj"),)
            names_of = tuple(f"expert*.{word}" for word in words_of)
            entries.append(Entry(names_of, f"{path}.{name}", "rows", stacked.transposed))
    return entries


def infer(network: PreTrainedModel, name: str) -> Structure:
    """The structure of a decoder whose architecture is not in the table."""
    what = type(network).__name__
    quantised = quantisation(network.config) is not None
    unknown = f"{name} is a {what}, an architecture that lesion does not know"
    stacks = list(_stacks(network))
    if not stacks:
        raise LesionError(
            f"{unknown}, and there is no list of decoder layers in it. What can be studied is a decoder "
            "built of a stack of blocks."
        )
    path, stack = max(stacks, key=lambda pair: (len({type(block) for block in pair[1]}) == 1, len(pair[1])))
    try:
        traces = traced(network, stack, _children)
    except FAILURES as error:
        raise LesionError(
            f"{unknown}. Its structure could not be checked, since a forward pass over {TOKENS} tokens failed: {error}"
        ) from error
    # Blocks of cross-attention (Llama 3.2 Vision) do not run where there is no picture.
    numbers = tuple(number for number, trace in enumerate(traces) if trace.ended)
    idle = [str(number) for number in range(len(stack)) if number not in numbers]
    stack, traces = nn.ModuleList(stack[number] for number in numbers), [traces[number] for number in numbers]
    for index, trace in enumerate(traces):
        if not len(trace.before) or trace.before.shape != trace.after.shape:
            raise LesionError(
                f"{unknown}. The longest list of alike modules is {path} ({len(stack)} × "
                f"{type(stack[0]).__name__}), but number {index} of it does not take hidden states and give "
                "hidden states of the same shape, so it is not a stack of decoder layers."
            )
    notes = [
        f"{what} is not in the table of architectures, so it was taken apart by its structure: the "
        f"{len(stack)} modules of {path} ({', '.join(sorted({type(block).__name__ for block in stack}))}) "
        f"are taken for the blocks, and a branch is named only where, over {TOKENS} tokens, the output "
        "of its block was its input + attention + MLP."
    ]
    if idle:
        notes.append(
            f"Modules {', '.join(idle)} of {path} do not run over a text alone, and are not numbered as blocks."
        )
    for index, (trace, following) in enumerate(itertools.pairwise(traces)):
        if not torch.equal(trace.after, following.before):
            notes.append(f"Between block {index} and block {index + 1} something else changes the residual stream.")

    reasons: dict[str, str] = {}
    found = [_confirmed(block, trace, quantised) for block, trace in zip(stack, traces, strict=True)]
    proved = _proved(network, stack, traces, found)
    plans: dict[str, list[tuple[BranchPaths, ...]]] = {"attention": [], "mlp": []}
    for index, block in enumerate(stack):
        for branch, own, (parts, experts) in zip(plans, found[index], proved[index], strict=True):
            if own.tails:
                entries = _plan(block, branch, own, experts, traces[index].ended, quantised)
                plans[branch].append((BranchPaths(own.tails[-1], tuple(entries), own.tails[:-1], parts),))
                continue
            plans[branch].append(())
            for part in own.modules:
                for parameter, _ in block.get_submodule(part).named_parameters(prefix=part):
                    reasons[f"{path}.{numbers[index]}.{parameter}"] = f"what {part} adds to the stream is not known"
    for branch, word in (("attention", "attention"), ("mlp", "MLP")):
        missing = [str(index) for index, plan in enumerate(plans[branch]) if not plan]
        if missing:
            where = "any block" if len(missing) == len(stack) else f"blocks {', '.join(missing)}"
            notes.append(f"No {word} could be told apart in {where}; there it can be edited only with the whole block.")
    if factors := sorted({f"{factor:.6g}" for own in found for side in own for factor in side.factors} - {"1"}):
        notes.append(
            f"What attention or MLP give is multiplied by {', '.join(factors[:8])} before it is added to the stream."
        )
    if any(side.normed for own in found for side in own):
        notes.append(NORMS_IN_STREAM)
    return Structure(path, numbers, tuple(zip(plans["attention"], plans["mlp"], strict=True)), tuple(notes), reasons)


_Proofs = list[tuple[tuple[Proved, Mapping[str, Stacked]], tuple[Proved, Mapping[str, Stacked]]]]
"""By block, of attention and MLP: what is proved, and the experts by the path of their module."""


def _proved(
    network: PreTrainedModel, stack: nn.ModuleList, traces: Sequence[Trace], found: Sequence[tuple[_Found, _Found]]
) -> _Proofs:
    """What further passes over a few tokens prove about heads, neurons and experts of every block."""
    ends: list[Tail] = []
    for index, (block, trace, sides) in enumerate(zip(stack, traces, found, strict=True)):
        for side in sides:
            for tail, owner in zip(side.tails, side.owners, strict=True):
                scope = (owner,) if len(side.tails) > 1 else side.modules
                if (path := last_linear(block, trace, scope)) is not None:
                    ends.append((index, tail, path))
    mixing = [attention.modules for attention, _ in found]
    sole: set[Tail] = set()
    heads: dict[int, list[tuple[int, int]]] = {}
    read: set[Reader] = set()
    by_parameter: dict[tuple[int, str], int] = {}
    with suppress(*FAILURES):
        sole, heads = sole_ways(network, stack, ends, mixing)
    ended = {(index, tail): path for index, tail, path in ends if (index, tail, path) in sole}
    of_attention = {
        i: [ended[i, t] for t in attention.tails if (i, t) in ended] for i, (attention, _) in enumerate(found)
    }
    readers = [
        (index, path, heads[index][0][0])
        for index, paths in of_attention.items()
        for path in paths
        if len(heads.get(index, ())) == 1
    ]
    with suppress(*FAILURES):
        read = read_side_by_side(network, stack, readers, mixing)
    others = [(index, path) for index, paths in of_attention.items() for path in paths if index not in heads]
    with suppress(*FAILURES):
        by_parameter = read_by_parameter(network, stack, others)
    counts = {(index, path): (count, heads[index][0][1]) for index, path, count in read}
    counts |= {place: (count, count) for place, count in by_parameter.items()}

    alike: dict[object, Stacked | None] = {}
    proofs: _Proofs = []
    for index, (block, trace, (_, mlp)) in enumerate(zip(stack, traces, found, strict=True)):
        own = of_attention[index]
        read_by = [path for path in own if counts.get((index, path), (0, 0))[1]]
        if len(read_by) == 1:
            of_heads = Proved(tuple(own), read_by[0], *counts[index, read_by[0]])
        else:
            of_heads = Proved(tuple(own), why=_no_heads(own, heads.get(index, [])))
        experts = _experts(block, trace, mlp, alike)
        of_mlp = [ended[index, tail] for tail in mlp.tails if (index, tail) in ended]
        alone = not experts and len(of_mlp) == len(mlp.tails)
        widest = max(of_mlp, key=partial(_inputs, block), default="") if alone else ""
        why = "" if widest else NO_UNITS
        aside = any(stacked.side_by_side for stacked in experts.values())
        proofs.append(((of_heads, {}), (Proved(tuple(of_mlp), widest, why=why, side_by_side=aside), experts)))
    return proofs


def _inputs(block: nn.Module, path: str) -> int:
    module = block.get_submodule(path)
    return int(module.weight.shape[0]) if isinstance(module, Conv1D) else int(module.in_features)  # type: ignore[arg-type]


def _no_heads(ends: Sequence[str], calls: Sequence[tuple[int, int]]) -> str:
    if not ends:
        return "not all that its attention adds passes through one output matrix"
    if not calls:
        return "what lets its tokens see each other is not made of heads that lie side by side"
    if len(calls) > 1:
        return "its attention is computed in several steps"
    return "its heads are mixed before the output matrix, or do not lie side by side there"


def _experts(block: nn.Module, trace: Trace, mlp: _Found, alike: dict[object, Stacked | None]) -> dict[str, Stacked]:
    """The experts of an MLP, where they lie in one module; empty where they lie in none or several.

    What is proved of one module holds for the same code with weights of the same shapes (`alike`), which may be large.
    """
    experts = {}
    for path, (args, kwargs) in trace.calls.items():
        module = block.get_submodule(path)
        kind = (type(module), tuple(parameter.shape for parameter in module.parameters()))
        if inside(path, mlp.modules) and kind not in alike:
            alike[kind] = None
            with suppress(*FAILURES):
                alike[kind] = stacked_experts(module, args, kwargs)
        if inside(path, mlp.modules) and (stacked := alike[kind]) is not None:
            experts[path] = stacked
    return experts if len(experts) == 1 else {}
