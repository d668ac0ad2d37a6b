"""Unit rows: units of a block multiplied, and places replaced, row by row of a batch, by hooks on their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lesion.edits.buffer import Buffer
from lesion.edits.lowrank import output_part
from lesion.edits.replace import Replace
from lesion.edits.table import UnitFactors, scale_output, scale_slices
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model
from lesion.models.probe import routing
from lesion.models.units import Experts, OutputPart, Site, Slices


def refuse_other_models(replacements: Iterable[Replace], model: Model) -> None:
    """Refuse contributions of another model."""
    for part in replacements:
        if part.reference.fingerprint != model.fingerprint:
            raise UsageError(
                f"'{part}' takes contributions of {part.reference.model} (fingerprint {part.reference.fingerprint}),"
                f" and {model.name} (fingerprint {model.fingerprint}) has other weights: make the reference of this"
                " model with lesion.reference."
            )


STATES = ("cache_params", "state", "mems", "past_buckets_states")
"""What networks carry that does not say how many tokens came before."""


def positions_of(
    args: Sequence[object], kwargs: Mapping[str, Any], text: int | None = None
) -> Int[Tensor, "_ length"] | None:
    """The position of every token of a forward pass, from the arguments of the network; a single row may stand for all.

    They are `position_ids` where given; else the last ones of the text, where its length is known; else counted over
    what the mask of the tokens shows, else from the length of the cache on. None where the pass has no tokens.
    """
    inputs = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args[:1])
    tokens = next((tensor for tensor in inputs if isinstance(tensor, Tensor)), None)
    if tokens is None:
        return None
    length = tokens.shape[1]
    given, mask, cache = (kwargs.get(key) for key in ("position_ids", "attention_mask", "past_key_values"))
    if isinstance(given, Tensor):
        return given
    if text is not None:
        if length > text:
            raise LesionError(
                f"This network adds {length - text} tokens of its own to a text, so that the positions of its tokens"
                " are not known, on which what is put in the place of a contribution depends: scale the place instead."
            )
        begin = text - length
        return torch.arange(begin, begin + length, device=tokens.device)[None]
    if length == 1 and cache is None and any(kwargs.get(name) is not None for name in STATES):
        raise LesionError(
            "What is put in the place of a contribution depends on the position of its token, and the state that this"
            " network carries does not say it: pass the whole text, with use_cache=False."
        )
    if isinstance(mask, Tensor) and mask.dim() == 2:
        return (mask.long().cumsum(1) - 1).clamp(min=0)[:, -length:]
    past = 0 if cache is None else int(cache.get_seq_length())
    return torch.arange(past, past + length, device=tokens.device)[None]


class Vectors:
    """Vectors of replacements on the devices that add them, as long as the gates of a model hang there."""

    def __init__(self) -> None:
        self._on: dict[tuple[str, str, str, int, torch.device], Tensor] = {}
        self._put: Mapping[Replace, Tensor] = {}

    def put(self, vectors: Mapping[Replace, Tensor]) -> None:
        """Give these vectors for the replacements named, with their gradients, in the place of a reference's."""
        self._put = vectors

    def of(self, part: Replace, device: torch.device) -> Float[Tensor, "positions width"]:
        """What a replacement adds at each position, float32; the last at all later positions too."""
        if part in self._put:
            return self._put[part].to(device)
        key = (part.reference.digest, part.kind, part.address, part.draw, device)
        if key not in self._on:
            self._on[key] = part.vectors.to(device)
        return self._on[key]


class Replacing:
    """What the rows of a batch put at one place under one assignment.

    Args:
        numbers: of every row, which of `replacements` it has; below 0, none.
        everywhere: whether the only row stands for all rows of any batch.
    """

    def __init__(
        self, numbers: Int[Tensor, " rows"], replacements: Sequence[Replace], everywhere: bool, vectors: Vectors
    ) -> None:
        self._vectors = vectors
        self._everywhere = everywhere
        chosen = sorted({number for number in numbers.tolist() if number >= 0})
        self._rows = [(replacements[number], (numbers == number).nonzero()[:, 0]) for number in chosen]
        self.positional = any(part.vectors.shape[0] > 1 for part, _ in self._rows)

    def __call__(
        self,
        output: Float[Tensor, "rows length width"],
        before: Float[Tensor, "rows length width"] | None,
        positions: Int[Tensor, "_ _"] | None,
    ) -> Float[Tensor, "rows length width"]:
        """What comes out of the place: each replaced row's vectors, on top of `before` where that is given.

        The sum is taken in float32 at least and rounded once to the dtype of `output`, which is overwritten.
        """
        dtype = torch.promote_types(output.dtype, torch.float32)
        for part, rows in self._rows:
            chosen = slice(None) if self._everywhere else rows.to(output.device)
            vectors = vectors_at(self._vectors.of(part, output.device).to(dtype), positions, output)
            vectors = vectors if vectors.dim() == 2 or len(vectors) == 1 else vectors[chosen]
            added = vectors if before is None else before[chosen].to(dtype) + vectors
            output[chosen] = added.to(output.dtype)
        return output


