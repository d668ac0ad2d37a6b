"""Layout: which tensor of a checkpoint on disk holds which matrix of the network that transformers makes of it.

The names on disk are not always the network's: a prefix may be missing, a multimodal model nests its text model, and
experts that the network holds in one tensor lie on disk one by one. transformers renames and merges while it loads; the
same rules are applied here, so that a matrix is found wherever `from_pretrained` would find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from lesion.errors import LesionError
from lesion.models.anatomy import Anatomy, dissect
from lesion.models.matrices import Matrix, Storage
from lesion.models.quiet import quiet
from lesion.models.stored import Entry


@dataclass(frozen=True)
class StoredMatrix:
    """Where a matrix lies on disk: the name of a tensor, and where in it."""

    tensor: str
    storage: Storage


@dataclass(frozen=True)
class Piece:
    """One tensor on disk as a part of a parameter of the network.

    Attributes:
        expert: whose rows it holds, where the parameter has an axis of experts and the tensor has not.
        start, stop: these rows.
        whole: it is the parameter as it stands.
    """

    tensor: str
    expert: int | None
    start: int
    stop: int
    whole: bool


def skeleton(config: Any, name: str) -> tuple[Anatomy, PreTrainedModel, bool]:
    """The anatomy and the network that a configuration describes, without weights.

    The third value says whether the network had to be built in main memory: an architecture that is not in the table is
    taken apart by a forward pass, which needs numbers (random ones do).
    """
    with quiet():
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
        network.eval()
        try:
            return dissect(network, name), network, False
        except (RuntimeError, NotImplementedError, LesionError):
            network = AutoModelForCausalLM.from_config(config)
            network.eval().requires_grad_(False)
            return dissect(network, name), network, True


def places(
    anatomy: Anatomy, network: PreTrainedModel, entries: Mapping[str, Entry], touched: Iterable[str]
) -> dict[str, tuple[StoredMatrix, ...]]:
    """Where each touched matrix lies on disk; several places where a tied tensor is stored under both names."""
    pieces = _pieces(network, entries)
    aliases = {name: group for group in anatomy.tied for name in group}
    places_of = {}
    for address in touched:
        matrix = anatomy.scored[address]
        names = aliases.get(matrix.parameter, (matrix.parameter,))
        where = tuple(_place(matrix, pieces[name], entries) for name in names if pieces.get(name))
        if not where:
            raise LesionError(
                f"{address} ({matrix.parameter}) of {anatomy.name} is not among the {len(entries):,} tensors of its "
                "safetensors files, so it cannot be edited there. The checkpoint is incomplete, or stored in a form "
                "that lesion does not know; load it with transformers, save it again, and give that folder."
            )
        places_of[address] = where
    return places_of


def bias_factors(
    anatomy: Anatomy, network: PreTrainedModel, entries: Mapping[str, Entry], factors: Mapping[str, float]
) -> dict[str, dict[int | None, float]]:
    """By the name of a tensor on disk, the factor of the bias in it, or of the rows of a tensor with one an expert.

    Args:
        factors: by the address of the matrix to whose result the bias is added.
    """
    pieces = _pieces(network, entries) if factors else {}
    on_disk: dict[str, dict[int | None, float]] = {}
    for address, factor in factors.items():
        matrix = anatomy.scored[address]
        name = f"{matrix.parameter.removesuffix(matrix.attribute)}{matrix.bias}"
        expert = matrix.storage.expert
        own = [piece for piece in pieces.get(name, ()) if piece.whole or piece.expert == expert]
        if not own:
            raise LesionError(
                f"The bias of {address} ({name}) of {anatomy.name} is not among the tensors of its safetensors files, "
                "so it cannot be edited there. Load the checkpoint with transformers, save it again, and give that "
                "folder."
            )
        for piece in own:
            on_disk.setdefault(piece.tensor, {})[expert if piece.whole else None] = factor
    return on_disk


def _place(matrix: Matrix, pieces: list[Piece], entries: Mapping[str, Entry]) -> StoredMatrix:
    storage = matrix.storage
    for piece in pieces:
        if piece.whole and len(pieces) == 1:
            shape = tuple(getattr(matrix.module, matrix.attribute).shape)
            if entries[piece.tensor].shape != shape:
                raise _other_shape(matrix, piece.tensor, entries[piece.tensor].shape)
            return StoredMatrix(piece.tensor, storage)
        if piece.expert == storage.expert and piece.start <= storage.start and storage.stop <= piece.stop:
            shape = (piece.stop - piece.start, matrix.shape[1])
            if entries[piece.tensor].shape != shape or storage.groups != 1 or storage.transposed:
                raise _other_shape(matrix, piece.tensor, entries[piece.tensor].shape)
            here = replace(storage, expert=None, start=storage.start - piece.start, stop=storage.stop - piece.start)
            return StoredMatrix(piece.tensor, here)
    raise LesionError(
        f"{matrix.address} lies in {', '.join(p.tensor for p in pieces[:3])}, in a form from which lesion cannot take "
        "it. Load the checkpoint with transformers, save it again, and give that folder."
    )


def _other_shape(matrix: Matrix, tensor: str, shape: tuple[int, ...]) -> LesionError:
    return LesionError(
        f"{matrix.address} should lie in {tensor}, which has the shape {' × '.join(map(str, shape))}: the weights do "
        "not fit the config.json beside them. One of the two belongs to another model."
    )


def _pieces(network: PreTrainedModel, entries: Mapping[str, Entry]) -> dict[str, list[Piece]]:
    """Every parameter of the network by name, as the tensors on disk that make it up."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, dot_natural_key, rename_source_key

    state = network.state_dict()
    transforms = get_model_conversion_mapping(network)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    by_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    prefix = network.base_model_prefix
    pieces: dict[str, list[Piece]] = {}
    merged: dict[str, dict[str, list[str]]] = {}
    # The order in which transformers numbers experts.
    for name in sorted(entries, key=dot_natural_key):
        target, pattern = rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, pattern = rename_source_key(name, [], [], prefix, state)
        if target not in state:
            continue  # what the network has no place for is copied as it is
        if pattern is None:
            pieces.setdefault(target, []).append(Piece(name, None, 0, 0, whole=True))
        else:
            merged.setdefault(target, {}).setdefault(pattern, []).append(name)
    for target, sources in merged.items():
        converter = by_pattern[next(iter(sources))]
        pieces.setdefault(target, []).extend(_merged(converter, sources, entries))
    return pieces


def tensors_of(network: PreTrainedModel, entries: Mapping[str, Entry]) -> dict[str, str]:
    """By the name of every tensor on disk, the parameter of the network that it is, or is a part of."""
    pieces = _pieces(network, entries)
    return {piece.tensor: parameter for parameter, of_parameter in pieces.items() for piece in of_parameter}


def _merged(converter: Any, sources: Mapping[str, list[str]], entries: Mapping[str, Entry]) -> list[Piece]:
    """The tensors that are stacked, one an expert, and joined by rows: the one way of merging that is known here."""
    steps = [(type(step).__name__, getattr(step, "dim", None)) for step in converter.operations]
    stacked = steps in ([("MergeModulelist", 0)], [("MergeModulelist", 0), ("Concatenate", 1)])
    first = 0
    pieces = []
    for pattern in converter.source_patterns:
        rows = 0
        for expert, name in enumerate(sources.get(pattern, ())):
            shape = entries[name].shape
            if not stacked or len(shape) != 2:
                # Named all the same, so that the message can say where the matrix lies.
                pieces.append(Piece(name, -1, 0, 0, whole=False))
                continue
            rows = shape[0]
            pieces.append(Piece(name, expert, first, first + rows, whole=False))
        first += rows
    return pieces
