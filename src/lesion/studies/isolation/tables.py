"""The tables of an isolation and its evaluation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lesion.core import clustered_intervals
from lesion.report import wording
from lesion.report.forms import decimals
from lesion.report.table import Column, Table, plain_columns
from lesion.studies.isolation.evaluation import Evaluation
from lesion.studies.isolation.result import Excluded, Isolation, IsolationSummary, Selected, selection_name

Row = Mapping[str, Any]
KINDS = {"generate": "generated", "choose": "multiple choice", "score": "running text"}
SELECTION = ("method", "keep", "samples", "repeat", "label", "edit", "digest")
MATRIX = ("block", "matrix", "selected", "total")
OVERLAP = ("method", "keep", "samples", "repeats", "mean", "low", "high", "chance", "iou")
TASK = ("task", "role", "kind", "items", "chance")
EDIT = (
    *("edit", "label", "method", "keep", "samples", "repeat", "factor", "random_of", "matched_in", "seed"),
    *("selected", "total", "share", "achieved", "size"),
)
RATES = ("truncated", "looped", "unclosed", "unparsed", "nonfinite")
EVALUATION = (
    *TASK,
    *EDIT,
    *("accuracy", "low", "high", "drop", "drop_low", "drop_high", "p", "p_corrected"),
    *RATES,
    *("perplexity", "ratio", "ratio_low", "ratio_high"),
    *("random_draws", "random_accuracy", "random_perplexity", "random_lowest", "random_highest", "random_drop"),
    *("random_beyond", "random_beyond_low", "random_beyond_high"),
    *("baseline_accuracy", "baseline_perplexity", "baseline_low", "baseline_high"),
    *(f"baseline_{rate}" for rate in RATES),
    *clustered_intervals.COLUMNS,
)


def _normalized(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Nested values as columns named by their paths; an estimate is `change`, `change_low`, `change_high`, …"""
    return pd.json_normalize(rows, sep="_").rename(columns=lambda name: name.removesuffix("_value"))


def matrices(isolation: Isolation) -> Table:
    """One row per selection and matrix, with the share selected in 0…1: `selections.csv`."""
    rows = [
        _selection(selection) | matrix.model_dump() | {"share": matrix.share}
        for selection in isolation.selections
        for matrix in selection.matrices
    ]
    frame = pd.DataFrame(rows, columns=[*SELECTION, *MATRIX, "share"])
    whole = {"block": "Int64", "samples": "Int64", "repeat": "Int64"}  # the head has no block
    return Table("selections", frame.astype(whole))


def _selection(selection: Selected) -> dict[str, object]:
    return selection.model_dump(exclude={"matrices", "file"}) | {"edit": selection.file}


def selections(isolation: Isolation) -> Table:
    """One row per selection, with the mean overlap of its repeats."""
    agreements = {(pair.method, pair.keep, pair.samples): pair.mean.value for pair in isolation.agreements}
    rows = [
        {"name": name, "selected": selection.selected, "total": selection.total, "share": selection.share}
        | {"overlap": agreements.get((selection.method, selection.keep, selection.samples))}
        | _selection(selection)
        for name, selection in zip(isolation.names, isolation.selections, strict=True)
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("name", "Selection", number=False),
            Column("keep", "Share", wording.keep),
            *plain_columns(samples="Texts", repeat="Repeat", selected="Selected", total="Of"),
            Column("share", "Share", lambda share: wording.percent(share, 3)),
            Column("overlap", "Overlap of repeats", decimals(2)),
            Column("edit", "File", number=False),
        ),
        title=f"{isolation.model} · selected for {isolation.study.skill}",
        caption="Per block and matrix, unrounded: selections.csv.",
    )


def super_weights(isolation: Isolation, excluded: Excluded) -> Table:
    """One row per excluded super weight, with the selections that had held it: `super-weights.csv`."""
    named = list(zip(isolation.names, isolation.selections, strict=True))
    rows = [
        weight.model_dump()
        | {"weight": weight.name}
        | {"selected_by": "; ".join(name for name, selection in named if place in selection.super_weights)}
        for place, weight in enumerate(excluded.weights)
    ]
    return Table(
        "super-weights",
        pd.DataFrame(rows),
        (
            Column("weight", "Weight", number=False),
            Column("value", "Value", decimals(3)),
            Column("product", "Product", decimals(1)),
            Column("largest_input", "Largest input", decimals(1)),
            Column("largest_output", "Largest output", decimals(1)),
            Column("spike", "Spike", lambda spike: "yes" if spike else "no", number=False),
            Column("selected_by", "Selected before by", lambda names: names or wording.DASH, number=False),
        ),
        title="Excluded super weights",
        caption="Rows and columns are outputs and inputs of the matrix. Product: |value| times the largest magnitude of"
        " its input. Spike: input and output are the largest of their matrix, the rule of Yu et al. (2024).",
    )


