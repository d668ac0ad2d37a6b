"""Prefill: the prompt computation of many edits at once, shared up to the block where an edit begins.

Rows of one prompt under different edits are the same until the first block that any of them changes. So the forward
pass starts with one row per prompt, the trunk, which is the row whose edit begins last; every other row branches off
from it just before the first block that its own edit changes. Where the edit takes that block away altogether, the
block need not run for the row: it branches off just after it, from what the trunk gave to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lesion.edits.gates import Gates
from lesion.edits.table import Table
from lesion.engines.transformers.branching import with_branches
from lesion.engines.transformers.growing import Growth
from lesion.engines.transformers.prefix_cache import Begun, Recorder, begin_states, known, put_before
from lesion.engines.transformers.states import KeptRows, has_states
from lesion.engines.transformers.ways import cache_argument
from lesion.errors import LesionError
from lesion.models.anatomy import HEAD
from lesion.models.load import Model

# Tokens of one forward pass, padding included, that callers should not exceed by more than one row.
TOKENS = 16384
# Of one pass that only scores, on a CPU: what lies between two products should stay in its caches; but so many rows at
# least, that they share their prompt.
TOKENS_ON_CPU, ROWS_ON_CPU = 2048, 64


@dataclass(frozen=True)
class Prefilled:
    """What a prefill found, for the given rows in their order.

    Attributes:
        computed: logits of the last `kept` positions, in the order in which rows were computed; with a number wanted
            per row, of these positions alone, one after another, and `kept` is 1.
        places: of each given row, its row of `computed`, or the first of its positions there.
        kept: layers of as many rows as they were run on, and of each the row that each given row reads.
        mask: False at padding.
        token_steps: tokens computed, padding included, where a token that ran through half of the blocks is one half.
    """

    computed: Float[Tensor, "computed kept vocabulary"]
    places: Int[Tensor, " rows"]
    kept: KeptRows
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
    """How many rows of this length, of which so many tokens are known, one pass scores best."""
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
    So nothing stands between what is known and what runs, and distances of columns are distances of positions. Of a
    network that keeps states these are equally many of each, since a state is that of all tokens that are known.

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
    growth = Growth.of(prompt_of_row, table, every=False)
    grown, rows_at, blocks = growth.rows, growth.rows_at, table.blocks
    place = prompt_of_row.clone()
    place[grown] = torch.arange(len(grown))

    begun = [None] * len(prompts) if begun is None else begun
    lengths = known(prompt_of_row.tolist(), begun, len(unique))
    fresh = max(len(prompt) - length for prompt, length in zip(unique, lengths, strict=True))
    past = torch.tensor([max(0, len(prompt) - fresh) for prompt in unique])
    reach = int(past.max())

    def put(layer: int, keys: Tensor, values: Tensor) -> None:
        rows = grown[: rows_at[min(layer, blocks - 1)]]
        put_before(keys, values, [begun[row] for row in rows.tolist()], past[prompt_of_row[rows]], layer)

    tokens, mask = pad_left([prompt[-fresh:] for prompt in unique], padding)
    mask = torch.cat([torch.arange(reach) >= reach - past[:, None], mask], dim=1)
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)[:, reach:]
    cache = Recorder(model.network.config, reach, put)
    recurrent = [index for index, layer in enumerate(cache.layers) if has_states(layer)]
    if recurrent and reach and past.tolist() != lengths:
        raise LesionError("Prompts of a network that keeps states were cut in the middle of what is known of them.")
    for index in recurrent if reach else ():
        begin_states(cache.layers[index], index, [begun[row] for row in grown[: rows_at[index]].tolist()])
    assigned = _but_the_first(table.select(grown), growth.earlier)
    gates.assign_table(assigned, growing=True, positions=positions[growth.trunks])
    chosen, places = (None, place) if wanted is None else _positions(place, wanted)
    kept = kept if wanted is None else max(wanted)
    # A head that rows truncate has to see rows.
    positions_of_head = None if HEAD in table.kept and bool(table.truncates(HEAD).any()) else chosen
    with with_branches(model, growth, positions_of_head):
        output = model.network(
            input_ids=tokens.to(model.device),
            attention_mask=mask.to(model.device).long(),
            position_ids=positions.to(model.device),
            use_cache=True,
            logits_to_keep=kept,
            **{cache_argument(model.network): cache},
        )
    run_on = [rows_at[min(layer, blocks - 1)] for layer in range(len(cache.layers))]
    return Prefilled(
        computed=output.logits[:, -kept:] if chosen is None else _chosen_logits(output.logits, chosen)[:, None],
        places=places.to(output.logits.device),
        kept=[
            (layer, torch.where(place < rows, place, prompt_of_row))
            for layer, rows in zip(cache.layers, run_on, strict=True)
        ],
        mask=mask.index_select(0, prompt_of_row),
        token_steps=sum(rows_at) * tokens.shape[1] // blocks,
    )


def _but_the_first(table: Table, without: Bool[Tensor, " rows"]) -> Table:
    """Edit table for a batch in which some rows stop before their edit's first block."""
    starts, rows = table.first_edited(), without.nonzero()[:, 0]
    scales = table.scales.clone()
    replaced = table.replaced.clone()
    scales[starts[rows], :, rows] = 1.0
    replaced[starts[rows], :, rows] = -1
    kept = dict(table.kept)
    for address, intervals in kept.items():
        whole = torch.tensor([0, table.ranks[address]])
        absent = without & (starts == table.layers[address])
        kept[address] = torch.where(absent[:, None], whole, intervals)
    units = {site: factors.without(without & (starts == site.layer)) for site, factors in table.units.items()}
    return replace(table, scales=scales, kept=kept, replaced=replaced, units=units)


def _positions(place: Int[Tensor, " rows"], wanted: Sequence[int]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Wanted positions of all computed rows, as rows and distances from the end, and where each row's begin."""
    most = [0] * (int(place.max()) + 1)
    for row, count in zip(place.tolist(), wanted, strict=True):
        most[row] = max(most[row], count)
    counts = torch.tensor(most)
    ends = counts.cumsum(0)
    rows = torch.arange(len(most)).repeat_interleave(counts)
    return (rows, ends[rows] - torch.arange(len(rows))), ends[place] - torch.tensor(wanted)


def _chosen_logits(logits: Tensor, chosen: tuple[Tensor, Tensor]) -> Float[Tensor, "positions vocabulary"]:
    """Logits of the chosen positions, whether the head was given these alone or not."""
    rows, back = chosen
    if logits.shape[:2] == (1, len(rows)):
        return logits[0]
    return logits[rows.to(logits.device), -back.to(logits.device)]
