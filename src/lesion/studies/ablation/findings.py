"""What a layer study found, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import STOPPING_SHARE
from lesion.statistics.detectable import smallest_drop
from lesion.studies.ablation.cell import Cell, Scores
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import WITHOUT_CHAT, AblationSummary, Sensitivity

LEAD = 220
"""A sentence on the first screen names places in so many characters at most; the first group always stands."""
MANY = 4
"""So many tasks without a mark are not listed: a place is marked for the others alone."""
Needed = dict[int, frozenset[str]]
"""Layer → the tasks it is marked for: critical, or where evaluation stopped, exceeding the effect."""


def shared(views: Sequence[View]) -> list[Finding]:
    """What all models share, a finding per unit and factor."""
    findings = []
    for view in views:
        by_depth = [] if view.factor is None else _depths(view).items()
        if sentences := [text for among, curves in by_depth for text in _shared(view, among, curves)]:
            findings.append(Finding("", tuple(sentences)))
    return findings


def leads(view: View) -> list[str]:
    """What models of each depth share, a short sentence per depth that names the blocks which all of them mark.

    Those that are marked for one task alone come first; where there are too many, the rest are counted.
    """
    sentences = []
    for among, curves in _depths(view).items():
        able, untold = _known(curves)
        every = list(dict.fromkeys(curve.task for curve in able))
        groups = []
        for tasks, spared, _, layers in _grouped(able):
            groups.append((len(tasks) + len(spared) == len(every) > len(tasks) and not untold, tasks, layers))
        groups.sort(key=lambda group: not group[0])
        clauses: list[str] = []
        for alone, tasks, layers in groups:
            verb = "" if clauses else f" {wording.called(view.stopped, len(layers))}"
            names = wording.listed(tasks) if untold else _names(tasks, every)
            clause = f"{_places(view.unit, layers)}{verb} for {names}{' alone' if alone else ''}"
            if clauses and len(", ".join([*clauses, clause])) > LEAD:
                rest = sorted(layer for _, _, others in groups[len(clauses) :] for layer in others)
                untold += f"; for {wording.numbered('block', rest)} see below"
                break
            clauses.append(clause)
        lead = f"In {among}{wording.listed(clauses)}{untold}."
        sentences.append(lead if clauses else " ".join(_shared(view, among, curves)))
    return [sentence for sentence in sentences if sentence]


def example(view: View, label: str) -> str:
    """One loss of one of several models: `In base, without block 2 accuracy on sums falls from … to ….`"""
    curves = [curve for curve in view.curves if curve.label == label and curve.cells]
    of_model = _model(view, label)
    if of_model is None:
        return ""
    needed = _needed(curves, all)
    for curve in curves:
        own = [cell for cell in curve.marked if len(needed.get(cell.layer, ())) < len(curves)] or curve.marked
        if own:
            return f"In {of_model.subject}, {_loss(curve, min(own, key=_cut_off), f' on {curve.task}')}."
    return f"{of_model.subject}: {of_model.sentences[0][:1].lower()}{of_model.sentences[0][1:]}"


def unedited(summary: AblationSummary) -> list[Finding]:
    """What unedited models do on tasks of which no cut has been measured yet."""
    findings = []
    for model in summary.models:
        sentences = [
            f"{result.task}: {_accuracy(result.baseline)} right without a cut"
            f" ({wording.counted(result.items, 'item')}); no cut has been measured yet."
            for result in model.tasks
            if not result.cells
        ]
        if sentences:
            findings.append(Finding(model.model, (sentences[0],), tuple(sentences[1:])))
    return findings


def by_model(views: Sequence[View]) -> list[Finding]:
    """Which places each model needs for what."""
    return [finding for view in views for label in view.labels if (finding := _model(view, label)) is not None]


def stopped(summary: AblationSummary) -> list[str]:
    """How much was saved on each model and task, a sentence each; none for a full table."""
    sentences = []
    for model, result in summary.results:
        if result.stopping is None:
            continue
        exceeding = result.decided("exceeds")
        drawn = (1 + len(result.cells)) * result.stopping.items
        sentences.append(
            f"{model} on {result.task}: {result.answers:,} of {drawn:,} answers; cells: {exceeding}"
            f" {wording.called(True, exceeding)}, {result.decided('not')} not, {result.decided('open')} open."
        )
    return sentences


def decided(summary: AblationSummary) -> list[str]:
    """What the decisions and the numbers beside them say, and what not, a sentence each; none for a full table."""
    results = [(result, result.stopping) for _, result in summary.results if result.stopping]
    if not results:
        return []
    drawn = [f"{n:,}" for n in sorted({stopping.items for _, stopping in results})]
    these = f"these {wording.listed(drawn, 'or')} items"
    beyond = sum(
        cell.decided == "not" and cell.drop.high is not None and cell.drop.high > stopping.effect
        for result, stopping in results
        for cell in result.cells
    )
    at = f"At {wording.counted(beyond, 'cell')} that {'is' if beyond == 1 else 'are'} not"
    return [
        f"Exceeds the effect: on {these} and beyond them. Only a full table shows whether the place is critical.",
        f"Not: the drop on {these} does not exceed the effect. Beyond them nothing is claimed; the interval is about"
        " all such items.",
        *([f"{at}, the interval's upper end exceeds the effect."] if beyond else []),
        "Stopping early tends to inflate a drop: for its size, run the full table.",
    ]


def sensitivity(summary: AblationSummary) -> list[str]:
    """How large a loss a full table can find, and which families agree at some shares only."""
    every = [(model, result.task, reach) for model, result in summary.results for reach in result.sensitivity]
    sentences = []
    if losses := sorted(reach.smallest_loss for _, _, reach in every if reach.smallest_loss is not None):
        low, high = (wording.points(loss, 0) for loss in (losses[0], losses[-1]))
        sentences.append(
            f"Smallest loss called critical with {wording.percent(every[0][2].power, 0)} power:"
            f" {low if low == high else f'{low} to {high}'}{wording.SPACE}% of the baseline's accuracy (a cut that"
            " repairs no item, at Holm's first step)."
        )
    if drops := sorted(
        drop
        for _, result in summary.results
        for reach in result.sensitivity
        if (drop := smallest_drop(result.items, reach.tests)) is not None
    ):
        low, high = (wording.points(drop, 1) for drop in (drops[0], drops[-1]))
        sentences.append(
            f"Smallest drop that differs from 0 with {wording.percent(every[0][2].power, 0)} power:"
            f" {low if low == high else f'{low} to {high}'} points (no item repaired, at Holm's first step)."
        )
    by_cut: dict[tuple[str, str, float | str], dict[str, Sensitivity]] = {}
    for model, task, reach in every:
        by_cut.setdefault((task, reach.unit, reach.factor), {})[model] = reach
    for family in summary.invariance.families if summary.invariance else ():
        for (task, unit, factor), models in by_cut.items():
            members = [models[member.model] for member in family.finished if member.model in models]
            if len(members) < 2:
                continue
            at_shares = zip(*(member.shares for member in members), strict=True)
            by_share = [(at[0].share, {each.critical for each in at}) for at in at_shares]
            equal, unequal = (
                [wording.points(share, 0) for share, sets in by_share if (len(sets) == 1) is same]
                for same in (True, False)
            )
            if equal and unequal:
                where = f" ({wording.axis_name(unit, factor)})" if (unit, factor) != ("block", 0.0) else ""
                sentences.append(
                    f"{family.family}, {task}{where}: all {len(members)} models agree at a"
                    f" required loss of {wording.listed(equal, 'or')}{wording.SPACE}%, not at"
                    f" {wording.listed(unequal, 'or')}{wording.SPACE}%."
                )
    return sentences


def marked_places(curve: Curve) -> str:
    """`block 3`, `blocks 0–2, 5`, `the MLP of block 3`, or an empty string."""
    return _places(curve.unit, [cell.layer for cell in curve.marked])


def _places(unit: str, layers: Sequence[int]) -> str:
    if not layers:
        return ""
    prefix = "" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of "
    return prefix + wording.numbered("block", layers)


def _model(view: View, label: str) -> Finding | None:
    curves = [curve for curve in view.curves if curve.label == label and curve.cells]
    if not curves:
        return None
    subject, factor = curves[0].model, curves[0].factor
    if factor != 0:
        subject += f", {wording.UNIT_NAMES[view.unit]} {wording.changed(factor)}"
    elif view.unit != "block" or view.factor is None:
        subject += f", {wording.UNIT_NAMES[view.unit]} switched off"
    able = [curve for curve in curves if not curve.untold]
    needed = _needed(able, all)
    tasks = list(dict.fromkeys(curve.task for curve in able))
    selective = {layer: own for layer, own in needed.items() if own != set(tasks)}
    headline = _by_tasks(able, all_tasks=len(able) == len(curves)) if len(curves) > 1 else []
    unknown = [f"{curve.task} ({curve.untold})" for curve in curves if curve not in able]
    if unknown and tasks and not any(curve.marked for curve in able):
        so_far = " so far" if any(curve.missing or not curve.finished for curve in able) else ""
        none = f"No {wording.some_unit(view.unit)} {wording.unshown(view.stopped)} for {wording.listed(tasks, 'or')}"
        headline = [f"{none}{so_far}."]
    if headline and unknown:
        headline[0] = f"{headline[0].removesuffix('.')}; it cannot be told for {wording.listed(unknown)}."
    sentences = []
    for curve in curves:
        own_layers = {layer for layer, own in selective.items() if curve.task in own}
        named = bool(headline) and all(curve.task in needed.get(cell.layer, ()) for cell in curve.marked)
        sentences.append(_task(curve, own_layers, named=named))
    return Finding(subject, tuple(headline), tuple(sentences))


def _task(curve: Curve, selective: set[int], *, named: bool) -> str:
    """One task's sentence. Its example is the largest drop, if possible where other tasks lose nothing.

    `named`: the headline has named its places already.
    """
    if curve.result.baseline.accuracy.value == 0:
        return (
            f"{curve.task}: the unedited model has none of {wording.counted(curve.items, 'item')} right, so that no cut"
            f" can show a loss.{f' {WITHOUT_CHAT}' if curve.result.without_chat else ''}{_gains(curve)}"
        )
    if curve.needed is not None:
        if curve.result.guessing > 0:
            return f"{curve.task}: cannot be told ({_guessed(curve)}): too few items.{_gains(curve)}"
        return (
            f"{curve.task}: cannot be told ({curve.right} of {curve.items} right); a cut that leaves none right is"
            f" critical from {curve.needed} right on.{_gains(curve)}"
        )
    if curve.untold:
        return f"{curve.task}: cannot be told, since the model hardly does better than guessing ({_guessed(curve)})."
    cells = curve.marked
    undecided = [cell.layer for cell in curve.cells if cell.decided == "open"]
    open_ = f" Open: {_places(curve.unit, undecided)}." if undecided else ""
    largest = max(curve.cells, key=lambda cell: cell.drop.value or 0.0)
    own = [cell for cell in cells if cell.layer in selective] or cells
    # Of a loss with answers that were cut off it is not known whether the skill was lost.
    example = min(own, key=lambda cell: _cut_off(cell)) if own else largest
    count = wording.item_count(example.items, example.decided, curve.drawn)
    items = f" ({count})" if count else ""
    if not cells:
        so_far = "" if not curve.missing and curve.finished else " so far"
        return (
            f"No {wording.some_unit(curve.unit)} {wording.unshown(curve.stopped)} for {curve.task}{so_far}"
            f"{_others(curve)}; largest drop {wording.points(example.drop.value)} points"
            f" {wording.interval(example.drop.low, example.drop.high)}{items} at"
            f" {wording.place('block', example.layer)}.{open_}{_gains(curve)}"
        )
    places = f"{wording.capital(marked_places(curve))} {wording.called(curve.stopped, len(cells))} for {curve.task}"
    return f"{curve.task if named else places}: {_loss(curve, example)}.{open_}{_gains(curve)}"


def _others(curve: Curve) -> str:
    """How many places are spared, and of how many nothing can be told; empty where evaluation stopped."""
    spared = [cell.layer for cell in curve.cells if cell.outcome == "spared"]
    untold = sum(cell.outcome == "cannot be told" for cell in curve.cells)
    if curve.stopped:
        return ""
    if not untold:
        return " (all are spared: each takes less than a quarter)"
    rest = f"of {untold} it cannot be told"
    return f" ({_places(curve.unit, spared)} spared; {rest})" if spared else f" ({rest}, none is spared)"


def _gains(curve: Curve) -> str:
    """A sentence about the places without which accuracy is higher, by their corrected tests; empty without any."""
    gained = sorted(
        (cell for cell in curve.cells if cell.gained), key=lambda cell: (cell.drop.value or 0.0, cell.layer)
    )
    if not gained:
        return ""
    best = gained[0]
    more = f"; so it does at {_places(curve.unit, [cell.layer for cell in gained[1:]])}" if len(gained) > 1 else ""
    return (
        f" {wording.capital(_under(curve, best))} accuracy rises from {_accuracy(curve.baseline_of(best))} to"
        f" {_accuracy(best)} (corrected p{wording.SPACE}{wording.p_value(best.drop.p_corrected)}){more}."
    )


def _cut_off(cell: Cell) -> bool:
    """Whether part of a loss may be one of stopping: as many wrong answers as make a warning were cut off."""
    wrong = 1 - (cell.accuracy.value or 0.0)
    return wrong > 0 and cell.truncated >= STOPPING_SHARE * wrong


def _under(curve: Curve, cell: Cell) -> str:
    """`without block 2`, `with the MLP of block 3 scaled by 0.5`."""
    changed = f"{'' if curve.unit == 'block' else 'the '}{wording.place(curve.unit, cell.layer)}"
    return f"without {changed}" if curve.factor == 0 else f"with {changed} {wording.changed(curve.factor)}"


def _guessed(curve: Curve) -> str:
    return f"{curve.right:,} of {curve.items:,} right, guessing gives {wording.percent(curve.result.guessing, 0)}"


def _loss(curve: Curve, cell: Cell, on: str = "") -> str:
    """`without block 2 accuracy falls from 90.0 % [59.6, 98.2] to 0.0 % [0.0, 27.8]`; also if it may be stopping."""
    count = wording.item_count(cell.items, cell.decided, curve.drawn)
    text = (
        f"{_under(curve, cell)} accuracy{on} falls from"
        f" {_accuracy(curve.baseline_of(cell))} to {_accuracy(cell)}{f' ({count})' if count else ''}"
    )
    if _cut_off(cell):
        text += (
            f"; {wording.percent(cell.truncated, 0)} of the answers {wording.unended(cell.looped)}: part of the"
            " loss may be stopping"
        )
    return text


def _accuracy(scores: Scores | Cell) -> str:
    accuracy = scores.accuracy
    return f"{wording.percent(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}".rstrip()


def _needed(curves: Sequence[Curve], quantifier: Callable[[Iterable[bool]], bool]) -> Needed:
    """Layers marked for at least one task, with those tasks, in all (or any) of the models.

    Only layers that were measured, and not left open, on every task of every model count: of others it is not known.
    """
    known = [{cell.layer for cell in curve.cells if cell.decided != "open"} for curve in curves]
    marked = [(curve.task, {cell.layer for cell in curve.cells if cell.marked}) for curve in curves]
    needed = {
        layer: frozenset(
            task for task, _ in marked if quantifier(layer in layers for other, layers in marked if other == task)
        )
        for layer in sorted(set.intersection(*known) if known else ())
    }
    return {layer: tasks for layer, tasks in needed.items() if tasks}


def _by_tasks(curves: Sequence[Curve], prefix: str = "", *, all_tasks: bool = True) -> list[str]:
    """Sentences like `Block 3 is critical for a and b, not for c.`, the most selective places first.

    `all_tasks`: whether the curves are of every task of the study.
    """
    every = list(dict.fromkeys(curve.task for curve in curves))
    sentences = []
    for tasks, spared, less, layers in _grouped(curves):
        verb = wording.called(any(curve.stopped for curve in curves), len(layers))
        names = _names(tasks, every) if all_tasks else wording.listed(tasks)
        sentence = f"{prefix}{_places(curves[0].unit, layers)} {verb} for {names}"
        unknown = [task for task in every if task not in {*tasks, *spared, *less}]
        if all_tasks and len(spared) >= MANY and len(tasks) + len(spared) == len(every):
            sentence += " alone"
        elif spared:
            sentence += (", in none for " if prefix else ", not for ") + wording.listed(spared, "or")
        if less:
            take, them = "takes" if len(layers) == 1 else "take", "it" if len(tasks) == 1 else "each"
            sentence += f", and {take} more of {them} than of {wording.listed(less, 'or')}"
        sentence += f"; for {wording.listed(unknown)} it cannot be told" if unknown else ""
        sentences.append(f"{wording.capital(sentence)}.")
    return sentences


def _grouped(curves: Sequence[Curve]) -> list[tuple[list[str], list[str], list[str], list[int]]]:
    """Layers that every model marks for the same tasks: these, tasks they spare, tasks shown to lose less, the layers.

    The most selective come first.
    """
    every = list(dict.fromkeys(curve.task for curve in curves))
    together: dict[tuple[frozenset[str], frozenset[str], frozenset[str]], list[int]] = {}
    for layer, tasks in _needed(curves, all).items():
        spared = frozenset(task for task in every if _spared(curves, layer, task))
        less = frozenset(task for task in every if task not in tasks | spared and _less(curves, layer, tasks, task))
        together.setdefault((tasks, spared, less), []).append(layer)
    groups = sorted(together.items(), key=lambda pair: (len(pair[0][0]), pair[1]))

    def named(tasks: frozenset[str]) -> list[str]:
        return [task for task in every if task in tasks]

    return [(named(tasks), named(spared), named(less), layers) for (tasks, spared, less), layers in groups]


def _spared(curves: Sequence[Curve], layer: int, task: str) -> bool:
    """Whether a layer spares a task in every model; where evaluation stopped, its drop does not exceed the effect."""
    cells = [curve.at(layer) for curve in curves if curve.task == task]
    return all(cell is not None and (cell.outcome == "spared" or cell.decided == "not") for cell in cells)


def _less(curves: Sequence[Curve], layer: int, tasks: Iterable[str], other: str) -> bool:
    """Whether every model is shown to lose less of another task at a layer than of the tasks it is marked for."""
    marked = [curve.at(layer) for curve in curves if curve.task in tasks]
    return all(cell is not None and other in {apart.task for apart in cell.apart} for cell in marked)


def _names(tasks: Sequence[str], every: Sequence[str]) -> str:
    return "every task" if len(tasks) == len(every) > 1 else wording.listed(tasks)


def _depths(view: View) -> dict[str, list[Curve]]:
    """The curves of at least two models that have as many blocks, by how those are named: `all 4 models of 8 blocks, `.

    Models of different depth are told apart: the same number is another place in a model of another depth.
    """
    by_depth: dict[int, list[list[Curve]]] = {}
    for label in view.labels:
        model = [curve for curve in view.curves if curve.label == label]
        by_depth.setdefault(max(len(curve.layers) for curve in model), []).append(model)
    depths = {}
    for depth, models in by_depth.items():
        if len(models) > 1:
            number = "both" if len(models) == 2 else f"all {len(models)}"
            named = f"{number} models" + (f" of {depth} blocks, " if len(by_depth) > 1 else " ")
            depths[named] = [curve for model in models for curve in model]
    return depths


def _known(curves: Sequence[Curve]) -> tuple[list[Curve], str]:
    """The curves of tasks that every model can do, and the end of a sentence that says which tasks one cannot.

    Of a task that one of the models cannot do, nothing is known for that model.
    """
    unknown = {curve.task: None for curve in curves if curve.untold}
    untold = f"; it cannot be told for {_unable(unknown, curves)}" if unknown else ""
    return [curve for curve in curves if curve.task not in unknown], untold


def _shared(view: View, among: str, curves: Sequence[Curve]) -> list[str]:
    """Places marked for the same tasks in every one of the models, or that there is none."""
    able, untold = _known(curves)
    sentences = _by_tasks(able, f"In {among}", all_tasks=not untold)
    cells = [cell for curve in able for cell in curve.cells]
    if not sentences and any(cell.marked for cell in cells) and all(cell.decided != "open" for cell in cells):
        what = wording.some_unit(view.unit)
        sentences = [f"No {what} {wording.unshown(view.stopped)} for the same task in {among.rstrip(', ')}."]
    if sentences:
        sentences[0] = f"{sentences[0].removesuffix('.')}{untold}."
    return sentences


def _unable(tasks: Iterable[str], curves: Sequence[Curve]) -> str:
    """Tasks with the models whose right answers tell nothing: `facts in base (3 of 20 right)`."""
    parts = []
    for task in tasks:
        own = [curve for curve in curves if curve.task == task and curve.untold]
        where = f"{len(own)} models" if len(own) > 2 else ""
        where = where or wording.listed([f"{each.model} ({each.untold})" for each in own])
        parts.append(f"{task} in {where}")
    return wording.listed(parts)


def missing(
    views: Sequence[View],
    answered: Mapping[tuple[str, str, str], int],
    planned: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """What a study in progress has not measured yet, a sentence per gap; none when it is complete.

    Args:
        views: what is drawn.
        answered: (model, task, edit) → number of answers; empty where no answers are at hand.
        planned: every (model, task) of the study.
    """
    curves = [curve for view in views for curve in view.curves]
    measured = {(curve.model, curve.task) for curve in curves}
    gaps = [f"{model} on {task}: no cut measured in full." for model, task in planned if (model, task) not in measured]
    for curve in curves:
        where = f"{curve.model} on {curve.task}"
        if curve.stopped:
            if not curve.finished:
                gaps.append(f"{where}: not decided after {curve.items:,} of {curve.drawn:,} items.")
            continue
        how = "" if curve.factor == 0 else f", {wording.changed(curve.factor)}"
        if curve.missing:
            gaps.append(f"{where}: {_places(curve.unit, curve.missing)}{how} not measured.")
        edits = {str(BASELINE): "the unedited model"}
        edits |= {cell.edit: _places(curve.unit, [cell.layer]) + how for cell in curve.cells}
        for edit, place in edits.items():
            n = answered.get((curve.model, curve.task, edit), curve.items if not answered else 0)
            if 0 < n < curve.items:
                gaps.append(f"{where}: {place}: {n} of {wording.counted(curve.items, 'item')}.")
    return list(dict.fromkeys(gaps))
