"""Structure: the plan of an unknown architecture, by shape and name clues that one forward pass must confirm.

What names suggest counts only where arithmetic agrees: for a few tokens, every block's output must equal its
input plus what the suggested attention and MLP give. What does not agree is left out, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.errors import LesionError
from lesion.models.families import BranchPaths, Entry
from lesion.models.matrices import packed_shape
from lesion.models.quantised import quantisation

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedModel

ATTENTION_CLUES = ("attn", "attention")
MLP_CLUES = ("mlp", "feed_forward", "feedforward", "ffn", "moe")
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
PROBE_TOKENS = 6
# Two additions round twice, by at most half a unit of numbers twice as large as any of the terms.
ADDITIONS_ERROR = 4.0


@dataclass(frozen=True)
class Structure:
    """The inferred structure.

    Attributes:
        path: dotted name of the list of decoder layers.
        plans: per block, the plans of its attention and of its MLP, empty where none is certain.
        notes: sentences on what was taken for what, and what was not found.
        reasons: parameter name → why no matrix is seen in it.
    """

    path: str
    plans: tuple[tuple[tuple[BranchPaths, ...], tuple[BranchPaths, ...]], ...]
    notes: tuple[str, ...]
    reasons: dict[str, str]


@dataclass
class _Trace:
    """One forward pass through a block: hidden states before and after, and the output of each of its modules."""

    before: Tensor | None = None
    after: Tensor | None = None
    outputs: dict[str, Tensor] = field(default_factory=dict)


def _stacks(network: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    """Every list of modules that does not lie inside another one (the experts of a block do)."""
    inside: tuple[str, ...] = ()
    for path, module in network.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) > 1 and not path.startswith(inside or ("\0",)):
            inside += (f"{path}.",)
            yield path, module


def _first_tensor(value: object) -> Tensor | None:
    while isinstance(value, (tuple, list)) and value:
        value = value[0]
    return value if isinstance(value, Tensor) and value.is_floating_point() else None


def _trace(network: PreTrainedModel, stack: nn.ModuleList) -> list[_Trace]:
    """Run a few tokens through the network and watch its blocks."""
    traces = [_Trace() for _ in stack]

    def enters(trace: _Trace, _: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        named = [kwargs[key] for key in ("hidden_states", "hidden_state", "x") if key in kwargs]
        hidden_states = _first_tensor(args) if args else _first_tensor(named)
        trace.before = None if hidden_states is None else hidden_states.clone()

    def leaves(trace: _Trace, name: str, _: nn.Module, __: tuple[object, ...], output: object) -> None:
        # A copy: some architectures add in place to what a module gave.
        tensor = _first_tensor(output)
        if tensor is not None and not name:
            trace.after = tensor.clone()
        elif tensor is not None:
            trace.outputs[name] = tensor.clone()

    with ExitStack() as hooks, torch.no_grad():
        for trace, block in zip(traces, stack, strict=True):
            hooks.callback(block.register_forward_pre_hook(partial(enters, trace), with_kwargs=True).remove)
            for name, module in block.named_modules():
                hooks.callback(module.register_forward_hook(partial(leaves, trace, name)).remove)
        embedding = network.get_input_embeddings().weight
        tokens = torch.arange(PROBE_TOKENS, device=embedding.device) % embedding.shape[0]
        network(input_ids=tokens[None])
    return traces


def _wide(module: nn.Module, quantised: bool) -> bool:
    """Whether a module has weights of two axes; some quantised storages keep theirs as buffers."""
    if any(p.dim() >= 2 for p in module.parameters()):
        return True
    return quantised and any(packed_shape(part) is not None for part in module.modules())


def _clued(block: nn.Module, clues: tuple[str, ...], quantised: bool) -> list[str]:
    """Children with weights of two axes whose name bears a clue or, where no name does, whose class does.

    Names go first: classes bear the name of their architecture, and JetMoe's attention is no mixture of experts.
    """
    weighted = [(n, m) for n, m in block.named_children() if _wide(m, quantised)]
    by_name = [name for name, _ in weighted if any(clue in name.lower() for clue in clues)]
    return by_name or [n for n, m in weighted if any(clue in type(m).__name__.lower() for clue in clues)]


def _suggested_mlp(block: nn.Module, quantised: bool) -> list[str]:
    """The modules that are the MLP: one child by name, or two linear maps of the block itself, and back."""
    if named := _clued(block, MLP_CLUES, quantised):
        return named if len(named) == 1 else []
    shapes = [(name, _linear(child, quantised)) for name, child in block.named_children()]
    maps = [(name, shape) for name, shape in shapes if shape is not None]
    if len(maps) == 2 and maps[0][1] == maps[1][1][::-1]:
        return [name for name, _ in maps]
    return []


def _tails(block: nn.Module, modules: list[str], trace: _Trace) -> list[str | None]:
    """Where a branch may end, likeliest first: the module, a norm behind it, a linear map inside it."""
    if not modules:
        return [None]
    norms = [n for n, child in block.named_children() if "norm" in type(child).__name__.lower()]
    inner = [f"{modules[-1]}.{name}" for name, _ in block.get_submodule(modules[-1]).named_modules() if name]
    assert trace.before is not None
    size = trace.before.numel()
    return [n for n in (modules[-1], *norms, *inner) if n in trace.outputs and trace.outputs[n].numel() == size]


def _error(trace: _Trace, tails: tuple[str | None, str | None]) -> float:
    """Distance of the block's output from its input plus the outputs of the tails, in roundings of the dtype."""
    before, after = trace.before, trace.after
    assert before is not None
    assert after is not None
    added = [trace.outputs[tail].reshape(before.shape).double() for tail in tails if tail is not None]
    total = before.double() + sum(added)
    scale = max(float(t.abs().max()) for t in (before, after, *added))
    return float((total - after.double()).abs().max()) / (torch.finfo(before.dtype).eps * scale)


