"""Anatomy: any decoder as blocks, their attention and MLP branches, and the named matrices in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

from torch import nn

from lesion.errors import UsageError, nearest
from lesion.models.build import Build, refuse_computed_weights
from lesion.models.families import Architecture, BranchPaths, families
from lesion.models.matrices import FLOATS, Matrix, MisfitError, Storage, lay_out, packed_shape
from lesion.models.names import blocks_with
from lesion.models.quantised import quantisation
from lesion.models.structure import infer
from lesion.models.units import Experts, Heads, Slices, experts_of, heads_of, neurons_of
from lesion.reprs import described

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedConfig, PreTrainedModel


def _names_by_tensor(network: PreTrainedModel) -> dict[int, list[str]]:
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return names


def tied(network: PreTrainedModel) -> tuple[tuple[str, ...], ...]:
    """Groups of parameter names that are one and the same parameter, each in the order of the network."""
    return tuple(tuple(names) for names in _names_by_tensor(network).values() if len(names) > 1)


def _reason(name: str, parameter: nn.Parameter, network: PreTrainedModel, held: Mapping[int, list[str]]) -> str:
    owner_name, _, attribute = name.rpartition(".")
    owner = network.get_submodule(owner_name)
    if owner is network.get_input_embeddings():
        return "input embedding"
    if owner is network.get_output_embeddings():
        return "output head" if attribute == "weight" else "bias of the output head"
    if id(owner) in held and "bias" in attribute:
        return f"bias of {', '.join(held[id(owner)])}"
    if isinstance(owner, nn.Embedding):
        # GPT-2 and OPT learn a vector for every position.
        return "position embedding" if "pos" in owner_name or "wpe" in owner_name else "embedding"
    if "norm" in type(owner).__name__.lower() and parameter.dim() <= 1:
        return "norm bias" if "bias" in attribute else "norm gain"
    if parameter.dim() == 1:
        return "bias" if "bias" in attribute else "vector"
    return ""


def uncovered(
    network: PreTrainedModel, matrices: Iterable[Matrix], blocks: Iterable[nn.Module], reasons: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(name, reason) for every parameter that holds none of the matrices, in the order of the network, tied names once.

    `blocks` are the decoder layers; `reasons` what is already known about single parameters, by name.
    """
    words: dict[int, list[str]] = defaultdict(list)
    held: set[int] = set()
    for matrix in matrices:
        if matrix.packed:
            held.update(id(part) for name, part in matrix.module.named_parameters(recurse=False) if name != "bias")
        else:
            held.add(id(getattr(matrix.module, matrix.attribute)))
        if matrix.name not in words[id(matrix.module)]:
            words[id(matrix.module)].append(matrix.name)
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    names = _names_by_tensor(network)
    parts = []
    for name, parameter in network.named_parameters():
        if id(parameter) in held:
            continue
        reason = reasons.get(name) or _reason(name, parameter, network, words)
        if not reason:
            reason = "its role in the block is not known" if id(parameter) in inside else "outside the decoder blocks"
        elif id(parameter) not in inside and reason.startswith("norm"):
            reason += " outside the blocks"
        others = [other for other in names[id(parameter)] if other != name]
        parts.append((name, f"{reason}, tied to {', '.join(others)}" if others else reason))
    return tuple(parts)


HEAD = "head"
UNEVEN = "its output matrix cannot be cut into as many heads as the configuration says"


@dataclass(frozen=True, eq=False)
class Branch:
    """The attention or the MLP of a block: one of the two things the block adds to the residual stream.

    Attributes:
        name: `attention` or `mlp`.
        tail: the module whose output (its first element, if a tuple) is exactly what the branch adds to the residual
            stream, a norm inside the branch included: [rows, length, hidden], OPT's [rows · length, hidden]. Some
            architectures multiply it by a number of their own before they add it.
        matrices: the weight matrices by name, in the order in which they are used.
        heads: of an attention; None where it is not known that its output matrix reads the heads side by side.
        neurons: of an MLP without experts; None where it is not known which matrix ends it.
        experts: of an MLP that has them; None where they do not lie in one parameter.
        beside: further modules whose outputs the block adds, too (Falcon-H1 has a state-space layer beside attention).
        proved_ends: of an inferred branch, matrices that are the only way to what one of its tails gives.
        why: why there are no heads, or neither neurons nor experts, as the end of a sentence.
    """

    name: str
    tail: nn.Module
    matrices: Mapping[str, Matrix]
    heads: Heads | None = None
    neurons: Slices | None = None
    experts: Experts | None = None
    beside: tuple[nn.Module, ...] = ()
    proved_ends: tuple[Matrix, ...] = ()
    why: str = ""

    @property
    def tails(self) -> tuple[nn.Module, ...]:
        """Every module whose output is a part of what the branch adds."""
        return (*self.beside, self.tail)

    @property
    def ends(self) -> tuple[Matrix, ...]:
        """The matrices that make what the branch adds: those of every expert, and of shared ones."""
        if self.proved_ends and self.experts is None:
            return self.proved_ends
        leaf = [*self.matrices][-1].rpartition(".")[2] if self.matrices else ""
        alike = [matrix for name, matrix in self.matrices.items() if name.rpartition(".")[2] == leaf]
        return tuple(dict.fromkeys([*self.proved_ends, *alike]))

    def __repr__(self) -> str:
        return described(self, repr(self.name), list(self.matrices))


