"""The report of a layer study, in reading order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lesion.core import cost
from lesion.edits.edit import BASELINE
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import Block, Facts, Figure, Findings, Folded, Page, Panel, Prose, Section
from lesion.report.browser import Offered
from lesion.report.finding import Finding
from lesion.report.publishing import html, publish
from lesion.studies.ablation import charts, groups, sensitivity, tables
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import screen_report as screen
from lesion.studies.ablation.curves import Curve, View, full_drop
from lesion.studies.ablation.groups import Breakdown
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.result import AblationSummary, Cell
from lesion.studies.ablation.screening import ASKING

MOST_GAPS = 12
"""So many gaps of an unfinished study are named."""
OPEN_GROUPS = 2
"""So many tables of groups are not folded."""
NO_CUT = "No cut has been measured yet."
FULL_TABLE = (
    "The full table: the same command without stopping, into the same folder; it asks the rest. Only it has p-values,"
    " accuracies by group of items and the comparison of families."
)
SCREENED = (
    "Before anything was generated, the gold solutions were scored under every cut: one pass over prompt and solution"
    " gives the log-probability of each token of it. No block is called critical by it: it foretells the drops of"
    " generated accuracy as well as the rank correlations say, and no better."
)


def write(folder: Path, summary: AblationSummary, answers: pd.DataFrame, items: pd.DataFrame) -> Path:
    """Write `report.html`, `layers.csv`, `summary.json` and the figures as PNG and SVG, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: of the study.
        answers: columns model_name, edit (text form), task, item, text, tokens, finish, correct, parsed.
        items: columns task, item, question, gold, group.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the folder cannot be written.
    """
    folder = Path(folder)
    path = publish(folder, "layers", report(summary, answers, items, seconds=cost.read(folder).get(ASKING) or {}))
    summary.write(folder)
    return path


def page(summary: AblationSummary, answers: pd.DataFrame, items: pd.DataFrame, budget: int = browser.BUDGET) -> str:
    """The text of `report.html`."""
    return html(report(summary, answers, items, budget=budget))


def report(
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    *,
    seconds: screen.Seconds | None = None,
    budget: int = browser.BUDGET,
) -> Page:
    """What the page holds.

    Args:
        summary: as for `write`.
        answers: as for `write`.
        items: as for `write`.
        seconds: how long answers took, of a study with a screen.
        budget: characters of questions and answers that the item browser carries at most.
    """
    views, families = summary.views, invariance.section(summary)
    sections = [Section("Findings", "Findings", tuple(_findings(summary, views, answers, items)))]
    sections += [families] if families else []
    if views:
        sections += [_accuracy(summary, views), _drops(summary, views)]
    if screen.screens(summary):
        lines = tuple(screen.sentences(summary, seconds or {}))
        blocks = (Prose((SCREENED,)), Prose(items=lines), tables.screens(summary))
        sections.append(Section("Screen", "The screen: what the cuts take of the gold solutions", blocks))
    if breakdowns := groups.breakdowns(summary.curves, answers, items, summary.study.level):
        sections.append(_groups(summary, breakdowns))
    sections += [Section("Cells", "Every cell", (tables.cells(summary),))]
    sections.append(_study(summary))
    return Page(
        title=visible(summary.study.title or _title(summary)),
        eyebrow="layer ablation",
        sections=tuple(sections),
        version=summary.version,
        approximate=summary.approximate or "",
        carried=browser.data(offered(summary), answers, items, budget),
    )


def _findings(
    summary: AblationSummary, views: Sequence[View], answers: pd.DataFrame, items: pd.DataFrame
) -> list[Block]:
    blocks: list[Block] = []
    tasks = [] if items.empty else [str(task) for task in items["task"].unique()]
    planned = [(model.model, task) for model in summary.models for task in tasks]
    if gaps := prose.missing(views, groups.answered(answers), planned):
        more = [f"… and {len(gaps) - MOST_GAPS} more."] if len(gaps) > MOST_GAPS else []
        note = "What follows is what has been answered so far."
        blocks.append(Prose((note,), (*gaps[:MOST_GAPS], *more), "This study is not finished", quiet=False))
    if stopped := prose.stopped(summary):
        note = (
            "Every number is over the items that its cell was asked until then (n beside it, “stopped”), or over all of"
            " them where none was left to ask; the unedited model beside it is over the same items."
        )
        blocks.append(Prose((note,), tuple(stopped), "Asking stopped as soon as a cell was decided.", quiet=False))
        blocks.append(Prose((" ".join(prose.decided(summary)), FULL_TABLE), quiet=False))
    shared, by_model = prose.shared(views), prose.by_model(views)
    if not shared and not by_model:
        shared = [Finding("", (NO_CUT,))]
    folded = len(shared) + len(by_model) > 3 and bool(shared)
    blocks.append(Findings(tuple(shared), tuple(by_model)) if folded else Findings((*shared, *by_model)))
    kind = "confidence sequences, which hold at whatever number of items asking stopped" if stopped else "intervals"
    blocks.append(
        Prose((
            "Each block in turn was changed alone, and the model answered the same items as the unedited model, with"
            f" the same prompts and decoding. {summary.rule} Brackets are {_level(summary)} {kind}.",
        ))
    )  # fmt: skip
    if summary.curves:
        blocks.append(tables.baselines(summary))
    if sensitivity.sensitivities(summary):
        blocks.append(
            Folded(
                "How large a loss this study can find, and what is critical at other shares",
                (Prose(items=tuple(sensitivity.sentences(summary))), tables.sensitivities(summary)),
            )
        )
    return blocks


def _level(summary: AblationSummary) -> str:
    return f"{100 * summary.study.level:g}{wording.SPACE}%"


def _accuracy(summary: AblationSummary, views: Sequence[View]) -> Section:
    figures = []
    for view in views:
        stopped = view.stopped
        same = (
            "over each block on the items that its cell was asked until it was decided: point at it for its n"
            if stopped
            else "on the same n items"
        )
        open_ = any(cell.decided == "open" for curve in view.curves for cell in curve.cells)
        figures.append(
            Figure(
                f"accuracy-{view.slug}",
                tuple(
                    Panel((charts.accuracy(view, task),), f"{task}, n = {_items(curves)}")
                    for task, curves in view.panels.items()
                ),
                f"Accuracy with {_view_name(view)}. Dashed: the unedited model {same}. Shaded: {_level(summary)}"
                f" {'confidence sequence' if stopped else 'Wilson interval'}s. Filled marks with a number:"
                f" {wording.call(stopped)}.{' ?: left open.' if open_ else ''}",
                charts.legend(view, summary.study.level),
                small=len(view.panels) > 2,
            )
        )
    note = (
        "A line that stays at its dashed baseline says: the task does without that block. Where it falls on one task"
        " and not on another, the block carries something that only the first needs. Point at a block to read its"
        " numbers; click it to see the answers."
    )
    return Section("Accuracy", "Accuracy against the block that is cut", (Prose((note,)), *figures))


def _items(curves: Sequence[Curve]) -> str:
    return ", ".join(sorted({wording.of_drawn(curve.fewest, curve.items, curve.drawn) for curve in curves}))


def _drops(summary: AblationSummary, views: Sequence[View]) -> Section:
    figures = []
    for view in views:
        counts = ", ".join(f"{task} n = {_items(curves)}" for task, curves in view.panels.items())
        full = wording.points(full_drop(view.curves), 0)
        kind = "confidence sequences" if view.stopped else "intervals"
        more = " n: items until the cell was decided; ?: left open." if view.stopped else ""
        panels = charts.drop_panels(view)
        figures.append(
            Figure(
                f"drop-{view.slug}",
                tuple(Panel((chart,), title) for title, chart in panels),
                f"Drop in accuracy, in points, with {_view_name(view)}: baseline minus edited, on the same items:"
                f" {counts}. Orange: lost, blue: gained; full colour at {full} points. Boxed:"
                f" {wording.call(view.stopped)}; the {_level(summary)} {kind} stand in the table.{more}",
            )
        )
    return Section("Drops", "How much each cut takes", tuple(figures))


def _view_name(view: View) -> str:
    place = "one block" if view.unit == "block" else f"the {wording.UNIT_NAMES[view.unit]} of one block"
    if view.factor is None:
        return f"{place} scaled at a time"
    how = "switched off" if view.factor == 0 else f"scaled by {view.factor:g}"
    return f"{place} {how} at a time"


def _groups(summary: AblationSummary, breakdowns: Sequence[Breakdown]) -> Section:
    several_models = len({curve.model for curve in summary.curves}) > 1
    several_edits = len({(curve.unit, curve.factor) for curve in summary.curves}) > 1
    note = (
        f"Accuracy in % with its {_level(summary)} Wilson interval, per group (its number of items in brackets) and"
        " block cut. Groups are smaller than the whole task and their intervals wider: compare with care."
    )
    figures = []
    for breakdown in breakdowns:
        curve = breakdown.curve
        title = f"{curve.model} · {curve.task}" if several_models else curve.task
        title += f" · {wording.UNIT_NAMES[curve.unit]} × {curve.factor:g}" if several_edits else ""
        caption = f"{title}: accuracy in %, its interval beneath it."
        figures.append(Figure("", (Panel((charts.by_group(breakdown),)),), caption))
    rest = [Folded("More models and tasks", tuple(figures[OPEN_GROUPS:]))] if len(figures) > OPEN_GROUPS else []
    return Section("Groups", "Accuracy by group of items", (Prose((note,)), *figures[:OPEN_GROUPS], *rest))


def _study(summary: AblationSummary) -> Section:
    blocks: list[Block] = [Facts(tuple(_facts(summary)))]
    if summary.notes:
        blocks.append(Prose(items=summary.notes, title="Notes", quiet=False))
    blocks.append(Prose(items=tuple(_reading(summary.stopped)), title="How to read this", quiet=False))
    return Section("Study", "The study", tuple(blocks))


def _reading(stopped: bool) -> list[str]:
    every, does = ("exceeds the effect", "exceeding the effect") if stopped else ("is critical", "critical")
    lines = [
        "A drop is paired: the same items, prompts and decoding with and without the cut; its interval says how far"
        " chance could move it.",
        f"A block that {every} for every task may only keep the model speaking at all. Look for blocks of which that"
        " holds for one task and not for another that also has to be generated.",
        "An answer that was truncated or could not be parsed counts as wrong if the judge found no right answer in it."
        " Where those rates rise with the drop, read the answers before speaking of a lost skill.",
        f"Not {does} does not mean unused: the interval of the drop says what was ruled out.",
    ]
    if stopped:
        lines.append(
            "Marked places are those whose drop exceeds the effect that the study names. Which places are critical,"
            " losing more than half of the baseline's accuracy, only the full table says: the two sets can differ."
        )
    return lines


def _title(summary: AblationSummary) -> str:
    """The title of a study that has none of its own."""
    models = list(dict.fromkeys(curve.model for curve in summary.curves))
    if not models:
        return "Layer ablation"
    return f"Layer ablation of {wording.listed(models) if len(models) < 4 else f'{len(models)} models'}"


def _facts(summary: AblationSummary) -> list[tuple[str, str]]:
    """The study's own entries and what follows from its cells, for whoever wants to repeat it."""
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"title"})
    facts = [(name.replace("_", " "), wording.entry(value)) for name, value in study.items()]
    counts = dict.fromkeys(
        f"{curve.task}: {wording.of_drawn(curve.fewest, curve.items, curve.drawn)}" for curve in summary.curves
    )
    edits = dict.fromkeys(
        f"{wording.UNIT_NAMES[curve.unit]} × {curve.factor:g} on layers "
        f"{wording.layer_runs(cell.layer for cell in curve.cells) or 'none yet'}"
        for curve in summary.curves
    )
    facts += [("answered by", summary.engine), ("items answered", ", ".join(counts)), ("measured", "; ".join(edits))]
    return [(name, visible(value)) for name, value in facts if value]


def offered(summary: AblationSummary) -> list[Offered]:
    """What the item browser offers: every model and task unedited, then under every edit."""
    return [
        Offered(curve.model, curve.task, edit, label)
        for curve in summary.curves
        for edit, label in (
            (str(BASELINE), "unedited"),
            *((cell.edit, _edit_label(curve, cell)) for cell in curve.cells),
        )
    ]


def _edit_label(curve: Curve, cell: Cell) -> str:
    how = "off" if curve.factor == 0 else f"× {curve.factor:g}"
    label = f"{wording.place(curve.unit, cell.layer)} {how}, drop {wording.points(cell.drop.value)}"
    return f"{label}, {wording.call(curve.stopped)}" if cell.marked else label
