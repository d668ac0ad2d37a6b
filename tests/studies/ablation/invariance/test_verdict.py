"""Words and claims of a family, one threshold and one outcome at a time, on numbers set by hand."""

from typing import Any

import pytest

from lesion.report import wording
from lesion.report.values import Estimate
from lesion.statistics.paired import ALPHA
from lesion.studies.ablation.analyses.invariance import less_elsewhere, over_training, same_blocks
from lesion.studies.ablation.invariance.judged import AGREE, RELIABLE, decided, facts, verdict
from lesion.studies.ablation.invariance.result import (
    BetweenTasks,
    Family,
    FamilyResult,
    FamilyTask,
    Joint,
    Member,
    Onset,
    Overlap,
    Pair,
    Skill,
    Verdict,
)

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


def alone(task: FamilyTask) -> FamilyTask:
    """The task without its control."""
    return task.model_copy(update={"pairs": task.pairs[:1], "overlaps": task.overlaps[:1], "skills": task.skills[:2]})


def word(**changes: Any) -> str:
    return verdict(FAMILY, [told(**changes)], []).word


def family_of(tasks: list[FamilyTask], family: Family = FAMILY, across: tuple[BetweenTasks, ...] = ()) -> FamilyResult:
    judged = verdict(family, tasks, across)
    return FamilyResult(**dict(family), notes=(), tasks=tasks, between_tasks=across, verdict=judged)


def claimed(*tasks: FamilyTask, family: Family = FAMILY) -> tuple[str, ...]:
    """The sentences about a family, with plain spaces."""
    (claim,) = same_blocks([family_of(list(tasks), family)])
    standing = {"holds": "holds", "does not hold": "fails", "cannot tell": "unknown"}
    assert claim.standing == standing[verdict(family, tasks, []).word]
    return tuple(sentence.replace(wording.SPACE, " ") for sentence in claim.sentences)


def reasons(task: FamilyTask, family: Family = FAMILY) -> list[str]:
    return [fact.text for fact in decided(facts(family, task))]


def test_everything_in_favour_holds():
    assert verdict(FAMILY, [told()], []) == Verdict(word="holds", by_task={"gsm8k": "holds"}, between=None)
    assert claimed(told()) == (
        "All 2 blocks critical for gsm8k in rlvr are critical in the base too; chance would give 0.5 (p .03).",
        "The order of all blocks is least like the base's in rlvr (ρ 0.95 [0.80, 1.00] without sampling noise).",
        "Every control is less like the base than every child (nearest: noise, ρ 0.95 [0.00, 0.09] without sampling"
        " noise, 0 of 2 critical blocks kept).",
    )


def test_a_p_that_could_not_be_smaller_is_said_to_be_the_smallest_possible():
    assert "(p .018, the smallest possible)" in claimed(told(joint={"p": 1 / 56}))[0]
    assert "smallest" not in claimed(told(joint={"p": 0.03}))[0]


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
        ({"second": [], "shared": []}, "no critical block of the base is shown to be critical in rlvr"),
        ({"second": [5], "shared": []}, "no critical block of the base is shown to be critical in rlvr"),
        ({"second": [1], "shared": [1], "lost": [2]}, "rlvr no longer needs block 2, critical in the base"),
    ],
)
def test_a_child_whose_order_says_nothing_must_keep_critical_blocks_itself(sets, reason):
    """The joint p stays small: it comes from other children."""
    assert word(sets=sets) == "holds"  # its order is that of the base
    mute = told(order=MUTE, sets=sets)
    assert [text.replace(wording.SPACE, " ") for text in reasons(mute)] == [reason]
    assert (
        claimed(mute)[0] == f"Whether gsm8k depends on the same blocks in rlvr as in the base cannot be told: {reason}."
    )
    assert word(order=MUTE) == "holds"


def test_a_child_that_the_joint_test_leaves_out_needs_its_order():
    assert word(joint={"children": []}) == "holds"
    assert word(joint={"children": []}, order=MUTE) == "cannot tell"


