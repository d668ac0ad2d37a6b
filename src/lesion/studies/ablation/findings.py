"""What a study found, in sentences written from its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lesion.edits.edit import BASELINE
from lesion.report import wording
from lesion.report.finding import Finding
from lesion.report.views import Baseline, Line, Point, Summary, View, lines
from lesion.report.wording import STOPPING_SHARE


def findings(of_views: Sequence[View]) -> list[Finding]:
    """What the cuts did: first what all models share, then which places each needs for what."""
    told: list[Finding] = []
    for view in of_views:
        if view.factor is not None and (shared := _shared(view)):
            told.append(Finding("", tuple(shared)))
        told.extend(found for label in view.labels if (found := _model(view, label)) is not None)
    return told


def stopped(summary: Summary) -> list[str]:
    """What each stopped model and task saved, a sentence each; empty for a full table."""
    told = []
    for model in summary["models"]:
        for task in model["tasks"]:
            found = task.get("stopping")
            if not found:
                continue
            counts = wording.listed(
                [
                    f"{found['exceeds']} {wording.called(True, found['exceeds'])}",
                    f"{found['not']} not",
                    f"{found['open']} open",
                ]
            )
            told.append(
                f"{model['model']} on {task['task']}: {found['answers']:,} of {found['full']:,} answers, that is"
                f" {found['evaluations']:.1f} evaluations of the unedited model instead of"
                f" {found['full'] / found['items']:.1f}; of its cells {counts}."
            )
    return told


def decided(summary: Summary) -> list[str]:
    """What the decisions and the numbers beside them say, and what not, a sentence each; empty for a full table."""
    drawn = sorted({line.drawn for line in lines(summary) if line.drawn is not None})
    if not drawn:
        return []
    these = f"these {wording.listed([f'{n:,}' for n in drawn], 'or')} items"
    told = [
        f"Exceeds the effect: the drop does, in {these} and beyond them. Whether the place is critical is another"
        " question, which only a full table answers.",
        f"Not: over {these} the drop does not exceed the effect, and that says nothing beyond them;"
        " the interval beside it is about all such items, of which these were drawn.",
    ]
    beyond = sum(
        entry["decided"] == "not" and entry["drop_high"] is not None and entry["drop_high"] > task["stopping"]["effect"]
        for model in summary["models"]
        for task in model["tasks"]
        if task.get("stopping")
        for entry in task["layers"]
    )
    if beyond:
        told.append(
            f"At {wording.counted(beyond, 'cell')} that {'is' if beyond == 1 else 'are'} not, the interval's upper end"
            " exceeds the effect: among all such items the drop may be larger than it."
        )
    told.append(
        "A drop tends to overshoot when asking stops because of it: for the size of an effect, run the full table."
    )
    return told


def marked(line: Line) -> list[Point]:
    """The points of a line that are critical, or where asking stopped exceed the effect; the largest drop first."""
    found = [point for point in line.points if point.called]
    return sorted(found, key=lambda point: (-(point.drop or 0.0), point.layer))


def marked_places(line: Line) -> str:
    """`block 3`, `blocks 0–2, 5`, `the MLP of block 3`, or an empty string."""
    return _places(line.unit, [point.layer for point in marked(line)])


def _places(unit: str, layers: Sequence[int]) -> str:
    if not layers:
        return ""
    prefix = "" if unit == "block" else f"the {wording.UNIT_NAMES[unit]} of "
    blocks = "blocks" if len(layers) > 1 else "block"
    return f"{prefix}{blocks}{wording.SPACE}{wording.layer_runs(layers, last=' and')}"


def _model(view: View, label: str) -> Finding | None:
    of_model = [line for line in view.lines if line.label == label and line.points]
    if not of_model:
        return None
    subject, factor = of_model[0].model, of_model[0].factor
    if factor != 0:
        subject += f", {_unit(view)} scaled by {factor:g}"
    elif view.unit != "block" or view.factor is None:
        subject += f", {_unit(view)} switched off"
    rare = _selective(of_model)
    sentences = tuple(_task(line, [layer for layer in rare if line.task in rare[layer]]) for line in of_model)
    headline = _by_tasks(_needed([of_model], all), of_model, "") if len(of_model) > 1 else []
    return Finding(subject, tuple(headline), sentences)


def _unit(view: View) -> str:
    return wording.UNIT_NAMES[view.unit]


def _task(line: Line, selective: Sequence[int]) -> str:
    """One task's sentence. Its example is the largest drop, where other tasks do without if possible."""
    base = line.baseline
    if base.accuracy == 0:
        n = wording.counted(line.items, "item")
        return f"{line.task} was never answered rightly ({n}), so no cut can show a loss."
    found = marked(line)
    if not found:
        whole = "" if not line.missing and line.finished else " so far"
        largest = max(line.points, key=lambda point: point.drop or 0.0)
        return (
            f"No {wording.UNIT_NAMES[line.unit]} {wording.called(line.stopped)} for {line.task}{whole}; the largest"
            f" drop is {wording.points(largest.drop)} points {wording.interval(largest.drop_low, largest.drop_high)}"
            f"{_asked(largest)} at {wording.place('block', largest.layer)}.{_open(line)}"
        )
    worst = next((point for point in found if point.layer in selective), found[0])
    verb = wording.called(line.stopped, len(found))
    places = marked_places(line)
    sentence = (
        f"{places[0].upper()}{places[1:]} {verb} for {line.task}: without "
        f"{'it' if len(found) == 1 else wording.place('block', worst.layer)} accuracy falls from "
        f"{_share(worst.baseline)} to {_share(worst)}{_on(worst)}"
    )
    wrong = 1 - worst.accuracy
    if worst.truncated is not None and wrong > 0 and worst.truncated >= STOPPING_SHARE * wrong:
        sentence += (
            f" (there {wording.percent(worst.truncated, 0)} of the answers {wording.unended(worst.looped)}: "
            "part of the loss may be one of stopping)"
        )
    return f"{sentence}.{_open(line)}"


