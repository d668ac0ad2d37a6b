"""Requests are cut into units: each request once, prompts or edits together, large units first, all workers fed."""

import heapq

from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.edits.edit import BASELINE, ScaleBlock
from lesion.engines.engine import Decoding, Request
from lesion.engines.ray.units import Unit, cut, expected

EDITS = (BASELINE, *(ScaleBlock(block) for block in range(7)))


def sweep(lengths, limit: int = 64) -> list[Request]:
    """Every prompt under every edit; prompts of these lengths, no two the same."""
    return [
        Request(f"{number} {edit}", (number, *[0] * (length - 1)), edit, Decoding(limit))
        for number, length in enumerate(lengths)
        for edit in EDITS
    ]


def keys(units: list[Unit]) -> list[str]:
    return [key for unit in units for key in unit.requests]


lengths = st.lists(st.integers(1, 400), min_size=1, max_size=60)


@given(lengths, st.integers(1, 12), st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_every_request_is_in_exactly_one_unit_and_units_are_numbered_from_the_most_expensive(lengths, workers, rows):
    requests = sweep(lengths)
    units = cut(requests, workers, rows)
    assert sorted(keys(units)) == sorted(request.key for request in requests)
    assert [unit.number for unit in units] == list(range(len(units)))
    assert [unit.cost for unit in units] == sorted((unit.cost for unit in units), reverse=True)
    assert all(unit.requests for unit in units)


@given(lengths, st.integers(1, 12), st.integers(len(EDITS), 200))
@settings(max_examples=30, deadline=None)
def test_all_edits_of_a_prompt_stay_together(lengths, workers, rows):
    place = {}
    for unit in cut(sweep(lengths), workers, rows):
        for request in unit.requests.values():
            assert place.setdefault(request.prompt, unit.number) == unit.number


def test_more_edits_of_a_prompt_than_a_batch_holds_are_dealt_out_in_batches():
    requests = [Request(f"{n}", (1, 2, 3), ScaleBlock(n), Decoding(8)) for n in range(1000)]
    units = cut(requests, workers=4, rows=50)
    assert sorted(keys(units)) == sorted(request.key for request in requests)
    assert len(units) >= 8
    assert max(len(unit.requests) for unit in units) <= 200  # 1000 / (1.5 · 4), in batches of 50


def test_what_is_written_into_the_weights_keeps_its_prompts_together():
    # 20 prompts under 8 edits, two units a worker: units of one edit, not of all edits for some prompts.
    units = cut(sweep([10] * 20), workers=4, rows=20, in_weights=lambda request: request.edit)
    written = [len({request.edit for request in unit.requests.values()}) for unit in units]
    assert sum(written) <= len(EDITS) + len(units)  # an edit is written again only where a unit ends inside it
    assert max(written) <= 2


@given(st.lists(st.integers(20, 400), min_size=40, max_size=120), st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_dealt_to_whoever_is_free_all_workers_end_at_about_the_same_time(lengths, workers):
    units = cut(sweep(lengths), workers, rows=32)
    ends = [0.0] * workers
    for unit in units:
        heapq.heapreplace(ends, ends[0] + unit.cost)
    total = sum(unit.cost for unit in units)
    # Graham's bound for any order: the last to end is late by one unit at most, and the last units are small.
    assert max(ends) <= total / workers + units[0].cost
    assert max(ends) <= 1.5 * total / workers


def test_few_requests_are_enough_for_two_units_a_worker():
    assert len(cut(sweep([10] * 16), workers=8, rows=1024)) == 16
    assert len(cut(sweep([10]), workers=8, rows=1024)) == 1
    assert cut([], workers=2, rows=8) == []


def test_units_fill_batches_while_there_is_much_to_do():
    units = cut(sweep([100] * 500), workers=2, rows=64)
    assert min(len(unit.requests) for unit in units[:-1]) >= 64
    assert len(units[0].requests) == 8 * round(500 / (1.5 * 2))


def test_scored_choices_cost_less_than_generated_answers():
    scored = Request("a", (1,), choices=((1, 2), (3,)))
    assert expected(scored) < expected(Request("b", (1,), decoding=Decoding(4)))
    assert expected(Request("c", (1,), tokens=(4, 5))) < 1
