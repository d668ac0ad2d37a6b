"""Batching: texts run through a model in batches of a budget of tokens, halved where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lesion.activations.token_sums import Batch
from lesion.engines.transformers.engine import way_of
from lesion.engines.transformers.memory import ran_out
from lesion.errors import LesionError, UsageError
from lesion.models.load import Model

Run = Callable[[Tensor, Tensor], None]
"""Takes token ids and attention mask, each [rows, length]."""


class Budget(NamedTuple):
    """What a batch may hold: so many tokens, padding included, and only rows of equal length where `equal`."""

    tokens: int
    equal: bool = False


def budget_of(model: Model, batch_tokens: int | None, on_cpu: int, on_accelerator: int) -> Budget:
    """The tokens asked for, else by the device. Only networks that answer in the fast way are exact under padding."""
    if batch_tokens is not None and batch_tokens < 1:
        raise UsageError(f"A batch of {batch_tokens} tokens was asked for; ask for at least 1.")
    tokens = batch_tokens or (on_cpu if model.device.type == "cpu" else on_accelerator)
    return Budget(tokens, equal=not way_of(model).fast)


def longest_first(texts: Sequence[Sequence[int]]) -> list[int]:
    """The places of texts in the order in which they run: memory fails early."""
    return sorted(range(len(texts)), key=lambda place: (-len(texts[place]), place))


def batches(lengths: Sequence[int], budget: Budget) -> list[list[int]]:
    """Texts, their lengths never rising, in batches whose rows times longest row stay within a budget.

    A text longer than the budget is a batch of its own.
    """
    places: list[list[int]] = []
    for place in range(len(lengths)):
        longest = lengths[places[-1][0]] if places else 0
        fits = bool(places) and (len(places[-1]) + 1) * longest <= budget.tokens
        if fits and (not budget.equal or lengths[place] == longest):
            places[-1].append(place)
        else:
            places.append([place])
    return places


class _ReachedHeadError(Exception):
    """Ends a forward pass: what follows is not needed."""


@contextmanager
def stopped_at_head(model: Model) -> Iterator[Run]:
    """A way to run a batch up to the output head, whose logits nobody needs.

    Enter it after the hooks that look at the input of the head itself.
    """

    def stop(module: nn.Module, args: tuple[object, ...]) -> None:
        raise _ReachedHeadError

    def run(input_ids: Int[Tensor, "rows length"], attention_mask: Int[Tensor, "rows length"]) -> None:
        with suppress(_ReachedHeadError):
            model.network(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)

    head = model.network.get_output_embeddings()
    with head.register_forward_pre_hook(stop) if isinstance(head, nn.Module) else nullcontext():
        yield run


def run_in_batches(
    model: Model,
    texts: Sequence[Sequence[int]],
    budget: Budget,
    begin: Callable[[list[int], Batch], None],
    end: Callable[[list[int]], None],
    order: Sequence[int] | None = None,
) -> None:
    """Run texts up to the output head, the longest first, padded on the right under a mask, within a budget.

    `begin` is called with the places of a batch before its pass, `end` after it. A batch that does not fit into memory
    is run as two halves, each with its own `begin`. `order` has the places that run, by default those of all.
    """
    order = longest_first(texts) if order is None else order
    waiting = [[order[place] for place in batch] for batch in batches([len(texts[p]) for p in order], budget)][::-1]
    with torch.inference_mode(), stopped_at_head(model) as run:
        while waiting:
            places = waiting.pop()
            width = len(texts[places[0]])
            batch = Batch(tuple(len(texts[place]) for place in places), width)
            begin(places, batch)
            # What stands in a padded place is never read; the first token of a row is one that the model has.
            ids = torch.tensor([[*texts[p], *([texts[p][0]] * (width - len(texts[p])))] for p in places])
            try:
                run(ids.to(model.device), batch.mask(model.device).long())
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                if len(places) == 1:
                    raise LesionError(
                        f"Memory does not suffice to run even one text through {model.name}; use --dtype bfloat16,"
                        f" shorter texts, or a device with more memory."
                    ) from error
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                middle = (len(places) + 1) // 2
                waiting += [places[middle:], places[:middle]]
            else:
                end(places)