def _share(of: Baseline | Point) -> str:
    return f"{wording.percent(of.accuracy)} {wording.interval(of.low, of.high)}".rstrip()


def _on(point: Point) -> str:
    """` on the 24 items asked` where asking stopped, ` on all 30 items` where none was left, else nothing."""
    if point.drawn is None:
        return ""
    every = point.items == point.drawn
    return f" on {'all' if every else 'the'} {wording.counted(point.items, 'item')}{'' if every else ' asked'}"


def _asked(point: Point) -> str:
    """` (n = 24, stopped)` where asking stopped, else nothing."""
    told = wording.asked(point.items, point.decided, point.drawn)
    return f" ({told})" if told else ""


def _open(line: Line) -> str:
    """A sentence on the places that asking left undecided, or nothing."""
    undecided = [point.layer for point in line.points if point.decided == "open"]
    if not undecided:
        return ""
    places, verb = _places(line.unit, undecided), "is" if len(undecided) == 1 else "are"
    return f" {places[0].upper()}{places[1:]} {verb} {'left' if line.finished else 'still'} open."


Needed = dict[int, frozenset[str]]
"""Layer → the tasks it is marked for: critical, or where asking stopped, exceeding the effect."""


def _needed(models: Sequence[Sequence[Line]], quantifier: Callable[[Iterable[bool]], bool]) -> Needed:
    """Layers marked for at least one task, with those tasks, in all (or any) of the models.

    Only layers that were measured, and not left open, on every task of every model count: of others it is not known.
    """
    every = [line for of_model in models for line in of_model]
    known = [{point.layer for point in line.points if point.decided != "open"} for line in every]
    measured = set.intersection(*known) if known else set()
    tasks = dict.fromkeys(line.task for line in every)
    found: Needed = {}
    for layer in sorted(measured):
        of_layer = frozenset(
            task
            for task in tasks
            if quantifier(
                any(point.called and point.layer == layer for point in line.points)
                for line in every
                if line.task == task
            )
        )
        if of_layer:
            found[layer] = of_layer
    return found


def _selective(of_model: Sequence[Line]) -> Needed:
    """Layers marked for some task of a model and not for another."""
    return {
        layer: tasks
        for layer, tasks in _needed([of_model], all).items()
        if len(tasks) < len({line.task for line in of_model})
    }