def test_p_values_are_corrected_over_the_children_of_the_base_alone():
    task = told(order={"p": 0.03, "p_corrected": 0.09})
    others = [pair(a="rlvr", b="other", p=0.04), pair(a="early", kind="time")]
    task = more(task, pairs=others)
    assert verdict(FAMILY, [task], []).word == "holds"
    second = Member(model="distill", source="distill", variant="distill", blocks=8)
    overlaps = [Overlap(**{**SETS, "b": "distill"})]
    task = more(task, pairs=[pair(b="distill", p=0.03)], overlaps=overlaps, skills=[skill("distill")])
    task = task.model_copy(update={"joint": Joint(**{**JOINT, "children": ["rlvr", "distill"]})})
    family = Family(family="f", base="base", members=(BASE, CHILD, NOISE, second))
    assert verdict(family, [task], []).word == "cannot tell"  # each of the two times two: .06
    assert len([text for text in reasons(task, family) if "not shown to agree beyond chance" in text]) == 2


def test_an_order_that_noise_hides_is_not_compared():
    assert claimed(told(order=MUTE))[1] == "The drops over all blocks are too alike or too noisy to be ranked."


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
    at_once = onset.model_copy(update={"layer": 1, "step": 1, "after": None})
    (claim,) = over_training([family_of([more(told(), onset=[onset, at_once])])])
    assert [text.replace(wording.SPACE, " ") for text in claim.sentences] == [
        "In the training of m, gsm8k is learned before step 1, the first measured, with block 1 critical by then.",
        f"Critical later: block 3 {moment}.",
    ]


def test_a_training_whose_end_has_no_critical_block_is_said_to_have_none():
    onset = Onset(source="m", layer=3, step=None, model=None, after=None, able_from=None, able_after=None)
    (claim,) = over_training([family_of([more(told(), onset=[onset])])])
    assert claim.sentences == ("At the end of the training of m no block is shown to be critical for gsm8k.",)


def test_the_word_of_a_family_is_that_of_its_mathematics():
    broken = {"order": {"high": 0.2, "low": 0.0}}
    outcome = verdict(FAMILY, [told(), told(name="triviaqa", **broken)], [])
    assert (outcome.word, outcome.by_task["triviaqa"]) == ("holds", "does not hold")
    assert "gsm8k" in claimed(told(), told(name="triviaqa", **broken))[0]
    assert verdict(FAMILY, [told(), told(name="math500", **broken)], []).word == "does not hold"
    (lead, *_) = claimed(told(), told(name="math500", **broken))
    assert lead == "rlvr has its blocks in another order of importance (ρ 0.90, without sampling noise [0.00, 0.20])."
    assert verdict(FAMILY, [told(name="triviaqa", **broken)], []).word == "does not hold"


@pytest.mark.parametrize(
    ("family", "lacks"),
    [
        (Family(family="f", base=None, members=(CHILD,)), "no model of the family is labelled base"),
        (Family(family="f", base="base", members=(BASE,)), "no child of the base"),
    ],
)
def test_without_base_or_child_it_says_what_is_lacking(family, lacks):
    task = alone(told())
    assert verdict(family, [task], []).word == "cannot tell"
    assert lacks in claimed(task.model_copy(update={"pairs": (), "overlaps": (), "joint": None}), family=family)[0]


def test_blocks_that_a_child_lost_are_told_beside_a_verdict_that_holds():
    changes = {"second": [1, 5, 6], "shared": [1], "lost": [2], "gained": [5]}
    assert claimed(told(sets=changes))[1] == "No longer needed: block 2 in rlvr."


def test_an_overlap_that_could_not_be_beyond_chance_is_said_to_be_so():
    # Two of 5 blocks in the base, three in the child: both shared in 3 of the 10 draws.
    least = 3 / 10
    sets = {"first": [0, 2], "second": [0, 2, 3], "shared": [0, 2]}
    task = told(joint={"p": least, "p_least": least}, sets=sets, critical=(0, 2))
    assert claimed(task) == (
        "Whether gsm8k depends on the same blocks in rlvr as in the base cannot be told: with so few blocks and"
        " children no overlap could be beyond chance (p .3).",
    )


SEED = Member(model="noisy", source="noisy", variant="control: another seed", blocks=8)


