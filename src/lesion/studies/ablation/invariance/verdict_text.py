"""The sentences of a verdict on invariance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lesion.studies.ablation.invariance.families import Family
from lesion.studies.ablation.invariance.result import BetweenTasks, Joint, Overlap, Pair, Word
from lesion.studies.ablation.invariance.tasks import FAR
from lesion.studies.ablation.invariance.wording import between, blocks, listed, probability, span


def headline(family: Family, word: Word, claimed: Sequence[str]) -> list[str]:
    """The verdict in one sentence."""
    tasks = listed(claimed)
    if not family.children or family.base is None:
        lacking = "no model labelled base" if family.base is None else "no child of its base"
        return [f"Whether the critical blocks of {tasks} survive fine-tuning cannot be told: the study has {lacking}."]
    base = family.base.model
    children = listed([child.model for child in family.children])
    if word == "holds":
        return [f"It holds: the blocks on which {tasks} hangs in {base} are those of {children} too."]
    if word == "does not hold":
        return [f"It does not hold: the blocks on which {tasks} hangs in {base} are not those of all of {children}."]
    return [f"It cannot be told from these numbers whether {tasks} hangs on the same blocks in {base} and {children}."]


def not_measurable(children: Sequence[str]) -> str:
    """Of which children the order of blocks cannot be judged."""
    return f"The order of blocks is not measurable in {listed(children)}: too much noise, or too many ties."


def joint(joint: Joint) -> str:
    """The overlap of all children with the base, against chance."""
    return (
        f"Together the children share {joint.shared} critical blocks with the base; blocks drawn at random "
        f"would share {joint.expected:.1f} (p = {probability(joint.p, joint.p_least)})."
    )


def kept(child: str, sets: Overlap) -> str:
    """Which critical blocks of the base a child keeps, loses and gains."""
    first, second, shared = set(sets.first), set(sets.second), set(sets.shared)
    lost, gained = set(sets.lost), set(sets.gained)
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


def ranks(pairs: Sequence[Pair], corrected: Sequence[float | None]) -> str:
    """The rank correlations of children with the base; `corrected`: their p."""
    rhos = [pair.rho.value for pair in pairs if pair.rho.value is not None]
    known = [
        (pair.rho.value, pair.ceiling) for pair in pairs if pair.rho.value is not None and pair.ceiling is not None
    ]
    reached, ceilings = sum(rho >= ceiling for rho, ceiling in known), [ceiling for _, ceiling in known]
    p = [value for value in corrected if value is not None]
    parts = [f"The rank correlation of the drops with the base's is {between(rhos)}"]
    if known and reached == len(known):
        parts[0] += f", as high as two measurements of one profile reach (about {between(ceilings)})"
    elif known:
        parts[0] += f", where equal profiles would show about {between(ceilings)}"
        parts[0] += f", as an estimate, and {reached} of {len(known)} do" if reached else ", as an estimate"
    if p:
        parts.append(f"p at most {probability(max(p))} by Holm over the children")
    same = sum(pair.same_top for pair in pairs)
    parts.append(f"the block that costs most is the same in {same} of {len(pairs)}")
    return "; ".join(parts) + "."


def others(by_task: Mapping[str, Word], claimed: Sequence[str]) -> list[str]:
    """The words of the tasks that the verdict is not about."""
    rest = [f"{task}: {word}" for task, word in by_task.items() if task not in claimed]
    return [f"For the other tasks the same question gives: {'; '.join(rest)}."] if rest else []


def across(relevant: Sequence[BetweenTasks], far: Word | None) -> list[str]:
    """Whether the critical blocks are specific to mathematics: what other tasks lose there."""
    if far is None:
        return []
    others = list(dict.fromkeys(entry.b for entry in relevant))
    skill = listed(list(dict.fromkeys(entry.a for entry in relevant)))
    loses = {
        "holds": f"lose less than {100 * FAR:g} % of what {skill} loses",
        "does not hold": f"do not all lose less than {100 * FAR:g} % of what {skill} loses",
        "cannot tell": f"may or may not lose less than {100 * FAR:g} % of what {skill} loses",
    }[far]
    numbers = []
    for other in others:
        losses = [entry for entry in relevant if entry.b == other]
        theirs, mine = [entry.relative_b or 0.0 for entry in losses], [entry.relative_a or 0.0 for entry in losses]
        numbers.append(f"{other} {span(theirs)} of its accuracy against {span(mine)}")
    sentences = [
        f"At the blocks critical for {skill}, {listed(others)} {loses}: {'; '.join(numbers)}, on average over these"
        " blocks."
    ]
    apart = [entry for entry in relevant if entry.critical_shared and entry.alone_b is not None]
    if apart:
        numbers = []
        for other in dict.fromkeys(entry.b for entry in apart):
            losses = [entry for entry in apart if entry.b == other]
            theirs, mine = [entry.alone_b or 0.0 for entry in losses], [entry.alone_a or 0.0 for entry in losses]
            numbers.append(f"{other} loses {span(theirs, 1)} of its accuracy against {span(mine, 1)}")
        sentences.append(f"Without the blocks critical for both, {'; '.join(numbers)}.")
    models = {entry.model for entry in relevant}
    for layer in sorted({layer for entry in relevant for layer in entry.critical_shared}):
        both = [entry for entry in relevant if layer in entry.critical_shared]
        tasks = listed([other for other in others if any(entry.b == other for entry in both)])
        count = len({entry.model for entry in both})
        where = f" in {count} of {len(models)} models" if len(models) > 1 else ""
        sentences.append(f"Block {layer} is critical for {tasks} as well{where}, so it is not specific to {skill}.")
    return sentences
