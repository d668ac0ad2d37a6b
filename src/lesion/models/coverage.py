"""Coverage: which parameters hold no matrix, and why; which share one tensor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from torch import nn

from lesion.models.matrices import Matrix

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedModel


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
    network: PreTrainedModel,
    matrices: Iterable[Matrix],
    blocks: Iterable[nn.Module],
    reasons: Mapping[str, str],
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
