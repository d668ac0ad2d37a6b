"""What a layer study claims: which blocks each skill depends on, what cannot be told, what rises without a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import NamedTuple

from lesion.core.values import alike
from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.values import POINTS, SHARE, WHOLE_POINTS, WHOLE_SHARE
from lesion.report.wording import STOPPING_SHARE
from lesion.statistics.critical import SHARE as CRITICAL
from lesion.statistics.detectable import smallest_drop
from lesion.studies.ablation.cell import Cell, Curve, named, places, plural, under
from lesion.studies.ablation.result import WITHOUT_CHAT, Material

WORDS = 25
"""The answer of a page has so many words at most."""


CHOSEN = "multiple choice"
UNTOLD = "What is critical cannot be told for"
CUT = 0.2
"""The share of unedited answers at the token limit from which that is named as a cause of a low accuracy."""


class Group(NamedTuple):
    """Layers that every model marks for the same tasks, with other tasks that they spare or are shown to take less of.

    Marked: critical, or where evaluation stopped, exceeding the effect; not exceeding it is spared.
    """

    tasks: tuple[str, ...]
    spared: tuple[str, ...]
    less: tuple[str, ...]
    layers: list[int]


@rule
def which_blocks(material: Material) -> Iterable[Claim]:
    """Per unit and factor: what all models share; then every model that is alone or of which something else holds.

    Says: Blocks L are critical for A [and spare B] [, and take more of A than of C]; blocks M are critical for
    every task. | In all N models blocks L are critical for A …. | No block is shown to be critical for A. | What is
    critical cannot be told for A (n of m right, k are needed). | Without block L k of the n answers lost on A state
    the gold answer and are cut off. | Without block M accuracy on A falls too: whether by more than half cannot be
    told. | Without block L k % of the answers to A hit the token limit (l % without an edit). | Without block L B
    falls too: whether by less than A cannot be told.
    Needs: critical: more than half of the right answers above chance are lost, by an exact paired test, Holm-corrected
    over the blocks of one model and task, and the unedited model has enough right answers; answers that state the gold
    answer and were cut off count as right in it. Spares: less than a quarter is lost, by its own test. More of A than
    of C: by a test of the difference
    """
    untold: set[str] = set()
    for claim in _of_sweeps(material):
        # Of a task that the unedited model cannot do it is said once, whatever the edit.
        new = tuple(text for text in claim.sentences if text not in untold)
        untold.update(text for text in claim.sentences if text.startswith(UNTOLD))
        if new:
            yield replace(claim, sentences=new)


def _of_sweeps(material: Material) -> Iterable[Claim]:
    for sweep in alike(material.curves, "unit", "factor"):
        models = alike((curve for curve in sweep if curve.cells), "model")
        shared: dict[str, tuple[set[str], list[Group]]] = {}
        for among, curves in _depths(models):
            yield from _claims(curves, f"In {among} ")
            tasks, groups = _critical(curves)
            if groups or not any(curve.marked for curve in curves):
                shared |= {curve.model: (tasks, groups) for curve in curves}
        for curves in models:
            if shared.get(curves[0].model) != _critical(curves):
                some = any(not curve.untold for curve in curves)
                subject = _subject(curves[0], material) if some else material.among(curves[0].model)
                yield from _claims(curves, subject=subject)


def _critical(curves: Sequence[Curve]) -> tuple[set[str], list[Group]]:
    """The tasks that can be told in every model, and the layers marked for them, whatever other tasks they spare."""
    unknown = {curve.task for curve in curves if curve.untold}
    able = [curve for curve in curves if curve.task not in unknown]
    return {curve.task for curve in able}, _joined(grouped(able), 0)


def _subject(curve: Curve, material: Material) -> str:
    """The model where there are several, and the edit where it is not the plain block switched off."""
    factors = {other.factor for other in material.curves if other.unit == curve.unit}
    model = material.among(curve.model)
    if curve.unit == "block" and factors == {0.0}:
        return model
    what = f"{wording.UNIT_NAMES[curve.unit]} {wording.changed(curve.factor)}"
    if model:
        return f"{model}, {what}"
    return wording.capital(what)


def _claims(curves: Sequence[Curve], among: str = "", subject: str = "") -> Iterable[Claim]:
    unknown = {curve.task for curve in curves if curve.untold}
    able = [curve for curve in curves if curve.task not in unknown]
    groups = grouped(able)
    example = largest_loss(able, groups)
    rows = tuple(curve.record(cell) for curve in able for cell in curve.marked)
    sentences = []
    if able:
        sentences.append(_answer(able, groups, among, dict.fromkeys(curve.task for curve in curves)))
        sentences.append(_loss(able, example, among))
    losses = [_cut(able, among), _broken(able, among, example), _not_told_apart(able, groups, example)]
    loss = next(filter(None, losses), "")
    told = [_untold([curve for curve in curves if curve.untold]), loss]
    if not losses[0]:
        # That a task is not told apart at a critical block is enough to say of its loss there.
        said = [layer for group in groups for layer in group.layers] if loss == losses[2] else []
        told.append(_falls(curves, among, example, said))
    further = list(filter(None, dict.fromkeys(told)))
    yield Claim((*sentences, *further[:1]), rows, subject)
    if further[1:]:
        falling = tuple(curve.record(cell) for curve in curves for cell in curve.cells if cell.falls)
        yield Claim(tuple(further[1:]), falling, subject)


def _answer(curves: Sequence[Curve], groups: Sequence[Group], among: str, every: Iterable[str]) -> str:
    """`Blocks 2 and 5–7 are critical for sums and spare facts; block 0 for every task.`, within `WORDS` words."""
    first, so_far = curves[0], " so far" * any(not curve.finished or curve.missing for curve in curves)
    if not groups:
        tasks = wording.listed(list(dict.fromkeys(curve.task for curve in curves)), "or")
        if among and any(curve.marked for curve in curves):
            tasks = "the same task"
        what = f"no {wording.some_unit(first.unit)} {wording.unshown(first.stopped)} for {tasks}"
        return wording.capital(f"{among}{what}{so_far}.")
    clauses: list[str] = []
    chosen = {curve.task for curve in curves if curve.result.guessing}
    for detail in (2, 1, 0):
        shown = _joined(groups, detail)
        # A verb goes on saying what the clause before it ended with: "spare facts; block 0 for every task" misleads.
        plain = [True, *(not (group.spared or group.less) for group in shown)]
        verbs = [group is shown[0] or bool(group.spared) or not plain[at] for at, group in enumerate(shown)]
        clauses = [
            _clause(first, group, list(every), chosen, verb=verb) for group, verb in zip(shown, verbs, strict=True)
        ]
        text = f"{among}{'; '.join(clauses)}{so_far}."
        if len(text.split()) <= WORDS:
            return wording.capital(text)
    rest = "; others stand in the chart."
    while len(f"{among}{'; '.join(clauses)}{rest}".split()) > WORDS and len(clauses) > 1:
        clauses.pop()
    return wording.capital(f"{among}{'; '.join(clauses)}{rest}")


def _joined(groups: Sequence[Group], detail: int) -> list[Group]:
    """The groups with less said of other tasks: with detail 1 not which lose less, with 0 not which are spared."""
    layers: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for group in groups:
        spared, less = (group.spared, ())[detail == 0], (group.less, ())[detail < 2]
        layers.setdefault((group.tasks, spared, less), []).extend(group.layers)
    return [Group(*key, sorted(own)) for key, own in layers.items()]


def _clause(curve: Curve, group: Group, every: Sequence[str], chosen: set[str], *, verb: bool) -> str:
    """`blocks 2 and 5 are critical for sums and spare facts`.

    That its answers are chosen is said of a spared task where those that are lost are written.
    """
    several = plural(curve.unit, len(group.layers))
    tasks = "every task" if len(group.tasks) == len(every) > 1 else wording.listed(group.tasks)
    called = f" {wording.called(curve.stopped, 1 + several)}" * verb
    text = f"{places(curve.unit, group.layers)}{called} for {tasks}"
    if len(group.spared) > 2 and len(group.tasks) + len(group.spared) == len(every):
        text += " alone"
    elif group.spared:
        otherwise = chosen & set(group.spared) if not chosen & set(group.tasks) else set()
        spared = [task + f" ({CHOSEN})" * (task in otherwise) for task in group.spared]
        text += f" and spare{'s' * (not several)} {wording.listed(spared)}"
    return text + f", more than for {wording.listed(group.less, 'or')}" * bool(group.less)


def largest_loss(curves: Sequence[Curve], groups: Sequence[Group]) -> tuple[Curve, Cell] | None:
    """The largest loss of the most selective group that is not one of stopping."""
    for group in groups:
        cells = [(c, cell) for c in curves if c.task in group.tasks for cell in c.marked if cell.layer in group.layers]
        if cells:
            return min(cells, key=lambda pair: (cut_off(*pair), -pair[1].size))
    return None


def _loss(curves: Sequence[Curve], example: tuple[Curve, Cell] | None, among: str) -> str:
    """`Without block 2 accuracy on sums falls from 90.0 % to 0.0 % [0.0, 27.8].`; also if it may be stopping.

    Where nothing is marked it is the largest drop.
    """
    if example is None:
        curve, cell = max(((curve, cell) for curve in curves for cell in curve.cells), key=lambda pair: pair[1].size)
        drop = f"{POINTS.text(cell.drop)}{_of_items(curve, cell)}"
        return f"The largest drop is {drop} on {curve.task} {under(named([cell]), cell.factor)}."
    curve, cell = example
    before, after = SHARE.text(curve.baseline_of(cell).accuracy), SHARE.text(cell.accuracy)
    text = f"{_where(curve, [cell])} accuracy on {curve.task} falls from {before} to {after}"
    text += _of_items(curve, cell) + f" in {curve.model}" * bool(among)
    if cut_off(curve, cell):
        text += f"; {_ended(curve, cell)}: part of the loss may be stopping"
    return f"{text}."


def _where(curve: Curve, cells: Sequence[Cell], among: str = "") -> str:
    """`Without blocks 0 and 2`, of several models `in base`."""
    return wording.capital(under(named(cells), curve.factor)) + f" in {curve.model}" * bool(among)


def _fall(curve: Curve, cell: Cell) -> str:
    """`from 90.0 % to 30.0 %`."""
    return f"from {SHARE.text(curve.baseline_of(cell).accuracy.value)} to {SHARE.text(cell.accuracy.value)}"


def _ended(curve: Curve, cell: Cell) -> str:
    """`90 % of the answers to sums hit the token limit (0 % without an edit)`."""
    before, after = WHOLE_SHARE.text(curve.baseline_of(cell).truncated), WHOLE_SHARE.text(cell.truncated)
    return f"{after} of the answers to {curve.task} {wording.unended(cell.looped)} ({before} without an edit)"


def _of_items(curve: Curve, cell: Cell) -> str:
    if curve.result.stopping is None:
        return ""
    return f" ({wording.item_count(cell.items, cell.decided, curve.result.stopping.items)})"


def _untold(curves: Sequence[Curve]) -> str:
    """`What is critical cannot be told for days (2 of 19 right, 9 are needed).`, and what to try first."""
    parts = []
    for own in alike(curves, "task"):
        reasons = [curve.untold for curve in own] if len(own) == 1 else [f"{len(own)} models"]
        parts.append(f"{own[0].task} ({wording.listed(reasons)})")
    advice = f" {WITHOUT_CHAT}" * any(curve.result.without_chat for curve in curves)
    unedited = [curve.result.baseline for curve in curves]
    if not advice and max((scores.truncated for scores in unedited), default=0.0) >= CUT:
        advice = " Many unedited answers hit the token limit: try a larger --max-new-tokens."
        if max(scores.unclosed for scores in unedited) >= CUT:
            advice += " Many never closed their thinking: --thinking-tokens closes it for them."
    return f"{UNTOLD} {wording.listed(parts)}.{advice}" * bool(parts)


def _cut(curves: Sequence[Curve], among: str) -> str:
    """Losses that may be ones of stopping, of the task that has most of them."""
    every = [(curve, [cell for cell in curve.cells if may_be_cut(curve, cell)]) for curve in curves]
    cut = [(curve, cells) for curve, cells in every if cells]
    if not cut:
        return ""
    curve, cells = max(cut, key=lambda pair: sum(cell.stated or 0 for cell in pair[1]))
    stated, lost = sum(cell.stated or 0 for cell in cells), sum(cell.lost or 0 for cell in cells)
    return (
        f"{_where(curve, cells, among)}, {stated} of the {lost} answers lost on {curve.task} state the gold answer and"
        " are cut off: try a larger --max-new-tokens."
    )


def _broken(curves: Sequence[Curve], among: str, example: tuple[Curve, Cell] | None) -> str:
    """A critical loss that is at least as large as the example, where answers are cut off that were not."""
    cells = [(curve, cell) for curve in curves for cell in curve.marked if cut_off(curve, cell)]
    if example is None or not cells:
        return ""
    curve, cell = max(cells, key=lambda pair: pair[1].size)
    # Where the example is cut off itself, its own sentence says so, and only a larger loss is news.
    if (cell.size, not cut_off(*example)) <= (example[1].size, False):
        return ""
    return f"{_where(curve, [cell], among)}, {_ended(curve, cell)}: read them before you speak of a lost skill."


def _falls(curves: Sequence[Curve], among: str, example: tuple[Curve, Cell] | None, said: Sequence[int]) -> str:
    """The loss of a task that is shown at other layers than `said`, and not whether it is of more than half."""
    unsure = [[c for c in curve.cells if c.outcome == "cannot be told" and c.falls] for curve in curves]
    losses = [(curve, [c for c in cells if c.layer not in said]) for curve, cells in zip(curves, unsure, strict=True)]
    fallen = [(curve, cells, max(cells, key=lambda cell: cell.size)) for curve, cells in losses if cells]
    if not fallen:
        return ""
    curve, cells, lowest = max(fallen, key=lambda each: each[2].size)
    falls = f"falls{' too' * bool(example)}, {'at most ' * (len(cells) > 1)}{_fall(curve, lowest)}"
    where = _where(curve, cells, among)
    return f"{where} accuracy on {curve.task} {falls}: whether by more than half cannot be told."


def may_be_cut(curve: Curve, cell: Cell) -> bool:
    """Whether more than half is lost and a place is not shown to be critical, and the loss may be one of stopping."""
    skill = (curve.baseline_of(cell).accuracy.value or 0.0) - curve.result.guessing
    large = cell.falls and not cell.critical and cell.size > CRITICAL * skill
    return large and (cell.stated or 0) >= CUT * (cell.lost or 0) > 0


def _not_told_apart(curves: Sequence[Curve], groups: Sequence[Group], example: tuple[Curve, Cell] | None) -> str:
    """The largest loss of a task at a block which is critical for another, where no test tells that it is less.

    `There` is the block of the sentence before, the example; another block is named.
    """
    falling = []
    for group, layer in ((group, group.layers[0]) for group in groups):
        for curve in curves:
            cell = None if curve.stopped or curve.task in group.tasks else curve.at(layer)
            if cell is None or cell.spares or cell.size <= 0:
                continue
            harmed = [other.at(layer) for other in curves if other.model == curve.model and other.task in group.tasks]
            if not all(each and any(apart.task == curve.task for apart in each.apart) for each in harmed):
                falling.append((curve, cell, group))
    if not falling:
        return ""
    curve, cell, group = max(falling, key=lambda each: (each[1].falls, each[1].size))
    where = _where(curve, [cell], wording.among(curve.model, [other.model for other in curves]))
    if example and (example[0].model, example[1].layer) == (curve.model, cell.layer):
        where = "There"
    less = f"whether by less than {wording.listed(group.tasks)} cannot be told"
    return f"{where} {curve.task} falls too, {_fall(curve, cell)}: {less}."


@rule
def what_rises(material: Material) -> Iterable[Claim]:
    """Places without which accuracy is higher, by the one with the largest gain.

    Says: Without block L accuracy on A rises from x to y.
    Needs: the corrected paired test of the drop, at .05
    """
    for curve in material.curves:
        gained = sorted((cell for cell in curve.cells if cell.gained), key=lambda cell: cell.size)
        for best in gained[:1]:
            shares = f"{SHARE.text(curve.baseline_of(best).accuracy)} to {SHARE.text(best.accuracy)}"
            p = f"corrected p{wording.SPACE}{wording.p_value(best.drop.p_corrected)}"
            rows = tuple(curve.record(cell) for cell in gained)
            text = f"{_where(curve, [best])} accuracy on {curve.task} rises from {shares} ({p})."
            yield Claim((text,), rows, material.among(curve.model))


@rule
def form_or_choice(material: Material) -> Iterable[Claim]:
    """Whether a critical place takes the choice among rivals, or mostly the form of the answer.

    Says: Without block L mostly the form of A's answers changes. | Without block L the choice among the rivals is lost
    as well.
    Needs: a critical place; less than half (more than half) of the forced accuracy above guessing is lost, by its own
    exact test, Holm-corrected; otherwise nothing is said of the choice
    """
    form, lost = "mostly the form of the answers to {} changes", "the choice among the rivals of {} is lost as well"
    for curve, (choice, what) in product(material.curves, (("kept", form), ("lost", lost))):
        cells = [(cell, cell.forced) for cell in curve.marked if cell.forced and cell.forced.choice == choice]
        unedited = curve.result.forced
        if not cells or unedited is None:
            continue
        cell, forced = min(cells, key=lambda each: each[1].accuracy.value or 0.0)
        every = sorted((each for each, _ in cells), key=lambda each: each.layer)
        numbers = f"{SHARE.text(unedited.accuracy.value)} to {SHARE.text(forced.accuracy)}"
        forced_ones = f"forced ones from {numbers} (guessing {SHARE.text(unedited.guessing)})"
        first = f"{_where(curve, every)} {what.format(curve.task)}."
        second = f"{_where(curve, [cell])} free answers fall {_fall(curve, cell)}, {forced_ones}."
        rows = tuple(curve.record(each) for each in every)
        yield Claim((first, second), rows, material.among(curve.model))


@rule
def unedited(material: Material) -> Iterable[Claim]:
    """What unedited models do on tasks of which no cut has been measured yet.

    Says: Unedited, x of n items of A are right; no cut has been measured yet. | Nothing has been measured yet.
    Needs: a finished baseline
    """
    summary = material.summary
    for model, result in summary.results:
        if not result.cells:
            number = f"{SHARE.text(result.baseline.accuracy)} of {wording.counted(result.items, 'item')}"
            text = f"Unedited, {number} of {result.task} are right; no cut has been measured yet."
            yield Claim((text,), subject=material.among(model))
    if not any(chain.from_iterable((model.tasks, model.texts) for model in summary.models)):
        yield Claim(("Nothing has been measured yet.",))


@rule
def what_was_decided(material: Material) -> Iterable[Claim]:
    """How much was saved where evaluation stopped, and what the decisions do not say.

    Says: n of m answers were evaluated: k cells exceed the effect of x points, l do not, o are open. | Only a full
    table shows which blocks are critical.
    Needs: evaluation that stopped once a cell was decided; confidence sequences and e-values, closed e-BH
    """
    summary = material.summary
    for model, result in summary.results:
        if result.stopping is not None:
            drawn = (1 + len(result.cells)) * result.stopping.items
            exceeds, below, left = (result.decided(decision) for decision in ("exceeds", "not", "open"))
            effect = POINTS.text(result.stopping.effect)
            sentences = (
                f"{result.answers:,} of {drawn:,} answers were evaluated: {exceeds} cells exceed the effect of"
                f" {effect}, {below} do not, {left} are open.",
                "That a cell does not exceed it holds for these items alone; stopping early tends to inflate a drop.",
                "Only a full table shows which places are critical: run the same command without stopping, into the"
                " same folder.",
            )
            yield Claim(sentences, (), f"{model}, {result.task}" * (len(summary.results) > 1))


def grouped(curves: Sequence[Curve]) -> list[Group]:
    """Layers by the tasks that every model marks them for, the most selective first.

    Only layers that were measured, and not left open, on every task of every model count: of others it is not known.
    """
    known = [{cell.layer for cell in curve.cells if cell.decided != "open"} for curve in curves]
    together: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for layer in sorted(set.intersection(*known)) if known else ():
        by_task: dict[str, list[Cell]] = {}
        for curve in curves:
            by_task.setdefault(curve.task, []).extend(cell for cell in curve.cells if cell.layer == layer)
        marked = tuple(task for task, cells in by_task.items() if all(cell.marked for cell in cells))
        spared = tuple(task for task, cells in by_task.items() if all(cell.spares for cell in cells))
        stronger = [{apart.task for apart in cell.apart} for task in marked for cell in by_task[task]]
        less = tuple(t for t in by_task if t not in marked + spared and all(t in tasks for tasks in stronger))
        if marked:
            together.setdefault((marked, spared, less), []).append(layer)
    groups = [Group(*key, layers) for key, layers in together.items()]
    return sorted(groups, key=lambda group: (len(group.tasks), group.layers))


def _depths(models: Sequence[Sequence[Curve]]) -> Iterator[tuple[str, list[Curve]]]:
    """The curves of at least two models that have as many blocks, by how those are named: `all 4 models of 8 blocks`.

    Models of different depth are told apart: the same number is another place in a model of another depth.
    """
    by_depth: dict[int, list[Sequence[Curve]]] = {}
    for curves in models:
        by_depth.setdefault(max(len(curve.layers) for curve in curves), []).append(curves)
    for depth, own in by_depth.items():
        if len(own) > 1:
            name = "both models" if len(own) == 2 else f"all {len(own)} models"
            yield name + f" of {depth} blocks," * (len(by_depth) > 1), list(chain.from_iterable(own))


def cut_off(curve: Curve, cell: Cell) -> bool:
    """Whether part of a loss may be one of stopping: by half of it or more, answers are cut off that were not."""
    more = cell.truncated - curve.baseline_of(cell).truncated
    return more > 0 and more >= STOPPING_SHARE * cell.size


def smallest_loss(material: Material) -> str:
    """`Drops under about 11 points can be missed, and critical ones under about 30 to 50.`, over tasks.

    Empty where evaluation stopped.
    """
    reaches = [(result, reach) for _, result in material.summary.results for reach in result.sensitivity]
    drops = [drop for result, reach in reaches if (drop := smallest_drop(result.items, reach.tests)) is not None]
    known = [(result, reach.smallest_loss) for result, reach in reaches if reach.smallest_loss is not None]
    if not drops:
        return ""
    # Where even the loss of all could be missed, no drop is large enough.
    text = f"Drops under about {WHOLE_POINTS.text(max(drops))} can be missed"
    if losses := [loss * result.skill for result, loss in known]:
        of = list(dict.fromkeys(result.task for result, _ in known))
        tasks = f" of {wording.listed(of)}" * (len(known) < len(reaches))
        text += f", and critical ones{tasks} under about {wording.from_to(losses, WHOLE_POINTS)}"
    return f"{text}."
