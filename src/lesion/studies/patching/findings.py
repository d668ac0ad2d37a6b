"""What a patching study shows, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from lesion.report import wording
from lesion.report.finding import FEW, LIMITS, Finding
from lesion.report.table import decimals
from lesion.report.values import Estimate
from lesion.studies.patching.result import PatchedCell, PatchedTask, PatchingSummary
from lesion.studies.patching.study import Kind

NAMED = 3
"""So many heads are named in a sentence."""
HALF = 0.5
"""From this share of the difference on, a place is said to carry the answer."""
WHERE = {
    "earlier different": "earlier differing tokens",
    "last different": "last differing token",
    "next": "token behind the last differing one",
    "between": "tokens between",
    "last": "last token",
    "all": "tokens from the first difference on",
}
"""Classes of positions as they stand in a sentence behind *the*."""


def findings(summary: PatchingSummary) -> list[Finding]:
    """Per model and task, where the answer is carried and what writes it there; last, what limits this."""
    every = [_finding(task, len(summary.tasks) > 1) for task in summary.tasks]
    limits = tuple(sentence for task in summary.tasks for sentence in _limits(task))
    return [*every, Finding(LIMITS, (), limits)] if limits else every


def _finding(task: PatchedTask, several: bool) -> Finding:
    subject = f"{task.model} · {task.task}" if several else task.model
    runs = (
        f"Logit difference of the two answers: {number(task.clean)} after the clean prompt, {number(task.corrupted)}"
        f" after the corrupted one, over {wording.counted(task.pairs, 'pair')};"
        f" {wording.percent(task.clean_right, 0)} and {wording.percent(task.corrupted_right, 0)} of the runs prefer the"
        " answer that is right for them."
    )
    if not task.told:
        why = (
            f"the clean run prefers the right token in {wording.percent(task.clean_right, 0)} of the pairs only"
            if task.clean_right <= HALF
            else "the corruption is not shown to change the logit difference"
        )
        return Finding(subject, (f"Where the answer is carried cannot be told: {why}.",), (runs,))
    stream = [_stream(task)] if task.of("denoise", "block") else []
    return Finding(subject, (*stream, *_writers(task), *_heads(task)), (runs,))


def _stream(task: PatchedTask) -> str:
    """Over which blocks the residual stream of which token carries the answer."""
    carried = []
    for position in WHERE:
        cells = [cell for cell in task.of("denoise", "block") if cell.position == position and significant(cell)]
        cells = [cell for cell in cells if (cell.effect.value or 0.0) >= HALF]
        if cells:
            best = max(cells, key=lambda cell: cell.effect.value or 0.0)
            layers = wording.numbered("block", [cell.layer for cell in cells])
            carried.append((cells[0].layer, f"at the {WHERE[position]} after {layers} (up to {share(best.effect)})"))
    if not carried:
        return (
            "At no class of positions is it shown, corrected over all cells, that the clean residual stream restores"
            f" half of the difference ({wording.counted(task.pairs, 'pair')})."
        )
    return (
        "Put into the corrupted run, the clean residual stream restores at least half of the difference"
        f" {wording.listed([text for _, text in sorted(carried)])}."
    )


def _writers(task: PatchedTask) -> list[str]:
    """The attention and the MLP that restore most at one class of positions, with what they break the other way."""
    sentences = []
    branches: tuple[tuple[Kind, str], ...] = (("attention", "attention"), ("mlp", "MLP"))
    for kind, name in branches:
        cells = [cell for cell in task.of("denoise", kind) if cell.position != "all"]
        best = max(cells, key=lambda cell: cell.effect.value or 0.0, default=None)
        if best is None:
            continue
        other = task.at("noise", kind, best.layer, best.position)
        breaks = "" if other is None else f"; corrupted there, it breaks {share(other.effect)}"
        surely = "" if significant(best) else ", not shown to be more than chance after correction"
        sentences.append(
            f"Of single {name} outputs, that of block{wording.SPACE}{best.layer} at the {WHERE[best.position]} restores"
            f" most: {share(best.effect)}{surely}{breaks}."
        )
    return sentences


def _heads(task: PatchedTask) -> list[str]:
    """The heads that restore and that take away most, each at its strongest class of positions but `all`."""
    cells = [cell for cell in task.of("denoise", "head") if cell.position != "all"] or task.of("denoise", "head")
    if not cells:
        return []
    beyond = [cell for cell in cells if significant(cell)]
    heads = len({(cell.layer, cell.head) for cell in cells})
    if not beyond:
        return [f"No single head of {heads} is shown to move the difference, corrected over all cells."]
    sentences = []
    for sign, does in ((1, "restore a share"), (-1, "take a share away")):
        own = [cell for cell in beyond if sign * (cell.effect.value or 0.0) > 0]
        if own:
            named = wording.listed([_head(cell) for cell in strongest(own, NAMED)])
            moved = len({(cell.layer, cell.head) for cell in own})
            sentences.append(f"Of {heads} single heads, {moved} {does} beyond chance, most {named}.")
    return sentences


def _head(cell: PatchedCell) -> str:
    return f"{cell.layer}.{cell.head} at the {WHERE[cell.position]} ({share(cell.effect)})"


def _limits(task: PatchedTask) -> list[str]:
    name = f"{task.model}, {task.task}"
    sentences = []
    if task.left_out:
        items = wording.counted(task.pairs + len(task.left_out), "item")
        sentences.append(f"{name}: {len(task.left_out)} of {items} have no corrupted prompt of their length.")
    if task.pairs < FEW:
        few = "is" if task.pairs == 1 else "are"
        sentences.append(f"{name}: {wording.counted(task.pairs, 'pair')} {few} few; chance decides much.")
    return sentences


def significant(cell: PatchedCell) -> bool:
    """Whether the effect is beyond chance after correction over all cells."""
    return cell.effect.p_corrected is not None and cell.effect.p_corrected <= wording.ALPHA


def share(estimate: Estimate) -> str:
    """`83 % [79, 88]`."""
    return f"{wording.percent(estimate.value, 0)} {wording.interval(estimate.low, estimate.high, 0)}".rstrip()


def number(estimate: Estimate) -> str:
    """`3.21 [2.90, 3.52]`."""
    write = decimals(2)
    if estimate.low is None or estimate.high is None:
        return write(estimate.value)
    return f"{write(estimate.value)} [{write(estimate.low)},{wording.SPACE}{write(estimate.high)}]"


def strongest(cells: Sequence[PatchedCell], most: int) -> list[PatchedCell]:
    """The cells with the largest effect in either direction."""
    return sorted(cells, key=lambda cell: -abs(cell.effect.value or 0.0))[:most]
