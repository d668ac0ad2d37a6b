"""One pass of the unedited model over a text: the stream at every block, what branches and query heads add to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lesion.activations.readout import EXACT, ROUNDED, Frozen, Norm, Readout, first
from lesion.edits.edit import Scale
from lesion.errors import LesionError
from lesion.models.load import Model


@dataclass(frozen=True)
class CleanPass:
    """What a pass showed.

    Attributes:
        streams: what enters block 0, and what every block gives, float32.
        branches: by address (`3.mlp`), what the attention or the MLP of a block adds, float32.
        heads: by block, what its query heads give to the output matrix, side by side, and what that makes of them.
        raw: what the head gives at the last positions.
    """

    streams: list[Float[Tensor, "tokens width"]]
    branches: dict[str, Float[Tensor, "tokens width"]]
    heads: dict[int, tuple[Float[Tensor, "tokens heads_size"], Float[Tensor, "tokens width"]]]
    raw: Float[Tensor, "kept vocabulary"]

    def contribution(self, edit: Scale) -> Float[Tensor, "tokens width"]:
        """What a block or branch adds to the stream."""
        if edit.unit != "block":
            return self.branches[edit.address]
        return self.streams[edit.layer + 1].double() - self.streams[edit.layer].double()


def clean_pass(
    readout: Readout, read: Sequence[int], kept: int, *, branches: bool, heads: Iterable[int] = ()
) -> CleanPass:
    """Run a text through a model."""
    model = readout.model
    entered: dict[object, Tensor] = {}
    left: dict[object, Tensor] = {}
    added: dict[object, Tensor] = {}
    given: dict[object, Tensor] = {}
    mixed: dict[object, Tensor] = {}

    def keep(store: dict[object, Tensor], key: object, stream: object, what: str) -> None:
        if not isinstance(stream, Tensor) or stream.numel() % len(read) or not bool(stream.isfinite().all()):
            raise LesionError(
                f"What {what} of {model.name} cannot be read or is not finite; load the model in bfloat16 or float32."
            )
        store[key] = stream.detach().reshape(len(read), -1).float().clone()  # a later module may write into it

    def enters(store: dict[object, Tensor], index: int, name: str, what: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
            keep(store, index, args[0] if args else kwargs.get(name), what)

        return hook

    def leaves(store: dict[object, Tensor], key: object, what: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[object, ...], output: object) -> None:
            keep(store, key, first(output), what)

        return hook

    with ExitStack() as stack, torch.inference_mode():
        for block in model.anatomy.blocks:
            index, module = block.index, block.module
            entering = enters(entered, index, "hidden_states", f"enters block {index}")
            stack.callback(module.register_forward_pre_hook(entering, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(leaves(left, index, f"leaves block {index}")).remove)
            for branch in block.branches if branches else ():
                address = f"{index}.{branch.name}"
                stack.callback(branch.tail.register_forward_hook(leaves(added, address, f"{address} adds")).remove)
        for index in heads:
            matrix, what = model.anatomy.heads(index).matrix.module, f"of heads of block {index}"
            giving = enters(given, index, "input", f"the output matrix is given {what}")
            stack.callback(matrix.register_forward_pre_hook(giving, with_kwargs=True).remove)
            stack.callback(matrix.register_forward_hook(leaves(mixed, index, f"it makes {what}")).remove)
        ended = stack.enter_context(final(model, readout.module))
        ids = torch.tensor([list(read)], device=model.device)
        model.network(input_ids=ids, use_cache=False, logits_to_keep=kept)
    _refuse_other_additions(model, entered, left, added)
    streams = [entered[0], *(left[block.index] for block in model.anatomy.blocks)]
    own = {index: (given[index], mixed[index]) for index in heads}
    return CleanPass(streams, {str(address): stream for address, stream in added.items()}, own, ended[1][0, -kept:])


@contextmanager
def final(model: Model, norm: nn.Module) -> Iterator[list[Tensor]]:
    """What the next pass ends with: what enters the final norm, and what the head gives, before factor and softcap."""
    ended: list[Tensor] = []

    def enters(module: nn.Module, args: tuple[Any, ...]) -> None:
        ended.append(args[0])

    def leaves(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        ended.append(output)

    handles = (
        norm.register_forward_pre_hook(enters),
        model.network.get_output_embeddings().register_forward_hook(leaves),
    )
    try:
        yield ended
    finally:
        for handle in handles:
            handle.remove()


def _refuse_other_additions(
    model: Model, entered: Mapping[Any, Tensor], left: Mapping[Any, Tensor], added: Mapping[Any, Tensor]
) -> None:
    """Refuse a model whose last stream is not the sum of what is measured."""
    tolerance = EXACT if model.dtype == torch.float32 else ROUNDED

    def apart(one: Tensor, other: Tensor) -> bool:
        return bool((one - other).abs().max() > tolerance * max(float(one.abs().max()), float(other.abs().max())))

    for block in model.anatomy.blocks:
        index = block.index
        if index and apart(entered[index], left[index - 1].to(entered[index].device)):
            raise LesionError(
                f"What enters block {index} of {model.name} is not what left block {index - 1}, so direct effects would"
                " not add up to the logit; use `lesion ablate` for this model."
            )
        parts = [added[address] for branch in block.branches if (address := f"{index}.{branch.name}") in added]
        # Rounding is that of the streams, whose difference may be small beside them.
        if len(parts) == 2 and apart(entered[index] + parts[0] + parts[1], left[index]):
            raise LesionError(
                f"Attention and MLP of block {index} of {model.name} do not add up to what the block adds, so their"
                " direct effects cannot be told; measure whole blocks with --unit block."
            )


class HeadContributions:
    """What the query heads of one block add to the stream in one pass.

    Attention adds f(W_O [head_0; head_1; …] + b), where f is nothing, or a norm whose scale is frozen as it is in the
    pass (Gemma 2, OLMo 2). So the heads and the part of the bias add up to what the attention adds.
    """

    def __init__(self, model: Model, passed: CleanPass, layer: int) -> None:
        self._heads = model.anatomy.heads(layer)
        self._given, mixed = passed.heads[layer]
        self._matrix = self._heads.matrix.storage.view(self._heads.matrix.tensor)
        self._behind = _behind(model, layer, mixed, passed.branches[f"{layer}.attention"])

    def of(self, head: int) -> Float[Tensor, "tokens width"]:
        """What one head adds, float64."""
        size = self._heads.size
        columns = slice(head * size, (head + 1) * size)
        added = self._given[:, columns].double() @ self._matrix[:, columns].detach().double().T
        return added if self._behind is None else self._behind(added)


def _behind(model: Model, layer: int, mixed: Tensor, added: Tensor) -> Frozen | None:
    tolerance = EXACT if model.dtype == torch.float32 else ROUNDED
    if bool((mixed - added).abs().max() <= tolerance * added.abs().max()):
        return None
    attention = model.anatomy.block(layer).attention
    assert attention is not None
    try:
        return Norm.of(attention.tail, mixed, model.name).frozen(mixed, model.name)
    except (LesionError, RuntimeError, TypeError, ValueError) as error:
        raise LesionError(
            f"Behind the output matrix of {layer}.attention of {model.name} stands something else than a norm, so what"
            " a head adds cannot be told; measure --unit attention."
        ) from error