def controlled(low: float, high: float, able: bool = True, control: Member = NOISE) -> tuple[Family, FamilyTask]:
    """A family with a control whose true correlation with the base lies between two numbers."""
    family = Family(family="f", base="base", members=(BASE, CHILD, control))
    task = told()
    skills = (*task.skills[:2], skill("noisy", able))
    pairs = (task.pairs[0], pair(b="noisy", rho=0.4, low=low, high=high))
    overlaps = (task.overlaps[0], Overlap(**{**SETS, "b": "noisy", "second": [1], "shared": [1]}))
    return family, task.model_copy(update={"skills": skills, "pairs": pairs, "overlaps": overlaps})


def test_it_holds_only_beside_a_control_that_agrees_with_the_base_less_than_every_child():
    family, task = controlled(0.1, 0.6)
    assert verdict(family, [task], []).word == "holds"
    told_of = claimed(task, family=family)[2]
    assert told_of.startswith("Every control is less like the base than every child (nearest: noise,")
    assert "1 of 2 critical blocks kept" in told_of


@pytest.mark.parametrize(
    ("family", "task", "says"),
    [
        (*controlled(0.7, 0.9), "The nearest control, noise, is not shown to be less like the base"),
        (*controlled(0.1, 0.6, able=False), "Not compared with noise of the same size (`lesion perturb base"),
        (
            Family(family="f", base="base", members=(BASE, CHILD)),
            alone(told()),
            "Not compared with noise of the same size",
        ),
    ],
)
def test_agreement_that_a_control_may_have_as_well_is_said_and_is_no_verdict(family, task, says):
    assert verdict(family, [task], []).word == "cannot tell"
    shared, _, control = claimed(task, family=family)
    assert shared.startswith("All 2 blocks critical for gsm8k in rlvr are critical in the base too")
    assert control.startswith(says)


def test_bases_of_other_seeds_alone_are_no_noise_of_the_same_size():
    family, task = controlled(0.1, 0.6, control=SEED)
    assert claimed(task, family=family)[2].endswith(
        "; not compared with noise of the same size (`lesion perturb base --like CHILD`)."
    )


def test_a_control_is_no_child_so_that_what_it_loses_does_not_speak_against_the_children():
    family, task = controlled(0.1, 0.6)
    assert [member.model for member in family.children] == ["rlvr"]
    assert [member.model for member in family.controls] == ["noisy"]
    assert not any("noisy" in reason for reason in reasons(task, family))


def across(word: str, a: str = "gsm8k", b: str = "triviaqa") -> BetweenTasks:
    nothing = Estimate(value=None)
    return BetweenTasks(
        **{"model": "base", "a": a, "b": b, "rho": nothing, "true": nothing, "ceiling": None, "word": word},
        **{"layers": (1, 2), "critical_shared": (1,), "relative_a": 0.9, "relative_b": 0.3},
        **{"alone_a": 0.8, "alone_b": 0.02, "ratio": Estimate(value=1 / 3)},
        difference=Estimate(value=0.6, low=0.5, high=0.7),
    )


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("holds", "Every other task loses less than half as much;"),
        ("does not hold", "Not every other task loses less than half as much;"),
        ("cannot tell", "Whether every other task loses less than half as much cannot be told;"),
    ],
)
def test_what_other_tasks_lose_at_the_critical_blocks(word, says):
    tasks = [told(), told(name="triviaqa")]
    (claim,) = less_elsewhere([family_of(tasks, across=(across(word), across("holds", "triviaqa", "gsm8k")))])
    lead, decision = (text.replace(wording.SPACE, " ") for text in claim.sentences)
    assert lead == (
        "Cutting a block critical for gsm8k costs it 90 % of its accuracy on average, triviaqa 30 % (2 % without block"
        " 1, critical for both)."
    )
    assert decision.startswith(says)
    assert decision.endswith(" where it is least clear, the difference is 60.0 points [50.0, 70.0] (triviaqa in base).")


def test_several_families_are_told_apart_and_have_a_claim_each():
    other = family_of([told()], Family(family="g", base="base", members=(BASE, CHILD, NOISE)))
    claims = same_blocks([family_of([told(), told(name="math500")]), other])
    assert [claim.subject for claim in claims] == ["f", "g"]
