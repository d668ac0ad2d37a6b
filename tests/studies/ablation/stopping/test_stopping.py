"""Rounds of a stopped study: what is asked, and that decisions depend on the answers of whole rounds alone."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lesion.edits.edit import SCALES
from lesion.statistics.sequential_families import Standing
from lesion.studies.ablation import stopping
from lesion.studies.ablation.stopping import NAMES, Stopping, Verdicts, stretched
from lesion.studies.ablation.study import StopPlan

EDITS = [SCALES[unit](layer, factor) for unit, factor in (("block", 0.0), ("mlp", 0.5)) for layer in range(4)]
ITEMS = {"long": [f"a{n}" for n in range(150)], "short": [f"b{n}" for n in range(40)]}
PLAN = StopPlan(effect=0.1, level=0.05)
ALL = ["baseline", *map(str, EDITS)]


def world(seed: int, drops: dict[int, float] | None = None) -> dict[tuple[str, str, str], bool]:
    """Whether each answer is right: the baseline mostly, an edit less often by its layer's drop."""
    drops = drops or {0: 1.0, 1: 0.5, 2: 0.1, 3: 0.0}
    rng = np.random.default_rng(seed)
    return {
        (task, edit, item): bool(base and rng.random() >= (drops[int(edit[0])] if edit != "baseline" else 0))
        for task, ids in ITEMS.items()
        for item in ids
        for base in [rng.random() < 0.9]
        for edit in ALL
    }


def verdicts(answers: dict[tuple[str, str, str], bool]) -> Verdicts:
    return Verdicts((*key, right) for key, right in answers.items())


def fresh(plan: StopPlan = PLAN) -> Stopping:
    return Stopping(plan, ITEMS, EDITS)


def asked_in(state: Stopping) -> list[tuple[str, str, str]]:
    """What the next round asks that was not asked before."""
    return [
        (task, edit, item)
        for (task, edit), stop in state.round().items()
        for item in ITEMS[task][state.reached[task, edit] : stop]
    ]


# Drops on both sides of the effect and a generous level: some cells that are called lean on others that then turn.
NEAR, GENEROUS = {0: 0.35, 1: 0.3, 2: 0.2, 3: 0.02}, StopPlan(effect=0.2, level=0.3)


def woken(state: Stopping) -> int:
    """Cells that were called, and asked again after they had missed items."""
    standings = [of.standing for of in state._families]
    return sum(not bets[:looked].all() for one in standings for bets, looked in zip(one.bets, one.looked, strict=True))


@given(seed=st.integers(0, 10_000), near=st.booleans())
@example(seed=36, near=True)
@settings(max_examples=6, deadline=None)
def test_every_round_asks_the_open_cells_the_next_items_the_baseline_too_and_nothing_twice(seed, near):
    answers = world(seed, NEAR if near else None)
    there: dict[tuple[str, str, str], bool] = {}
    state = fresh(GENEROUS if near else PLAN)
    reached = {(task, edit): 0 for task in ITEMS for edit in ALL}
    while stops := state.round():
        assert not state.look(verdicts(there)), "a round counts before it was asked"
        for (task, edit), stop in stops.items():
            assert edit == "baseline" or state.decided[task, edit] == "open"
            assert reached[task, edit] < stop <= len(ITEMS[task]) or edit == "baseline"
            reached[task, edit] = stop
        cells = asked_in(state)
        assert there.keys().isdisjoint(cells)
        there |= {key: answers[key] for key in cells}
        for task in ITEMS:
            cells_reached = [reached[task, edit] for edit in map(str, EDITS)]
            assert reached[task, "baseline"] == max(cells_reached), "what the furthest cell is asked, the baseline is"
        assert state.look(verdicts(there))
    assert woken(state) or seed != 36 or not near
    assert state.answers == len(there)
    assert reached == state.reached
    for task, ids in ITEMS.items():
        for edit in map(str, EDITS):
            assert state.decided[task, edit] != "open" or state.reached[task, edit] == len(ids)


@pytest.mark.parametrize(("first", "budget"), [(12, 64), (1, 1), (40, 1000)])
@pytest.mark.parametrize(("plan", "drops", "seeds"), [(PLAN, None, (0, 1)), (GENEROUS, NEAR, (33, 36))])
def test_decisions_are_those_of_the_full_table_gone_through_item_by_item_however_much_is_asked_at_a_time(
    first, budget, plan, drops, seeds, monkeypatch
):
    """A family with all its answers, handed over by hand."""
    monkeypatch.setattr("lesion.studies.ablation.stopping.FIRST", first)
    monkeypatch.setattr("lesion.studies.ablation.stopping.BUDGET", budget)
    needed = spent = 0
    for seed in seeds:
        answers = world(seed, drops)
        state = fresh(plan).replay(verdicts(answers))
        assert woken(state) or plan == PLAN
        for task, unit in itertools.product(ITEMS, ("block", "mlp")):
            family, ids = [str(edit) for edit in EDITS if edit.unit == unit], ITEMS[task]
            lost = [[answers[task, "baseline", i] - answers[task, edit, i] for i in ids] for edit in family]
            known = np.full(len(family), len(ids))
            end = Standing.first(len(family), plan.effect, plan.level, len(ids)).follow(np.array(lost), known)
            assert [state.decided[task, edit] for edit in family] == [NAMES[call] for call in end.called.tolist()]
            asked = [state.reached[task, edit] for edit in family]
            assert all(enough <= reached for enough, reached in zip(end.looked.tolist(), asked, strict=True))
            needed, spent = needed + int(end.looked.sum()), spent + sum(asked)
    assert budget > 1 or spent <= 1.3 * needed, "hardly more than decisions rest on"


