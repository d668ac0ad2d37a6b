"""What a layer study found, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.wording import STOPPING_SHARE
from lesion.studies.ablation.curves import Curve, View
from lesion.studies.ablation.result import AblationSummary, Cell, Scores


def shared(views: Sequence[View]) -> list[Finding]:
    """What all models share, a finding per unit and factor."""
    return [Finding("", tuple(sentences)) for view in views if view.factor is not None and (sentences := _shared(view))]


def by_model(views: Sequence[View]) -> list[Finding]:
    """Which places each model needs for what."""
    return [finding for view in views for label in view.labels if (finding := _model(view, label)) is not None]


def stopped(summary: AblationSummary) -> list[str]:
    """How much was saved on each model and task, a sentence each; none for a full table."""
    sentences = []
    for model in summary.models:
        for result in model.tasks:
            if result.stopping is None:
                continue
            exceeding = result.decided("exceeds")
            counts = wording.listed(
                [
                    f"{exceeding} {wording.called(True, exceeding)}",
                    f"{result.decided('not')} not",
                    f"{result.decided('open')} open",
                ]
            )
            full = 1 + len(result.cells)
            sentences.append(
                f"{model.model} on {result.task}: {result.answers:,} of {full * result.stopping.items:,} answers, that"
                f" is {result.answers / result.stopping.items:.1f} evaluations of the unedited model instead of"
                f" {full:.1f}; of its cells {counts}."
            )
    return sentences


def decided(summary: AblationSummary) -> list[str]:
    """What the decisions and the numbers beside them say, and what not, a sentence each; none for a full table."""
    results = [result for model in summary.models for result in model.tasks if result.stopping]
    drawn = sorted({result.stopping.items for result in results if result.stopping})
    if not drawn:
        return []
    these = f"these {wording.listed([f'{n:,}' for n in drawn], 'or')} items"
    sentences = [
        f"Exceeds the effect: the drop does, in {these} and beyond them. Whether the place is critical is another"
        " question, which only a full table answers.",
        f"Not: over {these} the drop does not exceed the effect, and that says nothing beyond them;"
        " the interval beside it is about all such items, of which these were drawn.",
    ]
    beyond = sum(
        cell.decided == "not" and cell.drop.high is not None and cell.drop.high > result.stopping.effect
        for result in results
        if result.stopping
        for cell in result.cells
    )
    if beyond:
        sentences.append(
            f"At {wording.counted(beyond, 'cell')} that {'is' if beyond == 1 else 'are'} not, the interval's upper end"
            " exceeds the effect: among all such items the drop may be larger than it."
        )
    sentences.append(
        "A drop tends to overshoot when asking stops because of it: for the size of an effect, run the full table."
    )
    return sentences


def marked_places(curve: Curve) -> str:
    """`block 3`, `blocks 0–2, 5`, `the MLP of block 3`, or an empty string."""
    return _places(curve.unit, [cell.layer for cell in curve.marked])


def _places(unit: str, layers: Sequence[int]) -> str:
    if not layers:
        return ""
    prefix = "" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of "
    blocks = "blocks" if len(layers) > 1 else "block"
    return f"{prefix}{blocks}{wording.SPACE}{wording.layer_runs(layers, last=' and')}"


def _model(view: View, label: str) -> Finding | None:
    curves = [curve for curve in view.curves if curve.label == label and curve.cells]
    if not curves:
        return None
    subject, factor = curves[0].model, curves[0].factor
    if factor != 0:
        subject += f", {_unit(view)} scaled by {factor:g}"
    elif view.unit != "block" or view.factor is None:
        subject += f", {_unit(view)} switched off"
    rare = _selective(curves)
    sentences = tuple(_task(curve, [layer for layer in rare if curve.task in rare[layer]]) for curve in curves)
    headline = _by_tasks(_needed([curves], all), curves, "") if len(curves) > 1 else []
    return Finding(subject, tuple(headline), sentences)


def _unit(view: View) -> str:
    return wording.UNIT_NAMES[view.unit]


def _task(curve: Curve, selective: Sequence[int]) -> str:
    """One task's sentence. Its example is the largest drop, if possible where other tasks lose nothing."""
    if curve.result.baseline.accuracy.value == 0:
        n = wording.counted(curve.items, "item")
        return f"{curve.task} was never answered rightly ({n}), so no cut can show a loss."
    cells = curve.marked
    if not cells:
        whole = "" if not curve.missing and curve.finished else " so far"
        largest = max(curve.cells, key=lambda cell: cell.drop.value or 0.0)
        return (
            f"No {wording.UNIT_NAMES[curve.unit]} {wording.called(curve.stopped)} for {curve.task}{whole}; the largest"
            f" drop is {wording.points(largest.drop.value)} points"
            f" {wording.interval(largest.drop.low, largest.drop.high)}{_stopped_after(curve, largest)} at"
            f" {wording.place('block', largest.layer)}.{_open(curve)}"
        )
    worst = next((cell for cell in cells if cell.layer in selective), cells[0])
    verb = wording.called(curve.stopped, len(cells))
    places = marked_places(curve)
    sentence = (
        f"{places[0].upper()}{places[1:]} {verb} for {curve.task}: without "
        f"{'it' if len(cells) == 1 else wording.place('block', worst.layer)} accuracy falls from "
        f"{_share(curve.baseline_of(worst))} to {_share(worst)}{_on(curve, worst)}"
    )
    wrong = 1 - (worst.accuracy.value or 0.0)
    if wrong > 0 and worst.truncated >= STOPPING_SHARE * wrong:
        sentence += (
            f" (there {wording.percent(worst.truncated, 0)} of the answers {wording.unended(worst.looped)}: "
            "part of the loss may be one of stopping)"
        )
    return f"{sentence}.{_open(curve)}"


