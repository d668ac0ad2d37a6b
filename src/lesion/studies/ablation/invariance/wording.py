"""Words for the numbers of the invariance: blocks, spans, probabilities, and since when a block is critical."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.studies.ablation.invariance.result import FamilyTask


def over_time(task: FamilyTask) -> list[str]:
    """Since when the layers that are critical at the end are."""
    sentences = []
    for source in dict.fromkeys(onset.source for onset in task.onset):
        ending = [onset for onset in task.onset if onset.source == source and onset.model is not None]
        if not ending:
            sentences.append(f"At the end of the training of {source} no block is critical for {task.task}.")
            continue
        able = ending[0].able_from
        at_once = [onset.layer for onset in ending if onset.step == able]
        learnt = _moment(ending[0].able_after, able)
        sentences.append(f"Over the training of {source}, the model comes to do {task.task} {learnt}.")
        if at_once:
            already = "at its end" if able is None else f"at step {able} already"
            sentences.append(f"{blocks(at_once).capitalize()} {are(at_once)} critical {already}.")
        sentences += [
            f"Block {onset.layer} becomes critical {_moment(onset.after, onset.step)}."
            for onset in ending
            if onset.step != able
        ]
    return sentences


def _moment(after: int | None, step: int | None) -> str:
    """When something came about of which two checkpoints tell: it is not so at `after`, and is from `step` on."""
    if after is None:
        return "before the end, the only moment measured" if step is None else f"before step {step}, the first measured"
    return f"between step {after} and " + ("the end" if step is None else f"step {step}")


def between(values: Sequence[float]) -> str:
    """`0.85 to 0.96`, or the one correlation."""
    low, high = (f"{value:.2f}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def span(shares: Sequence[float], digits: int = 0) -> str:
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
    told = f"{p:.3f}" if p >= 0.001 else f"{p:.0e}".replace("e-0", "e-")
    return f"{told}, the smallest possible" if smallest(p, least) else told


def smallest(p: float | None, least: float | None) -> bool:
    """Whether a p is the least that a test can give, up to rounding: agreement could not have given a smaller one."""
    return p is not None and least is not None and p <= least * (1 + 1e-9)


def blocks(layers: Sequence[int] | set[int]) -> str:
    """`block 3`, `blocks 0, 2 and 5`."""
    return ("block " if len(layers) == 1 else "blocks ") + listed([str(layer) for layer in sorted(layers)])


def are(layers: Sequence[int]) -> str:
    """The verb that goes with so many."""
    return "is" if len(layers) == 1 else "are"


def listed(words: Sequence[str]) -> str:
    """The words with commas and an `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "nothing"
