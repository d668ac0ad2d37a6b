"""The sentences of a verdict on invariance, and how its numbers are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from lesion.report import wording
from lesion.studies.ablation.invariance.measured import FAR
from lesion.studies.ablation.invariance.result import (
    CONTROL,
    BetweenTasks,
    Family,
    FamilyTask,
    Joint,
    Member,
    Overlap,
    Pair,
    Word,
)


def headline(
    family: Family, word: Word, claims: Sequence[FamilyTask], reasons: Sequence[str] = (), *, agree: bool = False
) -> str:
    """The verdict in one sentence, with the critical blocks where it is about one task.

    Args:
        family: of the models.
        word: the verdict.
        claims: the tasks that it is about.
        reasons: why it cannot be told, where it cannot.
        agree: whether that is for want of controls alone.
    """
    depends = f"{wording.listed([task.task for task in claims])} {'depends' if len(claims) == 1 else 'depend'}"
    if not family.children or family.base is None:
        lacking = "no model labelled base" if family.base is None else "no child of its base"
        return f"It cannot be told whether {depends} on the same blocks after fine-tuning: the study has {lacking}."

    def with_blocks(model: str) -> str:
        critical = claims[0].critical(model) if len(claims) == 1 else ()
        return f"{model} ({wording.layer_runs(critical)})" if critical else model

    base, children = with_blocks(family.base), wording.listed([with_blocks(child.model) for child in family.children])
    why = f": {'; '.join(reason.rstrip('.') for reason in reasons)}" if reasons else ""
    same = f"{depends} on the same blocks in {base} and in {children}"
    if agree:
        return f"{same}; whether this could have come out otherwise cannot be told{why}."
    return {
        "holds": f"{same}, less so in the controls.",
        "does not hold": f"{depends} on other blocks in at least one of {children} than in {base}.",
        "cannot tell": f"It cannot be told whether {depends} on the same blocks in {base} and in {children}{why}.",
    }[word]


def joint(joint: Joint) -> str:
    """The overlap of all children with the base, against chance."""
    return (
        f"The children together share {joint.shared} critical blocks with the base, {joint.expected:.1f} by chance"
        f" (p = {probability(joint.p, joint.p_least)})."
    )


def kept(overlaps: Mapping[str, Overlap]) -> list[str]:
    """Which critical blocks of the base the children keep, lose and gain."""
    same = [child for child, sets in overlaps.items() if set(sets.first) == set(sets.second)]
    sentences = [f"{wording.listed(same)} {'has' if len(same) == 1 else 'have'} the same."] if same else []
    for child, sets in overlaps.items():
        first, second, shared, lost, gained = map(set, (sets.first, sets.second, sets.shared, sets.lost, sets.gained))
        parts = [
            ("of these {}", shared),
            ("no longer {}", lost),
            ("perhaps still {}", first - shared - lost),
            ("newly {}", gained),
            ("perhaps newly {}", second - first - gained),
        ]
        if child not in same:
            named = [form.format(blocks(layers)) for form, layers in parts if layers]
            sentences.append(f"{child} has {', '.join(named if shared else ['none of these', *named])}.")
    return sentences


def ranks(pairs: Sequence[Pair], corrected: Sequence[float | None], sizes: Sequence[float] = ()) -> str:
    """The rank correlations of children with the base; `corrected`: their p; `sizes`: how far training moved them."""
    rhos = [pair.rho.value for pair in pairs if pair.rho.value is not None]
    ceilings = [pair.ceiling for pair in pairs if pair.rho.value is not None and pair.ceiling is not None]
    p = [value for value in corrected if value is not None]
    text = f"Rank correlation of the drops with the base's: {_between(rhos)}"
    text += f" (equal profiles: about {_between(ceilings)})" if ceilings else ""
    text += f"; corrected p at most {probability(max(p))}" if p else ""
    text += f"; ‖ΔW‖/‖W‖ {_span_of(sizes)}" if sizes else ""
    return f"{text}; the same block costs most in {sum(pair.same_top for pair in pairs)} of {len(pairs)}."


def controls(family: Family, task: FamilyTask, children: Sequence[Pair]) -> list[str]:
    """The rank correlations of controls with the base, and which agree with it less than every child does."""
    by_model = {pair.b: pair for pair in task.pairs if pair.kind == "variant" and pair.a == family.base}
    shared = {sets.b: sets for sets in task.overlaps if sets.kind == "variant" and sets.a == family.base}
    parts: list[str] = []
    for member in family.controls:
        pair = by_model.get(member.model)
        if pair is None or pair.rho.value is None:
            continue
        name = _of_control(family, member)
        size = f", ‖ΔW‖/‖W‖ {wording.figures(member.distance, 2)}" if member.distance is not None else ""
        interval = wording.plain_interval(pair.true.low, pair.true.high, 2)
        text = f"{name} {pair.rho.value:.2f}{f', without noise {interval}' if interval else ''}{size}"
        if (sets := shared.get(member.model)) is not None and sets.first:
            text += f", {len(sets.shared)} of {len(sets.first)} critical blocks shared"
        parts.append(text)
    if not parts:
        return []
    less, _ = apart(family, task, children)
    sentences = [f"Controls, correlated with the base in the same way: {'; '.join(parts)}."]
    if less:
        sentences.append(f"Less than every child, noise left out of account: {wording.listed(less)}.")
    return sentences


def apart(family: Family, task: FamilyTask, children: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """The controls that can do the task: those that agree with the base less than every child, and the others.

    Less: by an interval of ρ that ends below those of all children, or by more critical blocks that are surely lost.
    """
    by_model = {pair.b: pair for pair in task.pairs if pair.kind == "variant" and pair.a == family.base}
    lost = {sets.b: len(sets.lost) for sets in task.overlaps if sets.kind == "variant" and sets.a == family.base}
    most = max((lost.get(pair.b, 0) for pair in children), default=0)
    lows = [pair.true.low for pair in children]
    less: list[str] = []
    alike: list[str] = []
    for member in family.controls:
        pair, skill = by_model.get(member.model), task.skill(member.model)
        if pair is None or pair.rho.value is None or skill is None or not skill.able:
            continue
        high = pair.true.high
        below = high is not None and all(low is not None and high < low for low in lows)
        named = less if below or lost.get(member.model, 0) > most else alike
        named.append(_of_control(family, member))
    return less, alike


def _of_control(family: Family, member: Member) -> str:
    return family.labels[member.model].removeprefix(f"{CONTROL}:").strip()


def _span_of(values: Sequence[float]) -> str:
    """`0.012 to 0.031`."""
    ends = [wording.figures(end, 2) for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def of_tasks(by_task: Mapping[str, Word]) -> list[str]:
    """The words of all tasks, where there are several."""
    words = "; ".join(f"{task}: {word}" for task, word in by_task.items())
    return [f"By task: {words}."] if len(by_task) > 1 else []


def across(relevant: Sequence[BetweenTasks], far: Word | None) -> list[str]:
    """Whether the critical blocks are specific to mathematics: what other tasks lose there."""
    if far is None:
        return []
    others = list(dict.fromkeys(entry.b for entry in relevant))
    skill = wording.listed(list(dict.fromkeys(entry.a for entry in relevant)))
    loses = {
        "holds": "lose less than",
        "does not hold": "do not all lose less than",
        "cannot tell": "may or may not lose less than",
    }[far]
    sentences = [
        f"At the blocks critical for {skill}, {wording.listed(others)} {loses} {100 * FAR:g} % of that (share of"
        f" accuracy): {_losses(relevant, 'relative', 0)}."
    ]
    if apart := [entry for entry in relevant if entry.critical_shared and entry.alone_b is not None]:
        sentences.append(f"Without the blocks critical for both: {_losses(apart, 'alone', 1)}.")
    models = {entry.model for entry in relevant}
    for layer in sorted({layer for entry in relevant for layer in entry.critical_shared}):
        both = [entry for entry in relevant if layer in entry.critical_shared]
        tasks = wording.listed([other for other in others if any(entry.b == other for entry in both)])
        where = f" in {len({entry.model for entry in both})} of {len(models)} models" if len(models) > 1 else ""
        sentences.append(f"Block {layer} is not specific: it is critical for {tasks}{where}.")
    return sentences


def _losses(entries: Sequence[BetweenTasks], name: Literal["relative", "alone"], digits: int) -> str:
    """What each other task loses of its accuracy, against what the first one does."""
    parts = []
    for other in dict.fromkeys(entry.b for entry in entries):
        own = [entry for entry in entries if entry.b == other]
        theirs, mine = (_span([getattr(entry, f"{name}_{side}") or 0.0 for entry in own], digits) for side in "ba")
        parts.append(f"{other} {theirs} against {mine}")
    return "; ".join(parts)


def over_time(task: FamilyTask) -> list[str]:
    """Since when the layers that are critical at the end are."""
    sentences = []
    for source in dict.fromkeys(onset.source for onset in task.onset):
        ending = [onset for onset in task.onset if onset.source == source and onset.model is not None]
        if not ending:
            sentences.append(
                f"At the end of the training of {source} no block is shown to be critical for {task.task}."
            )
            continue
        able = ending[0].able_from
        at_once = [onset.layer for onset in ending if onset.step == able]
        sentences.append(
            f"In the training of {source}, {task.task} is learned {_moment(ending[0].able_after, able)}"
            + (f", with {blocks(at_once)} critical by then." if at_once else ".")
        )
        sentences += [
            f"Block {onset.layer} becomes critical {_moment(onset.after, onset.step)}."
            for onset in ending
            if onset.step != able
        ]
    return sentences


def _moment(after: int | None, step: int | None) -> str:
    """When something came about that is not so at the checkpoint `after`, and is from `step` on."""
    if after is None:
        return "before the end, the only moment measured" if step is None else f"before step {step}, the first measured"
    return f"between step {after} and " + ("the end" if step is None else f"step {step}")


def _between(values: Sequence[float]) -> str:
    """`0.85 to 0.96`, or the one correlation."""
    low, high = (f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _span(shares: Sequence[float], digits: int) -> str:
    """`20 to 24 %`, or the one share."""
    low, high = (f"{100 * share:.{digits}f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def percent(share: float) -> str:
    """`20 %`."""
    return f"{100 * share:.0f} %"


def probability(p: float | None, least: float | None = None) -> str:
    """`0.018`, of very small ones `6e-4`; `0.018, the smallest possible` where it is `least`, which a test can give."""
    if p is None:
        return "not known"
    text = f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")
    return f"{text}, the smallest possible" if smallest(p, least) else text


def smallest(p: float | None, least: float | None) -> bool:
    """Whether a p is the least that a test can give, up to rounding: agreement could not have given a smaller one."""
    return p is not None and least is not None and p <= least * (1 + 1e-9)


def blocks(layers: Collection[int]) -> str:
    """`block 3`, `blocks 0, 2 and 5`."""
    return ("block " if len(layers) == 1 else "blocks ") + wording.listed([str(layer) for layer in sorted(layers)])


def are(layers: Collection[int]) -> str:
    """The verb that goes with so many."""
    return "is" if len(layers) == 1 else "are"
