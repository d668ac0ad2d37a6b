"""What a layer study claims: which blocks each skill depends on, what cannot be told, what rises without a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.forms import POINTS, SHARE, WHOLE_POINTS, WHOLE_SHARE
from lesion.report.rows import Record
from lesion.report.wording import STOPPING_SHARE
from lesion.statistics.detectable import smallest_drop
from lesion.studies.ablation.cell import Cell
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.material import Labels, Material
from lesion.studies.ablation.result import WITHOUT_CHAT

WORDS = 25
"""The answer of a page has so many words at most."""
Needed = dict[int, frozenset[str]]
"""Layer → the tasks it is marked for: critical, or where evaluation stopped, exceeding the effect."""
Group = tuple[list[str], list[str], list[str], list[int]]
"""Tasks that layers are marked for, tasks that they spare, tasks shown to lose less, the layers."""


@rule(
    "Blocks L are critical for A [and spare B] [, and take more of A than of C]; blocks M for every task.",
    "In all N models blocks L are critical for A ….",
    "No block is shown to be critical for A.",
    "It cannot be told for A (n of m right).",
    needs="critical: more than half of the right answers above chance are lost, by an exact paired test, Holm-corrected"
    " over the blocks of one model and task, and the unedited model has enough right answers. Spares: less than a"
    " quarter is lost, by its own test. More of A than of C: by a test of the difference",
)
def which_blocks(material: Material) -> Iterable[Claim]:
    """Per unit and factor: what all models share; then every model that is alone or differs."""
    for view in material.views:
        models = [[curve for curve in view.curves if curve.label == label and curve.cells] for label in view.labels]
        models = [curves for curves in models if curves]
        several = len(material.summary.models) > 1 and view.factor is not None
        shared = _depths(models) if several else []
        for among, curves in shared:
            yield _claim(curves, view, f"In {among}")
        for curves in models:
            yield _claim(curves, view, "", _subject(curves, view, material))


def _subject(curves: Sequence[Curve], view: View, material: Material) -> str:
    """The model where there are several, and the edit where it is not the plain block switched off."""
    first = curves[0]
    names = [first.model] if len(material.summary.models) > 1 else []
    if first.factor != 0:
        names.append(f"{wording.UNIT_NAMES[view.unit]} {wording.changed(first.factor)}")
    elif view.unit != "block" or view.factor is None:
        names.append(f"{wording.UNIT_NAMES[view.unit]} switched off")
    return ", ".join(names)


def _claim(curves: Sequence[Curve], view: View, among: str, subject: str = "") -> Claim:
    unknown = {curve.task: None for curve in curves if curve.untold}
    able = [curve for curve in curves if curve.task not in unknown]
    groups = grouped(able)
    example = largest_loss(able, groups)
    every = list(dict.fromkeys(curve.task for curve in curves))
    sentences = [_answer(able, groups, view, among, every)] if able else []
    sentences += [_sentence(example, several_tasks=True)] if example else []
    if not example and able:
        sentences.append(_largest(able))
    rest = _untold(curves, unknown) if unknown else _not_told_apart(able, groups)
    sentences += [rest] if rest else []
    rows = [record(curve, cell) for curve in able for cell in curve.marked]
    return Claim(tuple(sentences[:3]), tuple(rows or [record(*example)] if example else rows), subject)


def _answer(curves: Sequence[Curve], groups: Sequence[Group], view: View, among: str, every: Sequence[str]) -> str:
    """`Blocks 2 and 5–7 are critical for sums and spare facts; block 0 for every task.`, within `WORDS` words."""
    so_far = "" if all(curve.finished and not curve.missing for curve in curves) else " so far"
    begin = f"{among} " if among else ""
    if not groups:
        what = wording.some_unit(view.unit)
        same = (
            "the same task"
            if among and any(curve.marked for curve in curves)
            else wording.listed(list(dict.fromkeys(curve.task for curve in curves)), "or")
        )
        return f"{begin}{'no' if begin else 'No'} {what} {wording.unshown(view.stopped)} for {same}{so_far}."
    for spare, less in ((True, True), (True, False), (False, False)):
        clauses: list[str] = []
        for tasks, spared, fewer, layers in groups:
            one = len(layers) == 1 or view.unit != "block"
            verb = "" if clauses else f" {wording.called(view.stopped, 1 if one else 2)}"
            text = f"{places(view.unit, layers)}{verb} for {_names(tasks, every)}"
            if spare and spared:
                alone = len(tasks) + len(spared) == len(every)
                verb = "spares" if one else "spare"
                text += " alone" if alone and len(spared) > 2 else f" and {verb} {wording.listed(spared, 'and')}"
            if less and fewer:
                text += f", more than for {wording.listed(fewer, 'or')}"
            clauses.append(text)
        sentence = f"{begin}{'; '.join(clauses)}{so_far}."
        if len(sentence.split()) <= WORDS:
            break
    while len(sentence.split()) > WORDS and len(clauses) > 1:
        clauses.pop()
        sentence = f"{begin}{'; '.join(clauses)}; others stand in the chart."
    return wording.capital(sentence)


def largest_loss(curves: Sequence[Curve], groups: Sequence[Group]) -> tuple[Curve, Cell] | None:
    """The largest loss of the most selective group that is not one of stopping."""
    for tasks, _, _, layers in groups:
        cells = [(c, cell) for c in curves if c.task in tasks for cell in c.marked if cell.layer in layers]
        if cells:
            return min(cells, key=lambda pair: (cut_off(pair[1]), -(pair[1].drop.value or 0.0)))
    return None


def _sentence(example: tuple[Curve, Cell], *, several_tasks: bool) -> str:
    curve, cell = example
    return f"{wording.capital(loss(curve, cell, f' on {curve.task}' if several_tasks else ''))}."


def _largest(curves: Sequence[Curve]) -> str:
    """The largest drop where nothing is marked, and what would have been seen."""
    curve, cell = max(
        ((curve, cell) for curve in curves for cell in curve.cells), key=lambda pair: pair[1].drop.value or 0.0
    )
    items = wording.item_count(cell.items, cell.decided, curve.drawn)
    drop = f"{POINTS.text(cell.drop)}{f' ({items})' if items else ''}"
    return f"The largest drop is {drop} on {curve.task} {under(curve, cell)}."


def _untold(curves: Sequence[Curve], tasks: Iterable[str]) -> str:
    """`It cannot be told for days (2 of 19 right).`"""
    parts = []
    chat = any(curve.result.without_chat for curve in curves if curve.untold)
    for task in tasks:
        own = [curve for curve in curves if curve.task == task and curve.untold]
        why = f"{len(own)} models" if len(own) > 2 else wording.listed([curve.untold for curve in own])
        parts.append(f"{task} ({why})")
    return f"It cannot be told for {wording.listed(parts)}.{f' {WITHOUT_CHAT}' if chat else ''}"


def _not_told_apart(curves: Sequence[Curve], groups: Sequence[Group]) -> str:
    """A task that falls too at a block which is critical for another, where no test tells the two apart."""
    for tasks, spared, less, layers in groups:
        rest = [curve for curve in curves if curve.task not in {*tasks, *spared, *less} and not curve.stopped]
        cells = [(curve, cell) for curve in rest if (cell := curve.at(layers[0]))]
        falling = [pair for pair in cells if (pair[1].drop.value or 0.0) > 0]
        if falling:
            curve, cell = max(falling, key=lambda pair: pair[1].drop.value or 0.0)
            before, after = SHARE.text(curve.baseline_of(cell).accuracy.value), SHARE.text(cell.accuracy.value)
            return (
                f"There {curve.task} falls too, from {before} to {after}: {wording.counted(cell.items, 'item')} do not"
                " tell the two apart."
            )
    return ""


@rule(
    "Without block L accuracy on A rises from x to y.",
    needs="the corrected paired test of the drop, at .05",
)
def what_rises(material: Material) -> Iterable[Claim]:
    """Places without which accuracy is higher."""
    several = len(material.summary.models) > 1
    for curve in material.curves:
        gained = sorted((cell for cell in curve.cells if cell.gained), key=lambda cell: cell.drop.value or 0.0)
        if gained:
            best = gained[0]
            before, after = SHARE.text(curve.baseline_of(best).accuracy), SHARE.text(best.accuracy)
            p = wording.p_value(best.drop.p_corrected)
            text = f"{wording.capital(under(curve, best))} accuracy on {curve.task} rises from {before} to {after}"
            more = [f"So it does {_under(curve, [cell.layer for cell in gained[1:]])}."] if gained[1:] else []
            yield Claim(
                (f"{text} (corrected p{wording.SPACE}{p}).", *more),
                tuple(record(curve, cell) for cell in gained),
                curve.model if several else "",
            )


@rule(
    "Without block L mostly the form of A's answers changes.",
    "Without block L the choice among the rivals is lost as well.",
    needs="a critical place; less than half (more than half) of the forced accuracy above guessing is lost, by its own"
    " exact test, Holm-corrected; otherwise nothing is said of the choice",
)
def form_or_choice(material: Material) -> Iterable[Claim]:
    """Whether a critical place takes the choice among rivals, or mostly the form of the answer."""
    several = len(material.summary.models) > 1
    for curve in material.curves:
        unedited = curve.result.forced
        for choice, what in (
            ("kept", f"mostly the form of the answers to {curve.task} changes"),
            ("lost", f"the choice among the rivals of {curve.task} is lost as well"),
        ):
            cells = [(cell, cell.forced) for cell in curve.marked if cell.forced and cell.forced.choice == choice]
            if not cells or unedited is None:
                continue
            cell, forced = min(cells, key=lambda each: each[1].accuracy.value or 0.0)
            free = f"{SHARE.text(curve.result.baseline.accuracy.value)} to {SHARE.text(cell.accuracy.value)}"
            numbers = f"{SHARE.text(unedited.accuracy.value)} to {SHARE.text(forced.accuracy)}"
            where = "" if len(cells) == 1 else f"At {places(curve.unit, [cell.layer])} "
            yield Claim(
                (
                    f"{wording.capital(_under(curve, sorted(cell.layer for cell, _ in cells)))} {what}.",
                    f"{where}{'free' if where else 'Free'} answers fall from {free}, forced ones from {numbers}"
                    f" (guessing {SHARE.text(unedited.guessing)}).",
                ),
                tuple(record(curve, cell) for cell, _ in cells),
                curve.model if several else "",
            )


@rule(
    "The unedited model answers x of A; no cut has been measured yet.",
    "No cut has been measured yet.",
    needs="a finished baseline",
)
def unedited(material: Material) -> Iterable[Claim]:
    """What unedited models do on tasks of which no cut has been measured yet."""
    summary = material.summary
    for model, result in summary.results:
        if not result.cells:
            number = f"{SHARE.text(result.baseline.accuracy)} of {wording.counted(result.items, 'item')}"
            yield Claim(
                (f"{result.task}: {number} right without a cut; no cut has been measured yet.",),
                (),
                model if len(summary.models) > 1 else "",
            )
    if not any(chain.from_iterable((model.tasks, model.texts) for model in summary.models)):
        yield Claim(("Nothing has been measured yet.",))


@rule(
    "n of m answers were enough: k cells exceed the effect, l do not, o are open.",
    "Only a full table shows which blocks are critical.",
    needs="evaluation that stopped once a cell was decided; confidence sequences and e-values, closed e-BH",
)
def what_was_decided(material: Material) -> Iterable[Claim]:
    """How much was saved where evaluation stopped, and what the decisions do not say."""
    summary = material.summary
    for model, result in summary.results:
        if result.stopping is not None:
            drawn = (1 + len(result.cells)) * result.stopping.items
            counts = [result.decided(decision) for decision in ("exceeds", "not", "open")]
            yield Claim(
                (
                    f"{result.answers:,} of {drawn:,} answers were evaluated: {counts[0]} cells exceed the effect,"
                    f" {counts[1]} do not, {counts[2]} are open.",
                    "This holds for these items and beyond them where a cell exceeds the effect, for these items alone"
                    " where it does not; only a full table shows which places are critical.",
                    "Stopping early tends to inflate a drop: for its size, run the full table.",
                ),
                (),
                f"{model}, {result.task}" if len(summary.results) > 1 else "",
            )


def record(curve: Curve, cell: Cell) -> Record:
    """A line of the table of cells."""
    return (Labels(model=curve.model, task=curve.task), cell)


def grouped(curves: Sequence[Curve]) -> list[Group]:
    """Layers that every model marks for the same tasks: these, tasks they spare, tasks shown to lose less, the layers.

    The most selective come first.
    """
    every = list(dict.fromkeys(curve.task for curve in curves))
    together: dict[tuple[frozenset[str], frozenset[str], frozenset[str]], list[int]] = {}
    for layer, tasks in needed(curves, all).items():
        spared = frozenset(task for task in every if _spared(curves, layer, task))
        less = frozenset(task for task in every if task not in tasks | spared and _less(curves, layer, tasks, task))
        together.setdefault((tasks, spared, less), []).append(layer)
    groups = sorted(together.items(), key=lambda pair: (len(pair[0][0]), pair[1]))

    def named(tasks: frozenset[str]) -> list[str]:
        return [task for task in every if task in tasks]

    return [(named(tasks), named(spared), named(less), layers) for (tasks, spared, less), layers in groups]


def needed(curves: Sequence[Curve], quantifier: Callable[[Iterable[bool]], bool]) -> Needed:
    """Layers marked for at least one task, with those tasks, in all (or any) of the models.

    Only layers that were measured, and not left open, on every task of every model count: of others it is not known.
    """
    known = [{cell.layer for cell in curve.cells if cell.decided != "open"} for curve in curves]
    marked = [(curve.task, {cell.layer for cell in curve.cells if cell.marked}) for curve in curves]
    by_layer = {
        layer: frozenset(
            task for task, _ in marked if quantifier(layer in layers for other, layers in marked if other == task)
        )
        for layer in sorted(set.intersection(*known) if known else ())
    }
    return {layer: tasks for layer, tasks in by_layer.items() if tasks}


def _spared(curves: Sequence[Curve], layer: int, task: str) -> bool:
    """Whether a layer spares a task in every model; where evaluation stopped, its drop does not exceed the effect."""
    cells = [curve.at(layer) for curve in curves if curve.task == task]
    return all(cell is not None and (cell.outcome == "spared" or cell.decided == "not") for cell in cells)


def _less(curves: Sequence[Curve], layer: int, tasks: Iterable[str], other: str) -> bool:
    """Whether every model is shown to lose less of another task at a layer than of the tasks it is marked for."""
    marked = [curve.at(layer) for curve in curves if curve.task in tasks]
    return all(cell is not None and other in {apart.task for apart in cell.apart} for cell in marked)


def _depths(models: Sequence[Sequence[Curve]]) -> list[tuple[str, list[Curve]]]:
    """The curves of at least two models that have as many blocks, by how those are named: `all 4 models of 8 blocks`.

    Models of different depth are told apart: the same number is another place in a model of another depth.
    """
    by_depth: dict[int, list[Sequence[Curve]]] = {}
    for curves in models:
        by_depth.setdefault(max(len(curve.layers) for curve in curves), []).append(curves)
    return [
        (
            ("both models" if len(own) == 2 else f"all {len(own)} models")
            + (f" of {depth} blocks" if len(by_depth) > 1 else ""),
            [curve for curves in own for curve in curves],
        )
        for depth, own in by_depth.items()
        if len(own) > 1
    ]


def places(unit: str, layers: Sequence[int]) -> str:
    """`block 3`, `blocks 0–2 and 5`, `the MLP of block 3`, or an empty string."""
    prefix = "" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of "
    return prefix + wording.numbered("block", layers) if layers else ""


def cut_off(cell: Cell) -> bool:
    """Whether part of a loss may be one of stopping: as many wrong answers as make a warning were cut off."""
    wrong = 1 - (cell.accuracy.value or 0.0)
    return wrong > 0 and cell.truncated >= STOPPING_SHARE * wrong


def under(curve: Curve, cell: Cell) -> str:
    """`without block 2`, `with the MLP of block 3 scaled by 0.5`."""
    return _under(curve, [cell.layer])


def _under(curve: Curve, layers: Sequence[int]) -> str:
    where = places(curve.unit, layers)
    return f"without {where}" if curve.factor == 0 else f"with {where} {wording.changed(curve.factor)}"


def loss(curve: Curve, cell: Cell, on: str = "") -> str:
    """`without block 2 accuracy falls from 90.0 % [59.6, 98.2] to 0.0 % [0.0, 27.8]`; also if it may be stopping."""
    count = wording.item_count(cell.items, cell.decided, curve.drawn)
    before, after = SHARE.text(curve.baseline_of(cell).accuracy), SHARE.text(cell.accuracy)
    text = f"{under(curve, cell)} accuracy{on} falls from {before} to {after}{f' ({count})' if count else ''}"
    if cut_off(cell):
        ended = wording.unended(cell.looped)
        text += f"; {WHOLE_SHARE.text(cell.truncated)} of the answers {ended}: part of the loss may be stopping"
    return text


def _names(tasks: Sequence[str], every: Sequence[str]) -> str:
    return "every task" if len(tasks) == len(every) > 1 else wording.listed(tasks)


def smallest_loss(material: Material) -> str:
    """`Drops under 11 points would be missed.`, the largest over tasks; empty where evaluation stopped."""
    drops = [
        drop
        for _, result in material.summary.results
        for reach in result.sensitivity
        if (drop := smallest_drop(result.items, reach.tests)) is not None
    ]
    return f"Drops under about {WHOLE_POINTS.text(max(drops))} would be missed." if drops else ""
