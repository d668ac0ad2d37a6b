"""Batch: the rows at work, and what a pass makes them say."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lesion.edits.edit import BASELINE
from lesion.engines.answers import most_probable, without
from lesion.engines.sampling import sample
from lesion.engines.transformers.drafts import Drafts
from lesion.engines.transformers.prefill import Prefilled
from lesion.engines.transformers.prefixes import Prefixes
from lesion.engines.transformers.sequence import ActiveRequest
from lesion.engines.transformers.slots import GROWTH, Slots
from lesion.engines.transformers.static_slots import StaticSlots
from lesion.engines.transformers.ways import cache_argument
from lesion.tasks.task import Finish

# When nobody waits any more, the batch is cut down once this share of it is still at work.
SHRINK = 0.8

Finished = list[tuple[ActiveRequest, Finish]]


class Batch:
    """The rows at work. A slot whose row has finished is None until another row takes it.

    Memory is kept from the start for the rows that are waiting to enter.
    """

    def __init__(self, prefixes: Prefixes, waiting: Collection[ActiveRequest] = ()) -> None:
        self.prefixes = prefixes
        self.model, self.gates, self.work = prefixes.model, prefixes.gates, prefixes.work
        longest = max((len(row.request.prompt) + min(row.limit, GROWTH) for row in waiting), default=0)
        rows = min(self.work.batch_size, len(waiting))
        self.slots: Slots | StaticSlots = Slots(self.model.network.config, rows, longest)
        self.rows: list[ActiveRequest | None] = []
        self.assigned = False

    @property
    def size(self) -> int:
        """The number of rows that may be at work."""
        return self.work.batch_size

    @property
    def live(self) -> int:
        """The number of rows at work."""
        return sum(row is not None for row in self.rows)

    @torch.inference_mode()
    def enter(self, rows: Sequence[ActiveRequest]) -> Finished:
        """Compute the prompts and drafts of new rows and let in those that this does not finish; the others."""
        self.assigned = False
        columns = [row.column for row in rows]
        wanted = [len(row.draft) + 1 for row in rows]
        given = [row.given for row in rows]
        computed = self.prefixes.prefill(given, [row.prefix for row in rows], columns, wanted=wanted)
        positions = torch.cat(
            [torch.arange(first, first + count) for first, count in zip(computed.places.tolist(), wanted, strict=True)]
        )
        logits = computed.computed[:, 0]
        if len(positions) != len(logits) or not torch.equal(positions, torch.arange(len(logits))):
            logits = logits.index_select(0, positions.to(logits.device))
        tokens, finite = next_tokens(logits, [(row, step) for row in rows for step in range(len(row.draft) + 1)])
        done: Finished = []
        staying = []
        at = 0
        for index, (row, count) in enumerate(zip(rows, wanted, strict=True)):
            finish = row.judge(tokens[at : at + count], finite[at : at + count])
            at += count
            self.work.drafted += len(row.draft)
            self.work.accepted += row.accepted
            if finish:
                done.append((row, finish))
            else:
                staying.append(index)
        if staying:
            self._seat([rows[index] for index in staying], computed, torch.tensor(staying))
        return done

    def _seat(self, rows: Sequence[ActiveRequest], computed: Prefilled, chosen: Tensor) -> None:
        free = [slot for slot, row in enumerate(self.rows) if row is None]
        taken = [*free, *range(len(self.rows), len(self.rows) + len(rows))][: len(rows)]
        self.rows += [None] * (max(taken) + 1 - len(self.rows))
        kept = [(layer, source.index_select(0, chosen)) for layer, source in computed.kept]
        unread = torch.tensor([len(row.draft) - row.accepted for row in rows])
        mask = computed.mask.index_select(0, chosen.to(computed.mask.device))
        self.slots.insert(kept, mask, torch.tensor(taken), unread)
        for slot, row in zip(taken, rows, strict=True):
            self.rows[slot] = row

    @torch.inference_mode()
    def step(self) -> Finished:
        """One token for every row; the rows that it finishes."""
        if not self.assigned:
            columns = torch.tensor([row.column if row else 0 for row in self.rows])
            self.gates.assign_table(self.prefixes.table.select(columns))
            self.assigned = True
        device = self.model.device
        tokens = torch.tensor([[row.generated[-1] if row else self.prefixes.padding] for row in self.rows]).to(device)
        mask, positions = self.slots.step_inputs()
        output = self.model.network(
            input_ids=tokens,
            attention_mask=mask.to(device).long(),
            position_ids=positions.to(device),
            use_cache=True,
            **{cache_argument(self.model.network): self.slots},
        )
        self.slots.advance()
        live = self.live
        self.work.steps += 1
        self.work.decoded += live
        self.work.idle += len(self.rows) - live
        return self._say(*next_tokens(output.logits[:, -1], [(row, 0) for row in self.rows]))

    def _say(self, tokens: Sequence[int], finite: Sequence[bool]) -> Finished:
        done: Finished = []
        left = []
        for slot, (row, token, is_finite) in enumerate(zip(self.rows, tokens, finite, strict=True)):
            if row is not None and (finish := row.say(token, is_finite)):
                done.append((row, finish))
                self.rows[slot] = None
                left.append(slot)
        if left:
            live = [slot for slot, row in enumerate(self.rows) if row is not None]
            self.slots.vacate(torch.tensor(left), torch.tensor(live, dtype=torch.long))
        return done

    def grow(self, waiting: Drafts) -> bool:
        """Have room for more of those that wait than `size`, where that pays; whether there is more now."""
        return False

    @torch.inference_mode()
    def shrink(self) -> None:
        """Give up the slots of finished rows once enough of them stand empty."""
        kept = [slot for slot, row in enumerate(self.rows) if row is not None]
        if kept and len(kept) <= SHRINK * len(self.rows):
            self.slots.keep(torch.tensor(kept))
            self.rows = [self.rows[slot] for slot in kept]
            self.assigned = False

    def rest(self) -> None:
        """Edit nothing until the next step."""
        self.gates.assign_everywhere(BASELINE)
        self.assigned = False

    def leave(self) -> list[ActiveRequest]:
        """All rows still at work, as if they had never begun."""
        rows = [row for row in self.rows if row is not None]
        for row in rows:
            row.forget()
        return rows


def next_tokens(
    logits: Float[Tensor, "places vocabulary"], places: Sequence[tuple[ActiveRequest | None, int]]
) -> tuple[list[int], list[bool]]:
    """The next token at each place, and whether its logits are finite.

    Args:
        logits: of all places.
        places: the row that reads each, None for nobody, and how many tokens from now on the next one is.
    """
    largest, tokens = logits.max(-1)  # the first of equal ones, as argmax says, and of half precision much sooner
    finite = largest.isfinite().tolist()
    for index, (row, _) in enumerate(places):
        if row is not None and row.request.traced and finite[index]:
            row.last = most_probable(logits[index])
    allowed = without(logits, [row.forbidden(ahead) if row is not None else () for row, ahead in places])
    if allowed is not logits:
        logits, tokens = allowed, allowed.argmax(-1)
    drawing: list[int] = []
    settings: list[tuple[float, float]] = []
    noise: list[tuple[int, int]] = []
    for index, (row, ahead) in enumerate(places):
        if row is not None and row.noise_key is not None and finite[index]:
            decoding = row.request.decoding
            drawing.append(index)
            settings.append((decoding.temperature, decoding.top_p))
            noise.append((row.noise_key, len(row.generated) + ahead))
    if drawing:
        indices = torch.tensor(drawing, device=logits.device)
        numbers = torch.tensor(settings, dtype=torch.float64, device=logits.device)
        tokens[indices] = sample(logits[indices], *numbers.T, *torch.tensor(noise, device=logits.device).T)
    return tokens.tolist(), finite
