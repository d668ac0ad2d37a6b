"""Forced answers: accuracy among the rivals beside the free one, and which of the two a cut takes."""

import numpy as np
import pandas as pd
import pytest

from lesion.edits.edit import ScaleBlock
from lesion.statistics.critical import p_critical, pairs
from lesion.statistics.paired import accuracy, holm
from lesion.statistics.spared import p_spared
from lesion.studies.ablation.drops import forced_baseline, forced_under

ITEMS = 60
EDITS = [ScaleBlock(0), ScaleBlock(1)]


def answers(free: np.ndarray, choice: np.ndarray, rivals: int = 1) -> pd.DataFrame:
    """Answers to items with so many rivals: free and forced right as told."""
    # First tokens, " the", and whole texts; the first token of the right text is never the best.
    scores = [(-1.0, *[-0.5] * rivals, -0.1, -3.0, *[-4.0 if right else -2.0] * rivals) for right in choice]
    ranks = [(1 if right else 3, *[2] * rivals, 1) for right in free]
    return pd.DataFrame({"scores": scores, "ranks": ranks, "correct": free})


def share(right: int) -> np.ndarray:
    return np.arange(ITEMS) < right


BASELINE = answers(share(50), share(56))


def test_accuracy_chance_and_interval_are_those_of_the_choice_among_the_rivals():
    own = forced_baseline(BASELINE, 0.9)
    wilson = accuracy(share(56), 0.9)
    assert (own.items, own.guessing) == (ITEMS, 0.5)
    assert (own.accuracy.value, own.accuracy.low, own.accuracy.high) == pytest.approx(
        (56 / 60, wilson.low, wilson.high)
    )
    assert forced_baseline(answers(share(50), share(56), rivals=19), 0.9).guessing == pytest.approx(0.05)


def test_an_edit_that_takes_the_free_answer_alone_changes_the_form_and_one_that_takes_the_choice_does_not():
    both = forced_under(
        BASELINE, {EDITS[0]: answers(share(5), share(54)), EDITS[1]: answers(share(5), share(30))}, 2, 0.95
    )
    assert [both[edit].choice for edit in EDITS] == ["kept", "lost"]
    assert both[EDITS[0]].drop.value == pytest.approx(2 / 60)
    few = {EDITS[0]: answers(share(5), share(43))}
    assert forced_under(BASELINE, few, 30, 0.95)[EDITS[0]].choice == "cannot tell"


def test_without_a_test_of_its_own_nothing_is_told_of_the_choice():
    assert forced_baseline(BASELINE, 0.95).choice == "cannot tell"


def test_the_tests_are_of_half_of_what_lies_above_guessing_corrected_over_all_edits():
    edited = {edit: answers(share(5), share(right)) for edit, right in zip(EDITS, (49, 33), strict=True)}
    own = forced_under(BASELINE, edited, 5, 0.95)
    counts = [pairs(share(56), share(right)) for right in (49, 33)]
    lost = [p_critical(each, 0.5, 0.5) for each in counts]
    kept = [p_spared(each, 0.5, 0.5) for each in counts]
    assert [own[edit].p_lost for edit in EDITS] == pytest.approx(holm([*map(float, lost), 1.0, 1.0, 1.0])[:2])
    assert [own[edit].p_kept for edit in EDITS] == pytest.approx(holm([*map(float, kept), 1.0, 1.0, 1.0])[:2])


def test_items_without_a_rival_of_another_token_are_left_out_and_other_tasks_have_no_forced_answers():
    mixed = BASELINE.copy()
    for place in range(5):
        mixed.at[place, "scores"], mixed.at[place, "ranks"] = (-1.0, -2.0), (1, 2)
    assert forced_baseline(mixed, 0.95).items == ITEMS - 5
    chosen = pd.DataFrame({"scores": [(-1.0, -2.0, -3.0)] * 4, "ranks": [()] * 4, "correct": [True] * 4})
    assert forced_baseline(chosen, 0.95) is None
    assert forced_under(chosen, {EDITS[0]: chosen}, 1, 0.95) == {}


def test_logits_that_are_not_finite_choose_nothing():
    broken = BASELINE.copy()
    broken["ranks"] = [()] * ITEMS
    own = forced_under(BASELINE, {EDITS[0]: broken}, 1, 0.95)
    assert own[EDITS[0]].accuracy.value == 0
