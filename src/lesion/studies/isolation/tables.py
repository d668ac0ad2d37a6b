"""The tables of an isolation and its evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lesion.core.values import Estimate
from lesion.report import wording
from lesion.report.table import Column, Table, decimals
from lesion.studies.isolation.evaluation import (
    Baseline,
    EditedModel,
    EvaluatedTask,
    Evaluation,
    RandomControls,
    TaskUnderEdit,
)
from lesion.studies.isolation.result import Isolation, IsolationSummary, Selected, selection_name

Row = Mapping[str, Any]
KINDS = {"generate": "generated", "choose": "multiple choice", "score": "running text"}
SELECTION = ("method", "keep", "samples", "repeat", "label", "edit", "digest")
MATRIX = ("block", "matrix", "selected", "total")
OVERLAP = ("method", "keep", "samples", "repeats", "mean", "low", "high", "chance")
EDIT = (
    *("edit", "label", "method", "keep", "samples", "repeat", "factor", "random_of", "seed"),
    *("selected", "total", "share", "achieved"),
)
TASK = ("task", "role", "kind", "items", "chance")
CELL = (
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *("truncated", "looped", "unparsed", "nonfinite", "perplexity", "ratio", "ratio_low", "ratio_high"),
)
RANDOM = ("draws", "accuracy", "perplexity", "lowest", "highest", "drop", "beyond", "beyond_low", "beyond_high")
BASELINE = ("accuracy", "perplexity", "low", "high", "truncated", "looped", "unparsed", "nonfinite")
WEIGHTS = Column("selected", "Weights")


def matrices(isolation: Isolation) -> Table:
    """One row per selection and matrix, with the share selected in 0…1: `selections.csv`."""
    rows = [
        _selection(selection)
        | {name: getattr(matrix, name) for name in MATRIX}
        | {"share": matrix.selected / matrix.total if matrix.total else None}
        for selection in isolation.selections
        for matrix in selection.matrices
    ]
    frame = pd.DataFrame(rows, columns=[*SELECTION, *MATRIX, "share"])
    whole = {"block": "Int64", "samples": "Int64", "repeat": "Int64"}  # the head has no block
    return Table("selections", frame.astype(whole))


def _selection(selection: Selected) -> dict[str, Any]:
    return {name: getattr(selection, name) for name in SELECTION if name != "edit"} | {"edit": selection.file}


def selections(isolation: Isolation) -> Table:
    """One row per selection."""
    rows = [
        {"name": name, "selected": selection.selected, "total": selection.total, "share": selection.share}
        | _selection(selection)
        for name, selection in zip(isolation.names, isolation.selections, strict=True)
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("name", "Selection", number=False),
            Column("keep", "Keep", wording.keep),
            Column("samples", "Texts"),
            Column("repeat", "Repeat"),
            Column("selected", "Selected"),
            Column("total", "Of"),
            Column("share", "Share", lambda share: wording.percent(share, 3)),
            Column("edit", "File", number=False),
        ),
        title="The selections",
        caption="Per block and matrix, unrounded: selections.csv.",
    )


def texts(isolation: Isolation) -> Table:
    """One row per data set and draw of calibration texts."""
    return Table(
        "",
        pd.DataFrame([entry.model_dump() for entry in isolation.texts]),
        (
            Column("data", "Data", number=False),
            Column("role", "Role", number=False),
            Column("style", "Style", number=False),
            Column("samples", "Texts drawn"),
            Column("repeat", "Repeat"),
            Column("texts", "Distinct texts"),
            Column("tokens", "Tokens"),
            Column("cut", "Cut to the context"),
        ),
        title="Calibration texts",
    )


def coverage(isolation: Isolation) -> Table:
    """What was not scored, by name and reason; what was, summed up by kind of matrix."""
    rows: list[dict[str, Any]] = [
        {"name": entry.name, "scored": "no", "reason": entry.reason, "matrices": 1, "weights": entry.weights}
        for entry in isolation.coverage
        if not entry.scored
    ]
    kinds: dict[str, list[int]] = {}
    for entry in isolation.coverage:
        if entry.scored:
            counts = kinds.setdefault(entry.kind, [0, 0])
            counts[0] += 1
            counts[1] += entry.weights
    rows += [
        {"name": kind, "scored": "yes", "reason": "", "matrices": count, "weights": weights}
        for kind, (count, weights) in kinds.items()
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("name", "Parameter or kind of matrix", number=False),
            Column("scored", "Scored", number=False),
            Column("reason", "Why not", number=False),
            Column("matrices", "Matrices"),
            Column("weights", "Weights"),
        ),
        title="Coverage",
    )


def overlap(isolation: Isolation) -> Table:
    """One row per method, keep and number of samples; `iou` lists the pairs with spaces between: `overlap.csv`."""
    rows = [
        {"method": one.method, "keep": one.keep, "samples": one.samples, "repeats": one.repeats}
        | {"mean": one.mean.value, "low": one.mean.low, "high": one.mean.high, "chance": one.chance}
        | {"iou": " ".join("nan" if pair is None else f"{pair:.6g}" for pair in one.iou)}
        for one in isolation.overlaps
    ]
    return Table(
        "overlap" if rows else "",
        pd.DataFrame(rows, columns=[*OVERLAP, "iou"]),
        (
            Column("method", "Selection", row=lambda row: selection_name(row["method"], row["keep"]), number=False),
            Column("samples", "Texts"),
            Column("repeats", "Repeats"),
            Column("mean", "Mean IoU", row=_mean_text),
            Column("iou", "Pairs", row=_pairs_text, number=False),
            Column("chance", "By chance", decimals(3)),
        ),
        title="Overlap of repeats",
        caption="Brackets: the interval of the mean by the jackknife over repeats, from three repeats on. Pairs: those"
        " that agree least and most.",
    )


def _mean_text(row: Row) -> str:
    three = decimals(3)
    interval = "" if row["low"] is None else f" [{three(row['low'])},{wording.SPACE}{three(row['high'])}]"
    return three(row["mean"]) + interval


def _pairs_text(row: Row) -> str:
    pairs = sorted(float(pair) for pair in row["iou"].split() if pair != "nan")
    return f"{pairs[0]:.3f} to {pairs[-1]:.3f}" if len(pairs) > 1 else "one pair" if pairs else wording.DASH


def evaluation(summary: IsolationSummary) -> Table:
    """One row per task and edit with the baseline and the random controls beside it: `evaluation.csv`.

    Accuracies, drops and rates in 0…1; missing where not known or not of that kind of task.
    """
    found = summary.evaluation
    rows = [
        _task_row(task) | _edit_row(found.by_edit[cell.edit]) | _cell_row(task, cell)
        for task in (found.tasks if found else ())
        for cell in task.cells
        if found is not None
    ]
    added = [*(f"random_{name}" for name in RANDOM), *(f"baseline_{name}" for name in BASELINE)]
    return Table("evaluation", pd.DataFrame(rows, columns=[*TASK, *EDIT, *CELL, *added]))


def _task_row(task: EvaluatedTask) -> dict[str, Any]:
    return {"task": task.name} | {name: getattr(task, name) for name in TASK[1:]}


def _edit_row(edit: EditedModel) -> dict[str, Any]:
    return {name: getattr(edit, name) for name in EDIT}


def _cell_row(task: EvaluatedTask, cell: TaskUnderEdit) -> dict[str, Any]:
    change = "ratio" if task.scored else "drop"
    random = _random_row(task, cell.random)
    return (
        _result_row(task, cell.result)
        | _estimate_row(change, cell.change)
        | {"p": cell.change.p, "p_corrected": cell.change.p_corrected}
        | cell.rates.model_dump()
        | {f"random_{name}": value for name, value in random.items()}
        | {f"baseline_{name}": value for name, value in _baseline_row(task, task.baseline).items()}
    )


def _result_row(task: EvaluatedTask, result: Estimate) -> dict[str, Any]:
    return {"perplexity" if task.scored else "accuracy": result.value, "low": result.low, "high": result.high}


def _estimate_row(name: str, estimate: Estimate) -> dict[str, Any]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _random_row(task: EvaluatedTask, random: RandomControls | None) -> dict[str, Any]:
    if random is None:
        return {}
    mean = {"perplexity" if task.scored else "accuracy": random.mean}
    own = {"draws": random.draws, "lowest": random.lowest, "highest": random.highest, "drop": random.drop}
    return own | mean | _estimate_row("beyond", random.beyond)


def _baseline_row(task: EvaluatedTask, baseline: Baseline) -> dict[str, Any]:
    return _result_row(task, baseline.result) | baseline.rates.model_dump()


def cells(evaluation: Evaluation) -> Table:
    """Every task under every edit that is no random control and has a finite result, as the page shows them."""
    rows: list[dict[str, Any]] = []
    for task in evaluation.tasks:
        for edit in evaluation.tried:
            effect = task.effects.get(edit.edit)
            if effect is None:
                continue
            random = effect.random
            rows.append(
                {"task": task.name, "method": edit.method_name, "repeat": edit.repeat, "keep": edit.keep}
                | {"factor": edit.factor, "achieved": edit.achieved, "selected": edit.selected, "scored": task.scored}
                | _estimate_row("result", effect.result) | _estimate_row("change", effect.change)
                | {"random": random and random.mean, "random_low": random and random.lowest}
                | {"random_high": random and random.highest}
                | _estimate_row("beyond", random.beyond if random else Estimate(value=None))
                | {"p": effect.change.p, "p_corrected": effect.change.p_corrected} | effect.rates.model_dump()
            )  # fmt: skip
    frame = pd.DataFrame(rows)
    nonfinite = bool(rows) and bool(frame["nonfinite"].fillna(0).any())
    percent = wording.percent
    return Table(
        "",
        frame,
        (
            Column("task", "Task", number=False),
            Column("method", "Method", number=False, row=_method_text),
            Column("keep", "Keep", lambda keep: wording.DASH if keep is None else wording.keep(keep)),
            Column("factor", "Factor", row=_factor_text),
            Column("result", "Result", row=lambda row: _number_text(row, "result")),
            Column("change", "Drop or ratio", row=_change_text),
            Column("random", "Random", row=lambda row: _number_text(row, "random")),
            Column("beyond", "Beyond random", row=_beyond_text),
            Column("p_corrected", "p corrected", wording.p_value),
            Column("p", "p", wording.p_value),
            Column("truncated", "Truncated", row=lambda row: wording.truncated(row["truncated"], row["looped"])),
            Column("unparsed", "Unparsed", percent),
            *([Column("nonfinite", "Not finite", percent)] if nonfinite else []),
            WEIGHTS,
        ),
        title="Every task under every edit",
        caption=_broken(evaluation),
    )


def _broken(evaluation: Evaluation) -> str:
    broken = [
        f"{task.name} under {edit.name}"
        for task in evaluation.tasks
        for edit in evaluation.tried
        if edit.edit in task.broken
    ]
    text = "The same numbers, unrounded and with every random draw: evaluation.csv."
    return f"Left out, since the result is not a finite number: {'; '.join(broken)}. {text}" if broken else text


def _method_text(row: Row) -> str:
    return str(row["method"]) + (f", repeat{wording.SPACE}{row['repeat']:.0f}" if row["repeat"] else "")


def _factor_text(row: Row) -> str:
    text, reached = f"{row['factor']:g}", row["achieved"]
    return text if reached is None or abs(reached - row["factor"]) <= 1e-6 else f"{text} ({reached:.6g} reached)"


def _number_text(row: Row, name: str) -> str:
    """An accuracy in percent or a perplexity, with its interval or ends."""
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return wording.DASH
    if row["scored"]:
        return f"{wording.perplexity(value)} {wording.plain_interval(low, high)}".rstrip()
    return f"{wording.points(value)} {wording.interval(low, high)}".rstrip()


def _change_text(row: Row) -> str:
    if row["change"] is not None and row["scored"]:
        return f"×{row['change']:.3f} {wording.plain_interval(row['change_low'], row['change_high'])}".rstrip()
    return _number_text(dict(row) | {"scored": False}, "change")


def _beyond_text(row: Row) -> str:
    return _number_text(dict(row) | {"scored": False}, "beyond")


def unedited(evaluation: Evaluation, *, loops: bool) -> Table:
    """The unedited model on every task; `loops`: whether answers were ended in loops."""
    rows = [
        {"task": task.name, "role": task.role, "kind": KINDS.get(task.kind, task.kind), "items": task.items}
        | {"scored": task.scored, "chance": task.chance, "informative": task.informative}
        | _estimate_row("result", task.baseline.result) | task.baseline.rates.model_dump()
        for task in evaluation.tasks
    ]  # fmt: skip
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("task", "Task", number=False),
            Column("role", "Role", number=False),
            Column("kind", "Kind", number=False),
            Column("items", "Items"),
            Column("result", "Unedited", row=lambda row: _number_text(row, "result")),
            Column("chance", "Chance", row=_chance_text),
            Column("truncated", "Truncated", row=lambda row: wording.truncated(row["truncated"], row["looped"])),
            Column("unparsed", "Unparsed", wording.percent),
        ),
        title="The unedited model",
        caption="The unedited model: accuracy in %, or perplexity of running text. Truncated: the answer hit the token"
        f" limit{', or was ended in a loop (looped)' if loops else ''}. Unparsed: no answer could be read from it.",
    )


def _chance_text(row: Row) -> str:
    known = wording.percent(row["chance"], 0)
    unable = row["role"] == "control" and not row["scored"] and not row["informative"]
    return f"{known}, uninformative" if unable else known


def selectivity(evaluation: Evaluation) -> Table:
    """The drop on the skill minus the drop on every control, of every edit that is no random control."""
    tried = {edit.edit for edit in evaluation.tried}
    rows = [
        {"edit": evaluation.name_of(one.edit), "skill": one.skill, "control": one.control, "scored": False}
        | _estimate_row("difference", one.difference)
        for one in evaluation.selectivity
        if one.edit in tried
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("edit", "Edit", number=False),
            Column("skill", "Skill", number=False),
            Column("control", "Control", number=False),
            Column("difference", "Difference", row=lambda row: _number_text(row, "difference")),
        ),
        title="Skill against control",
        caption="The drop on the skill minus the drop on the control, in percentage points. Above 0: the skill loses"
        " more.",
    )


def candidates(evaluation: Evaluation) -> Table:
    """The edits among which one was chosen on validation items."""
    choice = evaluation.choice
    rows = [
        {"edit": evaluation.name_of(one.edit), "accuracy": one.accuracy, "mean_control": one.mean_control}
        | {"chosen": "chosen" if choice and one.edit == choice.chosen else ""}
        for one in (choice.candidates if choice else ())
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("edit", "Edit", number=False),
            Column("accuracy", "Accuracy, validation", wording.percent),
            Column("mean_control", "Mean of controls", wording.percent),
            Column("chosen", "Chosen", number=False),
        ),
        title="Candidates",
        caption=f"On {choice.validation_items} validation items of {choice.skill}. {choice.rule}" if choice else "",
        mark=lambda row: bool(row["chosen"]),
    )