def _by_tasks(needed: Needed, of_lines: Sequence[Line], prefix: str, elsewhere: Needed | None = None) -> list[str]:
    """Sentences like `Block 3 is critical for a and b, not for c.`, the most selective places first.

    Args:
        needed: what the layers are marked for.
        of_lines: lines with every task.
        prefix: what the sentence begins with.
        elsewhere: for several models, what the layers are marked for in any of them.
    """
    every = list(dict.fromkeys(line.task for line in of_lines))
    unit = of_lines[0].unit
    together: dict[tuple[frozenset[str], frozenset[str]], list[int]] = {}
    for layer, tasks in needed.items():
        spared = frozenset(every) - (elsewhere or needed).get(layer, frozenset())
        together.setdefault((tasks, spared), []).append(layer)
    told = []
    for (tasks, spared), layers in sorted(together.items(), key=lambda pair: (len(pair[0][0]), pair[1])):
        places = _places(unit, layers)
        verb = wording.called(any(line.stopped for line in of_lines), len(layers))
        names = "every task" if len(tasks) == len(every) > 1 else wording.listed([t for t in every if t in tasks])
        sentence = f"{prefix}{places} {verb} for {names}"
        if spared:
            none = ", and in none of them for " if prefix else ", not for "
            sentence += none + wording.listed([task for task in every if task in spared], "or")
        told.append(f"{sentence[0].upper()}{sentence[1:]}.")
    return told


def _shared(view: View) -> list[str]:
    """Places marked for the same tasks in every model of the view that has as many blocks; empty for a single model.

    Models of different depth are told apart: the same number is another place in a model of another depth.
    """
    models = [[line for line in view.lines if line.label == label] for label in view.labels]
    depths = [max(len(line.points) + len(line.missing) for line in model) for model in models]
    return [
        sentence
        for depth in dict.fromkeys(depths)
        for sentence in _shared_by(
            [model for model, own in zip(models, depths, strict=True) if own == depth],
            f" of {depth} blocks" if len(set(depths)) > 1 else "",
            view,
        )
    ]


def _shared_by(models: Sequence[Sequence[Line]], depth: str, view: View) -> list[str]:
    if len(models) < 2:
        return []
    lines = [line for model in models for line in model]
    named = f"all {len(models)} models{depth}"
    told = _by_tasks(_needed(models, all), lines, f"In {named} ", _needed(models, any))
    points = [point for line in lines for point in line.points]
    if not told and any(point.called for point in points) and all(point.decided != "open" for point in points):
        told = [f"No {_unit(view)} {wording.called(view.stopped)} for the same task in {named}."]
    return told


def missing(
    of_views: Sequence[View],
    answered: Mapping[tuple[str, str, str], int],
    asked: Iterable[tuple[str, str]] = (),
) -> list[str]:
    """What a study in progress has not measured yet, a sentence per gap; empty when it is complete.

    Args:
        of_views: the figures.
        answered: (model, task, edit) → number of answers; empty where no answers are at hand.
        asked: every (model, task) of the study.
    """
    measured = {(line.model, line.task) for view in of_views for line in view.lines}
    told = {
        f"{model} on {task}: no cut measured in full yet.": None
        for model, task in asked
        if (model, task) not in measured
    }
    for line in (line for view in of_views for line in view.lines):
        where = f"{line.model} on {line.task}"
        if line.stopped:
            if not line.finished:
                told[f"{where}: not all is decided after {line.items:,} of {line.drawn:,} items."] = None
            continue
        if line.baseline.accuracy is None:
            told[f"{where}: the unedited model not measured yet."] = None
        how = "" if line.factor == 0 else f", factor {line.factor:g}"
        if line.missing:
            told[f"{where}: {_places(line.unit, line.missing)}{how} not measured yet."] = None
        edits = {str(BASELINE): "the unedited model"} | {
            point.edit: _places(line.unit, [point.layer]) + how for point in line.points
        }
        for edit, place in edits.items():
            n = answered.get((line.model, line.task, edit), line.items if not answered else 0)
            if 0 < n < line.items:
                told[f"{where}: {place} with {n} of {wording.counted(line.items, 'item')} so far."] = None
    return list(told)