@dataclass(frozen=True, eq=False)
class Block:
    """One decoder layer; `index` is counted from 0.

    Attributes:
        module: takes hidden states [rows, length, hidden] as its first argument and gives them back (its output, or
            the first element of it).
        attention, mlp: the two branches; None where an unknown architecture does not show which one it is.
    """

    index: int
    module: nn.Module
    attention: Branch | None
    mlp: Branch | None

    def __repr__(self) -> str:
        return described(self, self.index, *(f"{branch.name} {list(branch.matrices)}" for branch in self.branches))

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The branches that are known."""
        return tuple(branch for branch in (self.attention, self.mlp) if branch is not None)

    @property
    def matrices(self) -> dict[str, Matrix]:
        """Every matrix of the block by its name within it: `attention.q`, `mlp.up`."""
        return {f"{b.name}.{name}": matrix for b in self.branches for name, matrix in b.matrices.items()}


@dataclass(frozen=True, eq=False)
class Anatomy:
    """A decoder taken apart.

    Attributes:
        name: the model's name, for messages.
        family: the entry of families.toml, or the architecture's own name where it is unknown.
        known: False when the anatomy was inferred from structure, not by the table.
        blocks: the decoder layers in order.
        uncovered: (parameter name, reason) for every parameter in which no matrix lies, tied names once.
        tied: groups of parameter names that share one tensor.
        notes: sentences on what an edit of this model cannot or does not do.
        head: the output head (address `head`, not among `matrices`); None where it is tied to the input embedding.
        build: what the network was built of; None where it may change meanwhile, as in a training.
    """

    name: str
    family: str
    known: bool
    blocks: tuple[Block, ...]
    uncovered: tuple[tuple[str, str], ...] = ()
    tied: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    head: Matrix | None = None
    build: Build | None = None

    def __repr__(self) -> str:
        counts = f"{len(self.blocks)} blocks", f"{len(self.matrices)} matrices"
        return described(self, repr(self.name), self.family, *counts)

    @cached_property
    def matrices(self) -> Mapping[str, Matrix]:
        """Every matrix by address, block after block."""
        return {matrix.address: matrix for block in self.blocks for matrix in block.matrices.values()}

    @property
    def scored(self) -> Mapping[str, Matrix]:
        """Every matrix that has inputs of its own to score by: those of the blocks, and the head unless it is tied."""
        return self.matrices if self.head is None else {**self.matrices, HEAD: self.head}

    @property
    def packed(self) -> bool:
        """Whether a quantised storage holds any matrix, so that only places can be edited."""
        return any(matrix.packed for matrix in self.scored.values())

    def block(self, index: int) -> Block:
        """The block with this index."""
        if not 0 <= index < len(self.blocks):
            raise UsageError(f"there is no block {index}: {self.name} has blocks 0 to {len(self.blocks) - 1}.")
        return self.blocks[index]

    def branch(self, layer: int, name: str) -> Branch:
        """The attention or the MLP of a block."""
        branch: Branch | None = getattr(self.block(layer), name)
        if branch is None:
            others = [block.index for block in self.blocks if getattr(block, name) is not None]
            raise UsageError(
                f"No {name} is known in block {layer} of {self.name}.{blocks_with(f'a known {name}', others)} Edit"
                f" whole blocks ({layer}, or --unit block in a study); `lesion show {self.name}` lists what is known."
            )
        return branch

    def heads(self, layer: int) -> Heads:
        """The query heads of a block."""
        attention = self.block(layer).attention
        if attention is None or attention.heads is None:
            raise self._no_part(layer, "heads", "attention", attention)
        return attention.heads

    def neurons(self, layer: int) -> Slices:
        """The neurons of the MLP of a block: the columns of the matrix that ends it."""
        mlp = self.block(layer).mlp
        if mlp is not None and mlp.neurons is not None:
            return mlp.neurons
        if mlp is not None and mlp.experts is not None:
            raise UsageError(
                f"The MLP of block {layer} of {self.name} has {mlp.experts.count} experts, each with neurons of its"
                f" own, which are not numbered. Edit an expert, as {layer}.mlp.expert.0×0."
            )
        raise self._no_part(layer, "neurons", "mlp", mlp)

    def experts(self, layer: int) -> Experts:
        """The experts of the MLP of a block."""
        mlp = self.block(layer).mlp
        if mlp is not None and mlp.experts is not None:
            return mlp.experts
        if mlp is not None and mlp.neurons is not None:
            raise UsageError(
                f"The MLP of block {layer} of {self.name} has no experts: every token goes through the whole of it."
                f"{blocks_with('experts', self._with('experts', 'mlp'))} Edit {layer}.mlp, or a neuron, as"
                f" {layer}.mlp.neuron.0×0."
            )
        raise self._no_part(layer, "experts", "mlp", mlp)

    def _with(self, parts: str, name: str) -> list[int]:
        """The blocks of which these parts are known."""
        branches = {block.index: getattr(block, name) for block in self.blocks}
        return [
            index for index, branch in branches.items() if branch is not None and getattr(branch, parts) is not None
        ]

    def _no_part(self, layer: int, parts: str, name: str, branch: Branch | None) -> UsageError:
        why, whole = (f"no {name} is known there", str(layer)) if branch is None else (branch.why, f"{layer}.{name}")
        others = blocks_with(parts, self._with(parts, name))
        return UsageError(
            f"The {parts} of block {layer} of {self.name} are not known: {why}.{others} Edit {whole} as a whole, or a"
            f" matrix that `lesion show {self.name}` lists."
        )

    def refuse_sum(self, layer: int, unit: str) -> None:
        """Refuse to replace a branch that is the sum of what several modules give."""
        branch = getattr(self.block(layer), unit, None)
        if isinstance(branch, Branch) and branch.beside:
            raise UsageError(
                f"What the {unit} of block {layer} of {self.name} adds is the sum of several modules, so nothing can be"
                f" put in the place of one. Replace whole blocks (--unit block), or multiply the {unit} (--factor)"
                " without --replace."
            )

    def trunk(self, network: nn.Module) -> nn.Module:
        """The innermost module that runs all blocks: some networks call it past the model that holds it."""
        blocks = {block.module for block in self.blocks}
        trunk = network
        while True:
            holders = [child for child in trunk.children() if blocks <= set(child.modules())]
            if not holders or isinstance(holders[0], nn.ModuleList | nn.ModuleDict | nn.Sequential):
                return trunk
            trunk = holders[0]

    def layer_of(self, address: str) -> int:
        """The block in which a matrix lies; the number of blocks for the head."""
        return len(self.blocks) if address == HEAD else int(address.partition(".")[0])

    def matrix(self, address: str) -> Matrix:
        """The matrix at an address such as `3.mlp.up`."""
        matrix = self.head if address == HEAD else self.matrices.get(address)
        if matrix is not None:
            return matrix
        first, _, _ = address.partition(".")
        if first.isdecimal():
            known = [matrix.address for matrix in self.block(int(first)).matrices.values()]
            close = nearest(address, known) or (f" (block {first} has {', '.join(known[:12])})" if known else "")
        else:
            close = nearest(address, self.matrices)
        raise UsageError(f"there is no matrix '{address}' in {self.name}{close}.")


def _branch(
    name: str,
    plans: Sequence[BranchPaths],
    block: nn.Module,
    index: int,
    prefix: str,
    config: PreTrainedConfig,
    quantised: bool,
) -> Branch | None:
    """The branch of a block by the first plan that fits; None when there are no plans."""
    misfit: MisfitError | None = None
    for plan in plans:
        address = f"{index}.{name}"
        try:
            tail = block.get_submodule(plan.tail)
            parts = [lay_out(entry, block, prefix, address, config, quantised) for entry in plan.entries]
            matrices = [matrix for part in parts for matrix in part]
        except AttributeError:
            misfit = MisfitError(f"it has no {plan.tail}")
        except MisfitError as error:
            misfit = error
        else:
            # Expert by expert, so that gate, up and down of one expert stand together.
            matrices.sort(key=lambda m: -1 if m.storage.expert is None else m.storage.expert)
            by_name = {matrix.name: matrix for matrix in matrices}
            proved = plan.proved
            experts = experts_of(by_name, proved is not None and proved.side_by_side)
            if proved is None:
                if name == "attention":
                    return Branch(name, tail, by_name, heads=heads_of(by_name, config), why=UNEVEN)
                return Branch(name, tail, by_name, neurons=neurons_of(by_name), experts=experts)
            beside = tuple(block.get_submodule(path) for path in plan.beside)
            ends = {
                path: matrix
                for path in proved.ends
                for matrix in matrices
                if matrix.module is block.get_submodule(path)
            }
            whole = ends.get(proved.whole)
            heads = None if whole is None or not proved.heads else Heads.of(whole, proved.heads, proved.groups)
            neurons = None if whole is None or name == "attention" else Slices(whole, whole.shape[1], 1)
            return Branch(name, tail, by_name, heads, neurons, experts, beside, tuple(ends.values()), proved.why)
    if misfit is not None:
        raise misfit
    return None


def _blocks(
    network: PreTrainedModel,
    path: str,
    modules: Iterable[tuple[int, nn.Module]],
    plans: Iterable[tuple[Sequence[BranchPaths], Sequence[BranchPaths]]],
) -> tuple[Block, ...]:
    """The blocks, numbered modules of the list at a path, each by the plans of its attention and of its MLP."""
    config, quantised = network.config.get_text_config(), quantisation(network.config) is not None
    return tuple(
        Block(
            index,
            module,
            _branch("attention", attention, module, index, f"{path}.{number}", config, quantised),
            _branch("mlp", mlp, module, index, f"{path}.{number}", config, quantised),
        )
        for index, ((number, module), (attention, mlp)) in enumerate(zip(modules, plans, strict=False))
    )


def _known(network: PreTrainedModel) -> Architecture | None:
    """The family of a network, by the table; only for classes of transformers and what derives from them.

    Code that came with a checkpoint may call itself by a known name and compute something else.
    """
    own = any(base.__module__.startswith("transformers.models.") for base in type(network).__mro__)
    return families().get(network.config.model_type) if own else None


def _by_family(network: PreTrainedModel, family: Architecture) -> tuple[Block, ...]:
    for path in family.blocks:
        with suppress(AttributeError):
            modules = network.get_submodule(path)
            if isinstance(modules, nn.ModuleList) and len(modules):
                return _blocks(network, path, enumerate(modules), repeat((family.attention, family.mlp)))
    raise MisfitError(f"it has no {' or '.join(family.blocks)}")


def dissect(network: PreTrainedModel, name: str) -> Anatomy:
    """Take a decoder apart: by families.toml where its architecture is known, else by its structure.

    An architecture that is not in the table costs one forward pass over a few tokens, which checks what its structure
    suggests; what does not hold is left out, and `known` is False.
    """
    refuse_computed_weights(network, name)
    family = _known(network)
    notes: tuple[str, ...] = ()
    blocks: tuple[Block, ...] | None = None
    if family is not None:
        config = network.config.get_text_config()
        try:
            blocks = _by_family(network, family)
            notes = tuple(n["text"] for n in family.notes if getattr(config, n["when"], None) == n["is"])
        except MisfitError as misfit:
            notes = (f"This {family.name} is not built as the family is ({misfit}).",)
            family = None
    reasons: Mapping[str, str] = {}
    if blocks is None:
        structure = infer(network, name)
        notes, reasons = notes + structure.notes, structure.reasons
        modules = [(number, network.get_submodule(structure.path)[number]) for number in structure.numbers]
        blocks = _blocks(network, structure.path, modules, structure.plans)
    storage = quantisation(network.config)
    if storage is not None and storage.activations:
        notes += (
            f"{storage}: activations are rounded too, so an answer may differ with what shares its batch, and from a"
            " loop without cache.",
        )
    matrices = [matrix for block in blocks for matrix in block.matrices.values()]
    return Anatomy(
        name,
        family.name if family is not None else network.config.model_type or type(network).__name__,
        family is not None,
        blocks,
        uncovered(network, matrices, [block.module for block in blocks], reasons),
        tied(network),
        notes,
        _head(network),
        Build.of(network),
    )


def _head(network: PreTrainedModel) -> Matrix | None:
    """The output head, unless it is tied to another parameter or is neither a plain matrix nor a packed one."""
    module = network.get_output_embeddings()
    weight: Any = getattr(module, "weight", None)
    packed = packed_shape(module) if module is not None and quantisation(network.config) is not None else None
    names = [name for name, parameter in network.named_parameters(remove_duplicate=False) if parameter is weight]
    if packed is not None:
        if len(names) > 1:
            return None
        names = [f"{path}.weight" for path, part in network.named_modules() if part is module]
    elif type(module) is not nn.Linear or len(names) != 1 or weight.dim() != 2 or weight.dtype not in FLOATS:
        return None
    rows, columns = packed or weight.shape
    storage = Storage("Linear", 0, rows)
    return Matrix(HEAD, HEAD, (rows, columns), storage, names[0], module, "weight", packed is not None)
