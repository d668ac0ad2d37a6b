"""The verdict on invariance: holds, does not hold or cannot tell, by rules with names, in one paragraph of words.

For one task, every child of the base is compared with it.

*Does not hold* when one child is enough: the interval of the rank correlation ends below `AGREE`, where the order of
layers can be measured at all (ceiling at least `RELIABLE`); or beyond doubt more than `MOST` of the base's critical
layers are not critical in it.

*Holds* when everything speaks for it: base and children can do the task; the base has critical layers; those of all
children together coincide with them beyond chance (p ≤ `ALPHA`); in every child whose order can be measured the p,
Holm-corrected over the children, is at most `ALPHA` and the interval begins at `AGREE` at least; and every other child
shares critical layers with the base and has lost none of them beyond doubt.

*Cannot tell* is everything else. Ranks of layers that cost next to nothing are noise: a small ceiling says so, or ties
leave no order that could be beyond chance (`p_least`); then the critical layers alone decide, and of each child: those
of the children together may be beyond chance by the others alone.

The word of a family is that of its mathematics tasks, which the claim is about; of all tasks where none is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lesion.statistics.critical import SHARE
from lesion.statistics.paired import ALPHA, holm
from lesion.studies.ablation.invariance.families import Family
from lesion.studies.ablation.invariance.model_summary import FLOOR
from lesion.studies.ablation.invariance.tasks import FAR
from lesion.studies.ablation.invariance.wording import (
    are,
    between,
    blocks,
    listed,
    over_time,
    percent,
    probability,
    span,
)

Word = Literal["holds", "does not hold", "cannot tell"]
HOLDS: Word = "holds"
DOES_NOT: Word = "does not hold"
CANNOT: Word = "cannot tell"

AGREE = 0.5
RELIABLE = 0.8
MOST = 0.5
THRESHOLDS = {
    "alpha": ALPHA,
    "agree": AGREE,
    "reliable": RELIABLE,
    "most": MOST,
    "floor": FLOOR,
    "far": FAR,
    "critical": SHARE,
}
RULE = (
    f"Holds: the critical blocks of all children together coincide with the base's beyond chance (p ≤ {ALPHA:g}), and "
    f"wherever the order of blocks can be measured (ceiling ≥ {RELIABLE:g}, few ties) it agrees beyond chance "
    f"(one-sided permutation p, by Holm over the children, ≤ {ALPHA:g}) with an interval of the rank correlation from "
    f"{AGREE:g} up; where it cannot, that child shares critical blocks with the base and has lost none beyond doubt. "
    "Does not hold: "
    f"in some child that interval ends below {AGREE:g}, or more than {100 * MOST:g} % of the base's critical blocks "
    f"are beyond doubt not critical. Else it cannot be told. A model whose accuracy is not above {100 * FLOOR:g} % "
    "beyond doubt has no skill to lose. p-values compare with blocks in random order; ranks among blocks that cost "
    "next to nothing are noise, which is what the ceiling measures."
)


def verdict(family: Family, tasks: Sequence[Mapping[str, Any]], across: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Word, paragraph and reasons for a family, from its numbers.

    Args:
        family: who is in it.
        tasks: the `tasks` of the family in `summary["invariance"]`.
        across: its `between_tasks`.

    Returns:
        `word`, `text` (one paragraph), `reasons` (one sentence per fact that decided), `by_task` (word per task) and
        `between` (word for "recall and reading lose far less", None where there is nothing to compare).
    """
    judged = {task["task"]: _judge(family, task) for task in tasks}
    by_task = {task: word for task, (word, _) in judged.items()}
    claimed = [task["task"] for task in tasks if task["subject"] == "mathematics"] or list(judged)
    word = _joined([by_task[task] for task in claimed])
    reasons = [f"{task}: {reason}" for task, (_, told) in judged.items() for reason in told]
    relevant = [entry for entry in across if entry["a"] in claimed and entry["b"] not in claimed and entry["layers"]]
    far = _joined([entry["word"] for entry in relevant]) if relevant else None
    sentences = [
        *_headline(family, word, claimed),
        *(sentence for task in tasks if task["task"] in claimed for sentence in _told(family, task, judged)),
        *_others(by_task, claimed),
        *_across(relevant, far),
        *(sentence for task in tasks if task["task"] in claimed for sentence in over_time(task)),
    ]
    return {"word": word, "text": " ".join(sentences), "reasons": reasons, "by_task": by_task, "between": far}