def test_cells_that_lose_nothing_are_asked_exactly_what_their_decision_rests_on(monkeypatch):
    monkeypatch.setattr("lesion.studies.ablation.stopping.BUDGET", 1)
    state = fresh().replay(verdicts(world(0, dict.fromkeys(range(4), 0.0))))
    for task, ids in ITEMS.items():
        known = np.full(4, len(ids))
        end = Standing.first(4, 0.1, 0.05, len(ids)).follow(np.zeros((4, len(ids)), dtype=np.int64), known)
        assert {state.reached[task, str(edit)] for edit in EDITS} == set(end.looked.tolist()) == {end.items}


def test_answers_beyond_those_of_the_rounds_change_nothing():
    answers = world(3)
    there: dict[tuple[str, str, str], bool] = {}
    alone = fresh()
    while alone.round():
        there |= {key: answers[key] for key in asked_in(alone)}
        alone.look(verdicts(there))
    among = fresh().replay(verdicts(answers))
    assert len(there) < len(answers)
    assert (among.decided, among.reached) == (alone.decided, alone.reached)


def test_a_round_with_one_answer_missing_is_not_looked_at_and_counts_once_it_is_there():
    answers = world(4)
    whole = fresh().replay(verdicts(answers))
    before = fresh()
    before.look(verdicts(answers))
    lost = asked_in(before)[-1]
    state = fresh().replay(verdicts({key: right for key, right in answers.items() if key != lost}))
    assert (state.decided, state.reached) == (before.decided, before.reached)
    assert "not decided yet after" in state.progress()
    state.replay(verdicts(answers))
    assert (state.decided, state.reached) == (whole.decided, whole.reached)


def test_rounds_are_few_and_full():
    answers = verdicts(world(5, {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.12}))
    state = fresh()
    sizes = []
    while stops := state.round():
        left = {cell for cell, decision in state.decided.items() if decision == "open"}
        to_the_end = all(
            stops.get((task, edit), 0) == len(ITEMS[task])
            for task, edit in left
            if state.reached[task, edit] < len(ITEMS[task])
        )
        sizes.append(len(asked_in(state)))
        assert sizes[-1] >= stopping.BUDGET or to_the_end
        state.look(answers)
    assert sizes[0] == 2 * (1 + len(EDITS)) * stopping.FIRST
    assert len(sizes) < 20


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from("123")), st.tuples(*[st.integers(0, 90)] * 2)
    ),
    st.integers(0, 90),
    st.integers(1, 400),
)
def test_a_stretched_round_is_full_or_asks_all_and_no_cell_less(cells, baseline, budget):
    stops = {cell: max(pair) + 1 for cell, pair in cells.items()}
    reached = {cell: min(pair) for cell, pair in cells.items()} | {("a", "baseline"): baseline, ("b", "baseline"): 0}
    further = stretched(stops, reached, {"a": 91, "b": 91}, budget)
    assert further.keys() == stops.keys()
    assert all(stops[cell] <= stop <= 91 for cell, stop in further.items())
    answers = sum(stop - reached[cell] for cell, stop in further.items())
    for task, asked in (("a", baseline), ("b", 0)):
        answers += max([asked, *(stop for (of, _), stop in further.items() if of == task)]) - asked
    assert answers >= budget or set(further.values()) <= {91}


def test_a_cell_that_cannot_be_told_from_the_effect_is_asked_everything_and_left_open():
    answers = world(6, dict.fromkeys(range(4), 0.18))
    state = fresh().replay(verdicts(answers))
    assert not state.round()
    undecided = [key for key, what in state.decided.items() if what == "open"]
    assert undecided
    for task, edit in undecided:
        assert state.reached[task, edit] == len(ITEMS[task])
        lost = sum(answers[task, "baseline", item] - answers[task, edit, item] for item in ITEMS[task])
        assert lost > 0.1 * len(ITEMS[task]), "what does not exceed the effect on all items is not called so"
    assert f"{len(undecided)} of 16 cells left open with all items asked" in state.progress()


@pytest.mark.parametrize("effect", [0.05, 0.3])
def test_the_sentence_counts_in_evaluations_of_the_base_model(effect):
    state = fresh(StopPlan(effect=effect)).replay(verdicts(world(7, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0})))
    assert set(state.decided.values()) == {"exceeds"}
    assert state.full == 190 * 9
    assert state.progress() == (
        f"decided after {state.answers:,} of 1,710 answers: {state.answers / 190:.1f} evaluations of the unedited model"
        " instead of 9.0."
    )


def test_a_model_without_edits_yet_asks_nothing():
    state = Stopping(PLAN, ITEMS, [])
    assert (state.round(), state.answers, state.look(verdicts({}))) == ({}, 0, False)