def _share(of: Scores) -> str:
    accuracy = of.accuracy
    return f"{wording.percent(accuracy.value)} {wording.interval(accuracy.low, accuracy.high)}".rstrip()


def _on(curve: Curve, cell: Cell) -> str:
    """` on the 24 items asked` where evaluation stopped, ` on all 30 items` where none was left, else nothing."""
    if curve.drawn is None:
        return ""
    every = cell.items == curve.drawn
    return f" on {'all' if every else 'the'} {wording.counted(cell.items, 'item')}{'' if every else ' asked'}"


def _stopped_after(curve: Curve, cell: Cell) -> str:
    """` (n = 24, stopped)` where evaluation stopped, else nothing."""
    stopped = wording.asked(cell.items, cell.decided, curve.drawn)
    return f" ({stopped})" if stopped else ""


def _open(curve: Curve) -> str:
    """A sentence on the places that are not decided, or nothing."""
    undecided = [cell.layer for cell in curve.cells if cell.decided == "open"]
    if not undecided:
        return ""
    places, verb = _places(curve.unit, undecided), "is" if len(undecided) == 1 else "are"
    return f" {places[0].upper()}{places[1:]} {verb} {'left' if curve.finished else 'still'} open."


Needed = dict[int, frozenset[str]]
"""Layer → the tasks it is marked for: critical, or where evaluation stopped, exceeding the effect."""


def _needed(models: Sequence[Sequence[Curve]], quantifier: Callable[[Iterable[bool]], bool]) -> Needed:
    """Layers marked for at least one task, with those tasks, in all (or any) of the models.

    Only layers that were measured, and not left open, on every task of every model count: of others it is not known.
    """
    every = [curve for of_model in models for curve in of_model]
    known = [{cell.layer for cell in curve.cells if cell.decided != "open"} for curve in every]
    measured = set.intersection(*known) if known else set()
    tasks = dict.fromkeys(curve.task for curve in every)
    needed: Needed = {}
    for layer in sorted(measured):
        of_layer = frozenset(
            task
            for task in tasks
            if quantifier(
                any(cell.marked and cell.layer == layer for cell in curve.cells)
                for curve in every
                if curve.task == task
            )
        )
        if of_layer:
            needed[layer] = of_layer
    return needed


