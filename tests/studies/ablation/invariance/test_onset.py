"""Onset: the first checkpoint from which on a layer is critical to the end, and the model able."""

from __future__ import annotations

from lesion.studies.ablation.invariance.onset import onsets
from lesion.studies.ablation.invariance.result import Onset

MODELS = ["a@1", "a@2", "a@4", "a@8", "a"]
STEPS = [1, 2, 4, 8, None]


def told(able: str, critical: list[set[int]]) -> dict[int, Onset]:
    found = onsets("a", MODELS, STEPS, [letter == "+" for letter in able], critical, [0, 1, 2, 3])
    assert [entry.source for entry in found] == ["a"] * 4
    return {entry.layer: entry for entry in found}


def test_a_layer_is_critical_from_the_first_checkpoint_after_which_it_never_was_not():
    found = told("-++++", [set(), {0, 1}, {0, 2}, {0, 1, 2}, {0, 1, 3}])
    assert [found[layer].model for layer in range(4)] == ["a@2", "a@8", None, "a"]
    assert [found[layer].step for layer in range(4)] == [2, 8, None, None]
    assert [found[layer].after for layer in range(4)] == [1, 4, None, 8]
    assert found[2].critical_at == (4, 8)
    assert {(entry.able_from, entry.able_after) for entry in found.values()} == {(2, 1)}


def test_a_checkpoint_without_the_skill_begins_the_count_anew():
    found = told("++-++", [{0}, {0}, {0}, {0}, {0}])
    assert (found[0].step, found[0].after, found[0].able_from) == (8, 4, 8)


def test_without_the_skill_at_the_end_there_is_no_onset():
    found = told("++++-", [{0}] * 5)
    assert (found[0].model, found[0].able_from) == (None, None)


def test_from_the_first_checkpoint_on_there_is_none_before():
    found = told("+++++", [{0}] * 5)
    assert (found[0].step, found[0].after, found[0].able_after) == (1, None, None)