def texts(isolation: Isolation) -> Table:
    """One row per data set and draw of calibration texts."""
    names = plain_columns(number=False, data="Data", role="Role", style="Style")
    counts = plain_columns(samples="Texts drawn", repeat="Repeat", texts="Distinct texts", tokens="Tokens")
    frame = pd.DataFrame([entry.model_dump() for entry in isolation.texts])
    return Table("", frame, (*names, *counts, Column("cut", "Cut to the context")), title="Calibration texts")


def coverage(isolation: Isolation) -> Table:
    """What was not scored, by name and reason; what was, summed up by kind of matrix."""
    rows = [
        (entry.kind if entry.scored else entry.name, "yes" if entry.scored else "no", entry.reason, 1, entry.weights)
        for entry in isolation.coverage
    ]
    names = ["name", "scored", "reason", "matrices", "weights"]
    frame = pd.DataFrame(rows, columns=names).sort_values("scored", kind="stable")
    return Table(
        "",
        frame.groupby(names[:3], sort=False, as_index=False).sum(),
        (
            *plain_columns(number=False, name="Parameter or kind of matrix", scored="Scored", reason="Why not"),
            *plain_columns(matrices="Matrices", weights="Weights"),
        ),
        title="Coverage",
    )


def overlap(isolation: Isolation) -> Table:
    """One row per method, keep and number of samples; `iou` lists the pairs with spaces between: `overlap.csv`."""
    rows = [
        overlap.model_dump(exclude={"mean"})
        | {"mean": overlap.mean.value, "low": overlap.mean.low, "high": overlap.mean.high}
        | {"iou": " ".join("nan" if pair is None else f"{pair:.6g}" for pair in overlap.iou)}
        for overlap in isolation.overlaps
    ]
    return Table(
        "overlap" if rows else "",
        pd.DataFrame(rows, columns=list(OVERLAP)),
        (
            Column("method", "Selection", row=lambda row: selection_name(row["method"], row["keep"]), number=False),
            *plain_columns(samples="Texts", repeats="Repeats"),
            Column("mean", "Mean IoU", row=_mean_text),
            Column("iou", "Pairs", row=_pairs_text, number=False),
            Column("chance", "By chance", decimals(3)),
        ),
        title="Overlap of repeats",
        caption="Brackets: jackknife interval of the mean, from three repeats on. Pairs: those that agree least and"
        " most.",
    )


def _mean_text(row: Row) -> str:
    three = decimals(3)
    interval = "" if row["low"] is None else f" [{three(row['low'])},{wording.SPACE}{three(row['high'])}]"
    return three(row["mean"]) + interval


def _pairs_text(row: Row) -> str:
    pairs = sorted(float(pair) for pair in row["iou"].split() if pair != "nan")
    return f"{pairs[0]:.3f} to {pairs[-1]:.3f}" if len(pairs) > 1 else "one pair" if pairs else wording.DASH


def main(summary: IsolationSummary) -> Table:
    """What was evaluated; where nothing was, what was selected of every matrix."""
    if summary.evaluation is None and summary.isolation is not None:
        return matrices(summary.isolation)
    return evaluation(summary)


def evaluation(summary: IsolationSummary) -> Table:
    """One row per task and edit with the baseline and the random controls beside it: `evaluation.csv`.

    Accuracies, drops and rates in 0…1; missing where not known or not of that kind of task.
    """
    if summary.evaluation is None:
        return Table("evaluation", pd.DataFrame(columns=EVALUATION))
    measured = _measured(summary.evaluation)
    scored = measured["kind"] == "score"
    frame = measured.rename(columns=lambda name: re.sub(r"result_|rates_|change_(?=p)", "", name))
    frame = frame.rename(columns={"random_low": "random_lowest", "random_high": "random_highest"})
    for result, change, own in (("accuracy", "drop", ~scored), ("perplexity", "ratio", scored)):
        of = {result: "result", f"random_{result}": "random", f"baseline_{result}": "baseline_result"}
        of |= {change: "change", f"{change}_low": "change_low", f"{change}_high": "change_high"}
        frame = frame.assign(**{name: measured[entry].where(own) for name, entry in of.items()})
    return Table("evaluation", frame[list(EVALUATION)])


