"""Prefill: the prompt computation of many edits at once, shared up to the block where an edit begins.

Rows of one prompt under different edits are the same until the first block that any of them changes. So the forward
pass starts with one row per prompt, the trunk, which is the row whose edit begins last; every other row branches off
from it just before the first block that its own edit changes. Where the edit takes that block away altogether, the
block need not run for the row: it branches off just after it, from what the trunk gave to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lesion.edits.edit import UNITS
from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.past import Begun, Recorder, known, put_before
from lesion.models.anatomy import HEAD
from lesion.models.load import Model

# Tokens of one forward pass, padding included, that callers should not exceed by more than one row.
TOKENS = 16384
# Of one pass that only scores, on a CPU: what lies between two products should stay in its caches; but so many rows at
# least, that they share their prompt.
TOKENS_ON_CPU, ROWS_ON_CPU = 2048, 64


@dataclass(frozen=True)
class Prefilled:
    """What a prefill found, for rows in the order they were asked for.

    Attributes:
        computed: logits of the last `kept` positions, in the order in which rows were computed; where a number was
            wanted for every row, of these positions alone, one after another, and `kept` is 1.
        places: of each asked-for row, its row of `computed`, or the first of its positions there.
        keys: per layer, what the layer computed, with as many rows as it was run on.
        values: the same for values.
        sources: per layer, the row of `keys` and `values` that each asked-for row reads.
        mask: False at padding.
        token_steps: tokens computed, padding included, where a token that ran through half of the blocks is one half.
    """

    computed: Float[Tensor, "computed kept vocabulary"]
    places: Int[Tensor, " rows"]
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    sources: Sequence[Int[Tensor, " rows"]]
    mask: Tensor
    token_steps: int

    @property
    def logits(self) -> Float[Tensor, "rows kept vocabulary"]:
        """Logits of the last `kept` positions; a copy, of a large vocabulary a large one."""
        return self.computed.index_select(0, self.places)


def pad_left(prompts: Sequence[Sequence[int]], padding: int) -> tuple[Int[Tensor, "rows length"], Tensor]:
    """Token ids padded on the left, and the mask that is False at padding."""
    length = max(map(len, prompts))
    tokens = torch.full((len(prompts), length), padding, dtype=torch.long)
    mask = torch.zeros(len(prompts), length, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, length - len(prompt) :] = torch.tensor(prompt)
        mask[row, length - len(prompt) :] = True
    return tokens, mask


def rows_to_score(model: Model, length: int, known: int = 0) -> int:
    """How many rows of this length, of which so many tokens are known, one pass scores best.

    No answer is generated after it.
    """
    fresh = length - known
    most = max(1, min(TOKENS // fresh, 2 * TOKENS // length))
    return most if model.device.type != "cpu" else min(most, max(TOKENS_ON_CPU // fresh, ROWS_ON_CPU))


def prefill(
    model: Model,
    gates: Gates,
    prompts: Sequence[Sequence[int]],
    table: Table,
    padding: int,
    kept: int = 1,
    wanted: Sequence[int] | None = None,
    begun: Sequence[Begun | None] | None = None,
) -> Prefilled:
    """Run every row's prompt under its edit, shared below the block where the edit begins.

    Of prompts whose first tokens are known, only the last ones run: of each as many as of that which has most to run.
    So nothing stands between what is known and what runs, and distances of columns are distances of positions.

    Args:
        prompts: token ids per row; rows with equal prompts share what can be shared.
        table: of the rows' edits, from `lesion.edits.table.tabulate`.
        padding: token id to pad with; it is never attended to.
        kept: number of last positions whose logits are wanted.
        wanted: that number per row, instead of one for all: the head is spared the rest, unless rows truncate it.
        begun: per row, where its first tokens were computed under the same edit. They are fewer than those of the
            prompt, by as many as are wanted of it.
    """
    unique = list(dict.fromkeys(map(tuple, prompts)))
    number = {prompt: index for index, prompt in enumerate(unique)}
    prompt_of_row = torch.tensor([number[tuple(prompt)] for prompt in prompts])
    starts = table.first_edited()
    blocks = table.blocks
    trunk = _begins_last(prompt_of_row, starts, len(unique))
    branching = starts < blocks
    branching[trunk] = False
    without = branching & _without_its_first(table, starts)
    joins = starts + without
    forked = branching.nonzero()[:, 0]
    forked = forked[joins[forked].sort(stable=True).indices]
    # The batch grows at its end only: first the trunks, then the rows in the order in which they branch off.
    grown = torch.cat([trunk, forked])
    origins = _Origins(prompt_of_row[grown], without[grown], len(unique))
    rows_at = [len(unique) + int((joins[forked] <= layer).sum()) for layer in range(blocks)]
    place = prompt_of_row.clone()
    place[forked] = torch.arange(len(forked)) + len(unique)

    begun = [None] * len(prompts) if begun is None else begun
    heads = known(prompt_of_row.tolist(), begun, len(unique))
    fresh = max(len(prompt) - head for prompt, head in zip(unique, heads, strict=True))
    past = torch.tensor([max(0, len(prompt) - fresh) for prompt in unique])
    reach = int(past.max())

    def put(layer: int, keys: Tensor, values: Tensor) -> None:
        rows = grown[: rows_at[min(layer, blocks - 1)]]
        put_before(keys, values, [begun[row] for row in rows.tolist()], past[prompt_of_row[rows]], layer)

    tokens, mask = pad_left([prompt[-fresh:] for prompt in unique], padding)
    mask = torch.cat([torch.arange(reach) >= reach - past[:, None], mask], dim=1)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)[:, reach:]
    cache = Recorder(_cache_layers(model), reach, put)
    gates.assign_table(_but_the_first(table, starts, without).select(grown), growing=True)
    chosen, places = (None, place) if wanted is None else _positions(place, wanted)
    kept = kept if wanted is None else max(wanted)
    # A head that rows truncate has to see rows.
    spared = None if HEAD in table.kept and bool(table.truncates(HEAD).any()) else chosen
    with _branching(model, origins, rows_at, spared):
        output = model.network(
            input_ids=tokens.to(model.device),
            attention_mask=mask.to(model.device).long(),
            position_ids=positions.to(model.device),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=kept,
        )
    sources = []
    for layer in range(len(cache.layers)):
        run = rows_at[min(layer, blocks - 1)]
        sources.append(torch.where(place < run, place, prompt_of_row))
    return Prefilled(
        computed=output.logits[:, -kept:] if chosen is None else _told(output.logits, chosen)[:, None],
        places=places.to(output.logits.device),
        keys=[layer.keys for layer in cache.layers],
        values=[layer.values for layer in cache.layers],
        sources=sources,
        mask=mask.index_select(0, prompt_of_row),
        token_steps=sum(rows_at) * tokens.shape[1] // blocks,
    )


def _begins_last(
    prompt_of_row: Int[Tensor, " rows"], starts: Int[Tensor, " rows"], prompts: int
) -> Int[Tensor, " prompts"]:
    """Per prompt, the row whose edit begins last: a baseline where there is one."""
    last = [-1] * prompts
    for row, (prompt, start) in enumerate(zip(prompt_of_row.tolist(), starts.tolist(), strict=True)):
        if last[prompt] < 0 or start > starts[last[prompt]]:
            last[prompt] = row
    return torch.tensor(last)


def _without_its_first(table: Table, starts: Int[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """Which rows' edits take away the whole of the block that they begin with, and leave another to join at."""
    inner = starts.clamp(max=table.blocks - 1)
    gone = table.scales[inner, UNITS.index("block"), torch.arange(table.columns)] == 0
    return gone & (starts < table.blocks - 1)