def vectors_at(
    vectors: Float[Tensor, "positions width"], positions: Int[Tensor, "_ _"] | None, output: Tensor
) -> Float[Tensor, "*rows length width"]:
    """The vectors of a replacement for the tokens of a place: the only one, or of every row those at its positions."""
    if len(vectors) == 1:
        return vectors
    return vectors[_at(positions, output).to(output.device).clamp(0, len(vectors) - 1)]


def _at(positions: Tensor | None, output: Tensor) -> Tensor:
    """Positions of the tokens of a place: counted from 0 where no pass of the network told them."""
    rows, length = output.shape[:2]
    if positions is None:
        return torch.arange(length)[None]
    if positions.shape[1] != length or positions.shape[0] not in (1, rows):
        raise LesionError(
            f"Positions of {list(positions.shape)} came with {rows} rows of {length} tokens, so that no contributions"
            " can be chosen for them; give position_ids of the same shape as the tokens."
        )
    return positions


class ReplacingRows:
    """What rows put at one place under a standing assignment.

    Args:
        chosen: by number, each replacement that some column has there.
        replaced, place: the numbers of all rows, and where those of this place stand.
    """

    def __init__(
        self, chosen: Mapping[int, Replace], replaced: Buffer, place: tuple[int, ...], vectors: Vectors
    ) -> None:
        self._chosen, self._replaced, self._place, self._vectors = chosen, replaced, place, vectors
        self.positional = any(part.vectors.shape[0] > 1 for part in chosen.values())

    def __call__(
        self,
        output: Float[Tensor, "rows length width"],
        before: Float[Tensor, "rows length width"] | None,
        positions: Int[Tensor, "_ _"] | None,
    ) -> Float[Tensor, "rows length width"]:
        """As of `Replacing`, but that `output` is left as it is."""
        dtype = torch.promote_types(output.dtype, torch.float32)
        numbers = self._replaced.on(output.device, torch.long)[self._place]
        for number, part in self._chosen.items():
            vectors = vectors_at(self._vectors.of(part, output.device).to(dtype), positions, output)
            added = vectors if before is None else before.to(dtype) + vectors
            output = torch.where((numbers == number)[:, None, None], added.to(output.dtype), output)
        return output


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
        self._buffer: Buffer | None = None  # of all rows, where the assignment is a standing one
        self._replacing: Mapping[int, Replacing | ReplacingRows] = {}

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
        self._buffer = None
        self._edited, self._factors = factors.by_row()
        self.needed = int(self._edited.max()) + 1 if growing else 0
        self._ends = bool(((self._factors == 0) | (self._factors == 1)).all())
        self._on: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._replace(factors, replacements, everywhere)

    def assign_buffer(self, factors: Buffer, replacing: Mapping[int, ReplacingRows]) -> None:
        """Every row takes the factors [units, rows] that lie in a buffer at each pass, and what replaces its units."""
        self.active, self.passed, self.needed = True, False, 0
        self._everywhere, self._ends, self._buffer = False, False, factors
        self._replacing, self.positional = replacing, any(each.positional for each in replacing.values())

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
        if self._buffer is not None:
            return torch.arange(self.rows, device=like.device), self._buffer.on(*key).T
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
            scaled[:, :, unit] = replacing(scaled[:, :, unit], None, self._positions(scaled))
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
        scaled_part = part.index_select(0, edited).to(factors.dtype)
        bias = getattr(module, "bias", None)
        shift = output_part(bias, self._matrix.storage).to(factors.dtype) if isinstance(bias, Tensor) else 0.0
        part[edited] = (scale_output(scaled_part - shift, factors[:, 0], self._ends) + shift).to(output.dtype)
        return scaled.view(output.shape)


class ExpertRows(UnitRows):
    """The routing weights of experts; of those that stand side by side, what they give."""

    def __init__(self, site: Experts) -> None:
        super().__init__(site)
        self._module, self._side_by_side = site.module, site.side_by_side

    def hang(self) -> RemovableHandle:
        """Put the hook before the module of all experts, or behind it."""
        if self._side_by_side:
            return self._module.register_forward_hook(self.scale_given)
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

    def scale_given(self, module: nn.Module, args: object, output: Tensor) -> Tensor | None:
        """A forward hook of experts side by side: what they give, [experts · rows · length, width]."""
        if not self.active:
            return None
        edited, factors = self._of_rows(output)
        scaled = output.reshape(self.count, self.rows, -1, output.shape[-1]).clone()
        for number, own in enumerate(factors.expand(len(edited), -1).T):
            scaled[number, edited] = scale_output(scaled[number].index_select(0, edited), own, self._ends)
        return scaled.view(output.shape)


def unit_rows(site: Site, vectors: Vectors, positions: Positions) -> UnitRows:
    """The rows of a site; the last two are of replacements."""
    if isinstance(site, Experts):
        return ExpertRows(site)
    return OutputRows(site) if isinstance(site, OutputPart) else InputRows(site, vectors, positions)
