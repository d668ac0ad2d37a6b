"""Low-rank rows: a matrix whose spectrum is masked row by row, so that one batch holds many truncations of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lesion.edits.buffer import Buffer
from lesion.edits.spectra import Spectrum, spectra
from lesion.errors import LesionError
from lesion.models.anatomy import HEAD
from lesion.models.load import Model
from lesion.models.matrices import Matrix, Storage

# Bytes of thin factors that gates keep on the device; factors of matrices not in use go first beyond that.
BUDGET = 2 << 30
# Thin factors by spectrum, of which there is one for each matrix and its values; they go when it does.
_MADE: WeakKeyDictionary[Spectrum, dict[torch.dtype, tuple[Tensor, Tensor]]] = WeakKeyDictionary()
# What hangs on each module, of all gates.
_HUNG: WeakKeyDictionary[nn.Module, list[LowRank]] = WeakKeyDictionary()


def factor_bytes(matrix: Matrix) -> int:
    """What the thin factors of a matrix take in single precision."""
    return 4 * min(matrix.shape) * sum(matrix.shape)


class Factors:
    """Thin factors of a model's matrices in the dtype of the computation, as many as `BUDGET` holds."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kept: OrderedDict[tuple[str, torch.dtype], tuple[Tensor, Tensor]] = OrderedDict()
        self._made_of: dict[str, tuple[int, int]] = {}

    def of(self, matrix: Matrix, dtype: torch.dtype) -> tuple[Float[Tensor, "out rank"], Float[Tensor, "rank in"]]:
        """Left and right factor of the whole matrix as it stands now."""
        key = (matrix.address, dtype)
        tensor = matrix.tensor
        # What changes as soon as a parameter has been written to or replaced.
        made_of = tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
        if key not in self._kept or self._made_of[matrix.address] != made_of:
            self._made_of[matrix.address] = made_of
            weight = matrix.read()
            self._kept[key] = _thin(spectra(self._model).of(matrix.address, weight), weight, dtype)
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(a.nbytes + b.nbytes for a, b in self._kept.values()) > BUDGET:
            self._kept.popitem(last=False)
        return self._kept[key]


