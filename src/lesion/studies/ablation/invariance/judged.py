"""Whether a family's critical blocks stay the same: holds, does not hold or cannot tell, by named thresholds.

For one task, every child of the base is compared with it, by `RULE`. Ranks of layers that cost next to nothing are
noise: a small ceiling says so, or ties leave no order that could be beyond chance (`p_least`); then the critical layers
alone decide, and of each child: those of the children together may be beyond chance by the others alone.

The word of a family is that of its mathematics tasks, which the claim is about; of all tasks where none is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from lesion.report import wording
from lesion.report.values import WHOLE_SHARE
from lesion.statistics.critical import SHARE
from lesion.statistics.paired import ALPHA, holm
from lesion.studies.ablation.invariance.result import (
    CONTROL,
    FAR,
    FLOOR,
    RHO,
    BetweenTasks,
    Family,
    FamilyTask,
    Overlap,
    Pair,
    Skill,
    Verdict,
    Word,
)

AGREE = 0.5
RELIABLE = 0.8
MOST = 0.5
THRESHOLDS = {"alpha": ALPHA, "agree": AGREE, "reliable": RELIABLE, "most": MOST, "floor": FLOOR, "far": FAR}
THRESHOLDS |= {"critical": SHARE}
RULE = (
    f"Holds: the critical blocks of all children together overlap the base's beyond chance (p ≤ {ALPHA:g}). Where the"
    f" order of blocks can be measured (ceiling ≥ {RELIABLE:g}, few ties), it agrees beyond chance (one-sided"
    f" permutation p ≤ {ALPHA:g}, Holm-corrected over the children), with an interval of ρ from {AGREE:g} up;"
    " elsewhere the child shares critical blocks with the base and has surely lost none. Does not hold: in some child"
    f" the interval ends below {AGREE:g}, or more than {100 * MOST:g} % of the base's critical blocks are surely not"
    " critical. Otherwise: cannot tell. It holds only beside controls (noise of the same size, bases of other seeds)"
    " that can do the task and agree with the base less than every child does: a small change keeps the order of blocks"
    f" whatever was trained. A model not surely above {100 * FLOOR:g} % accuracy has no skill to lose."
)
Side = Literal["against", "open", "uncontrolled", "favour"]
"""What a fact speaks for; uncontrolled: base and children agree, and controls may as well."""
WORDS: dict[Side, Word] = {
    "against": "does not hold", "open": "cannot tell", "uncontrolled": "cannot tell", "favour": "holds"
}  # fmt: skip
"""Sides by weight: the first of which there is a fact decides."""


class Fact(NamedTuple):
    """What speaks for or against a task's claim, as a sentence without its full stop."""

    side: Side
    text: str


class Control(NamedTuple):
    """A control that can do the task, beside the base.

    Attributes:
        less: whether it agrees with the base less than every child, by an interval of ρ that ends below those of all
            children, or by more critical blocks that are surely lost.
        seed: whether it is a base of another seed, and not noise.
    """

    name: str
    pair: Pair
    sets: Overlap | None
    less: bool
    seed: bool


def claimed(tasks: Sequence[FamilyTask]) -> list[FamilyTask]:
    """The tasks that the word of a family is about."""
    return [task for task in tasks if task.subject == "mathematics"] or list(tasks)


def verdict(family: Family, tasks: Sequence[FamilyTask], across: Sequence[BetweenTasks]) -> Verdict:
    """The words of a family, from the numbers of its tasks, and of their pairs."""
    by_task = {task.task: WORDS[decided(facts(family, task))[0].side] for task in tasks}
    names = [task.task for task in claimed(tasks)]
    between = _joined([entry.word for entry in between_claimed(tasks, across)])
    return Verdict(word=_joined([by_task[name] for name in names]) or "cannot tell", by_task=by_task, between=between)


def between_claimed(tasks: Sequence[FamilyTask], across: Sequence[BetweenTasks]) -> list[BetweenTasks]:
    """The pairs of a task that the word is about with one that it is not about, where there are critical blocks."""
    names = [task.task for task in claimed(tasks)]
    return [entry for entry in across if entry.a in names and entry.b not in names and entry.layers]


def _joined(words: Sequence[Word]) -> Word | None:
    """One word for several: all must hold; one that does not is enough. None of none."""
    return next((word for word in WORDS.values() if word in words), None)


def decided(every: Sequence[Fact]) -> list[Fact]:
    """The facts that decide."""
    side = next(side for side in WORDS if any(fact.side == side for fact in every))
    return [fact for fact in every if fact.side == side]


def facts(family: Family, task: FamilyTask) -> list[Fact]:
    """Everything that speaks for or against the claim on a task, or leaves it open."""
    skills = {skill.model: skill for skill in task.skills}
    base = family.base
    if base is None:
        return [Fact("open", "no model of the family is labelled base")]
    if not family.children:
        return [Fact("open", "no child of the base is in the study")]
    every = []
    if waiting := [each for each in (base, *(child.model for child in family.children)) if each not in skills]:
        names = wording.listed([family.labels[name] for name in waiting])
        every.append(Fact("open", f"not everything is measured of {names}"))
    children = [child.model for child in family.children if child.model in skills]
    if base in waiting or not children:
        return every
    if not skills[base].able:
        return [_unable(base, skills[base])]
    orders, overlaps = with_base(base, children, task), sets_with(base, task)
    for child in children:
        name, sets = family.labels[child], overlaps.get(child)
        if not skills[child].able:
            every.append(_unable(name, skills[child]))
        elif child not in orders or sets is None:
            every.append(Fact("open", f"{name} cannot be compared block by block with the base"))
        else:
            left_out = bool(task.joint and child not in task.joint.children)
            every += _of_child(name, orders[child], sets, left_out=left_out)
    every.append(_together(base, task))
    every_control = controls(family, task)
    if not every_control:
        every.append(Fact("uncontrolled", "no control that can do it was measured"))
    elif alike := [control.name for control in every_control if not control.less]:
        every.append(Fact("uncontrolled", f"of controls, the base agrees as well with {wording.listed(alike)}"))
    return every


