"""Unit rows: units of a block multiplied or replaced row by row of a batch, by hooks on their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lesion.edits.lowrank import output_part
from lesion.edits.replace import Replace
from lesion.edits.replacing import Replacing, Vectors
from lesion.edits.table import UnitFactors, scale_output, scale_slices
from lesion.errors import LesionError
from lesion.models.probe import routing
from lesion.models.units import Experts, OutputPart, Site, Slices


class UnitRows:
    """One site, and whether rows multiply its units under the present assignment; `hang` puts the hook in place."""

    def __init__(self, site: Site) -> None:
        self.address = site.address
        self.layer = site.layer
        self.count = site.count
        self.active = False
        self.rows = 0  # of the batch that came to the block last
        self.needed = 0  # rows that must have joined a growing batch by now: up to the last one edited here
        self.passed = False  # that the present forward pass ran through it
        self.positional = False  # that the position of a token decides what is put

    def assign(
        self,
        factors: UnitFactors,
        replacements: Sequence[Replace] = (),
        everywhere: bool = False,
        growing: bool = False,
    ) -> None:
        """Every row takes the factors and replacements of its column; a single column may stand for all rows."""
        self.active = True
        self.passed = False
        self._everywhere = everywhere
        self._edited, self._factors = factors.by_row()
        self.needed = int(self._edited.max()) + 1 if growing else 0
        self._ends = bool(((self._factors == 0) | (self._factors == 1)).all())
        self._on: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._replace(factors, replacements, everywhere)

    def _replace(self, factors: UnitFactors, replacements: Sequence[Replace], everywhere: bool) -> None:
        """Take the replacements of the columns, where units of the site can be replaced."""

    def hang(self) -> RemovableHandle:
        """Put the hook on its module."""
        raise NotImplementedError

    def _of_rows(self, like: Tensor) -> tuple[Int[Tensor, " edited"], Float[Tensor, "rows units"]]:
        """The rows in the batch that edit a unit, and their factors; one row of factors may stand for all."""
        self.passed = True
        # Half precision would make 1.1 into 1.1016: the factors and their products are float32 at least.
        key = (like.device, torch.promote_types(like.dtype, torch.float32))
        if key not in self._on:
            self._on[key] = self._factors.to(*key)
        if self._everywhere:
            return torch.arange(self.rows, device=like.device), self._on[key]
        edited = self._edited[self._edited < self.rows].to(like.device)
        return edited, self._on[key][: len(edited)]


Positions = Callable[[Tensor], Tensor | None]
"""The positions of the tokens of what comes to a module, [rows or 1, length]; None where no pass told them."""


class InputRows(UnitRows):
    """Slices of the input of a matrix: heads, neurons, or all of it."""

    def __init__(self, site: Slices, vectors: Vectors | None = None, positions: Positions = lambda _: None) -> None:
        super().__init__(site)
        self._site = site
        self._vectors = vectors or Vectors()
        self._positions = positions
        self._replacing: dict[int, Replacing] = {}

    def _replace(self, factors: UnitFactors, replacements: Sequence[Replace], everywhere: bool) -> None:
        self._replacing = {
            unit: Replacing(numbers, replacements, everywhere, self._vectors)
            for unit, numbers in factors.replaced_by_row().items()
        }
        self.positional = any(replacing.positional for replacing in self._replacing.values())

    def hang(self) -> RemovableHandle:
        """Put the hook before the module that holds the matrix."""
        return self._site.matrix.module.register_forward_pre_hook(self.edit, with_kwargs=True)

    def edit(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        """A forward pre-hook of the module that holds the matrix: what it is given, slices multiplied and replaced."""
        if not self.active:
            return None
        given = args[0] if args else kwargs.get("input")
        count, size = self._site.count, self._site.size
        if not isinstance(given, Tensor) or given.shape[-1] != count * size:
            branch = self.address.rpartition(".")[0]
            raise LesionError(
                f"{self.address} was not given its {count * size:,} inputs side by side; edit {branch} as a whole."
            )
        edited, factors = self._of_rows(given)
        # OPT may give [rows · length, width]; the rows were counted at the block's input.
        by_row = given.reshape(self.rows, -1, count, size)
        if self._everywhere:
            scaled = scale_slices(by_row, factors, self._ends)
        else:
            scaled = by_row.clone()
            scaled[edited] = scale_slices(by_row.index_select(0, edited), factors, self._ends)
        for unit, replacing in self._replacing.items():
            replacing(scaled[:, :, unit], None, self._positions(scaled))
        scaled = scaled.reshape(given.shape)
        return ((scaled, *args[1:]), dict(kwargs)) if args else (args, {**kwargs, "input": scaled})


class OutputRows(UnitRows):
    """What one of several matrices in a module gives."""

    def __init__(self, site: OutputPart) -> None:
        super().__init__(site)
        self._matrix = site.matrix

    def hang(self) -> RemovableHandle:
        """Put the hook behind the module, and so behind truncations, which hang before all others."""
        return self._matrix.module.register_forward_hook(self.scale)

    def scale(self, module: nn.Module, args: tuple[object, ...], output: object) -> Tensor | None:
        """A forward hook of the module that holds the matrices: f · W x + b in the part of one of them."""
        if not self.active:
            return None
        if not isinstance(output, Tensor):
            raise LesionError(f"The module of {self.address} gives no tensor; edit its branch as a whole.")
        edited, factors = self._of_rows(output)
        scaled = output.reshape(self.rows, -1, output.shape[-1]).clone()
        part = output_part(scaled, self._matrix.storage)
        own = part.index_select(0, edited).to(factors.dtype)
        bias = getattr(module, "bias", None)
        shift = output_part(bias, self._matrix.storage).to(factors.dtype) if isinstance(bias, Tensor) else 0.0
        part[edited] = (scale_output(own - shift, factors[:, 0], self._ends) + shift).to(output.dtype)
        return scaled.view(output.shape)


class ExpertRows(UnitRows):
    """The routing weights of experts."""

    def __init__(self, site: Experts) -> None:
        super().__init__(site)
        self._module = site.module

    def hang(self) -> RemovableHandle:
        """Put the hook before the module of all experts."""
        return self._module.register_forward_pre_hook(self.scale, with_kwargs=True)

    def scale(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        """A forward pre-hook of the experts, given hidden states, chosen experts and their weights, a row a token."""
        if not self.active:
            return None
        routed = routing(args, kwargs)
        if routed is None:
            raise LesionError(
                f"The experts of {self.address} were not given the numbers and weights of the experts that the router"
                f" chose; edit {self.address} as a whole."
            )
        index, weights = routed
        edited, factors = self._of_rows(weights)
        # The number behind the last expert stands for none, where experts are spread over devices.
        factors = torch.cat([factors, factors.new_ones(len(factors), 1)], 1).expand(len(edited), -1)
        scaled = weights.reshape(self.rows, -1).clone()
        of_chosen = factors.gather(1, index.reshape(self.rows, -1).index_select(0, edited))
        scaled[edited] = (scaled.index_select(0, edited).to(factors.dtype) * of_chosen).to(weights.dtype)
        scaled = scaled.view(weights.shape)
        swapped = (scaled if arg is weights else arg for arg in args)
        return tuple(swapped), {name: scaled if arg is weights else arg for name, arg in kwargs.items()}


def unit_rows(site: Site, vectors: Vectors, positions: Positions) -> UnitRows:
    """The rows of a site; the last two are of replacements."""
    if isinstance(site, Experts):
        return ExpertRows(site)
    return OutputRows(site) if isinstance(site, OutputPart) else InputRows(site, vectors, positions)
