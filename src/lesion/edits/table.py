"""Table: many edits as numbers, a column each, from which the rows of a batch take theirs; what is written instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lesion.edits.cuts import kept_by_all
from lesion.edits.edit import (
    Compose,
    Edit,
    Scale,
    ScaleParameters,
    Single,
    Truncate,
    of_places,
    of_replacements,
    of_spectra,
    of_weights,
    parts,
)
from lesion.edits.place import UNITS, within
from lesion.edits.replace import Replace
from lesion.edits.selections.topk import Magnitude
from lesion.edits.units import ScaleMatrix, of_units, site_of
from lesion.errors import UsageError
from lesion.models.anatomy import Anatomy
from lesion.models.matrices import Matrix
from lesion.models.units import Site


def factors(edits: Sequence[Edit], anatomy: Anatomy) -> Float[Tensor, "blocks units rows"]:
    """What every place is multiplied by: entry [layer, unit, row] under `edits[row]`, units as in `UNITS`.

    float64 on the CPU, 1 where nothing is edited. Factors of one edit on the same place multiply. Truncations,
    replacements and factors of inner units are passed over (`table.py` has them).
    """
    distinct = {edit: column for column, edit in enumerate(dict.fromkeys(edits))}
    table = torch.ones(len(anatomy.blocks), len(UNITS), len(distinct), dtype=torch.float64)
    for edit, column in distinct.items():
        for part in parts(edit):
            if isinstance(part, Truncate | Replace):
                continue
            if isinstance(part, ScaleParameters):
                raise UsageError(
                    f"'{part}' changes weights, which all rows of a batch share; make it so with `applied`, and give"
                    f" gates what `of_places` leaves of an edit."
                )
            if part.unit not in UNITS:
                continue
            refuse_unknown(part, anatomy)
            table[part.layer, UNITS.index(part.unit), column] *= part.factor
        if not bool(table[:, :, column].isfinite().all()):
            raise UsageError(f"The factors of '{edit}' on one place multiply to something that is not finite.")
    return table[:, :, [distinct[edit] for edit in edits]]


def refuse_unknown(part: Scale | Replace, anatomy: Anatomy) -> None:
    """Refuse the edit of a block or branch that a model does not have."""
    anatomy.block(part.layer)
    if part.unit != "block":
        anatomy.branch(part.layer, part.unit)


def scale_contribution(
    before: Float[Tensor, "batch *places width"],
    after: Float[Tensor, "batch *places width"],
    factor: Float[Tensor, " rows"],
    ends: bool = False,
) -> Float[Tensor, "batch *places width"]:
    """The residual stream after a block under each row's factor: before + factor · (after − before).

    Factor 1 gives `after` and factor 0 `before`, bit for bit and also where `after` is not finite. In between, the sum
    is taken in the dtype of `factor` and rounded once to that of `after`.

    Args:
        factor: one per row of the batch, or a single one for all rows.
        ends: a promise that every factor is 0 or 1, which spares the arithmetic in between.
    """
    factor = _per_row(factor, after)
    chosen = torch.where(factor != 0, after, before)
    if ends:
        return chosen
    start = before.to(factor.dtype)
    between = (start + factor * (after.to(factor.dtype) - start)).to(after.dtype)
    return torch.where((factor != 0) & (factor != 1), between, chosen)


def scale_output(
    output: Float[Tensor, "batch *places width"], factor: Float[Tensor, " rows"], ends: bool = False
) -> Float[Tensor, "batch *places width"]:
    """What a branch adds to the residual stream under each row's factor: factor · output.

    Factor 1 leaves it untouched and factor 0 gives zeros, also where it is not finite. In between, the product is taken
    in the dtype of `factor` and rounded once. Arguments as in `scale_contribution`.
    """
    return _scaled(output, _per_row(factor, output), ends)


def scale_slices(
    given: Float[Tensor, "batch length slices size"], factors: Float[Tensor, "rows slices"], ends: bool = False
) -> Float[Tensor, "batch length slices size"]:
    """What a matrix is given under each row's factors, one for every slice of its input; as of `scale_output`."""
    return _scaled(given, factors[:, None, :, None], ends)


