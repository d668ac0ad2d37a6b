"""Gates: many edits in one batch, each row of every forward pass under its own edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lesion.edits.edit import BASELINE, UNITS, Edit
from lesion.edits.factors import factors, scale_contribution, scale_output
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model


@contextmanager
def gated(model: Model) -> Iterator[Gates]:
    """Gates on `model` until the `with` ends, however it ends; before the first `assign` nothing is edited.

    The weights are never touched: every module still runs, so that key-value caches stay aligned between
    rows, and only what it adds to the residual stream is scaled. Works with a cache, with `generate`, with
    gradients and under `torch.inference_mode`.

    Raises:
        LesionError: during a forward pass, when an edit could not take hold (see `Gates`).
    """
    gates = Gates(model)
    try:
        yield gates
    finally:
        gates.remove()


class Gates:
    """The hooks that `gated` holds on one model.

    A place gets its hook when an assignment first edits it, and a hook whose factors are all 1 does nothing.
    Nothing is skipped in silence. A forward pass raises `LesionError` when

    - its batch has another number of rows than the assignment,
    - it did not run through a place that is edited, or not with all rows that are edited there,
    - a block turns out to change its input in place, so that its contribution cannot be told from the stream.
    """

    def __init__(self, model: Model) -> None:
        self._anatomy = model.anatomy
        self._places: dict[tuple[int, int], _Place] = {}
        self._active: list[_Place] = []
        self._handles: list[RemovableHandle] = []
        self._shared = _addresses_by_module(model)
        self._set(factors([BASELINE], self._anatomy), everywhere=True)
        for runner in {model.network, _trunk(model)}:  # a pass may be started from either
            self._handles.append(runner.register_forward_pre_hook(self._begin_pass, with_kwargs=True))
            self._handles.append(runner.register_forward_hook(self._end_pass))

    def assign(self, edits: Sequence[Edit]) -> None:
        """Row r of every following forward pass is under `edits[r]`.

        Raises:
            UsageError: an edit names a place that the model does not have. The assignment stays as it was.
        """
        self._set(factors(edits, self._anatomy))

    def assign_everywhere(self, edit: Edit) -> None:
        """Every row of every following forward pass is under `edit`, whatever the size of the batch.

        Raises:
            UsageError: the edit names a place that the model does not have. The assignment stays as it was.
        """
        self._set(factors([edit], self._anatomy), everywhere=True)

    def assign_tensors(self, table: Float[Tensor, "blocks units rows"], growing: bool = False) -> None:
        """Row r of every following forward pass is under the factors `table[:, :, r]`.

        For an engine that keeps the table of all its edits (from `lesion.edits.factors.factors`, on the CPU)
        and refills its rows from it: `gates.assign_tensors(table.index_select(2, edit_of_row))`.

        Args:
            table: factors of every row.
            growing: the batch may have fewer rows at the lower blocks than `table`: those that are there are its
                first, and the rest join, at its end, before the first block that their edit changes.
        """
        self._set(table, growing=growing)

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Row r of every following forward pass is under what row `rows[r]` is under now.

        Drops, reorders and repeats rows; cheap enough for every decoding step, if `rows` lies on the CPU.
        """
        if not self._everywhere:
            self._set(self._table.index_select(2, rows.to(self._table.device)))

    def remove(self) -> None:
        """Take every hook off the model. `gated` does this at its end."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _set(self, table: Tensor, everywhere: bool = False, growing: bool = False) -> None:
        kept = table == 1
        open_everywhere = kept.all(-1)
        ends_only = (kept | (table == 0)).all(-1)
        edited = (~open_everywhere).nonzero().tolist()
        # Every place is found before anything changes: an error must leave the assignment as it was.
        active = [self._place(layer, unit) for layer, unit in edited]
        self._table = table
        self._everywhere = everywhere
        self._growing = growing
        self._on_device: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._active = active
        self._passed: set[_Place] = set()
        for place in self._places.values():
            place.active = False
        for place in active:
            place.active = True
            place.ends = bool(ends_only[place.layer, place.unit])
            place.needed = int((~kept[place.layer, place.unit]).nonzero().max()) + 1 if growing else 0

    def _place(self, layer: int, unit: int) -> _Place:
        if (layer, unit) not in self._places:
            block = self._anatomy.block(layer)
            branch = None if UNITS[unit] == "block" else getattr(block, UNITS[unit])
            place = _Place(self, layer, unit)
            module = branch.tail if branch else block.module
            if len(same := self._shared[module]) > 1:
                raise UsageError(f"{' and '.join(same)} of {self._anatomy.name} are one module; no edit can part them.")
            # First of all hooks: transformers collects hidden states in hooks, and means the edited ones.
            hook = place.scale_output if branch else place.scale_contribution
            self._handles += [
                block.module.register_forward_pre_hook(place.look_at_input, with_kwargs=True),
                module.register_forward_hook(hook, prepend=True, with_kwargs=True),
            ]
            self._places[layer, unit] = place
        return self._places[layer, unit]

    def _factor(self, place: _Place, like: Tensor) -> Float[Tensor, " rows"]:
        # Half precision would make 1.1 into 1.1016: the factor and its product are float32 at least.
        dtype = torch.promote_types(like.dtype, torch.float32)
        if (like.device, dtype) not in self._on_device:
            self._on_device[like.device, dtype] = self._table.to(like.device, dtype)
        self._passed.add(place)
        factor = self._on_device[like.device, dtype][place.layer, place.unit]
        return factor[: place.rows] if self._growing else factor

    def _check_rows(self, batch: int) -> None:
        rows = self._table.shape[2]
        if self._everywhere or (self._growing and batch <= rows):
            return
        if batch != rows:
            raise LesionError(
                f"A batch of {batch} rows came to {self._anatomy.name}, but edits are assigned to {rows}: "
                f"call assign or select with as many edits as rows before the forward pass."
            )

    def _begin_pass(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._passed.clear()
        inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1])
        for tensor in inputs:
            if isinstance(tensor, Tensor):
                self._check_rows(tensor.shape[0])

    def _end_pass(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        missed = [place.address for place in self._active if place not in self._passed]
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
        self.ends = False  # every factor is 0 or 1
        self.rows = 0  # of the batch that came to the block last
        self.needed = 0  # rows that must have joined a growing batch by now: up to the last one edited here
        self.proved = UNITS[unit] != "block"  # that the block leaves its input as it is
        self.input_copy: Tensor | None = None

    @property
    def address(self) -> str:
        return str(self.layer) if UNITS[self.unit] == "block" else f"{self.layer}.{UNITS[self.unit]}"

    def look_at_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self.active:
            stream = _stream_into(args, kwargs)
            self.rows = stream.shape[0]
            self.gates._check_rows(self.rows)
            if self.rows < self.needed:
                raise LesionError(
                    f"Row {self.needed - 1} joined the batch above block {self.layer} of {self.gates._anatomy.name}, "
                    f"which its edit changes: rows must join before the first block that their edit changes."
                )
            if not self.proved:
                self.input_copy = stream.detach().clone()

    def scale_contribution(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> Any:
        if not self.active:
            return output
        before, after = _stream_into(args, kwargs), _stream_out_of(output, self.address)
        if self.input_copy is not None:
            self._prove(before, self.input_copy)
        before = before.to(after)  # blocks spread over devices are given the stream of the previous device
        factor = self.gates._factor(self, after)
        return _with_stream(output, scale_contribution(before, after, factor, self.ends))

    def scale_output(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> Any:
        if not self.active:
            return output
        added = _stream_out_of(output, self.address)
        factor = self.gates._factor(self, added)
        flat = added.dim() == 2  # [rows · length, width]; the rows were counted at the block's input
        by_row = added.reshape(len(factor), -1, added.shape[-1]) if flat else added
        return _with_stream(output, scale_output(by_row, factor, self.ends).view(added.shape))

    def _prove(self, stream: Tensor, copy: Tensor) -> None:
        self.input_copy = None
        if not bool(torch.isclose(stream, copy, rtol=0, atol=0, equal_nan=True).all()):
            raise LesionError(
                f"Block {self.address} of {self.gates._anatomy.name} changes its input in place, and so what "
                f"it adds to the residual stream cannot be told; edit its attention and its mlp instead."
            )
        self.proved = True


def _stream_into(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    stream = args[0] if args else kwargs.get("hidden_states")
    if not isinstance(stream, Tensor):
        raise LesionError("A block was called without hidden states as its first argument; it cannot be edited.")
    return stream


def _stream_out_of(output: Any, address: str) -> Tensor:
    stream = output[0] if isinstance(output, tuple) else output
    if not isinstance(stream, Tensor):
        raise LesionError(
            f"{address} gives back a {type(stream).__name__} where a tensor is expected; it cannot be edited."
        )
    return stream


def _with_stream(output: Any, stream: Tensor) -> Any:
    return (stream, *output[1:]) if isinstance(output, tuple) else stream


def _addresses_by_module(model: Model) -> Mapping[nn.Module, list[str]]:
    """The addresses that each gated module has: more than one where a network runs a module several times."""
    addresses: dict[nn.Module, list[str]] = defaultdict(list)
    for block in model.anatomy.blocks:
        addresses[block.module].append(str(block.index))
        for branch in block.branches:
            addresses[branch.tail].append(f"{block.index}.{branch.name}")
    return addresses


def _trunk(model: Model) -> nn.Module:
    """The innermost module that runs all blocks: some networks call it past the model that holds it."""
    blocks = {block.module for block in model.anatomy.blocks}
    trunk: nn.Module = model.network
    while True:
        holders = [child for child in trunk.children() if blocks <= set(child.modules())]
        if not holders or isinstance(holders[0], nn.ModuleList | nn.ModuleDict | nn.Sequential):
            return trunk
        trunk = holders[0]