def _selective(of_model: Sequence[Curve]) -> Needed:
    """Layers marked for some task of a model and not for another."""
    return {
        layer: tasks
        for layer, tasks in _needed([of_model], all).items()
        if len(tasks) < len({curve.task for curve in of_model})
    }


def _by_tasks(needed: Needed, curves: Sequence[Curve], prefix: str, elsewhere: Needed | None = None) -> list[str]:
    """Sentences like `Block 3 is critical for a and b, not for c.`, the most selective places first.

    Args:
        needed: what the layers are marked for.
        curves: of every task.
        prefix: what the sentence begins with.
        elsewhere: for several models, what the layers are marked for in any of them.
    """
    every = list(dict.fromkeys(curve.task for curve in curves))
    unit = curves[0].unit
    together: dict[tuple[frozenset[str], frozenset[str]], list[int]] = {}
    for layer, tasks in needed.items():
        spared = frozenset(every) - (elsewhere or needed).get(layer, frozenset())
        together.setdefault((tasks, spared), []).append(layer)
    sentences = []
    for (tasks, spared), layers in sorted(together.items(), key=lambda pair: (len(pair[0][0]), pair[1])):
        places = _places(unit, layers)
        verb = wording.called(any(curve.stopped for curve in curves), len(layers))
        names = "every task" if len(tasks) == len(every) > 1 else wording.listed([t for t in every if t in tasks])
        sentence = f"{prefix}{places} {verb} for {names}"
        if spared:
            none = ", and in none of them for " if prefix else ", not for "
            sentence += none + wording.listed([task for task in every if task in spared], "or")
        sentences.append(f"{sentence[0].upper()}{sentence[1:]}.")
    return sentences


def _shared(view: View) -> list[str]:
    """Places marked for the same tasks in every model of the view that has as many blocks; none for a single model.

    Models of different depth are told apart: the same number is another place in a model of another depth.
    """
    models = [[curve for curve in view.curves if curve.label == label] for label in view.labels]
    depths = [max(len(curve.cells) + len(curve.missing) for curve in model) for model in models]
    return [
        sentence
        for depth in dict.fromkeys(depths)
        for sentence in _shared_by(
            [model for model, own in zip(models, depths, strict=True) if own == depth],
            f" of {depth} blocks" if len(set(depths)) > 1 else "",
            view,
        )
    ]


def _shared_by(models: Sequence[Sequence[Curve]], depth: str, view: View) -> list[str]:
    if len(models) < 2:
        return []
    curves = [curve for model in models for curve in model]
    named = f"all {len(models)} models{depth}"
    sentences = _by_tasks(_needed(models, all), curves, f"In {named} ", _needed(models, any))
    cells = [cell for curve in curves for cell in curve.cells]
    if not sentences and any(cell.marked for cell in cells) and all(cell.decided != "open" for cell in cells):
        sentences = [f"No {_unit(view)} {wording.called(view.stopped)} for the same task in {named}."]
    return sentences


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
    gaps = {
        f"{model} on {task}: no cut measured in full yet.": None
        for model, task in planned
        if (model, task) not in measured
    }
    for curve in curves:
        where = f"{curve.model} on {curve.task}"
        if curve.stopped:
            if not curve.finished:
                gaps[f"{where}: not all is decided after {curve.items:,} of {curve.drawn:,} items."] = None
            continue
        how = "" if curve.factor == 0 else f", factor {curve.factor:g}"
        if curve.missing:
            gaps[f"{where}: {_places(curve.unit, curve.missing)}{how} not measured yet."] = None
        edits = {str(BASELINE): "the unedited model"} | {
            cell.edit: _places(curve.unit, [cell.layer]) + how for cell in curve.cells
        }
        for edit, place in edits.items():
            n = answered.get((curve.model, curve.task, edit), curve.items if not answered else 0)
            if 0 < n < curve.items:
                gaps[f"{where}: {place} with {n} of {wording.counted(curve.items, 'item')} so far."] = None
    return list(gaps)
