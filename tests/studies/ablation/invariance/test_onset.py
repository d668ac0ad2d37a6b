"""Onset: the first checkpoint from which on a layer is critical to the end, and the model able."""

from lesion.studies.ablation.invariance.result import Axis, Member, Onset, Skill
from lesion.studies.ablation.invariance.summary import Measured, onsets

MEMBERS = [
    *(Member(model=f"a@{step}", source="a", step=step) for step in (1, 2, 4, 8)), Member(model="a", source="a"),
]  # fmt: skip
AXIS = Axis(tuple(MEMBERS[:-1]), MEMBERS[-1])


def measured(model: str, able: bool, critical: set[int]) -> Measured:
    skill = Skill(model=model, accuracy=0.5, able=able, critical=sorted(critical))
    return Measured(skill, items=10, layers=(0, 1, 2, 3), harmless=(), profile=None)


def found(able: str, critical: list[set[int]]) -> dict[int, Onset]:
    own = {
        member.model: measured(member.model, letter == "+", layers)
        for member, letter, layers in zip(MEMBERS, able, critical, strict=True)
    }
    entries = onsets(AXIS, own)
    assert [entry.source for entry in entries] == ["a"] * 4
    return {entry.layer: entry for entry in entries}


def test_a_layer_is_critical_from_the_first_checkpoint_after_which_it_never_was_not():
    onset = found("-++++", [set(), {0, 1}, {0, 2}, {0, 1, 2}, {0, 1, 3}])
    assert [onset[layer].model for layer in range(4)] == ["a@2", "a@8", None, "a"]
    assert [onset[layer].step for layer in range(4)] == [2, 8, None, None]
    assert [onset[layer].after for layer in range(4)] == [1, 4, None, 8]
    assert onset[2].critical_at == (4, 8)
    assert {(entry.able_from, entry.able_after) for entry in onset.values()} == {(2, 1)}


def test_a_checkpoint_without_the_skill_begins_the_count_anew():
    onset = found("++-++", [{0}] * 5)[0]
    assert (onset.step, onset.after, onset.able_from) == (8, 4, 8)


def test_without_the_skill_at_the_end_there_is_no_onset():
    onset = found("++++-", [{0}] * 5)[0]
    assert (onset.model, onset.able_from) == (None, None)


def test_from_the_first_checkpoint_on_there_is_none_before():
    onset = found("+++++", [{0}] * 5)[0]
    assert (onset.step, onset.after, onset.able_after) == (1, None, None)


def test_before_the_end_has_answered_there_is_none():
    assert onsets(AXIS, {"a@8": measured("a@8", True, {0})}) == []
