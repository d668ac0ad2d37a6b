"""Reordered: a decoder with its blocks repeated, swapped, reordered or left out, without copying weights."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from lesion.arguments import validated
from lesion.errors import LesionError
from lesion.models.anatomy import Anatomy, dissect
from lesion.models.fingerprint import surroundings
from lesion.models.load import settle_outputs, wrap
from lesion.models.model import Model
from lesion.models.order import Order, arranged, order_text, parse_order
from lesion.models.owner import held
from lesion.models.quiet import quiet

if TYPE_CHECKING:  # their library takes seconds to load
    from transformers import PreTrainedModel


@validated
def reordered(model: Model, order: str | Sequence[int]) -> Model:
    """The model with its blocks in another order; a block may be repeated or left out. No weight is copied.

    The new network shares the memory of the weights, so that an edit of the one's weights is one of the other's too.
    Every occurrence of a block has keys and values of its own, and the kind of attention (sliding or full) that the
    block had. The given model stays as it is.

    Args:
        model: whose blocks they are.
        order: the blocks from first to last: text such as `"0-13,10-29"`, or a list of numbers.

    Example:
        >>> repeated = lesion.reordered(model, "0-3,2-7")
        >>> len(repeated.anatomy.blocks)
        10

    Raises:
        UsageError: the order is empty, or names a block that the model does not have; or an edit is in force.
        LesionError: a block would be another function at its new place; or the model is quantised or spread over
            devices.
    """
    numbers = parse_order(order, len(model.anatomy.blocks), model.name)
    network = _network(model, numbers)
    with held(model, "a reordered model", unedited=True):
        return wrap(network, model.tokenizer, _name(model, numbers))


def in_order(model: Model, order: Sequence[int]) -> Model:
    """The same as `reordered`, with a fingerprint made of the model's and the order's: no weight is read."""
    numbers, name = tuple(order), _name(model, order)
    if numbers == tuple(range(len(model.anatomy.blocks))):
        return model
    network = _network(model, numbers)
    settle_outputs(network.config)
    network.eval().requires_grad_(False)
    digits = hashlib.sha256(f"{model.fingerprint} order {order_text(numbers)}".encode()).hexdigest()[:16]
    return Model(network, model.tokenizer, dissect(network, name), name, digits, surroundings=surroundings(network))


def _name(model: Model, order: Sequence[int]) -> str:
    return f"{model.name} order {order_text(order)}"


def _network(model: Model, order: Order) -> PreTrainedModel:
    model.refuse_packed("put into another order")
    network = model.network
    if len({parameter.device for parameter in network.parameters()}) > 1:
        raise LesionError(f"{model.name} is spread over devices; load it on one to put its blocks into another order.")
    path = path_of(network, model.anatomy)
    skeleton = built(network, model.dtype, path, order, len(model.anatomy.blocks), model.name)
    _share(network, skeleton, path, order)
    skeleton.generation_config = copy.deepcopy(network.generation_config)
    return skeleton


def path_of(network: nn.Module, anatomy: Anatomy) -> str:
    """The dotted path of the list of blocks in the network."""
    first = anatomy.blocks[0].module
    return next(name for name, module in network.named_modules() if module is first).rpartition(".")[0]


def built(
    network: PreTrainedModel, dtype: torch.dtype, path: str, order: Sequence[int], blocks: int, name: str
) -> PreTrainedModel:
    """A network without weights whose blocks, in the list at `path`, are those of another in an order.

    Refused is an order under which a block would compute something else, where a family builds blocks by their number.
    """
    try:
        with quiet(), torch.device("meta"):
            other = type(network)._from_config(arranged(network.config, order, blocks), dtype=dtype)
    except Exception as error:  # whatever its code raises
        raise LesionError(
            f"The code of {name} cannot build it with its blocks in the order {order_text(order)} ({error}). Give an"
            " order that keeps the last blocks in place."
        ) from error
    for place, number in enumerate(order):
        before, after = (
            dict(_traits(each.get_submodule(f"{path}.{at}"))) for each, at in ((network, number), (other, place))
        )
        # A setting that was the block's number and is that of its place only says where it stands.
        differing = sorted(
            key
            for key in before.keys() | after.keys()
            if (value := before.get(key)) != after.get(key) and (value, after.get(key)) != (number, place)
        )
        if differing:
            raise LesionError(
                f"Block {number} of {name} would be another function at place {place}: this architecture builds blocks"
                f" by their number ({differing[0]}). Only orders that keep such blocks in place can be made."
            )
    return other


def _traits(block: nn.Module) -> Iterator[tuple[str, object]]:
    """Shapes of a block's parameters, and the plain settings of its modules."""
    for name, parameter in block.named_parameters(remove_duplicate=False):
        yield name, tuple(parameter.shape)
    for path, module in block.named_modules():
        yield f"{path or 'its'} type", type(module).__name__
        for key, value in vars(module).items():
            plain = isinstance(value, bool | int | float | str | type(None))
            if plain and not key.startswith("_") and key != "training":
                yield f"{path}.{key}".removeprefix("."), value


def _share(network: PreTrainedModel, skeleton: PreTrainedModel, path: str, order: Sequence[int]) -> None:
    """Give the skeleton the memory of the network's weights and buffers; its own parameters, so that none is tied."""
    tied: dict[int, nn.Parameter] = {}
    for name, module in list(skeleton.named_modules(remove_duplicate=False)):
        source = network.get_submodule(_source(name, path, order))
        for key, parameter in source._parameters.items():
            if parameter is None:
                module._parameters[key] = None
                continue
            # One parameter for what the network ties, another for every occurrence of a block.
            inside = name.startswith(f"{path}.")
            own = nn.Parameter(parameter.data, requires_grad=False)
            module._parameters[key] = own if inside else tied.setdefault(id(parameter), own)
        for key, buffer in source._buffers.items():
            module._buffers[key] = buffer


def _source(name: str, path: str, order: Sequence[int]) -> str:
    if not name.startswith(f"{path}."):
        return name
    place, dot, rest = name.removeprefix(f"{path}.").partition(".")
    return f"{path}.{order[int(place)]}{dot}{rest}"