def _thin(spectrum: Spectrum, weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The factors of a spectrum in a dtype, kept over several gates as long as there is room: they take as long as a
    decomposition.
    """
    made = _MADE.setdefault(spectrum, {})
    if dtype not in made:
        left, right = spectrum.factors(weight)
        made[dtype] = (left.to(dtype), right.to(dtype))
        while (
            len(_MADE) > 1
            and sum(a.nbytes + b.nbytes for factors in _MADE.values() for a, b in factors.values()) > BUDGET
        ):
            del _MADE[next(iter(_MADE))]
    return made[dtype]


def hang_first(module: nn.Module) -> None:
    """Move the truncations of a module before all other hooks on it.

    A module may end a branch and hold a matrix (OPT's). What is truncated is computed anew from the module's input, so
    a factor on its output must come later, whichever was asked for first.
    """
    for low_rank in tuple(_HUNG.get(module, ())):
        low_rank.hang()


class LowRank:
    """One matrix, whether rows truncate it under the present assignment, and the hook that does it."""

    def __init__(self, matrix: Matrix, layer: int, factors: Factors, model: Model) -> None:
        self.address = matrix.address
        self.layer = layer
        self.active = False
        self.rows = 0
        self.needed = 0
        self.passed = False
        self._matrix = matrix
        self._factors = factors
        self._name = model.name
        self._handle: RemovableHandle | None = None

    def hang(self) -> None:
        """Put the hook on the module of the matrix, before all others; also where it hangs already."""
        self.remove()
        module = self._matrix.module
        self._handle = module.register_forward_hook(self.truncate, prepend=True, with_kwargs=True)
        _HUNG.setdefault(module, []).append(self)

    def remove(self) -> None:
        """Take the hook off."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
            _HUNG[self._matrix.module].remove(self)

    def assign(self, kept: Int[Tensor, "rows 2"], everywhere: bool, growing: bool) -> None:
        """Row r keeps the components from `kept[r, 0]` to `kept[r, 1]`; a single row may stand for all."""
        rank = min(self._matrix.shape)
        edited = ((kept[:, 0] > 0) | (kept[:, 1] < rank)).nonzero()[:, 0]
        self.active = True
        self.passed = False
        self._everywhere = everywhere
        self._edited = edited
        self._buffer: Buffer | None = None
        self._kept = kept.index_select(0, edited)
        self.needed = int(edited.max()) + 1 if growing else 0
        some = self._kept[self._kept[:, 0] < self._kept[:, 1]]
        # Only components that some row keeps are computed.
        self._start, self._stop = (int(some[:, 0].min()), int(some[:, 1].max())) if len(some) else (0, 0)
        self._masks: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def assign_buffer(self, kept: Buffer, columns: Int[Tensor, "columns 2"]) -> None:
        """Every row keeps the components that a buffer [2, rows] says at each pass, as some of these columns do."""
        self.assign(columns, everywhere=False, growing=False)
        self._buffer = kept

    def _mask(self, like: Tensor) -> Float[Tensor, "edited 1 kept"]:
        if self._buffer is not None:
            start, stop = self._buffer.on(like.device, torch.long)[:, :, None]
            component = torch.arange(self._start, self._stop, device=like.device)
            return ((component >= start) & (component < stop))[:, None].to(like)
        key = (like.device, like.dtype)
        if key not in self._masks:
            component = torch.arange(self._start, self._stop)
            mask = (component >= self._kept[:, :1]) & (component < self._kept[:, 1:])
            self._masks[key] = mask[:, None].to(like)
        return self._masks[key]

    def truncate(
        self, module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object], output: object
    ) -> object:
        """A forward hook of the module that owns the matrix: the outputs of truncated rows are computed anew."""
        if not self.active:
            return output
        inputs = args[0] if args else kwargs.get("input")
        if not isinstance(inputs, Tensor) or not isinstance(output, Tensor):
            raise LesionError(f"{self.address} of {self._name} was not called with a tensor; it cannot be truncated.")
        self.passed = True
        rows = inputs.shape[0] if self.address == HEAD else self.rows
        standing = self._buffer is not None
        if self.address == HEAD and not self._everywhere and not standing and rows <= int(self._edited.max()):
            raise LesionError(
                f"The head of {self._name} was given {rows} rows, and row {int(self._edited.max())} truncates it."
            )
        # Of OPT it is [rows · length, in]; the rows were counted at the block's input.
        by_row = inputs.reshape(rows, -1, inputs.shape[-1])
        edited = torch.arange(rows) if self._everywhere or standing else self._edited[self._edited < rows]
        chosen = edited.to(inputs.device)
        # Half precision would round every component: the sum is taken in float32 at least and rounded once.
        dtype = torch.promote_types(inputs.dtype, torch.float32)
        left, right = self._factors.of(self._matrix, dtype)
        wide = by_row.index_select(0, chosen).to(dtype) if len(edited) < rows else by_row.to(dtype)
        components = wide @ right[self._start : self._stop].T
        mask = self._mask(components)
        components = components * (mask if self._everywhere or standing else mask[: len(edited)])
        added = components @ left[:, self._start : self._stop].T
        storage = self._matrix.storage
        whole = output.reshape(rows, -1, output.shape[-1])
        bias = getattr(module, "bias", None)
        if isinstance(bias, Tensor):
            added = added + output_part(bias, storage).reshape(-1).to(dtype)
        result = whole.clone()
        view = output_part(result, storage)
        truncated = added.to(output.dtype).unflatten(-1, view.shape[2:])
        if self._buffer is None:
            view[chosen] = truncated
        else:
            start, stop = self._buffer.on(output.device, torch.long)
            own = (start > 0) | (stop < min(self._matrix.shape))
            view.copy_(torch.where(own.view(-1, *[1] * (view.dim() - 1)), truncated, view))
        return result.view(output.shape)


def output_part(tensor: Tensor, storage: Storage) -> Tensor:
    """Of a tensor whose last axis is the output of a module, what belongs to a matrix; shares memory."""
    if storage.groups == 1:
        return tensor[..., storage.start : storage.stop]
    return tensor.unflatten(-1, (storage.groups, -1))[..., storage.start : storage.stop]