def _joined(words: Sequence[str]) -> Word:
    """One word for several: all must hold; one that does not is enough."""
    if DOES_NOT in words:
        return DOES_NOT
    return HOLDS if words and all(word == HOLDS for word in words) else CANNOT


def _judge(family: Family, task: Mapping[str, Any]) -> tuple[Word, list[str]]:
    """The word for a task, with the reasons that decided it."""
    curves = {curve["model"]: curve for curve in task["curves"]}
    base = family.base.model if family.base else None
    children = [child.model for child in family.children if child.model in curves]
    if base is None:
        return CANNOT, ["no model of the family is labelled base."]
    if base not in curves:
        return CANNOT, [f"{base} has not answered everything yet."]
    if not children:
        return CANNOT, ["no child of the base is in the study."]
    against: list[str] = []
    open_: list[str] = []
    favour: list[str] = []
    if not curves[base]["able"]:
        return CANNOT, [f"{base} cannot do it ({percent(curves[base]['baseline'])} right), so no block can cost it."]
    if len(children) < len(family.children):
        open_.append("not every child has answered everything yet.")
    pairs, joint = _of_base(base, children, task), task["joint"]
    for child in children:
        if not curves[child]["able"]:
            open_.append(f"{child} cannot do it ({percent(curves[child]['baseline'])} right): nothing to lose.")
            continue
        pair = pairs.get(child)
        sets = next((one for one in task["overlaps"] if (one["a"], one["b"]) == (base, child)), None)
        if pair is None or sets is None:
            open_.append(f"{child} cannot be compared block by block with {base}.")
            continue
        ranks = _by_rank(child, pair)
        alone = not any(side == "favour" for side, _ in ranks)
        for side, reason in [*ranks, *_by_sets(child, sets, joint, alone)]:
            {"against": against, "open": open_, "favour": favour}[side].append(reason)
    if not task["critical"].get(base):
        open_.append(f"no block of {base} is critical, so there is none to be kept.")
    elif joint is None or joint["p"] is None or joint["p"] > ALPHA:
        p = (
            "cannot be tested"
            if joint is None or joint["p"] is None
            else f"p = {probability(joint['p'], joint['p_least'])}"
        )
        open_.append(f"the overlap of the critical blocks is no more than chance allows ({p}).")
    else:
        favour.append(
            f"{joint['shared']} critical blocks of the children are critical in the base, {joint['expected']:.1f} "
            f"expected by chance (p = {probability(joint['p'], joint['p_least'])})."
        )
    if against:
        return DOES_NOT, against
    return (CANNOT, open_) if open_ else (HOLDS, favour)


