"""The verdict's rules, one threshold at a time, on numbers set by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lesion.report import wording
from lesion.report.values import Estimate
from lesion.statistics.paired import ALPHA
from lesion.studies.ablation.invariance.result import Family, FamilyTask, Joint, Member, Onset, Overlap, Pair, Skill
from lesion.studies.ablation.invariance.verdict import AGREE, MOST, RELIABLE, RULE, THRESHOLDS, verdict

BASE, CHILD = (Member(model=name, source=name, variant=name, blocks=8) for name in ("base", "rlvr"))
NOISE = Member(model="noisy", source="noisy", variant="control: noise", blocks=8, distance=0.0123)
FAMILY = Family(family="f", base="base", members=(BASE, CHILD, NOISE))
PAIR = {
    **{"a": "base", "b": "rlvr", "kind": "variant", "rho": 0.9, "low": 0.8, "high": 1.0, "p": 0.001, "p_least": 0.001},
    **{"p_corrected": 0.001, "ceiling": 0.95},
}
SETS = {
    **{"a": "base", "b": "rlvr", "kind": "variant", "first": [1, 2], "second": [1, 2], "shared": [1, 2]},
    **{"expected": 0.5, "p": 0.03, "lost": [], "gained": []},
}
JOINT = {"base": "base", "children": ["rlvr"], "kept_by_all": [1, 2], "shared": 2, "expected": 0.5, "p": 0.03}
NONE_LEFT = {"second": [], "shared": [], "lost": [1, 2]}
JOINT["p_least"] = 1 / 56


def pair(**changes: Any) -> Pair:
    values = {**PAIR, **changes}
    return Pair(
        **{name: values[name] for name in ("a", "b", "kind", "p_least", "ceiling")},
        rho=Estimate(value=values["rho"], p=values["p"], p_corrected=values["p_corrected"]),
        true=Estimate(value=0.95, low=values["low"], high=values["high"]),
        same_top=True,
        top_share=1.0,
        top_two=2,
    )


def skill(model: str, able: bool = True, critical: tuple[int, ...] = (1, 2)) -> Skill:
    return Skill(model=model, able=able, accuracy=0.9 if able else 0.02, critical=critical)


def told(
    order: dict[str, Any] | None = None,
    sets: dict[str, Any] | None = None,
    joint: dict[str, Any] | None = None,
    name: str = "gsm8k",
    able: tuple[bool, bool] = (True, True),
    critical: tuple[int, ...] = (1, 2),
) -> FamilyTask:
    subject = {"gsm8k": "mathematics", "math500": "mathematics", "triviaqa": "recall"}[name]
    return FamilyTask(
        task=name,
        subject=subject,
        items=100,
        layers=range(8),
        skills=[skill("base", able[0], critical), skill("rlvr", able[1]), skill("noisy")],
        pairs=[pair(**(order or {})), pair(b="noisy", rho=0.4, low=0.0, high=0.09)],
        overlaps=[Overlap(**{**SETS, **(sets or {})}), Overlap(**{**SETS, "b": "noisy", **NONE_LEFT})],
        joint=Joint(**{**JOINT, **(joint or {})}),
    )


def more(task: FamilyTask, **values: Any) -> FamilyTask:
    """The task with more of some of its parts."""
    return task.model_copy(update={name: (*getattr(task, name), *added) for name, added in values.items()})


def word(**changes: Any) -> str:
    return verdict(FAMILY, [told(**changes)], []).word


def test_everything_in_favour_holds():
    outcome = verdict(FAMILY, [told()], [])
    assert (outcome.word, outcome.by_task, outcome.between) == ("holds", {"gsm8k": "holds"}, None)
    assert "gsm8k depends on the same blocks in" in outcome.text


def test_a_p_that_could_not_be_smaller_is_said_to_be_the_smallest_possible():
    assert "(p = 0.018, the smallest possible)" in verdict(FAMILY, [told(joint={"p": 1 / 56})], []).text
    assert "smallest" not in verdict(FAMILY, [told(joint={"p": 0.03})], []).text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"order": {"high": AGREE - 0.01, "low": 0.1}}, "does not hold"),
        ({"order": {"high": AGREE, "low": 0.1}}, "cannot tell"),
        ({"order": {"low": AGREE - 0.01}}, "cannot tell"),
        ({"order": {"low": AGREE}}, "holds"),
        ({"order": {"p": ALPHA + 0.01}}, "cannot tell"),
        ({"order": {"p": ALPHA}}, "holds"),
        ({"joint": {"p": ALPHA + 0.01}}, "cannot tell"),
        ({"joint": {"p": None}}, "cannot tell"),
        ({"sets": {"lost": [1]}}, "holds"),  # half of them, and what is left is beyond chance: an exception, and told
        ({"sets": {"lost": [1, 2]}}, "does not hold"),
        ({"critical": ()}, "cannot tell"),
        ({"able": (True, False)}, "cannot tell"),
        ({"able": (False, True)}, "cannot tell"),
    ],
)
def test_each_rule_turns_at_its_threshold(changes, expected):
    assert word(**changes) == expected


@pytest.mark.parametrize(
    "mute", [{"ceiling": RELIABLE - 0.01}, {"p_least": ALPHA + 0.01}, {"rho": None}, {"low": None}, {"ceiling": None}]
)
def test_an_order_that_cannot_be_measured_speaks_neither_for_nor_against(mute):
    poor = {"high": 0.3, "low": 0.0, "p": 0.9}
    assert word(order=poor) == "does not hold"
    assert word(order={**poor, **mute}) == "holds"
    assert word(order={**poor, **mute}, joint={"p": 0.2}) == "cannot tell"


MUTE = {"low": None, "high": None}


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        ({"second": [], "shared": []}, "no block of rlvr is shown to be critical"),
        ({"second": [5], "shared": []}, "no critical block of the base is shown to be critical in rlvr"),
        ({"second": [1], "shared": [1], "lost": [2]}, "block 2, critical in the base, is not in rlvr"),
    ],
)
def test_a_child_whose_order_says_nothing_must_keep_critical_blocks_itself(sets, reason):
    """The joint p stays small: it comes from other children."""
    assert word(sets=sets) == "holds"  # its order is that of the base
    outcome = verdict(FAMILY, [told(order=MUTE, sets=sets)], [])
    assert outcome.word == "cannot tell"
    assert any(reason in sentence for sentence in outcome.reasons)
    assert reason in outcome.text
    assert word(order=MUTE) == "holds"


def test_a_child_that_the_joint_test_leaves_out_needs_its_order():
    assert word(joint={"children": []}) == "holds"
    assert word(joint={"children": []}, order=MUTE) == "cannot tell"


def test_p_values_are_corrected_over_the_children_of_the_base_alone():
    task = told(order={"p": 0.03, "p_corrected": 0.09})
    others = [pair(a="rlvr", b="other", p=0.04), pair(a="early", kind="time")]
    task = more(task, pairs=others)
    outcome = verdict(FAMILY, [task], [])
    assert outcome.word == "holds"
    assert "corrected p at most 0.030" in outcome.text
    second = Member(model="distill", source="distill", variant="distill", blocks=8)
    overlaps = [Overlap(**{**SETS, "b": "distill"})]
    task = more(task, pairs=[pair(b="distill", p=0.03)], overlaps=overlaps, skills=[skill("distill")])
    task = task.model_copy(update={"joint": Joint(**{**JOINT, "children": ["rlvr", "distill"]})})
    outcome = verdict(Family(family="f", base="base", members=(BASE, CHILD, NOISE, second)), [task], [])
    assert outcome.word == "cannot tell"  # each of the two times two
    assert "p = 0.060" in outcome.text


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        ({"rho": 0.9, "ceiling": 0.95}, ": 0.90 (equal profiles: about 0.95);"),
        ({"rho": 0.97, "ceiling": 0.95}, ": 0.97 (equal profiles: about 0.95);"),
        ({"ceiling": None}, ": 0.90;"),
    ],
)
def test_the_ceiling_is_an_estimate_that_a_correlation_may_reach(order, sentence):
    assert sentence in verdict(FAMILY, [told(order=order)], []).text


def test_an_order_without_an_interval_is_called_not_measurable():
    assert "not measurable in rlvr" in verdict(FAMILY, [told(order=MUTE)], []).text
    outcome = verdict(FAMILY, [told()], [])
    assert "not measurable" not in outcome.text
    assert any("0.80 to 1.00 without noise" in reason for reason in outcome.reasons)


@pytest.mark.parametrize(
    ("after", "step", "moment"),
    [
        (8, 32, "between step 8 and step 32"),
        (8, None, "between step 8 and the end"),
        (None, 8, "before step 8, the first measured"),
        (None, None, "before the end, the only moment measured"),
    ],
)
def test_a_moment_lies_between_two_checkpoints(after, step, moment):
    onset = Onset(source="m", layer=3, step=step, model="m", after=after, able_from=1, able_after=None)
    task = more(told(), onset=[onset])
    text = verdict(FAMILY, [task], []).text
    assert f"gsm8k is learned before step 1, the first measured. Block 3 becomes critical {moment}." in text


def test_the_word_of_a_family_is_that_of_its_mathematics():
    broken = {"order": {"high": 0.2, "low": 0.0}}
    outcome = verdict(FAMILY, [told(), told(name="triviaqa", **broken)], [])
    assert (outcome.word, outcome.by_task["triviaqa"]) == ("holds", "does not hold")
    assert "triviaqa: does not hold" in outcome.text
    outcome = verdict(FAMILY, [told(), told(name="math500", **broken)], [])
    assert outcome.word == "does not hold"
    assert verdict(FAMILY, [told(name="triviaqa", **broken)], []).word == "does not hold"


@pytest.mark.parametrize(
    ("family", "lacks"),
    [
        (Family(family="f", base=None, members=(CHILD,)), "no model labelled base"),
        (Family(family="f", base="base", members=(BASE,)), "no child of its base"),
    ],
)
def test_without_base_or_child_it_says_what_is_lacking(family, lacks):
    outcome = verdict(family, [told()], [])
    assert outcome.word == "cannot tell"
    assert lacks in outcome.text


def test_exceptions_are_told_beside_a_verdict_that_holds():
    changes = {"second": [1, 5, 6], "shared": [1], "lost": [2], "gained": [5]}
    text = verdict(FAMILY, [told(sets=changes)], []).text
    assert "rlvr has of these block 1, no longer block 2, newly block 5, perhaps newly block 6" in text


def test_the_rule_names_its_thresholds():
    for number in (AGREE, RELIABLE, 100 * MOST, ALPHA):
        assert f"{number:g}" in RULE
    assert (THRESHOLDS["agree"], THRESHOLDS["reliable"], THRESHOLDS["most"]) == (AGREE, RELIABLE, MOST)


def test_what_cannot_be_told_names_the_blocks_of_both_and_the_reason():
    # Two of 5 blocks in the base, three in the child: both shared in 3 of the 10 draws.
    least = 3 / 10
    sets = {"first": [0, 2], "second": [0, 2, 3], "shared": [0, 2]}
    task = told(joint={"p": least, "p_least": least}, sets=sets, critical=(0, 2))
    child = skill("rlvr", critical=(0, 2, 3))
    text = verdict(FAMILY, [task.model_copy(update={"skills": (task.skills[0], child, task.skills[2])})], []).text
    assert text.startswith(
        "It cannot be told whether gsm8k depends on the same blocks in base (0, 2) and in rlvr (0, 2, 3): with so few"
        " blocks and children no overlap could be beyond chance (p = 0.300, the smallest possible). "
    )
    assert "Missing" not in text


def controlled(low: float, high: float, able: bool = True) -> tuple[Family, FamilyTask]:
    """A family with a control whose true correlation with the base lies between two numbers."""
    child = CHILD.model_copy(update={"distance": 0.0456})
    family = Family(family="f", base="base", members=(BASE, child, NOISE))
    task = told()
    skills = (*task.skills[:2], skill("noisy", able))
    pairs = (task.pairs[0], pair(b="noisy", rho=0.4, low=low, high=high))
    overlaps = (task.overlaps[0], Overlap(**{**SETS, "b": "noisy", "second": [1], "shared": [1]}))
    return family, task.model_copy(update={"skills": skills, "pairs": pairs, "overlaps": overlaps})


def test_it_holds_only_beside_a_control_that_agrees_with_the_base_less_than_every_child():
    family, task = controlled(0.1, 0.6)
    outcome = verdict(family, [task], [])
    assert outcome.word == "holds"
    assert "‖ΔW‖/‖W‖ 0.046;" in outcome.text
    numbers = "noise 0.40, without noise [0.1, 0.6], ‖ΔW‖/‖W‖ 0.012, 1 of 2 critical blocks shared."
    assert f"Controls, correlated with the base in the same way: {numbers}" in outcome.text.replace(wording.SPACE, " ")
    assert "Less than every child, noise left out of account: noise." in outcome.text


@pytest.mark.parametrize(
    ("family", "task", "reason"),
    [
        (*controlled(0.7, 0.9), "noise agrees with the base as well, as far as can be told."),
        (*controlled(0.1, 0.6, able=False), "no control that can do it was measured"),
        (Family(family="f", base="base", members=(BASE, CHILD)), told(), "no control that can do it was measured"),
    ],
)
def test_agreement_that_a_control_may_have_as_well_is_said_and_is_no_verdict(family, task, reason):
    outcome = verdict(family, [task], [])
    assert outcome.word == "cannot tell"
    assert outcome.text.startswith(
        "gsm8k depends on the same blocks in base (1, 2) and in rlvr (1, 2); whether this could have come out otherwise"
        f" cannot be told: {reason.rstrip('.')}"
    )


def test_a_control_is_no_child_so_that_what_it_loses_does_not_speak_against_the_children():
    family, task = controlled(0.1, 0.6)
    assert [member.model for member in family.children] == ["rlvr"]
    assert [member.model for member in family.controls] == ["noisy"]
    assert "noisy" not in " ".join(verdict(family, [task], []).reasons)
