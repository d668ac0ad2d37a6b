"""Rows that come and go in `Slots` keep exactly their own keys, values, mask and positions, whatever the others do."""

from dataclasses import dataclass, field

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig
from transformers.cache_utils import DynamicLayer

from lesion.engines.transformers.slots import GROWTH, Slots

LAYERS, HEADS, SIZE = 2, 2, 3
CONFIG = LlamaConfig(num_hidden_layers=LAYERS, num_attention_heads=HEADS, hidden_size=6)


@dataclass
class Naive:
    """A list of tokens per row, each token a number that its keys and values are made from; None where nobody is."""

    rows: list[list[int] | None] = field(default_factory=list)
    told: int = 0

    def tokens(self, count: int) -> list[int]:
        self.told += count
        return list(range(self.told - count + 1, self.told + 1))

    @property
    def live(self) -> list[int]:
        return [slot for slot, row in enumerate(self.rows) if row is not None]

    @property
    def longest(self) -> int:
        return max((len(row) for row in self.rows if row is not None), default=0)


def made(tokens: list[int], layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values [heads, length, size] that no other token, layer, head or column of it has."""
    base = torch.tensor(tokens, dtype=torch.float64)[None, :, None] * 1000 + layer * 100
    place = 10 * torch.arange(HEADS)[:, None, None] + torch.arange(SIZE)
    return base + place, -(base + place)


def insert(slots: Slots, naive: Naive, places: list[int], lengths: list[int], unread: list[int] | None = None) -> None:
    """Prompts of these lengths enter at these places, padded on the left with NaN-free rubbish; stored in reverse."""
    prompts = [naive.tokens(length) for length in lengths]
    width = max(lengths)
    mask = torch.zeros(len(places), width, dtype=torch.bool)
    layers = [DynamicLayer() for _ in range(LAYERS)]
    for layer in layers:
        layer.keys, layer.values = torch.full((2, len(places), HEADS, width, SIZE), 7e7, dtype=torch.float64)
    for row, prompt in enumerate(prompts):
        mask[row, width - len(prompt) :] = True
        for number, layer in enumerate(layers):
            own = len(places) - 1 - row, slice(None), slice(width - len(prompt), None)
            layer.keys[own], layer.values[own] = made(prompt, number)
    kept = [(layer, torch.arange(len(places)).flip(0)) for layer in layers]
    drop = unread or [0] * len(places)
    slots.insert(kept, mask, torch.tensor(places), None if unread is None else torch.tensor(unread))
    naive.rows += [None] * (max(places) + 1 - len(naive.rows))
    for place, prompt, dropped in zip(places, prompts, drop, strict=True):
        naive.rows[place] = prompt[: len(prompt) - dropped]


def step(slots: Slots, naive: Naive, look: bool = True) -> None:
    """One token for every row, as a forward pass would; what each layer is then given to attend to is looked at."""
    before = slots.width
    mask, positions = slots.step_inputs()
    new = naive.tokens(len(naive.rows))
    for slot, row in enumerate(naive.rows):
        if row is not None:
            assert positions[slot].tolist() == [len(row)]
            row.append(new[slot])
    assert mask.shape == (len(naive.rows), before + 1)
    assert bool(mask.any(1).all()), "attention over nothing is not defined"
    for layer in range(LAYERS):
        key, value = (torch.stack(rows) for rows in zip(*(made([token], layer) for token in new), strict=True))
        nobody = [slot for slot, row in enumerate(naive.rows) if row is None]
        key[nobody] = value[nobody] = float("nan")  # what comes of a broken edit, in a row that nobody reads
        seen = slots.update(key, value, layer)
        for tensor in seen:
            assert tensor.shape == (len(naive.rows), HEADS, before + 1, SIZE)
            assert bool(tensor[naive.live].isfinite().all()), "masked columns are multiplied by 0, and 0 · NaN is NaN"
        assert slots.get_mask_sizes(1, layer) == (before + 1, 0)
        if look:
            check_rows(naive, mask, seen, layer)
    slots.advance()


def check_rows(naive: Naive, mask: Tensor, seen: tuple[Tensor, Tensor], layer: int) -> None:
    for slot in naive.live:
        row = naive.rows[slot]
        # Right-aligned without a gap: the distance between columns is the distance between positions.
        assert mask[slot].tolist() == [False] * (mask.shape[1] - len(row)) + [True] * len(row)
        for tensor, expected in zip(seen, made(row, layer), strict=True):
            assert torch.equal(tensor[slot][:, mask[slot]], expected)


def vacate(slots: Slots, naive: Naive, left: list[int]) -> None:
    """Rows leave, broken: nothing of what they have written may reach whoever comes after them."""
    for layer in slots.layers:
        for tensor in (layer.keys, layer.values):
            tensor[left, :, slots.start : slots.end] = float("nan")
    for slot in left:
        naive.rows[slot] = None
    slots.vacate(torch.tensor(left), torch.tensor(naive.live, dtype=torch.long))


def keep(slots: Slots, naive: Naive, rows: list[int]) -> None:
    slots.keep(torch.tensor(rows, dtype=torch.long))
    naive.rows = [naive.rows[row] for row in rows]


def check(slots: Slots, naive: Naive) -> None:
    assert slots.rows == len(naive.rows)
    if naive.live:
        assert slots.width == naive.longest
        assert slots.lengths[naive.live].tolist() == [len(naive.rows[slot]) for slot in naive.live]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_sequence_of_arrivals_steps_and_departures_leaves_every_row_its_own_tokens(data):
    slots, naive = Slots(CONFIG, data.draw(st.sampled_from([0, 3, 16]), "most")), Naive()
    for _ in range(data.draw(st.integers(1, 12), "operations")):
        empty = [slot for slot, row in enumerate(naive.rows) if row is None]
        possible = ["insert", *(["step", "step", "vacate", "keep"] if naive.live else [])]
        match data.draw(st.sampled_from(possible), "operation"):
            case "insert":
                lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3), "lengths")
                places = [*empty, *range(len(naive.rows), len(naive.rows) + len(lengths))][: len(lengths)]
                unread = [data.draw(st.integers(0, length - 1), "unread") for length in lengths]
                insert(slots, naive, places, lengths, unread)
            case "step":
                count = data.draw(st.integers(1, 2 * GROWTH), "steps")
                for number in range(count):
                    step(slots, naive, look=number in (0, count - 1))
            case "vacate":
                left = data.draw(st.lists(st.sampled_from(naive.live), min_size=1, unique=True), "left")
                vacate(slots, naive, left)
            case "keep":
                kept = data.draw(st.lists(st.sampled_from(naive.live), min_size=1, unique=True), "kept")
                keep(slots, naive, kept)
        check(slots, naive)
    if naive.live:
        step(slots, naive)


def test_a_batch_of_which_nothing_was_kept_starts_as_narrow_as_a_new_one():
    slots, naive = Slots(CONFIG), Naive()
    insert(slots, naive, [0], [30])
    for _ in range(GROWTH):
        step(slots, naive)
    keep(slots, naive, [])
    insert(slots, naive, [0, 1], [3, 2])
    check(slots, naive)
    step(slots, naive)


def test_the_window_narrows_when_the_longest_row_leaves_and_memory_does_not_grow_with_the_steps():
    slots, naive = Slots(CONFIG), Naive()
    insert(slots, naive, [0], [GROWTH])
    for length in range(1, 40):
        # Rows of 20 tokens each take turns: however long this goes on, no more than their width is held.
        insert(slots, naive, [len(naive.rows)], [length % 5 + 1])
        for _ in range(20):
            step(slots, naive)
        keep(slots, naive, [len(naive.rows) - 1])
        check(slots, naive)
    assert slots.mask.shape[1] <= 4 * GROWTH


def test_a_row_that_enters_a_used_slot_meets_nothing_of_the_row_before_it_not_even_a_nan():
    slots, naive = Slots(CONFIG), Naive()
    insert(slots, naive, [0, 1], [5, 9])
    for layer in slots.layers:
        layer.keys[1] = layer.values[1] = float("nan")
    vacate(slots, naive, [1])
    insert(slots, naive, [1], [2])
    for _ in range(GROWTH):
        step(slots, naive)
    # A longer row widens the window to columns where the broken row had been.
    insert(slots, naive, [2], [3 * GROWTH])
    step(slots, naive)


def test_rows_that_come_after_others_were_given_up_meet_nothing_of_them():
    slots, naive = Slots(CONFIG, most=8), Naive()
    insert(slots, naive, [0, 1, 2, 3, 4], [9, 9, 9, 9, 9])
    for layer in slots.layers:
        layer.keys[1:] = layer.values[1:] = float("nan")
    vacate(slots, naive, [1, 2, 3, 4])
    keep(slots, naive, [0])
    insert(slots, naive, [1, 2, 3], [2, 4, 3])
    step(slots, naive)
    insert(slots, naive, [4], [3 * GROWTH])
    step(slots, naive)


def test_rows_may_do_without_the_last_tokens_of_what_was_computed():
    slots, naive = Slots(CONFIG), Naive()
    insert(slots, naive, [0, 1], [30, 4])
    step(slots, naive)
    insert(slots, naive, [2, 3, 4], [9, 6, 7], unread=[3, 0, 6])
    check(slots, naive)
    step(slots, naive)
    vacate(slots, naive, [0, 3])
    insert(slots, naive, [0, 3], [40, 50], unread=[0, 49])
    check(slots, naive)
    for _ in range(GROWTH):
        step(slots, naive)
