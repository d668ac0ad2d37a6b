"""The verdict on invariance: holds, does not hold or cannot tell, by rules with names, in one paragraph of words.

For one task, every child of the base is compared with it.

*Does not hold* when one child is enough: the interval of the rank correlation ends below `AGREE`, where the order of
layers can be measured at all (ceiling at least `RELIABLE`); or beyond doubt more than `MOST` of the base's critical
layers are not critical in it.

*Holds* when everything speaks for it: base and children can do the task; the base has critical layers; those of all
children together coincide with them beyond chance (p ≤ `ALPHA`); and in every child whose order can be measured the
Holm-corrected p is at most `ALPHA` and the interval begins at `AGREE` at least.

*Cannot tell* is everything else. Ranks of layers that cost next to nothing are noise: a small ceiling says so, or ties
leave no order that could be beyond chance (`p_least`); then the critical layers alone decide.

The word of a family is that of its mathematics tasks, which the claim is about; of all tasks where none is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lesion.studies.invariance_families import Family
from lesion.studies.invariance_tasks import FAR
from lesion.studies.invariance_told import FLOOR
from lesion.studies.statistics import ALPHA, SHARE

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
    f"(one-sided permutation p, by Holm, ≤ {ALPHA:g}) with an interval of the rank correlation from {AGREE:g} up. Does "
    "not hold: "
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
        *(sentence for task in tasks if task["task"] in claimed for sentence in _over_time(task)),
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
        return CANNOT, [f"{base} cannot do it ({_percent(curves[base]['baseline'])} right), so no block can cost it."]
    if len(children) < len(family.children):
        open_.append("not every child has answered everything yet.")
    for child in children:
        if not curves[child]["able"]:
            open_.append(f"{child} cannot do it ({_percent(curves[child]['baseline'])} right): nothing to lose.")
            continue
        pair = next((one for one in task["pairs"] if (one["a"], one["b"]) == (base, child)), None)
        sets = next((one for one in task["overlaps"] if (one["a"], one["b"]) == (base, child)), None)
        if pair is None or sets is None:
            open_.append(f"{child} cannot be compared block by block with {base}.")
            continue
        tests = sum(one["kind"] == "variant" and one["p"] is not None for one in task["pairs"])
        for side, reason in [*_by_rank(child, pair, tests), *_by_sets(child, sets)]:
            {"against": against, "open": open_, "favour": favour}[side].append(reason)
    joint = task["joint"]
    if not task["critical"].get(base):
        open_.append(f"no block of {base} is critical, so there is none to be kept.")
    elif joint is None or joint["p"] is None or joint["p"] > ALPHA:
        p = "cannot be tested" if joint is None or joint["p"] is None else f"p = {_p(joint['p'])}"
        open_.append(f"the overlap of the critical blocks is no more than chance allows ({p}).")
    else:
        favour.append(
            f"{joint['shared']} critical blocks of the children are critical in the base, {joint['expected']:.1f} "
            f"expected by chance (p = {_p(joint['p'])})."
        )
    if against:
        return DOES_NOT, against
    return (CANNOT, open_) if open_ else (HOLDS, favour)


def _by_rank(child: str, pair: Mapping[str, Any], tests: int) -> list[tuple[str, str]]:
    """What the order of blocks says of a child, if it can say anything; `tests` are corrected for by Holm."""
    ceiling = pair["ceiling"]
    if (
        pair["rho"] is None
        or ceiling is None
        or ceiling < RELIABLE
        or pair["low"] is None
        or tests * pair["p_least"] > ALPHA
    ):
        return []  # the order cannot be measured: it speaks neither for nor against
    told = f"ρ = {pair['rho']:.2f}, for the true profiles {pair['low']:.2f} to {pair['high']:.2f}"
    if pair["high"] < AGREE:
        return [("against", f"the order of blocks in {child} is not that of the base ({told}).")]
    p = pair["p_corrected"]
    if p is None or p > ALPHA:
        return [("open", f"in {child} the order of blocks agrees no better than chance allows ({told}; p = {_p(p)}).")]
    if pair["low"] < AGREE:
        return [("open", f"in {child} the order of blocks may agree only loosely ({told}).")]
    return [("favour", f"the order of blocks in {child} is that of the base ({told}; p = {_p(p)}).")]


def _by_sets(child: str, sets: Mapping[str, Any]) -> list[tuple[str, str]]:
    if sets["first"] and len(sets["lost"]) > MOST * len(sets["first"]):
        return [("against", f"{_layers(sets['lost'])}, critical in the base, {_are(sets['lost'])} not in {child}.")]
    return []


def _headline(family: Family, word: Word, claimed: Sequence[str]) -> list[str]:
    tasks = _listed(claimed)
    if not family.children or family.base is None:
        lacking = "no model labelled base" if family.base is None else "no child of its base"
        return [f"Whether the critical blocks of {tasks} survive fine-tuning cannot be told: the study has {lacking}."]
    base = family.base.model
    children = _listed([child.model for child in family.children])
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
        f"Critical for {name} in the base: {_layers(critical)}."
        if critical
        else f"No block of the base is critical for {name}."
    ]
    overlaps = {one["b"]: one for one in task["overlaps"] if one["a"] == base and one["kind"] == "variant"}
    pairs = {one["b"]: one for one in task["pairs"] if one["a"] == base and one["kind"] == "variant"}
    children = [child.model for child in family.children if child.model in overlaps]
    if critical:
        sentences += [_kept(child, overlaps[child]) for child in children]
    measured = [pairs[child] for child in children if child in pairs and pairs[child]["rho"] is not None]
    if measured:
        sentences.append(_ranks(measured))
    joint = task["joint"]
    if joint and joint["p"] is not None:
        sentences.append(
            f"Together the children share {joint['shared']} critical blocks with the base; blocks drawn at random "
            f"would share {joint['expected']:.1f} (p = {_p(joint['p'])})."
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
    parts = [f"of these {_layers(shared)}" if shared else "none of these"]
    if lost:
        parts.append(f"no longer {_layers(lost)}")
    if first - shared - lost:
        parts.append(f"{_layers(first - shared - lost)} perhaps")
    if gained:
        parts.append(f"newly {_layers(gained)}")
    if second - first - gained:
        parts.append(f"and, perhaps in the base as well, {_layers(second - first - gained)}")
    return f"{child} has {', '.join(parts)}."


def _ranks(pairs: Sequence[Mapping[str, Any]]) -> str:
    rhos = [pair["rho"] for pair in pairs]
    span = f"{min(rhos):.2f}" if len(rhos) == 1 else f"{min(rhos):.2f} to {max(rhos):.2f}"
    ceilings = [pair["ceiling"] for pair in pairs if pair["ceiling"] is not None]
    p = [pair["p_corrected"] for pair in pairs if pair["p_corrected"] is not None]
    parts = [f"The rank correlation of the drops with the base's is {span}"]
    if ceilings:
        parts.append(f"where equal profiles would show about {min(ceilings):.2f}")
    if p:
        parts.append(f"p at most {_p(max(p))} by Holm")
    same = sum(pair["top"]["same"] for pair in pairs)
    parts.append(f"the block that costs most is the same in {same} of {len(pairs)}")
    return "; ".join([", ".join(parts[:2]) if ceilings else parts[0], *parts[1 + bool(ceilings) :]]) + "."


def _others(by_task: Mapping[str, Word], claimed: Sequence[str]) -> list[str]:
    others = [f"{task}: {word}" for task, word in by_task.items() if task not in claimed]
    return [f"For the other tasks the same question gives: {'; '.join(others)}."] if others else []


def _across(relevant: Sequence[Mapping[str, Any]], far: Word | None) -> list[str]:
    """Whether the critical blocks are places of mathematics: what other tasks lose there."""
    if far is None:
        return []
    others = list(dict.fromkeys(entry["b"] for entry in relevant))
    skill = _listed(list(dict.fromkeys(entry["a"] for entry in relevant)))
    loses = {
        HOLDS: f"lose less than {100 * FAR:g} % of what {skill} loses",
        DOES_NOT: f"do not all lose less than {100 * FAR:g} % of what {skill} loses",
        CANNOT: f"may or may not lose less than {100 * FAR:g} % of what {skill} loses",
    }[far]
    sentences = [f"At the blocks critical for {skill}, {_listed(others)} {loses}:"]
    numbers = []
    for other in others:
        losses = [entry for entry in relevant if entry["b"] == other]
        shares = [entry["relative_b"] for entry in losses]
        mine = [entry["relative_a"] for entry in losses]
        numbers.append(f"{other} {_span(shares)} of its accuracy against {_span(mine)}")
    sentences[0] += f" {'; '.join(numbers)}, on average over these blocks."
    models = {entry["model"] for entry in relevant}
    for layer in sorted({layer for entry in relevant for layer in entry["critical_shared"]}):
        both = [entry for entry in relevant if layer in entry["critical_shared"]]
        tasks = _listed([other for other in others if any(entry["b"] == other for entry in both)])
        count = len({entry["model"] for entry in both})
        where = f" in {count} of {len(models)} models" if len(models) > 1 else ""
        sentences.append(f"Block {layer} is critical for {tasks} as well{where}, so it is no place of {skill} alone.")
    return sentences


def _over_time(task: Mapping[str, Any]) -> list[str]:
    """Since when the layers that are critical at the end are."""
    sentences = []
    for source in dict.fromkeys(entry["source"] for entry in task["onset"]):
        entries = [one for one in task["onset"] if one["source"] == source]
        ending = [one for one in entries if one["model"] is not None]
        if not ending:
            sentences.append(f"At the end of the training of {source} no block is critical for {task['task']}.")
            continue
        able = ending[0]["able_from"]
        at_once = [one["layer"] for one in ending if one["step"] == able]
        when = "only at its end" if able is None else f"from step {able} on"
        sentences.append(f"Over the training of {source}, {task['task']} can be done {when}.")
        if at_once and able is not None:
            sentences.append(f"{_layers(at_once).capitalize()} {_are(at_once)} critical from that checkpoint on.")
        for one in ending:
            if one["step"] != able:
                since = "only at the end" if one["step"] is None else f"from step {one['step']} on"
                sentences.append(f"Block {one['layer']} becomes so {since}.")
    return sentences


def _span(shares: Sequence[float]) -> str:
    low, high = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _p(p: float | None) -> str:
    return "not known" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")


def _layers(layers: Sequence[int] | set[int]) -> str:
    return ("block " if len(layers) == 1 else "blocks ") + _listed([str(layer) for layer in sorted(layers)])


def _are(layers: Sequence[int]) -> str:
    return "is" if len(layers) == 1 else "are"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"