def _measured(evaluation: Evaluation) -> pd.DataFrame:
    """A row per task and edit: what both are, what was measured, and the baseline (columns as in `_normalized`)."""
    rows = [
        task.model_dump(include=set(TASK))
        | {name: getattr(evaluation.by_edit[cell.edit], name) for name in EDIT}
        | {"task": task.name, "baseline": task.baseline.model_dump()}
        | cell.model_dump(exclude={"random", "matched", "clustered"})
        | clustered_intervals.columns(cell.clustered)
        | {"random": {} if cell.random is None else cell.random.model_dump()}
        for task in evaluation.tasks
        for cell in task.cells
    ]
    named = {"random_mean": "random", "random_lowest": "random_low", "random_highest": "random_high"}
    frame = _normalized(rows).rename(columns=named)
    estimates = ("result", "change", "random", "random_beyond", "baseline_result")
    paths = [f"{name}{end}" for name in estimates for end in ("", "_low", "_high")]
    paths += [f"{of}rates_{rate}" for of in ("", "baseline_") for rate in RATES]
    paths += ["change_p", "change_p_corrected", "random_draws", "random_drop"]
    return frame.reindex(columns=[*TASK, *EDIT, *paths, *clustered_intervals.COLUMNS])


def cells(evaluation: Evaluation) -> Table:
    """Every task under every edit that is no random control and has a finite result, as the page shows them."""
    measured = _measured(evaluation)
    named = measured.assign(name=list(map(evaluation.name_of, measured["edit"])))
    frame = named[named["random_of"].isna() & named["result"].notna()]
    nonfinite = frame["rates_nonfinite"].astype(float).any()
    broken = [
        f"{task.name} under {evaluation.name_of(edit.edit)}"
        for task in evaluation.tasks
        for edit in evaluation.tried
        if edit.edit in task.broken
    ]
    left_out = f"Left out, since the result is not a finite number: {'; '.join(broken)}. " if broken else ""
    return Table(
        "",
        frame,
        (
            Column("task", "Task", number=False),
            Column("name", "Edit", row=_edit_text, number=False),
            Column("result", "Result", row=lambda row: _result_text(row, "result")),
            Column("change", "Drop or ratio", row=_change_text),
            Column("random", "Random", row=lambda row: _result_text(row, "random")),
            Column("random_beyond", "Beyond random", row=lambda row: _points_text(row, "random_beyond")),
            Column("change_p_corrected", "p corrected", wording.p_value),
            _truncated("rates"),
            _unparsed("rates"),
            *([Column("rates_nonfinite", "Not finite", wording.percent)] if nonfinite else []),
        ),
        title="Every task under every edit",
        caption=f"{left_out}Unrounded, with a row for every random control: evaluation.csv. Edits may share controls;"
        " plan.json lists those of each.",
    )


def _truncated(rates: str) -> Column:
    """The column of truncated answers, from the columns RATES_truncated and RATES_looped."""
    key, looped = f"{rates}_truncated", f"{rates}_looped"
    return Column(key, "Truncated", row=lambda row: wording.truncated(row[key], row[looped]))


def _unparsed(rates: str) -> Column:
    """The column of unparsed answers, from the columns RATES_unparsed and RATES_unclosed."""
    key, unclosed = f"{rates}_unparsed", f"{rates}_unclosed"
    return Column(key, "Unparsed", row=lambda row: wording.unparsed(row[key], row[unclosed]))


def _edit_text(row: Row) -> str:
    """The name of an edit, and the factor that its dtype let it reach where that is another."""
    reached = row["achieved"]
    same = reached is None or abs(reached - row["factor"]) <= 1e-6
    return str(row["name"]) + ("" if same else f" ({reached:.6g} reached)")


def _points_text(row: Row, name: str) -> str:
    """`68.0 [64.0, 72.0]`: a share of 1 in points with its interval; a dash where it is not known."""
    if row[name] is None:
        return wording.DASH
    return f"{wording.points(row[name])} {wording.interval(row[f'{name}_low'], row[f'{name}_high'])}".rstrip()


def _result_text(row: Row, name: str) -> str:
    """An accuracy in percent or a perplexity, with its interval or ends."""
    if row["kind"] != "score" or row[name] is None:
        return _points_text(row, name)
    interval = wording.plain_interval(row[f"{name}_low"], row[f"{name}_high"])
    return f"{wording.perplexity(row[name])} {interval}".rstrip()


def _change_text(row: Row) -> str:
    if row["kind"] != "score" or row["change"] is None:
        return _points_text(row, "change")
    return f"×{row['change']:.3f} {wording.plain_interval(row['change_low'], row['change_high'])}".rstrip()