def _but_the_first(table: Table, starts: Int[Tensor, " rows"], without: Bool[Tensor, " rows"]) -> Table:
    """The table for rows of which some never come to the block that their edit begins with."""
    rows = without.nonzero()[:, 0]
    scales = table.scales.clone()
    scales[starts[rows], :, rows] = 1.0
    kept = dict(table.kept)
    for address, intervals in kept.items():
        whole = torch.tensor([0, table.ranks[address]])
        absent = without & (starts == table.layers[address])
        kept[address] = torch.where(absent[:, None], whole, intervals)
    return replace(table, scales=scales, kept=kept)


def _positions(place: Int[Tensor, " rows"], wanted: Sequence[int]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Wanted positions of all computed rows, as rows and distances from the end, and where each row's begin."""
    most = [0] * (int(place.max()) + 1)
    for row, count in zip(place.tolist(), wanted, strict=True):
        most[row] = max(most[row], count)
    counts = torch.tensor(most)
    ends = counts.cumsum(0)
    rows = torch.arange(len(most)).repeat_interleave(counts)
    return (rows, ends[rows] - torch.arange(len(rows))), ends[place] - torch.tensor(wanted)


def _told(logits: Tensor, chosen: tuple[Tensor, Tensor]) -> Float[Tensor, "positions vocabulary"]:
    """Logits of the chosen positions, from a network whose head was given these alone, or has none that is known."""
    rows, back = chosen
    if logits.shape[:2] == (1, len(rows)):
        return logits[0]
    return logits[rows.to(logits.device), -back.to(logits.device)]


def _cache_layers(model: Model) -> int:
    return int(model.network.config.get_text_config(decoder=True).num_hidden_layers)


@dataclass(frozen=True)
class _Origins:
    """Where the rows of a growing batch come from.

    Attributes:
        prompt: of each row, its trunk, which is the row of that number.
        earlier: whether it starts from what the trunk gave to the block before the one it joins at.
        prompts: the number of trunks.
    """

    prompt: Int[Tensor, " rows"]
    earlier: Bool[Tensor, " rows"]
    prompts: int


@contextmanager
def _branching(
    model: Model,
    origins: _Origins,
    rows_at: Sequence[int],
    chosen: tuple[Tensor, Tensor] | None = None,
) -> Iterator[None]:
    """While inside, each block runs on the first `rows_at[l]` rows; new ones start as copies of their prompt's row.

    The head is given the chosen positions alone, rows and distances from the end, as if they were of one row.
    """
    prompts = origins.prompts
    joined = [prompts, *rows_at]
    # What the trunks gave to the block before, for rows that start from that.
    before: list[Tensor] = []

    def hook(layer: int) -> Any:
        wanted = rows_at[layer]
        lends = layer + 1 < len(rows_at) and bool(origins.earlier[wanted : rows_at[layer + 1]].any())

        def grow(
            module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
            stream = args[0] if args else kwargs["hidden_states"]
            held = before.copy()
            # A copy, for a block may write into its input.
            before[:] = [stream[:prompts].clone()] if lends else []
            if wanted == prompts == stream.shape[0]:
                return None
            origin = origins.prompt[:wanted].to(stream.device)
            new = slice(joined[layer], wanted)
            if wanted > joined[layer]:
                branches = stream.index_select(0, origin[new])
                if bool((earlier := origins.earlier[new]).any()):
                    late = earlier.nonzero()[:, 0].to(stream.device)
                    branches[late] = held[0].to(stream.device).index_select(0, origin[new][late])
                stream = torch.cat([stream, branches])

            others = {
                key: _grow_heads(value, prompts, origin) if key == "alibi" else _grow(value, prompts, origin)
                for key, value in kwargs.items()
                if key != "hidden_states" and not _of_heads(key, value)
            }
            others |= {key: value for key, value in kwargs.items() if _of_heads(key, value)}
            if args:
                return (stream, *(_grow(value, prompts, origin) for value in args[1:])), others
            return args, {"hidden_states": stream, **others}

        return grow

    handles = [
        # Before the gates' own hooks, so that these see the grown batch.
        block.module.register_forward_pre_hook(hook(block.index), prepend=True, with_kwargs=True)
        for block in model.anatomy.blocks
    ]
    if (head := model.network.get_output_embeddings()) is not None:
        handles.append(head.register_forward_pre_hook(partial(_packed, chosen)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _packed(chosen: tuple[Tensor, Tensor] | None, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The chosen positions, or the last ones of every row, as plain memory.

    Cut out of a longer pass they have gaps, and then torch multiplies row by row: it reads the whole head for each.
    """
    stream = args[0]
    if chosen is None:
        return (stream.contiguous(), *args[1:])
    rows, back = (index.to(stream.device) for index in chosen)
    return (stream[rows, -back][None], *args[1:])


def _grow(value: Any, prompts: int, origin: Tensor) -> Any:
    """A block's other inputs for the grown batch: masks, positions and rotary tables that have a row per prompt.

    One prompt needs nothing: its single row broadcasts, but for masks, which some attentions want a row of for every
    row. Vectors are left alone: they run along the sequence.
    """
    if isinstance(value, Tensor):
        if prompts == 1 and value.dim() == 4 and value.shape[0] == 1:
            return value.expand(len(origin), -1, -1, -1)
        if prompts > 1 and value.dim() >= 2 and value.shape[0] == prompts:
            return value.index_select(0, origin.to(value.device))
        return value
    if type(value) in (tuple, list):
        return type(value)(_grow(part, prompts, origin) for part in value)
    if type(value) is dict:
        return {key: _grow(part, prompts, origin) for key, part in value.items()}
    return value


def _of_heads(key: str, value: Any) -> bool:
    """Whether an input is [heads, 1, length], the same for all rows: the linear biases of MPT."""
    return key == "position_bias" and isinstance(value, Tensor) and value.dim() == 3


def _grow_heads(value: Any, prompts: int, origin: Tensor) -> Any:
    """As `_grow`, for what has its prompts and heads in one dimension: the linear biases of BLOOM and Falcon."""
    if not isinstance(value, Tensor) or value.shape[0] % prompts:
        return value
    apart = value.view(prompts, value.shape[0] // prompts, *value.shape[1:])
    return apart.index_select(0, origin.to(value.device)).flatten(0, 1)
