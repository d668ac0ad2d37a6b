"""Gates: many edits in one batch, each row of every forward pass under its own edit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lesion.arguments import validated
from lesion.edits.buffer import Buffer
from lesion.edits.edit import BASELINE, EditLike
from lesion.edits.files.artefact import edit_for
from lesion.edits.lowrank import Factors, LowRank, hang_first
from lesion.edits.place import UNITS
from lesion.edits.replace import Replace
from lesion.edits.standing import Standing
from lesion.edits.table import Table, maskable, scalable, scale_contribution, scale_output, tabulate
from lesion.edits.unit_rows import (
    Replacing,
    ReplacingRows,
    UnitRows,
    Vectors,
    positions_of,
    refuse_other_models,
    unit_rows,
)
from lesion.errors import LesionError, UsageError
from lesion.models.anatomy import HEAD
from lesion.models.load import Model
from lesion.models.matrices import Matrix, Storage
from lesion.models.owner import Hold, held
from lesion.models.units import Experts, Site


@validated
@contextmanager
def gated(model: Model) -> Iterator[Gates]:
    """Gates on `model` until the `with` ends, however it ends; before the first `assign` nothing is edited.

    The weights are never touched: every module still runs, so that key-value caches stay aligned between rows. What it
    adds to the residual stream is scaled, as a whole or unit by unit, replaced by a contribution of a reference, as a
    whole or head by head, or computed anew from the components of a truncated matrix that the row keeps. Works with a
    cache, with `generate`, with gradients and under `torch.inference_mode`.

    Raises:
        LesionError: during a forward pass, when an edit could not take hold (see `Gates`).
    """
    with held(model, "gates", edits=True) as hold, hung(model, hold) as gates:
        yield gates


@contextmanager
def hung(model: Model, hold: Hold) -> Iterator[Gates]:
    """Gates on a model that is held, until the `with` ends."""
    gates = Gates(model, hold)
    try:
        yield gates
    finally:
        gates.remove()


class Gates:
    """The hooks that `gated` holds on one model; after the end of the `with` nothing more can be assigned.

    A place gets its hook when an assignment first edits it. A forward pass raises `LesionError` when

    - its batch has another number of rows than the assignment,
    - it did not run through a place that is edited, or not with all rows that are edited there,
    - a block changes its input in place, so that its contribution cannot be told from the stream.
    """

    def __init__(self, model: Model, hold: Hold) -> None:
        self._model = model
        self._hold = hold
        self._anatomy = model.anatomy
        self._factors = Factors(model)
        self._vectors = Vectors()
        self._positions: Tensor | None = None
        self._low_rank: dict[str, LowRank] = {}
        self._places: dict[tuple[int, int], _Place] = {}
        self._units: dict[Site, UnitRows] = {}
        self._active: list[_Place | LowRank | UnitRows] = []
        self._handles: list[RemovableHandle] = []
        self._shared = addresses_by_module(model)
        self._same_weights = same_weights(model)
        self._set(tabulate([BASELINE], self._anatomy), everywhere=True)
        for runner in {model.network, self._anatomy.trunk(model.network)}:  # a pass may be started from either
            self._handles.append(runner.register_forward_pre_hook(self._begin_pass, with_kwargs=True))
            self._handles.append(runner.register_forward_hook(self._end_pass))

    @validated
    def assign(self, edits: Sequence[EditLike]) -> None:
        """Row r of every following forward pass is under `edits[r]` (see `edit_for`).

        Raises:
            UsageError: an edit names a place that the model does not have, takes contributions of another model, or
                truncates or scales a matrix that is not the same for all tokens of a row (see `maskable`); or the
                `with` of these gates has ended. The assignment stays as it was.
        """
        self._set(tabulate([edit_for(self._model, edit) for edit in edits], self._anatomy))

    def assign_everywhere(self, edit: EditLike, length: Callable[[], int] | None = None) -> None:
        """Every row of every following forward pass is under `edit`, whatever the size of the batch; errors as of
        `assign`, `length` as of `assign_table`.
        """
        self._set(tabulate([edit_for(self._model, edit)], self._anatomy), everywhere=True, length=length)

    def assign_table(
        self,
        table: Table,
        growing: bool = False,
        positions: Int[Tensor, "rows length"] | None = None,
        length: Callable[[], int] | None = None,
    ) -> None:
        """Row r of every following forward pass is under column r of a table (`lesion.edits.table.tabulate`).

        Args:
            table: a column for every row.
            growing: the batch may have fewer rows at the lower blocks: the first of the table; the rest join, at its
                end, before the first block that their edit changes.
            positions: of every row's tokens in the next pass, also of rows that join; else the pass tells them.
            length: says at every pass how many tokens the text has by then, where a pass does not tell it.
        """
        self._set(table, growing=growing, positions=positions, length=length)

    def assign_standing(self, standing: Standing) -> None:
        """Row r of every following forward pass is under what `standing` has it under then."""
        self._set(standing.table, standing=standing)

    @validated
    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Row r of every following forward pass is under what row `rows[r]` is under now.

        Drops, reorders and repeats rows; cheap enough for every decoding step, if `rows` lies on the CPU.
        """
        if not self._everywhere:
            self._set(self._table.select(rows.cpu()))

    def put(self, vectors: Mapping[Replace, Float[Tensor, "vectors width"]]) -> None:
        """Have these replacements add these vectors, in the place of their reference's; gradients flow back to them."""
        self._vectors.put(vectors)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UsageError(
            f"{self._anatomy.name} has an edit in force and would be copied or pickled with it, under the name of the"
            " model without it: leave `applied` or `gated` first."
        )

    def remove(self) -> None:
        """Take every hook off the model. `gated` does this at its end."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for matrix in self._low_rank.values():
            matrix.remove()

    def _set(
        self,
        table: Table,
        everywhere: bool = False,
        growing: bool = False,
        positions: Tensor | None = None,
        length: Callable[[], int] | None = None,
        standing: Standing | None = None,
    ) -> None:
        if self._hold.over or not self._hold.of_this_code():
            raise UsageError(
                f"These gates of {self._anatomy.name} are {'over' if self._hold.over else 'held elsewhere'}: assign"
                " edits inside their `with`, in the thread or task that began it."
            )
        if table.replacements:
            refuse_other_models(table.replacements, self._model)
        # A standing assignment runs every place that some column edits, whether a row is under that column or not.
        all_columns = standing.columns if standing else table
        changed = all_columns.edited
        ends_only = ((all_columns.scales == 1) | (all_columns.scales == 0)).all(-1)
        edited = changed.any(-1).nonzero().tolist()
        # Every place is found before anything changes: an error must leave the assignment as it was.
        active = [self._place(layer, unit) for layer, unit in edited]
        truncated = [
            (self._matrix(address, table.layers[address]), intervals)
            for address, intervals in table.kept.items()
            if bool(table.truncates(address).any())
        ]
        scaled = [(self._units_of(site), factors) for site, factors in table.units.items() if len(factors.columns)]
        units_standing, kept_standing = (standing.units, standing.kept) if standing else ({}, {})
        units_in_buffers = [(self._units_of(site), site, factors) for site, (factors, _) in units_standing.items()]
        kept_in_buffers = [
            (self._matrix(address, all_columns.layers[address]), kept) for address, kept in kept_standing.items()
        ]
        self._table = table
        self._everywhere = everywhere
        self._growing = growing
        self._given_positions, self._length = positions, length
        self._scales = standing.factors if standing else Buffer(table.scales)
        self._active = [*active, *(matrix for matrix, _ in truncated), *(units for units, _ in scaled)]
        self._active += [*(units for units, _, _ in units_in_buffers), *(matrix for matrix, _ in kept_in_buffers)]
        every: list[_Place | LowRank | UnitRows] = [*self._places.values(), *self._low_rank.values()]
        for hung in [*every, *self._units.values()]:
            hung.active = False
        for place in active:
            place.active = True
            place.ends = bool(ends_only[place.layer, place.unit])
            place.needed = int(changed[place.layer, place.unit].nonzero().max()) + 1 if growing else 0
            place.replacing = self._replacing(place, table, everywhere, standing)
        for matrix, intervals in truncated:
            matrix.assign(intervals, everywhere, growing)
        for units, factors in scaled:
            units.assign(factors, table.replacements, everywhere, growing)
        if standing is not None:
            for units, site, buffer in units_in_buffers:
                units.assign_buffer(buffer, standing.replacing_units(site, self._vectors))
            for matrix, kept in kept_in_buffers:
                matrix.assign_buffer(kept, standing.columns.kept[matrix.address])
        self._positional = any(place.replacing is not None and place.replacing.positional for place in active)
        self._positional |= any(units.positional for units in self._units.values() if units.active)

    def _replacing(
        self, place: _Place, table: Table, everywhere: bool, standing: Standing | None
    ) -> Replacing | ReplacingRows | None:
        if standing is not None:
            return standing.replacing((place.layer, place.unit), self._vectors)
        numbers = table.replaced[place.layer, place.unit]
        if not bool((numbers >= 0).any()):
            return None
        return Replacing(numbers, table.replacements, everywhere, self._vectors)

    def _matrix(self, address: str, layer: int) -> LowRank:
        if address not in self._low_rank:
            matrix = self._anatomy.matrix(address)
            if not maskable(matrix):
                raise UsageError(
                    f"{address} of {self._anatomy.name} is {matrix.storage.kind}, which rows of a batch cannot truncate"
                    f" each in their own way; make the edit so with `applied`."
                )
            self._refuse_shared(matrix)
            low_rank = LowRank(matrix, layer, self._factors, self._model)
            self._low_rank[address] = low_rank
            if layer < len(self._anatomy.blocks):
                self._count_rows(low_rank)
            low_rank.hang()
        return self._low_rank[address]

    def _units_of(self, site: Site) -> UnitRows:
        if site not in self._units:
            matrix = site.outputs[0] if isinstance(site, Experts) else site.matrix
            if site.count == 1 and not isinstance(site, Experts) and not scalable(matrix):
                raise UsageError(
                    f"{matrix.address} of {self._anatomy.name} is {matrix.storage.kind}, which rows of a batch cannot"
                    " scale each in their own way; make the edit so with `applied`."
                )
            self._refuse_shared(matrix)
            hung = self._units[site] = unit_rows(site, self._vectors, self._positions_of)
            self._count_rows(hung)
            self._handles.append(hung.hang())
        return self._units[site]

    def _refuse_shared(self, matrix: Matrix) -> None:
        if len(same := self._same_weights[matrix.address]) > 1:
            raise UsageError(
                f"{' and '.join(same)} of {self._anatomy.name} are one matrix; no edit can part them. Edit other"
                " matrices, or whole blocks."
            )

    def _count_rows(self, hung: LowRank | UnitRows) -> None:
        """Have the rows counted that come to a block: a matrix in it may be given them without an axis of their own."""

        def look_at_input(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            if hung.active:
                hung.rows = self._arrived(_stream_into(args, kwargs), hung)

        block = self._anatomy.block(hung.layer).module
        self._handles.append(block.register_forward_pre_hook(look_at_input, with_kwargs=True))

    def _place(self, layer: int, unit: int) -> _Place:
        if (layer, unit) not in self._places:
            block = self._anatomy.block(layer)
            branch = None if UNITS[unit] == "block" else getattr(block, UNITS[unit])
            place = _Place(self, layer, unit)
            modules = branch.tails if branch else (block.module,)
            for module in modules:
                if len(same := self._shared[module]) > 1:
                    raise UsageError(
                        f"{' and '.join(same)} of {self._anatomy.name} are one module; no edit can part them."
                    )
            self._handles.append(block.module.register_forward_pre_hook(place.look_at_input, with_kwargs=True))
            # First of all hooks: transformers collects hidden states in hooks, and means the edited ones.
            hook = place.edit_output if branch else place.edit_contribution
            for module in modules:
                self._handles.append(module.register_forward_hook(hook, prepend=True, with_kwargs=True))
                hang_first(module)
            self._places[layer, unit] = place
        return self._places[layer, unit]

    def _factor(self, place: _Place, like: Tensor) -> Float[Tensor, " rows"]:
        # Half precision would make 1.1 into 1.1016: the factor and its product are float32 at least.
        dtype = torch.promote_types(like.dtype, torch.float32)
        place.passed = True
        factor = self._scales.on(like.device, dtype)[place.layer, place.unit]
        return factor[: place.rows] if self._growing else factor

    def _positions_of(self, stream: Tensor) -> Int[Tensor, "_ length"] | None:
        positions = self._positions
        if positions is None:
            return None
        # Gemma's last blocks are given the tokens alone whose logits are wanted, which are the last ones.
        positions = positions[:, -stream.shape[1] :]
        return positions[: len(stream)] if self._growing else positions

    def _check_rows(self, batch: int) -> None:
        rows = self._table.columns
        if self._everywhere or (self._growing and batch <= rows):
            return
        if batch != rows:
            raise LesionError(
                f"A batch of {batch} rows came to {self._anatomy.name}, but edits are assigned to {rows}: "
                f"call assign or select with as many edits as rows before the forward pass."
            )

    def _arrived(self, stream: Tensor, place: _Place | LowRank | UnitRows) -> int:
        """How many rows came to the block of a place; all that are edited there must be among them."""
        rows = stream.shape[0]
        self._check_rows(rows)
        if rows < place.needed:
            raise LesionError(
                f"Row {place.needed - 1} joined the batch above block {place.layer} of {self._anatomy.name}, "
                f"which its edit changes: rows must join before the first block that their edit changes."
            )
        return rows

    def _begin_pass(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object] = MappingProxyType({})
    ) -> None:
        if self._hold.over:  # a pass that waited for these gates to end, but had its list of hooks before
            return
        for place in self._active:
            place.passed = False
        inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1])
        for tensor in inputs:
            if isinstance(tensor, Tensor):
                self._check_rows(tensor.shape[0])
        # The trunk of a network may be given less than the network, which was told the positions of as many tokens.
        told, given = self._positions, kwargs.get("position_ids")
        known = (
            told is not None
            and module is not self._model.network
            and given is None
            and any(isinstance(tensor, Tensor) and tensor.shape[1] == told.shape[-1] for tensor in inputs)
        )
        if self._positional and not known:
            length = self._length() if self._length else None
            given = self._given_positions
            told = positions_of(args, kwargs, length) if given is None else given
            if told is not None:  # Reformer's trunk is given no tokens, and the network around it was
                self._positions = told

    def _end_pass(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._positions = None
        # The head comes after the trunk, and only the whole network runs it.
        beyond = HEAD if module is not self._model.network else None
        missed = [place.address for place in self._active if not place.passed and place.address != beyond]
        if missed:
            raise LesionError(
                f"The edit of {', '.join(missed)} did not take hold: a forward pass of "
                f"{self._anatomy.name} did not run through that place, so its logits are not under the edit."
            )


class _Place:
    """One place of the model, whether it is edited under the present assignment, and its hooks."""

    def __init__(self, gates: Gates, layer: int, unit: int) -> None:
        self.gates = gates
        self.layer = layer
        self.unit = unit
        self.active = False
        self.passed = False  # that the present forward pass ran through it
        self.ends = False  # every factor is 0 or 1
        self.rows = 0  # of the batch that came to the block last
        self.needed = 0  # rows that must have joined a growing batch by now: up to the last one edited here
        self.replacing: Replacing | ReplacingRows | None = None
        self.proved = UNITS[unit] != "block"  # that the block leaves its input as it is
        self.input_copy: Tensor | None = None
        self.address = str(layer) if UNITS[unit] == "block" else f"{layer}.{UNITS[unit]}"

    def look_at_input(self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        if self.active:
            stream = _stream_into(args, kwargs)
            self.rows = self.gates._arrived(stream, self)
            if not self.proved:
                self.input_copy = stream.detach().clone()

    def edit_contribution(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: Any
    ) -> Any:
        if not self.active:
            return output
        before, after = _stream_into(args, kwargs), _stream_out_of(output, self.address)
        if self.input_copy is not None:
            self._prove(before, self.input_copy)
        before = before.to(after)  # blocks spread over devices are given the stream of the previous device
        factor = self.gates._factor(self, after)
        stream = scale_contribution(before, after, factor, self.ends)
        if self.replacing is not None:
            stream = self.replacing(stream, before, self.gates._positions_of(stream))
        return _with_stream(output, stream)

    def edit_output(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: Any
    ) -> Any:
        if not self.active:
            return output
        added = _stream_out_of(output, self.address)
        factor = self.gates._factor(self, added)
        flat = added.dim() == 2  # [rows · length, width]; the rows were counted at the block's input
        by_row = added.reshape(self.rows, -1, added.shape[-1]) if flat else added
        by_row = scale_output(by_row, factor, self.ends)
        if self.replacing is not None:
            by_row = self.replacing(by_row, None, self.gates._positions_of(by_row))
        return _with_stream(output, by_row.view(added.shape))

    def _prove(self, stream: Tensor, copy: Tensor) -> None:
        self.input_copy = None
        if not bool(torch.isclose(stream, copy, rtol=0, atol=0, equal_nan=True).all()):
            raise LesionError(
                f"Block {self.address} of {self.gates._anatomy.name} changes its input in place, and so what "
                f"it adds to the residual stream cannot be told; edit its attention and its mlp instead."
            )
        self.proved = True


def _stream_into(args: tuple[object, ...], kwargs: Mapping[str, object]) -> Tensor:
    stream, other = args[0] if args else kwargs.get("hidden_states"), kwargs.get("prev_attn_output")
    if isinstance(stream, Tensor) and isinstance(other, Tensor):  # the two streams of Reformer, side by side
        return torch.cat([other, stream], -1)
    if not isinstance(stream, Tensor):
        raise LesionError("A block was called without hidden states as its first argument; it cannot be edited.")
    return stream


def _stream_out_of(output: Any, address: str) -> Tensor:
    if hasattr(output, "attn_output"):
        return torch.cat([output.attn_output, output.hidden_states], -1)
    stream = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(stream, Tensor):
        raise LesionError(
            f"{address} gives back a {type(stream).__name__} where a tensor is expected; it cannot be edited."
        )
    return stream


def _with_stream(output: Any, stream: Tensor) -> Any:
    if hasattr(output, "attn_output"):
        attention, hidden = stream.chunk(2, -1)
        return output._replace(attn_output=attention, hidden_states=hidden)
    if isinstance(output, list):
        return [stream, *output[1:]]
    return (stream, *output[1:]) if isinstance(output, tuple) else stream


def addresses_by_module(model: Model) -> Mapping[nn.Module, list[str]]:
    """The addresses of each gated module: more than one where a network runs a module several times."""
    addresses: dict[nn.Module, list[str]] = defaultdict(list)
    for block in model.anatomy.blocks:
        addresses[block.module].append(str(block.index))
        for branch in block.branches:
            for tail in branch.tails:
                addresses[tail].append(f"{block.index}.{branch.name}")
    return addresses


def lone_modules(model: Model) -> dict[str, nn.Module]:
    """By the address of a block or branch, the module that makes it alone, and nothing else.

    Left out are modules that are several places, and what several modules add together.
    """
    addresses = addresses_by_module(model)
    makers = Counter(name for names in addresses.values() for name in names)
    return {names[0]: module for module, names in addresses.items() if len(names) == 1 == makers[names[0]]}


def same_weights(model: Model) -> Mapping[str, list[str]]:
    """By the address of each matrix, all addresses of it: several where a network runs a module several times, or where
    several of its modules hold one parameter.
    """
    together: dict[tuple[int, Storage], list[str]] = defaultdict(list)
    for address, matrix in model.anatomy.scored.items():
        held = matrix.module if matrix.packed else getattr(matrix.module, matrix.attribute)
        together[id(held), matrix.storage].append(address)
    return {address: several for several in together.values() for address in several}