def _unable(name: str, skill: Skill) -> Fact:
    return Fact("open", f"{name} cannot do it ({WHOLE_SHARE.text(skill.accuracy)} right)")


def with_base(base: str, children: Sequence[str], task: FamilyTask) -> dict[str, tuple[Pair, float | None]]:
    """The pairs of the base with its children, by child, and p corrected over these alone, which the claim is about.

    p is None where noise or ties leave no order that could be judged.
    """
    pairs = {pair.b: pair for pair in task.pairs if pair.kind == "variant" and pair.a == base and pair.b in children}
    p = {child: pair.rho.p for child, pair in pairs.items() if pair.rho.p is not None}
    corrected = dict(zip(p, holm(p.values()), strict=True))

    def measurable(pair: Pair) -> bool:
        known = None not in (pair.rho.value, pair.true.low, pair.true.high)
        return known and (pair.ceiling or 0.0) >= RELIABLE and len(p) * (pair.p_least or 0.0) <= ALPHA

    return {child: (pair, corrected.get(child) if measurable(pair) else None) for child, pair in pairs.items()}


def sets_with(base: str | None, task: FamilyTask) -> dict[str, Overlap]:
    """The critical blocks of the base against those of every other finished model, by that model."""
    return {sets.b: sets for sets in task.overlaps if sets.kind == "variant" and sets.a == base}


def _of_child(name: str, order: tuple[Pair, float | None], sets: Overlap, *, left_out: bool) -> list[Fact]:
    """What the order of a child's blocks says; where that is nothing in favour, what its critical blocks say."""
    pair, p = order
    every: list[Fact] = []
    if p is not None:
        low, high = pair.true.low or 0.0, pair.true.high or 0.0
        rho = f"ρ {RHO(pair.rho.value)}, without sampling noise {RHO.interval(pair.true.low, pair.true.high)}"
        readings: tuple[tuple[bool, Side, str], ...] = (
            (high < AGREE, "against", f"{name} has its blocks in another order of importance"),
            (p > ALPHA, "open", f"the order of blocks in {name} is not shown to agree beyond chance"),
            (low < AGREE, "open", f"the order of blocks in {name} may agree only loosely"),
            (True, "favour", f"{name} has its blocks in the order of the base"),
        )
        side, text = next((side, text) for so, side, text in readings if so)
        every.append(Fact(side, f"{text} ({rho})"))
    lost = f"{name} no longer needs {wording.numbered('block', sets.lost)}, critical in the base"
    if sets.first and len(sets.lost) > MOST * len(sets.first):
        every.append(Fact("against", lost))
    elif all(fact.side != "favour" for fact in every):
        if left_out:
            every.append(Fact("open", f"not every block of {name} is measured"))
        elif sets.first and not sets.shared:  # without critical blocks of the base none can be kept
            every.append(Fact("open", f"no critical block of the base is shown to be critical in {name}"))
        elif sets.lost:
            every.append(Fact("open", lost))
    return every


def _together(base: str, task: FamilyTask) -> Fact:
    joint = task.joint
    if not task.critical(base):
        return Fact("open", "no block of the base is shown to be critical")
    if joint is None or joint.p is None:
        return Fact("open", "the overlap of critical blocks cannot be tested")
    if joint.p > ALPHA:
        why = ("no overlap of critical blocks is shown", "with so few blocks and children no overlap could be")
        text = f"{why[joint.smallest]} beyond chance (p{wording.SPACE}{wording.p_value(joint.p)})"
        return Fact("open", text)
    return Fact("favour", f"{joint.shared} critical blocks are shared, {joint.expected:.1f} by chance")


def controls(family: Family, task: FamilyTask) -> list[Control]:
    """The controls that can do a task, the more alike the base the earlier."""
    pairs = {pair.b: pair for pair in task.pairs if pair.kind == "variant" and pair.a == family.base}
    sets = sets_with(family.base, task)
    children = [child.model for child in family.children if child.model in pairs]
    most = max((len(sets[child].lost) for child in children if child in sets), default=0)
    lows = [pairs[child].true.low for child in children]
    every = []
    for member in family.controls:
        pair, skill, own = pairs.get(member.model), task.skill(member.model), sets.get(member.model)
        if pair is None or pair.rho.value is None or skill is None or not skill.able:
            continue
        high = pair.true.high
        below = high is not None and all(low is not None and high < low for low in lows)
        less = below or (own is not None and len(own.lost) > most)
        name = family.labels[member.model].removeprefix(f"{CONTROL}:").strip()
        every.append(Control(name, pair, own, less, member in family.seeds))
    return sorted(every, key=lambda control: (control.less, -(control.pair.rho.value or 0.0)))
