"""Rounds of a stopped study: what is asked, and that decisions depend on the answers of whole rounds alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lesion.edits.edit import SCALES
from lesion.studies import sequential, stopping
from lesion.studies.stopping import Stopping, Verdicts
from lesion.studies.study import StopPlan

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


def asked_in(one: stopping.Slice) -> list[tuple[str, str, str]]:
    return [(one.task, edit, item) for item in ITEMS[one.task][one.start : one.stop] for edit in one.edits]


@given(seed=st.integers(0, 10_000))
@settings(max_examples=6, deadline=None)
def test_every_round_asks_the_baseline_and_the_open_cells_the_next_items_and_nothing_twice(seed):
    answers = world(seed)
    there: dict[tuple[str, str, str], bool] = {}
    state = fresh()
    reached = dict.fromkeys(ITEMS, 0)
    while slices := state.round():
        assert not state.look(verdicts(there)), "a round counts before it was asked"
        for one in slices:
            assert one.start == reached[one.task] < one.stop <= len(ITEMS[one.task])
            reached[one.task] = one.stop
            assert list(one.edits) == ["baseline", *state.open(one.task)]
            cells = asked_in(one)
            assert len(cells) == one.answers
            assert there.keys().isdisjoint(cells)
            there |= {key: answers[key] for key in cells}
        assert state.look(verdicts(there))
    assert state.answers == len(there)
    assert state.asked == reached
    for task, ids in ITEMS.items():
        for edit in map(str, EDITS):
            decided = state.decided[task, edit] != "open"
            assert decided or state.evidence[task, edit].items == len(ids)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=3, deadline=None)
def test_decisions_are_those_of_a_plain_replay_over_families(seed):
    """A loop with its own bookkeeping; only the e-values and e-BH are the library's."""
    answers = world(seed)
    state = fresh()
    looked: dict[str, list[int]] = {task: [] for task in ITEMS}
    while slices := state.round():
        for one in slices:
            looked[one.task].append(one.stop)
        state.look(verdicts(answers))
    for task, stops in looked.items():
        for unit in ("block", "mlp"):
            family = [str(edit) for edit in EDITS if edit.unit == unit]
            frozen: dict[str, sequential.Evidence] = {}
            decided = dict.fromkeys(family, "open")
            for stop in stops:
                for edit in family:
                    if decided[edit] == "open":
                        pair = [
                            np.array([answers[task, name, item] for item in ITEMS[task][:stop]])
                            for name in ("baseline", edit)
                        ]
                        frozen[edit] = sequential.evidence(*pair, PLAN.effect, 0.05, len(ITEMS[task]))
                for edit, what in zip(family, sequential.decide([frozen[edit] for edit in family], 0.05), strict=True):
                    decided[edit] = what if decided[edit] == "open" else decided[edit]
            assert decided == {edit: state.decided[task, edit] for edit in family}
            assert {edit: frozen[edit].items for edit in family} == {
                edit: state.evidence[task, edit].items for edit in family
            }


def test_answers_beyond_those_of_the_rounds_change_nothing():
    answers = world(3)
    there: dict[tuple[str, str, str], bool] = {}
    alone = fresh()
    while slices := alone.round():
        there |= {key: answers[key] for one in slices for key in asked_in(one)}
        alone.look(verdicts(there))
    among = fresh().replay(verdicts(answers))
    assert len(there) < len(answers)
    assert (among.decided, among.evidence, among.asked) == (alone.decided, alone.evidence, alone.asked)


def test_a_round_with_one_answer_missing_is_not_looked_at_and_counts_once_it_is_there():
    answers = world(4)
    whole = fresh().replay(verdicts(answers))
    before = fresh()
    before.look(verdicts(answers))
    (one, *_) = before.round()
    lost = asked_in(one)[-1]
    state = fresh().replay(verdicts({key: right for key, right in answers.items() if key != lost}))
    assert (state.decided, state.asked) == (before.decided, before.asked)
    assert "not decided yet after" in state.told()
    state.replay(verdicts(answers))
    assert (state.decided, state.evidence) == (whole.decided, whole.evidence)


def test_slices_end_where_rounds_do_and_grow_so_that_batches_stay_full():
    answers = verdicts(world(5, {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.12}))
    state = fresh()
    sizes = []
    while slices := state.round():
        for one in slices:
            assert one.stop in {stop for _, stop in sequential.rounds(len(ITEMS[one.task]))}
        to_the_end = any(one.stop == len(ITEMS[one.task]) for one in slices)
        sizes.append((sum(len(one.edits) for one in slices), sum(one.answers for one in slices)))
        assert sizes[-1][1] >= stopping.BUDGET or to_the_end
        state.look(answers)
    open_rows, requests = zip(*sizes, strict=True)
    assert open_rows[0] == 2 * (1 + len(EDITS)) > open_rows[-1]
    _, first = next(iter(sequential.rounds(150)))
    assert requests[0] == first * open_rows[0], "where many cells are open the first look comes as early as can be"
    assert max(requests) < 2.5 * max(stopping.BUDGET, requests[0]), "no more than is needed"


def test_a_cell_that_cannot_be_told_from_the_effect_is_asked_everything_and_left_open():
    answers = world(6, dict.fromkeys(range(4), 0.18))
    state = fresh().replay(verdicts(answers))
    assert not state.round()
    undecided = [key for key, what in state.decided.items() if what == "open"]
    assert undecided
    for task, edit in undecided:
        assert state.evidence[task, edit].items == len(ITEMS[task])
        lost = sum(answers[task, "baseline", item] - answers[task, edit, item] for item in ITEMS[task])
        assert lost > 0.1 * len(ITEMS[task]), "what does not exceed the effect on all items is not critical"
    assert f"{len(undecided)} of 16 cells left open with all items asked" in state.told()


@pytest.mark.parametrize("effect", [0.05, 0.3])
def test_the_sentence_counts_in_evaluations_of_the_base_model(effect):
    state = fresh(StopPlan(effect=effect)).replay(verdicts(world(7, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0})))
    assert set(state.decided.values()) == {"critical"}
    assert state.full == 190 * 9
    assert state.told() == (
        f"decided after {state.answers:,} of 1,710 answers: {state.answers / 190:.1f} evaluations of the unedited model"
        " instead of 9.0."
    )


def test_a_model_without_edits_yet_asks_nothing():
    state = Stopping(PLAN, ITEMS, [])
    assert (state.round(), state.answers, state.look(verdicts({}))) == ((), 0, False)