def _scaled(output: Tensor, factor: Tensor, ends: bool) -> Tensor:
    chosen = output.masked_fill(factor == 0, 0.0)
    if ends:
        return chosen
    between = (factor * output.to(factor.dtype)).to(output.dtype)
    return torch.where((factor != 0) & (factor != 1), between, chosen)


def _per_row(factor: Float[Tensor, " rows"], like: Tensor) -> Tensor:
    return factor.view(-1, *[1] * (like.dim() - 1))


@dataclass(frozen=True, eq=False)
class UnitFactors:
    """The edited units of one site, in the order of their columns; tensors lie on the CPU.

    Attributes:
        columns, numbers: a column of the table and a unit that it multiplies or replaces, each pair once.
        factors: by what, float64; 1 only where it is replaced.
        replaced: the number of the replacement among those of the table, −1 where there is none.
        count: units of the site.
    """

    columns: Int[Tensor, " edited"]
    numbers: Int[Tensor, " edited"]
    factors: Float[Tensor, " edited"]
    replaced: Int[Tensor, " edited"]
    count: int

    def select(self, columns: Int[Tensor, " chosen"]) -> UnitFactors:
        """Those of a table with these columns, in this order; one may be named twice."""
        new, edited = (columns[:, None] == self.columns).nonzero().unbind(1)
        return self._of(new, edited)

    def without(self, columns: Bool[Tensor, " columns"]) -> UnitFactors:
        """Those of the same table in which some columns leave the site alone."""
        kept = ~columns[self.columns]
        return self._of(self.columns[kept], kept)

    def _of(self, columns: Int[Tensor, " chosen"], edited: Tensor) -> UnitFactors:
        return UnitFactors(columns, self.numbers[edited], self.factors[edited], self.replaced[edited], self.count)

    def by_row(self) -> tuple[Int[Tensor, " rows"], Float[Tensor, "rows units"]]:
        """The columns that edit any unit, and their factors of every unit of the site."""
        rows, place = self.columns.unique(return_inverse=True)
        factors = torch.ones(len(rows), self.count, dtype=torch.float64)
        factors[place, self.numbers] = self.factors
        return rows, factors

    def replaced_by_row(self) -> Mapping[int, Int[Tensor, " rows"]]:
        """By unit that some column replaces, the number of every column's replacement up to the last edited; −1 where
        a column has none.
        """
        by_unit: dict[int, Tensor] = {}
        for at in (self.replaced >= 0).nonzero()[:, 0].tolist():
            numbers = by_unit.setdefault(int(self.numbers[at]), torch.full((int(self.columns.max()) + 1,), -1))
            numbers[self.columns[at]] = self.replaced[at]
        return by_unit


def unit_factors(
    edits: Sequence[Edit], anatomy: Anatomy, replacements: Mapping[Replace, int]
) -> Mapping[Site, UnitFactors]:
    """By site, the units that some edit multiplies or replaces; factors of one edit on one unit multiply."""
    sites: dict[Site, dict[tuple[int, int], float]] = {}
    replaced: dict[tuple[Site, int, int], int] = {}
    for column, edit in enumerate(edits):
        for part in of_units(edit):
            site, numbers = site_of(part, anatomy)
            products = sites.setdefault(site, {})
            if isinstance(part, Replace):
                refuse_twice(edit, part, (site, column, numbers[0]) in replaced)
                replaced[site, column, numbers[0]] = replacements[part]
                products.setdefault((column, numbers[0]), 1.0)
                continue
            for number in numbers:
                product = products.get((column, number), 1.0) * part.factor
                if not math.isfinite(product):
                    raise UsageError(
                        f"The factors of '{edit}' on one {part.unit} multiply to something that is not finite."
                    )
                products[column, number] = product
        for part in (part for part in of_units(edit) if isinstance(part, Replace)):
            site, numbers = site_of(part, anatomy)
            refuse_twice(edit, part, sites[site][column, numbers[0]] != 1)
    tables = {}
    for site, products in sites.items():
        own = [(*place, product, replaced.get((site, *place), -1)) for place, product in products.items()]
        edited = [each for each in own if each[2] != 1 or each[3] >= 0]
        columns, units, factors, numbers_replaced = zip(*edited, strict=True) if edited else ((), (), (), ())
        tables[site] = UnitFactors(
            torch.tensor(columns, dtype=torch.long),
            torch.tensor(units, dtype=torch.long),
            torch.tensor(factors, dtype=torch.float64),
            torch.tensor(numbers_replaced, dtype=torch.long),
            site.count,
        )
    return tables


