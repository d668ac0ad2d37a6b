"""The verdict on invariance: holds, does not hold or cannot tell, by rules with names, in one paragraph of words.

For one task, every child of the base is compared with it, by `RULE`. Ranks of layers that cost next to nothing are
noise: a small ceiling says so, or ties leave no order that could be beyond chance (`p_least`); then the critical layers
alone decide, and of each child: those of the children together may be beyond chance by the others alone.

The word of a family is that of its mathematics tasks, which the claim is about; of all tasks where none is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from lesion.report import wording
from lesion.statistics.critical import SHARE
from lesion.statistics.paired import ALPHA, holm
from lesion.studies.ablation.invariance import verdict_text as prose
from lesion.studies.ablation.invariance.measured import FAR, FLOOR
from lesion.studies.ablation.invariance.result import (
    BetweenTasks,
    Family,
    FamilyTask,
    Overlap,
    Pair,
    Verdict,
    Word,
)
from lesion.studies.ablation.invariance.verdict_text import are, blocks, percent, probability

HOLDS: Word = "holds"
DOES_NOT: Word = "does not hold"
CANNOT: Word = "cannot tell"
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


Reason = tuple[Literal["against", "open", "uncontrolled", "favour"], str]
"""What a fact speaks for, and the fact as a sentence; uncontrolled: base and children agree, controls may as well."""


class WithBase(NamedTuple):
    """The order of layers in a child and in its base.

    Attributes:
        p: corrected over the children of the base alone, which the claim is about.
        measurable: whether the noise leaves an order that can be judged, and ties one that could be beyond chance.
    """

    pair: Pair
    p: float | None
    measurable: bool


def verdict(family: Family, tasks: Sequence[FamilyTask], across: Sequence[BetweenTasks]) -> Verdict:
    """Word, paragraph and reasons for a family, from the numbers of its tasks, and of their pairs."""
    facts = {task.task: _facts(family, task) for task in tasks}
    judged = {task: _judge(of_task) for task, of_task in facts.items()}
    by_task = {task: word for task, (word, _) in judged.items()}
    claims = [task for task in tasks if task.subject == "mathematics"] or list(tasks)
    claimed = [task.task for task in claims]
    word = _joined([by_task[task] for task in claimed])
    agree = word == CANNOT and all(side in ("uncontrolled", "favour") for task in claimed for side, _ in facts[task])
    relevant = [entry for entry in across if entry.a in claimed and entry.b not in claimed and entry.layers]
    far = _joined([entry.word for entry in relevant]) if relevant else None
    sentences = [
        prose.headline(family, word, claims, judged[claimed[0]][1] if len(claims) == 1 else (), agree=agree),
        *(
            sentence
            for task in claims
            for sentence in _task_text(family, task, *judged[task.task], several=len(claims) > 1)
        ),
        *prose.of_tasks(by_task),
        *prose.across(relevant, far),
        *(sentence for task in claims for sentence in prose.over_time(task)),
    ]
    return Verdict(
        word=word,
        text=" ".join(sentences),
        reasons=[f"{task}: {reason}" for task, (_, reasons) in judged.items() for reason in reasons],
        by_task=by_task,
        between=far,
    )


def _joined(words: Sequence[str]) -> Word:
    """One word for several: all must hold; one that does not is enough."""
    if DOES_NOT in words:
        return DOES_NOT
    return HOLDS if words and all(word == HOLDS for word in words) else CANNOT


def _judge(facts: Sequence[Reason]) -> tuple[Word, list[str]]:
    """The word for a task, with the reasons that decided it."""
    words: dict[str, Word] = {"against": DOES_NOT, "open": CANNOT, "uncontrolled": CANNOT, "favour": HOLDS}
    deciding = next(side for side in words if any(side == other for other, _ in facts))
    return words[deciding], [reason for side, reason in facts if side == deciding]


def _facts(family: Family, task: FamilyTask) -> list[Reason]:
    """Everything that speaks for or against the claim on a task, or leaves it open."""
    skills = {skill.model: skill for skill in task.skills}
    base = family.base
    children = [child.model for child in family.children if child.model in skills]
    if base is None:
        return [("open", "no model of the family is labelled base.")]
    if base not in skills:
        return [("open", f"{base} has not answered everything yet.")]
    if not children:
        return [("open", "no child of the base is in the study.")]
    if not skills[base].able:
        return [("open", f"{base} cannot do it ({percent(skills[base].accuracy)} right): nothing to lose.")]
    every: list[Reason] = []
    if len(children) < len(family.children):
        every.append(("open", "not every child has answered everything yet."))
    pairs = with_base(base, children, task)
    overlaps = {overlap.b: overlap for overlap in task.overlaps if overlap.a == base}
    for child in children:
        pair, sets, name = pairs.get(child), overlaps.get(child), family.labels[child]
        if not skills[child].able:
            every.append(("open", f"{name} cannot do it ({percent(skills[child].accuracy)} right): nothing to lose."))
        elif pair is None or sets is None:
            every.append(("open", f"{name} cannot be compared block by block with the base."))
        else:
            ranks = _by_rank(name, pair)
            every += ranks
            if sets.first and len(sets.lost) > MOST * len(sets.first):
                every.append(("against", f"{_lost(name, sets)}."))
            elif all(side != "favour" for side, _ in ranks):
                left_out = task.joint is not None and child not in task.joint.children
                every += _by_sets(name, sets, left_out=left_out)
    every.append(_by_joint(base, task))
    return [*every, *_by_controls(family, task, [order.pair for order in pairs.values()])]


def _by_controls(family: Family, task: FamilyTask, children: Sequence[Pair]) -> list[Reason]:
    """Whether the agreement could have failed: controls that can do the task and agree less than every child."""
    less, alike = prose.apart(family, task, children)
    if alike:
        agree = "agrees" if len(alike) == 1 else "agree"
        return [("uncontrolled", f"{wording.listed(alike)} {agree} with the base as well, as far as can be told.")]
    if less:
        return []
    return [
        ("uncontrolled", "no control that can do it was measured (`lesion perturb` writes noise of the same size).")
    ]


def with_base(base: str, children: Sequence[str], task: FamilyTask) -> dict[str, WithBase]:
    """The pairs of the base with its children, by child."""
    pairs = {pair.b: pair for pair in task.pairs if pair.kind == "variant" and pair.a == base and pair.b in children}
    p = {child: pair.rho.p for child, pair in pairs.items() if pair.rho.p is not None}
    corrected = dict(zip(p, holm(p.values()), strict=True))
    return {
        child: WithBase(
            pair,
            corrected.get(child),
            measurable=child in corrected
            and pair.rho.value is not None
            and pair.true.low is not None
            and pair.ceiling is not None
            and pair.ceiling >= RELIABLE
            and len(p) * (pair.p_least or 0.0) <= ALPHA,
        )
        for child, pair in pairs.items()
    }


def _by_rank(child: str, order: WithBase) -> list[Reason]:
    """What the order of blocks says of a child; where it cannot be measured it speaks neither for nor against."""
    rho, low, high, p = order.pair.rho.value, order.pair.true.low, order.pair.true.high, order.p
    if not order.measurable or rho is None or low is None or high is None or p is None:
        return []
    numbers = f"ρ = {rho:.2f}, {low:.2f} to {high:.2f} without noise; p = {probability(p)}"
    order_of = f"the order of blocks in {child}"
    if high < AGREE:
        return [("against", f"{order_of} is not that of the base ({numbers}).")]
    if p > ALPHA:
        return [("open", f"{order_of} is not shown to agree better than by chance ({numbers}).")]
    if low < AGREE:
        return [("open", f"{order_of} may agree only loosely ({numbers}).")]
    return [("favour", f"{order_of} is that of the base ({numbers}).")]


def _lost(child: str, sets: Overlap) -> str:
    return f"{blocks(sets.lost)}, critical in the base, {are(sets.lost)} not in {child}"


def _by_sets(child: str, sets: Overlap, *, left_out: bool) -> list[Reason]:
    """What speaks against a child's critical blocks, of which its order says nothing in favour, so they must."""
    lead = "and its order does not help"
    if left_out:
        return [("open", f"not every block of {child} is answered yet, {lead}.")]
    if not sets.first:
        return []  # without critical blocks of the base none can be kept, which is said of the base
    if not sets.second:
        return [("open", f"no block of {child} is shown to be critical, {lead}.")]
    if not sets.shared:
        return [("open", f"no critical block of the base is shown to be critical in {child}, {lead}.")]
    return [("open", f"{_lost(child, sets)}, {lead}.")] if sets.lost else []