def _of_base(base: str, children: Sequence[str], task: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The pairs of the base with its children, by child: `p_corrected` over these alone, which the claim is of.

    `measurable`: the noise leaves an order that can be judged, and ties one that could be beyond chance.
    """
    found = {
        one["b"]: one for one in task["pairs"] if one["kind"] == "variant" and one["a"] == base and one["b"] in children
    }
    tested = [child for child, one in found.items() if one["p"] is not None]
    corrected = dict(zip(tested, holm(found[child]["p"] for child in tested), strict=True))
    return {
        child: {
            **one,
            "p_corrected": corrected.get(child),
            "measurable": child in corrected
            and None not in (one["rho"], one["low"], one["ceiling"])
            and one["ceiling"] >= RELIABLE
            and len(tested) * one["p_least"] <= ALPHA,
        }
        for child, one in found.items()
    }


def _by_rank(child: str, pair: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the order of blocks says of a child; where it cannot be measured it speaks neither for nor against."""
    if not pair["measurable"]:
        return []
    told = f"ρ = {pair['rho']:.2f}, with the noise taken out {pair['low']:.2f} to {pair['high']:.2f}"
    if pair["high"] < AGREE:
        return [("against", f"the order of blocks in {child} is not that of the base ({told}).")]
    p = pair["p_corrected"]
    if p > ALPHA:
        chance = f"{told}; p = {probability(p)}"
        return [("open", f"in {child} the order of blocks agrees no better than chance allows ({chance}).")]
    if pair["low"] < AGREE:
        return [("open", f"in {child} the order of blocks may agree only loosely ({told}).")]
    return [("favour", f"the order of blocks in {child} is that of the base ({told}; p = {probability(p)}).")]


def _by_sets(
    child: str, sets: Mapping[str, Any], joint: Mapping[str, Any] | None, alone: bool
) -> list[tuple[str, str]]:
    """What the critical blocks say of a child; `alone`: its order says nothing in favour, so they must."""
    first, lost = sets["first"], sets["lost"]
    if first and len(lost) > MOST * len(first):
        return [("against", f"{blocks(lost)}, critical in the base, {are(lost)} not in {child}.")]
    if not alone:
        return []
    lead = "and no order of blocks speaks for it"
    if joint is not None and child not in joint["children"]:
        return [("open", f"not every block of {child} is answered yet, {lead}.")]
    if not first:
        return []  # none to be kept, which is said of the base
    if not sets["second"]:
        return [("open", f"no block of {child} is critical, {lead}.")]
    if not sets["shared"]:
        return [("open", f"{child} shares no critical block with the base, {lead}.")]
    if lost:
        return [("open", f"{blocks(lost)}, critical in the base, {are(lost)} not in {child}, {lead}.")]
    return []


def _headline(family: Family, word: Word, claimed: Sequence[str]) -> list[str]:
    tasks = listed(claimed)
    if not family.children or family.base is None:
        lacking = "no model labelled base" if family.base is None else "no child of its base"
        return [f"Whether the critical blocks of {tasks} survive fine-tuning cannot be told: the study has {lacking}."]
    base = family.base.model
    children = listed([child.model for child in family.children])
    if word == HOLDS:
        return [f"It holds: the blocks on which {tasks} hangs in {base} are those of {children} too."]
    if word == DOES_NOT:
        return [f"It does not hold: the blocks on which {tasks} hangs in {base} are not those of all of {children}."]
    return [f"It cannot be told from these numbers whether {tasks} hangs on the same blocks in {base} and {children}."]


def _told(family: Family, task: Mapping[str, Any], judged: Mapping[str, tuple[Word, list[str]]]) -> list[str]:
    """The numbers of a task in sentences: critical blocks, what each child keeps, ranks, the overlap, the doubts."""
    if family.base is None or family.base.model not in task["critical"] or not family.children:
        return []
    base, name = family.base.model, task["task"]
    if not next(curve["able"] for curve in task["curves"] if curve["model"] == base):
        return [" ".join(judged[name][1])]
    critical = task["critical"][base]
    sentences = [
        f"Critical for {name} in the base: {blocks(critical)}."
        if critical
        else f"No block of the base is critical for {name}."
    ]
    overlaps = {one["b"]: one for one in task["overlaps"] if one["a"] == base and one["kind"] == "variant"}
    children = [child.model for child in family.children if child.model in overlaps]
    pairs = _of_base(base, children, task)
    if critical:
        sentences += [_kept(child, overlaps[child]) for child in children]
    measured = [pairs[child] for child in children if child in pairs and pairs[child]["rho"] is not None]
    if measured:
        sentences.append(_ranks(measured))
    mute = [child for child in children if child in pairs and not pairs[child]["measurable"]]
    if mute:
        sentences.append(f"The order of blocks is not measurable in {listed(mute)}: too much noise, or too many ties.")
    joint = task["joint"]
    if joint and joint["p"] is not None:
        sentences.append(
            f"Together the children share {joint['shared']} critical blocks with the base; blocks drawn at random "
            f"would share {joint['expected']:.1f} (p = {probability(joint['p'], joint['p_least'])})."
        )
    word, reasons = judged[name]
    if word != HOLDS and reasons:
        lead = "What speaks against it" if word == DOES_NOT else "What is missing"
        sentences.append(f"{lead}: {' '.join(reasons)}")
    return sentences


def _kept(child: str, sets: Mapping[str, Any]) -> str:
    first, second, shared = (set(sets[key]) for key in ("first", "second", "shared"))
    lost, gained = set(sets["lost"]), set(sets["gained"])
    if first == second:
        return f"{child} has the same."
    parts = [f"of these {blocks(shared)}" if shared else "none of these"]
    if lost:
        parts.append(f"no longer {blocks(lost)}")
    if first - shared - lost:
        parts.append(f"{blocks(first - shared - lost)} perhaps")
    if gained:
        parts.append(f"newly {blocks(gained)}")
    if second - first - gained:
        parts.append(f"and, perhaps in the base as well, {blocks(second - first - gained)}")
    return f"{child} has {', '.join(parts)}."


def _ranks(pairs: Sequence[Mapping[str, Any]]) -> str:
    told = [(pair["rho"], pair["ceiling"]) for pair in pairs if pair["ceiling"] is not None]
    reached, ceilings = sum(rho >= ceiling for rho, ceiling in told), [ceiling for _, ceiling in told]
    p = [pair["p_corrected"] for pair in pairs if pair["p_corrected"] is not None]
    parts = [f"The rank correlation of the drops with the base's is {between([pair['rho'] for pair in pairs])}"]
    if told and reached == len(told):
        parts[0] += f", as high as two measurements of one profile reach (about {between(ceilings)})"
    elif told:
        parts[0] += f", where equal profiles would show about {between(ceilings)}"
        parts[0] += f", as an estimate, and {reached} of {len(told)} do" if reached else ", as an estimate"
    if p:
        parts.append(f"p at most {probability(max(p))} by Holm over the children")
    same = sum(pair["top"]["same"] for pair in pairs)
    parts.append(f"the block that costs most is the same in {same} of {len(pairs)}")
    return "; ".join(parts) + "."


def _others(by_task: Mapping[str, Word], claimed: Sequence[str]) -> list[str]:
    others = [f"{task}: {word}" for task, word in by_task.items() if task not in claimed]
    return [f"For the other tasks the same question gives: {'; '.join(others)}."] if others else []


def _across(relevant: Sequence[Mapping[str, Any]], far: Word | None) -> list[str]:
    """Whether the critical blocks are places of mathematics: what other tasks lose there."""
    if far is None:
        return []
    others = list(dict.fromkeys(entry["b"] for entry in relevant))
    skill = listed(list(dict.fromkeys(entry["a"] for entry in relevant)))
    loses = {
        HOLDS: f"lose less than {100 * FAR:g} % of what {skill} loses",
        DOES_NOT: f"do not all lose less than {100 * FAR:g} % of what {skill} loses",
        CANNOT: f"may or may not lose less than {100 * FAR:g} % of what {skill} loses",
    }[far]
    sentences = [f"At the blocks critical for {skill}, {listed(others)} {loses}:"]
    numbers = []
    for other in others:
        losses = [entry for entry in relevant if entry["b"] == other]
        shares = [entry["relative_b"] for entry in losses]
        mine = [entry["relative_a"] for entry in losses]
        numbers.append(f"{other} {span(shares)} of its accuracy against {span(mine)}")
    sentences[0] += f" {'; '.join(numbers)}, on average over these blocks."
    apart = [entry for entry in relevant if entry["critical_shared"] and entry["alone_b"] is not None]
    if apart:
        numbers = []
        for other in dict.fromkeys(entry["b"] for entry in apart):
            losses = [entry for entry in apart if entry["b"] == other]
            lost = [[entry[key] for entry in losses] for key in ("alone_b", "alone_a")]
            numbers.append(f"{other} loses {span(lost[0], 1)} of its accuracy against {span(lost[1])}")
        sentences.append(f"Without the blocks critical for both, {'; '.join(numbers)}.")
    models = {entry["model"] for entry in relevant}
    for layer in sorted({layer for entry in relevant for layer in entry["critical_shared"]}):
        both = [entry for entry in relevant if layer in entry["critical_shared"]]
        tasks = listed([other for other in others if any(entry["b"] == other for entry in both)])
        count = len({entry["model"] for entry in both})
        where = f" in {count} of {len(models)} models" if len(models) > 1 else ""
        sentences.append(f"Block {layer} is critical for {tasks} as well{where}, so it is not specific to {skill}.")
    return sentences