def refuse_twice(edit: Edit, part: Replace, again: bool) -> None:
    """Refuse an edit that replaces a place and changes it once more."""
    if again:
        raise UsageError(
            f"'{edit}' replaces {part.address} and changes it once more, and the order would matter; name each place"
            " once."
        )


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

    def truncating(self, columns: Int[Tensor, " some"]) -> Table:
        """The same table, of truncated matrices only those that some of these columns truncate."""
        kept = {address: each for address, each in self.kept.items() if bool(self.truncates(address)[columns].any())}
        ranks, layers = ({address: numbers[address] for address in kept} for numbers in (self.ranks, self.layers))
        return replace(self, kept=kept, ranks=ranks, layers=layers)

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


Written = tuple[tuple[ScaleParameters, ...], tuple[Truncate, ...]]


def maskable(matrix: Matrix) -> bool:
    """Whether the rows of a batch can each have their own truncation of a matrix.

    They can where it is (a part of) the weight of a plain linear module, which sees every row. Experts see the tokens
    that are routed to them, whatever row they come from, and through some modules nothing runs: they are truncated in
    the weights.
    """
    return (
        matrix.called
        and not _routed(matrix)
        and type(matrix.module) in (nn.Linear, Conv1D)
        and matrix.attribute == "weight"
    )


def by_rows(cut: Truncate, anatomy: Anatomy) -> bool:
    """Whether the rows of a batch can each have a truncation: a part of the spectrum of a `maskable` matrix."""
    return cut.side != "random" and maskable(anatomy.matrix(cut.address))


def _routed(matrix: Matrix) -> bool:
    return matrix.storage.expert is not None or matrix.name.startswith("expert")


def scalable(matrix: Matrix) -> bool:
    """Whether the rows of a batch can each scale a matrix by a factor of their own: a packed one too."""
    return maskable(matrix) or (matrix.packed and matrix.called and not _routed(matrix))


def with_scaled_weights(edit: Edit, anatomy: Anatomy, by_row: Callable[[Matrix], bool] = scalable) -> Edit:
    """The same edit, matrices that rows of a batch cannot scale as multiplied weights: all but those of `by_row`."""
    every: list[Single] = []
    for part in parts(edit):
        if not isinstance(part, ScaleMatrix) or by_row(anatomy.matrix(part.address)):
            every.append(part)
        elif part.factor != 1:
            every.append(ScaleParameters(Magnitude(1.0, (part.address,)), part.factor))
    return Compose(tuple(every))


def in_weights(edit: Edit, anatomy: Anatomy) -> Written:
    """What of an edit is written into the weights, and so is the same for all rows of a batch."""
    edit = with_scaled_weights(edit, anatomy)
    weights, truncations = of_weights(edit), of_spectra(edit)
    if any(part.selection.touches(cut.address) for part in weights for cut in truncations):
        return weights, truncations  # `lesion.edits.weights.written` says what is wrong
    return weights, tuple(cut for cut in truncations if not by_rows(cut, anatomy))