def _confirmed(
    block: nn.Module, trace: _Trace, quantised: bool
) -> tuple[tuple[list[str], str | None], tuple[list[str], str | None]]:
    """(modules, tail) of the attention and of the MLP, the tails None where the sum does not come out."""
    named = _clued(block, ATTENTION_CLUES, quantised)
    attention = named if len(named) == 1 else []
    mlp = _suggested_mlp(block, quantised)
    least = ADDITIONS_ERROR
    best: tuple[str | None, str | None] = (None, None)
    if attention or mlp:
        for tails in itertools.product(_tails(block, attention, trace), _tails(block, mlp, trace)):
            error = _error(trace, tails)
            if tails[0] != tails[1] and error < least:
                least, best = error, tails
    return (attention, best[0]), (mlp, best[1])


def _linear(module: nn.Module, quantised: bool) -> tuple[int, int] | None:
    """(out, in) of a linear map, plain or packed; None of any other module."""
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


def _plan(block: nn.Module, branch: str, modules: list[str], tail: str, width: int, quantised: bool) -> BranchPaths:
    """Every linear map of a branch as one matrix, by the field's word or, where in doubt, by its own name."""
    names: dict[str, tuple[str, str | None]] = {}
    for module in modules:
        for path, part in block.get_submodule(module).named_modules(prefix=module):
            into_out = tuple(part.weight.shape) if isinstance(part, Conv1D) else None
            shape = _linear(part, quantised) if into_out is None else into_out[::-1]
            if shape is not None:
                own = path.removeprefix(f"{module}.") if len(modules) == 1 else path
                names[path] = own, _word(path, branch, (shape[0], shape[1]), width)
    words = [word for _, word in names.values()]
    entries = (
        Entry((own if word is None or words.count(word) > 1 else word,), path) for path, (own, word) in names.items()
    )
    return BranchPaths(tail, tuple(entries))


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
        traces = _trace(network, stack)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AttributeError) as error:
        raise LesionError(
            f"{unknown}. Its structure could not be checked, since a forward pass over {PROBE_TOKENS} tokens "
            f"failed: {error}"
        ) from error
    for index, trace in enumerate(traces):
        if trace.before is None or trace.after is None or trace.before.shape != trace.after.shape:
            raise LesionError(
                f"{unknown}. The longest list of alike modules is {path} ({len(stack)} × "
                f"{type(stack[0]).__name__}), but number {index} of it does not take hidden states and give "
                "hidden states of the same shape, so it is not a stack of decoder layers."
            )
    notes = [
        f"{what} is not in the table of architectures, so it was taken apart by its structure: the "
        f"{len(stack)} modules of {path} ({', '.join(sorted({type(block).__name__ for block in stack}))}) "
        f"are taken for the blocks, and a branch is named only where, over {PROBE_TOKENS} tokens, the output "
        "of its block was its input + attention + MLP."
    ]
    for index, (block, following) in enumerate(itertools.pairwise(traces)):
        if not torch.equal(block.after, following.before):  # type: ignore[arg-type]
            notes.append(f"Between block {index} and block {index + 1} something else changes the residual stream.")

    reasons: dict[str, str] = {}
    plans: dict[str, list[tuple[BranchPaths, ...]]] = {"attention": [], "mlp": []}
    for index, (module, trace) in enumerate(zip(stack, traces, strict=True)):
        assert trace.before is not None
        for branch, (parts, tail) in zip(plans, _confirmed(module, trace, quantised), strict=True):
            if tail is not None:
                plans[branch].append((_plan(module, branch, parts, tail, trace.before.shape[-1], quantised),))
                continue
            plans[branch].append(())
            for part in parts:
                for parameter, _ in module.get_submodule(part).named_parameters(prefix=part):
                    reasons[f"{path}.{index}.{parameter}"] = f"what {part} adds to the stream is not known"
    for branch, word in (("attention", "attention"), ("mlp", "MLP")):
        missing = [str(index) for index, plan in enumerate(plans[branch]) if not plan]
        if missing:
            where = "any block" if len(missing) == len(stack) else f"blocks {', '.join(missing)}"
            notes.append(f"No {word} could be told apart in {where}; only the whole block can be edited there.")
    return Structure(path, tuple(zip(plans["attention"], plans["mlp"], strict=True)), tuple(notes), reasons)
