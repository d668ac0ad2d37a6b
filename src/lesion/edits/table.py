"""Table: many edits as numbers, a column each, from which the rows of a batch take theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.cuts import kept_by_all
from lesion.edits.edit import Compose, Edit, Scale, Truncate, of_places, of_replacements, of_spectra, parts
from lesion.edits.factors import factors, refuse_unknown
from lesion.edits.place import UNITS, within
from lesion.edits.replace import Replace
from lesion.edits.unit_factors import UnitFactors, refuse_twice, unit_factors
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.units import Site


@dataclass(frozen=True, eq=False)
class Table:
    """What every column's edit does to every place; tensors lie on the CPU.

    Attributes:
        scales: factors, units as in `UNITS`, 1 where nothing is edited.
        kept: of each truncated matrix, the first singular component kept and the one after the last, in the order of
            falling singular values; (0, rank) leaves the matrix as it is.
        ranks: how many components each of these matrices has.
        layers: the block in which it lies; the number of blocks for the head.
        replaced: at every place, the number of the replacement among `replacements`, −1 where there is none.
        replacements: all that some column has, of heads too.
        units: by site, the factors of heads, neurons, experts and matrices that some column has, and the replacements
            of heads.
    """

    scales: Float[Tensor, "blocks units columns"]
    kept: Mapping[str, Int[Tensor, "columns 2"]]
    ranks: Mapping[str, int]
    layers: Mapping[str, int]
    replaced: Int[Tensor, "blocks units columns"]
    replacements: tuple[Replace, ...]
    units: Mapping[Site, UnitFactors]

    @property
    def blocks(self) -> int:
        """The number of blocks of the model."""
        return self.scales.shape[0]

    @property
    def columns(self) -> int:
        """The number of columns."""
        return self.scales.shape[2]

    def select(self, columns: Int[Tensor, " chosen"]) -> Table:
        """The table of these columns, in this order; one may be named twice."""
        kept = {address: intervals.index_select(0, columns) for address, intervals in self.kept.items()}
        scales, replaced = (numbers.index_select(2, columns) for numbers in (self.scales, self.replaced))
        units = {site: of_site.select(columns) for site, of_site in self.units.items()}
        return replace(self, scales=scales, kept=kept, replaced=replaced, units=units)

    @property
    def edited(self) -> Bool[Tensor, "blocks units columns"]:
        """Which columns scale or replace what a place adds."""
        return (self.scales != 1) | (self.replaced >= 0)

    def truncates(self, address: str) -> Bool[Tensor, " columns"]:
        """Which columns keep less than all of a matrix."""
        start, stop = self.kept[address].unbind(1)
        return (start > 0) | (stop < self.ranks[address])

    def first_edited(self) -> Int[Tensor, " columns"]:
        """The first block at which each column changes anything; the number of blocks where it changes none.

        A column that truncates the head alone begins at the last block: rows are parted by then.
        """
        touched = self.edited.any(1)
        first = torch.where(touched.any(0), touched.int().argmax(0), self.blocks)
        for address in self.kept:
            first = torch.where(
                self.truncates(address), first.clamp(max=min(self.layers[address], self.blocks - 1)), first
            )
        for site, of_site in self.units.items():
            first[of_site.columns] = first[of_site.columns].clamp(max=site.layer)
        return first


def refuse_unknown_places(edit: Edit, anatomy: Anatomy) -> None:
    """Refuse an edit of a place that a model does not have; selections of weights are left out of account."""
    tabulate([Compose((*of_places(edit).edits, *of_spectra(edit)))], anatomy)


def tabulate(edits: Sequence[Edit], anatomy: Anatomy) -> Table:
    """The table of edits of places and of spectra, a column for each."""
    kept: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    layers: dict[str, int] = {}
    for column, edit in enumerate(edits):
        truncations = of_spectra(edit)
        for address in dict.fromkeys(part.address for part in truncations):
            matrix = anatomy.matrix(address)
            matrix.refuse_packed()
            rank = min(matrix.shape)
            if address not in kept:
                ranks[address] = rank
                layers[address] = anatomy.layer_of(address)
                kept[address] = torch.tensor([[0, rank]]).repeat(len(edits), 1)
            here = [part for part in truncations if part.address == address]
            kept[address][column] = torch.tensor(kept_by_all(here, rank))
    scales = factors(edits, anatomy)
    replacements = dict.fromkeys(part for edit in edits for part in of_replacements(edit))
    numbers = {part: number for number, part in enumerate(replacements)}
    replaced, units = _replaced(edits, scales, anatomy, numbers), unit_factors(edits, anatomy, numbers)
    return Table(scales, kept, ranks, layers, replaced, tuple(numbers), units)


def _replaced(
    edits: Sequence[Edit],
    scales: Float[Tensor, "blocks units columns"],
    anatomy: Anatomy,
    numbers: Mapping[Replace, int],
) -> Int[Tensor, "blocks units columns"]:
    replaced = torch.full(scales.shape, -1)
    for column, edit in enumerate(edits):
        _refuse_within(edit)
        for part in (part for part in of_replacements(edit) if part.unit in UNITS):
            refuse_unknown(part, anatomy)
            place = part.layer, UNITS.index(part.unit), column
            refuse_twice(edit, part, bool(replaced[place] >= 0 or scales[place] != 1))
            replaced[place] = numbers[part]
    return replaced


def _refuse_within(edit: Edit) -> None:
    """Refuse an edit that replaces a place and changes a part of it, which then changes nothing."""
    others = [
        part
        for part in parts(edit)
        if isinstance(part, Replace | Truncate) or (isinstance(part, Scale) and part.factor != 1)
    ]
    for replaced in of_replacements(edit):
        inner = next((other for other in others if within(other.address, replaced.address)), None)
        if inner is not None:
            raise UsageError(
                f"'{edit}' replaces what {replaced.address} gives, so that '{inner}' within it changes nothing; leave"
                " one of them out."
            )