def _by_joint(base: str, task: FamilyTask) -> Reason:
    """What the critical blocks of all children together say."""
    joint = task.joint
    if not task.critical(base):
        return "open", "no block of the base is shown to be critical."
    if joint is None or joint.p is None:
        return "open", "the overlap of critical blocks cannot be tested."
    p = f"p = {probability(joint.p, joint.p_least)}"
    if joint.p > ALPHA and prose.smallest(joint.p, joint.p_least):
        return "open", f"with so few blocks and children no overlap could be beyond chance ({p})."
    if joint.p > ALPHA:
        return "open", f"no overlap of critical blocks beyond chance is shown ({p})."
    return "favour", (
        f"the children share {joint.shared} critical blocks with the base, {joint.expected:.1f} by chance ({p})."
    )


def _task_text(family: Family, task: FamilyTask, word: Word, reasons: Sequence[str], *, several: bool) -> list[str]:
    """The numbers of a task in sentences: critical blocks, what each child keeps, ranks, the overlap, the doubts.

    `several`: the verdict is about several tasks; of a single one the headline says already why it cannot be told.
    """
    skill = task.skill(family.base) if family.base else None
    if skill is None or not family.children:
        return []
    if not skill.able:
        return [" ".join(reasons)] if several else []
    overlaps = {each.b: each for each in task.overlaps if each.a == skill.model and each.kind == "variant"}
    children = [child.model for child in family.children if child.model in overlaps]
    if skill.critical:
        sentences = [f"Critical for {task.task} in the base: {blocks(skill.critical)}."]
        sentences += prose.kept({family.labels[child]: overlaps[child] for child in children})
    else:
        sentences = [f"No block of the base is shown to be critical for {task.task}."]
    orders = with_base(skill.model, children, task)
    if measured := [order for order in orders.values() if order.pair.rho.value is not None]:
        sizes = [member.distance for member in family.children if member.distance is not None]
        sentences.append(prose.ranks([order.pair for order in measured], [order.p for order in measured], sizes))
        sentences += prose.controls(family, task, [order.pair for order in measured])
    if mute := [family.labels[child] for child in children if child in orders and not orders[child].measurable]:
        sentences.append(f"The order of blocks is not measurable in {wording.listed(mute)}.")
    if task.joint and task.joint.p is not None:
        sentences.append(prose.joint(task.joint))
    if reasons and (word == DOES_NOT or (word == CANNOT and several)):
        lead = "Against it" if word == DOES_NOT else "Missing"
        sentences.append(f"{lead}: {'; '.join(reason.rstrip('.') for reason in reasons)}.")
    return sentences