def unedited(evaluation: Evaluation, *, loops: bool) -> Table:
    """The unedited model on every task; `loops`: whether answers were ended in loops."""
    rows = [
        task.model_dump(exclude={"cells"})
        | {"uninformative": task.role == "control" and not task.scored and not task.informative}
        for task in evaluation.tasks
    ]

    thought_on = any(task.baseline.rates.unclosed for task in evaluation.tasks)
    unclosed = "; unclosed: it never closed its thinking" if thought_on else ""

    def chance(row: Row) -> str:
        return wording.percent(row["chance"], 0) + (", uninformative" if row["uninformative"] else "")

    return Table(
        "",
        _normalized(rows),
        (
            *plain_columns(number=False, name="Task", role="Role"),
            Column("kind", "Kind", lambda kind: KINDS.get(kind, str(kind)), number=False),
            Column("items", "Items"),
            Column("baseline_result", "Unedited", row=lambda row: _result_text(row, "baseline_result")),
            Column("chance", "Chance", row=chance),
            _truncated("baseline_rates"),
            _unparsed("baseline_rates"),
        ),
        title="The unedited model",
        caption="The unedited model: accuracy in %, or perplexity of running text. Truncated: the answer hit the token"
        f" limit{', or was ended in a loop (looped)' if loops else ''}. Unparsed: no answer could be read from"
        f" it{unclosed}.",
    )


def matched(evaluation: Evaluation) -> Table:
    """Every edit beside its random controls of every kind: `matched-controls.csv`; empty where there is one kind."""
    by_edit = evaluation.by_edit
    sizes = {
        (edit.edit, kind): float(np.mean([by_edit[each].size for each in own]))
        for edit in evaluation.tried
        for kind in dict.fromkeys(by_edit[each].matched_in for each in edit.randoms)
        if (
            own := [
                each for each in edit.randoms if by_edit[each].matched_in == kind and by_edit[each].size is not None
            ]
        )
    }
    rows = [
        {"task": task.name, "edit": cell.edit, "name": evaluation.name_of(cell.edit), "matched_in": of.matched_in}
        | {"draws": of.draws, "size": by_edit[cell.edit].size, "control_size": sizes.get((cell.edit, of.matched_in))}
        | {"drop": cell.change.value, "drop_low": cell.change.low, "drop_high": cell.change.high}
        | {"control_drop": of.drop, "lowest": of.lowest, "highest": of.highest}
        | {"beyond": of.beyond.value, "beyond_low": of.beyond.low, "beyond_high": of.beyond.high}
        for task in evaluation.tasks
        if not task.scored
        for cell in task.cells
        if cell.matched and cell.random is not None
        for of in (cell.random, *cell.matched)
    ]
    return Table(
        "matched-controls" if rows else "",
        pd.DataFrame(rows),
        (
            *plain_columns(number=False, task="Task", name="Edit"),
            Column("drop", "Drop", row=lambda row: _points_text(row, "drop")),
            Column("matched_in", "Controls matched in", number=False),
            Column("draws", "Draws"),
            Column("control_drop", "Their drop", wording.points),
            Column("beyond", "Beyond them", row=lambda row: _points_text(row, "beyond")),
            Column("control_size", "Mean |W|, edit and controls",
                   row=lambda row: f"{row['size']:.3g}; {row['control_size']:.3g}"),
        ),
        title="The edits and their random controls",
        caption="Count: as many weights of every matrix. Magnitude: and of every size |W|, none of the edit's own."
        " Importance: and of every |W| times the inputs of the controls' texts. Drops in points.",
    )  # fmt: skip


def selectivity(evaluation: Evaluation) -> Table:
    """The drop on the skill minus the drop on every control, of every edit that is no random control."""
    names = {edit.edit: evaluation.name_of(edit.edit) for edit in evaluation.tried}
    rows = [entry.model_dump() | {"edit": names[entry.edit]} for entry in evaluation.selectivity if entry.edit in names]
    return Table(
        "",
        _normalized(rows),
        (
            *plain_columns(number=False, edit="Edit", skill="Skill", control="Control"),
            Column("difference", "Difference", row=lambda row: _points_text(row, "difference")),
        ),
        title="Skill against control",
        caption="Drop on the skill minus drop on the control, in percentage points. Above 0: the skill loses more.",
    )


def candidates(evaluation: Evaluation) -> Table:
    """The edits among which one was chosen on validation items."""
    choice = evaluation.choice
    rows = [
        candidate.model_dump() | {"edit": evaluation.name_of(candidate.edit), "chosen": candidate.edit == choice.chosen}
        for candidate in (choice.candidates if choice else ())
        if choice is not None
    ]
    return Table(
        "",
        pd.DataFrame(rows),
        (
            Column("edit", "Edit", number=False),
            Column("accuracy", "Accuracy, validation", wording.percent),
            Column("mean_control", "Mean of controls", wording.percent),
            Column("chosen", "Chosen", lambda chosen: "chosen" if chosen else "", number=False),
        ),
        title="Candidates",
        caption=f"On {choice.validation_items} validation items of {choice.skill}. {choice.rule}" if choice else "",
        mark=lambda row: bool(row["chosen"]),
    )
