"""The report of a layer study, in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from rich.console import RenderableType
from typing_extensions import override

from lesion.core import cost
from lesion.core.database import FILE as DATABASE
from lesion.core.result import StudyResult
from lesion.edits.edit import BASELINE
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import Block, Chapter, Facts, Figure, Findings, Folded, Opening, Page, Panel, Prose, Section
from lesion.report.browser import Offered
from lesion.report.finding import Finding
from lesion.report.table import Table
from lesion.studies.ablation import (
    charts,
    clusters,
    dissociation,
    doses,
    forced_report,
    groups,
    matched,
    parts,
    parts_report,
    tables,
)
from lesion.studies.ablation import findings as prose
from lesion.studies.ablation import perplexity_report as perplexity
from lesion.studies.ablation.curves import Curve, View, full_drop
from lesion.studies.ablation.groups import Breakdown
from lesion.studies.ablation.invariance import report as invariance
from lesion.studies.ablation.kinds import kinds
from lesion.studies.ablation.plan import report as plan_report
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.result import AblationSummary
from lesion.studies.ablation.screen import report as screen
from lesion.studies.ablation.screen.screening import ASKING

QUESTION = "Which blocks does each skill depend on?"
FEW_MODELS = 3
"""Curves of so many models are told apart in one chart."""
FEW_TASKS = 3
"""The drops of more tasks are the first figure, as a map; of fewer it is a curve."""
WIDE = 20
"""A map of more blocks takes the whole width."""
IDLE = 0.05
"""A task that no cut changes by as much has its chart folded."""
MOST_GAPS = 12  # of an unfinished study that are named
OPEN_GROUPS = 2  # tables of groups that are not folded
FULL_TABLE = (
    "Only the full table has p-values, accuracies by group of items and the comparison of families: run the same"
    " command without stopping, into the same folder."
)
SCREENED = (
    "Before anything was generated, the gold solutions were scored under every cut, each in one pass. This foretells"
    " the drops of generated accuracy as well as the rank correlations say, and no better; no block is called critical"
    " by it."
)


@dataclass(frozen=True)
class AblationResult(StudyResult[AblationSummary]):
    """A layer study: its numbers, and every answer behind them.

    Attributes:
        stored: answers and items as they were read with the summary; None: they are read when they are needed.
    """

    stored: tuple[pd.DataFrame, pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    @classmethod
    @override
    def recall(cls, folder: Path) -> AblationResult:
        _, summary, answers, items = recall(folder)
        return cls(folder, summary, stored=(answers, items))

    @property
    def table(self) -> pd.DataFrame:
        """One row per model, task, unit, factor and layer, the baseline beside it: what `layers.csv` holds."""
        return tables.frame(self.summary)

    @property
    def perplexity(self) -> pd.DataFrame:
        """One row per model, task of running text, unit, factor and layer: what `perplexity.csv` holds."""
        return perplexity.frame(self.summary)

    @property
    def units(self) -> pd.DataFrame:
        """One row per model, task, unit, factor, block and head, neuron, expert or matrix: what `parts.csv` holds."""
        return parts_report.frame(self.summary)

    @property
    @override
    def answers(self) -> pd.DataFrame:
        return self._stored()[0]

    @override
    def found(self) -> list[Finding]:
        families = self.summary.invariance.families if self.summary.invariance else ()
        views = self.summary.views
        there = self.stored is not None or (self.folder / DATABASE).is_file()
        more = _further(self.summary, views, self.answers if there else None)
        found = [*plan_report.findings(self.summary.planned), *prose.shared(views), *prose.by_model(views), *more]
        found = found or prose.unedited(self.summary)
        curves = [*self.summary.curves, *parts.maps(self.summary)]
        return [*forced_report.with_form(found, curves), *map(invariance.finding, families)]

    @override
    def shown(self) -> Table:
        return tables.cells(self.summary)

    @override
    def page(self) -> Page:
        seconds = cost.read(self.folder).get(ASKING) or {}
        return report(self.summary, *self._stored(), seconds=seconds)

    @override
    def text(self, *, every: bool = False) -> RenderableType:
        return tables.text(self.summary, cost.read(self.folder).get(ASKING) or {})

    @override
    def chapter(self) -> Chapter:
        views = self.summary.views
        if self.summary.invariance is not None and self.summary.invariance.families:
            return replace(invariance.chapter(self.summary), opening=_opening(self.summary, views), short="Layers")
        drops = _drops(self.summary, views)
        figures = tuple(block for block in drops.blocks if isinstance(block, Figure))
        opening = _opening(self.summary, views, [drops])
        return Chapter(QUESTION, invariance.METHOD, tuple(self.found()), figures, opening, "Layers")

    def _stored(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self.stored or recall(self.folder)[2:]


def report(
    summary: AblationSummary,
    answers: pd.DataFrame,
    items: pd.DataFrame,
    *,
    seconds: screen.Seconds | None = None,
    budget: int = browser.BUDGET,
) -> Page:
    """What the page holds; summary, answers and items as for `write`.

    Args:
        seconds: how long answers took, of a study with a screen.
        budget: characters of questions and answers that the item browser carries at most.
    """
    views, families = summary.views, invariance.section(summary)
    sections = [Section("Findings", "Findings", tuple(_findings(summary, views, answers, items)))]
    sections += [families] if families else []
    if views:
        sections += [_accuracy(summary, views), _drops(summary, views)]
    more = (
        plan_report.section(summary.planned),
        parts_report.section(summary),
        kinds.section(summary),
        doses.section(summary, answers),
        dissociation.section(views),
        matched.section(matched.compared(views, answers, summary.study.level)),
        perplexity.section(summary),
    )
    sections += [section for section in more if section is not None]
    if screen.screens(summary):
        lines = tuple(screen.sentences(summary, seconds or {}))
        maps: tuple[Block, ...] = tuple(parts_report.screens(summary))
        blocks = (Prose((SCREENED,)), Prose(items=lines), *maps, tables.screens(summary))
        sections.append(Section("Screen", "The screen: what the cuts take of the gold solutions", blocks))
    if breakdowns := groups.breakdowns(summary.curves, answers, items, summary.study.level):
        sections.append(_groups(summary, breakdowns))
    sections += [Section("Cells", "Every cell", (tables.cells(summary),))] if views else []
    sections.append(_study(summary))
    models = [model.model for model in summary.models]
    named = wording.listed(models) if len(models) < 4 else f"{len(models)} models"
    return Page(
        title=visible(summary.study.title or (f"Layer ablation of {named}" if models else "Layer ablation")),
        eyebrow="layer ablation",
        sections=tuple(sections),
        version=summary.version,
        approximate=summary.approximate or "",
        carried=browser.data(offered(summary), answers, items, budget),
        tables=() if views else (tables.cells(summary),),
        opening=_opening(summary, views, sections),
    )


def _opening(summary: AblationSummary, views: Sequence[View], sections: Sequence[Section] = ()) -> Opening:
    """Which blocks are critical, with one example; the curve of the task that loses most, or of many
    models or tasks a map.
    """
    own = prose.by_model(views[:1])
    drawn = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    if not own:
        texts, of_text = parts_report.findings(summary), parts_report.section(summary)
        form = forced_report.brief(parts.maps(summary))
        if of_text is None:
            texts, of_text = perplexity.findings(summary), perplexity.section(summary)
        if of_text is None:
            return Opening()
        chart = next((block for block in of_text.blocks if isinstance(block, Figure)), None)
        if chart is None:
            return Opening(texts[0].headline)
        # The page's own figure: a section does not show again what the first screen has.
        own_figure = next((figure for figure in drawn if figure.name == chart.name), replace(chart, name=""))
        return Opening(tuple(filter(None, (*texts[0].headline, form))), own_figure)
    heads = prose.leads(views[0]) if views[0].factor is not None else []
    if not heads and len(summary.models) == 1:  # several factors: what they have in common says more than the first
        heads = [text for of in (*kinds.findings(summary), *doses.findings(summary)) for text in of.headline]
    if not heads and summary.invariance is not None:  # where models differ: what is said of their families
        heads = [text for family in summary.invariance.families for text in invariance.finding(family).headline]
    several = len(own) > 1
    examples = [text for label in views[0].labels if (text := prose.example(views[0], label))]
    examples = examples if several else [own[0].sentences[0]]
    lead = heads or ([] if several else list(own[0].headline))
    if views[0].factor is None and lead:
        examples = []  # of one factor among several
    planned = [text for of in plan_report.findings(summary.planned) for text in of.headline]
    of_blocks = forced_report.brief(summary.curves)
    verdict = (*planned, *lead[:2], *filter(None, (of_blocks,)), *examples[: 1 if lead else 2])
    view = views[0]
    marked = {task: sum(len(curve.marked) for curve in curves) for task, curves in view.panels.items()}
    task = max(marked, key=lambda name: marked[name])
    maps = [figure for figure in drawn if figure.name.startswith("drop-")]
    if len(view.labels) == 1 and len(view.panels) > FEW_TASKS and maps:
        return Opening(verdict, maps[0])
    alone = [figure for figure in drawn if figure.name.startswith("accuracy-") and len(figure.panels) == 1]
    if len(_groups_of(summary, view)) == 1 and len(view.labels) <= FEW_MODELS:
        if len(alone) == 1:
            return Opening(verdict, alone[0])
        figure = _curves(summary, view, f"accuracy-{view.slug}", (task,))
        return Opening(verdict, replace(figure, name=""))
    if maps:  # all tasks, so that the page has no map twice
        return Opening(verdict, maps[0])
    map_of = Panel((charts.drops(view, view.panels[task], full_drop(view.curves)),), f"{task}: drop in points")
    caption = (
        f"Accuracy lost with {_view_name(view)}, a row per {'kind' if view.factor is None else 'model'}. Orange: lost,"
        f" blue: gained. Boxed: {wording.call(view.stopped)}."
        f"{'' if view.factor is None else ' The same number is another depth in a model with more blocks.'}"
    )
    return Opening(verdict, Figure("", (map_of,), caption))


def _groups_of(summary: AblationSummary, view: View) -> list[View]:
    """The view once per family and number of blocks: models of different depth share no axis."""
    families = summary.invariance.families if summary.invariance else ()
    family = {member.model: of.family for of in families for member in of.members}
    depth = {label: max(len(c.layers) for c in view.curves if c.label == label) for label in view.labels}
    groups: dict[tuple[str, int], list[Curve]] = {}
    for curve in view.curves:
        groups.setdefault((family.get(curve.model, ""), depth[curve.label]), []).append(curve)
    slugs = [view.slug, *(f"{view.slug}-{number}" for number in range(2, len(groups) + 1))]
    return [View.of(curves, view.unit, view.factor, slug) for curves, slug in zip(groups.values(), slugs, strict=True)]


def _findings(
    summary: AblationSummary, views: Sequence[View], answers: pd.DataFrame, items: pd.DataFrame
) -> list[Block]:
    blocks: list[Block] = []
    tasks = [] if items.empty else [str(task) for task in items["task"].unique()]
    texts = {(model.model, text.task) for model in summary.models for text in model.texts}
    texts |= set(parts_report.measured(summary))
    planned = [(model.model, task) for model in summary.models for task in tasks if (model.model, task) not in texts]
    if gaps := prose.missing(views, groups.answered(answers), planned):
        more = [f"… and {len(gaps) - MOST_GAPS} more."] if len(gaps) > MOST_GAPS else []
        note = "What follows is what has been answered so far."
        blocks.append(Prose((note,), (*gaps[:MOST_GAPS], *more), "This study is not finished", quiet=False))
    if stopped := prose.stopped(summary):
        note = "Every number, and the unedited model beside it, is over the items that its cell was asked (n)."
        blocks.append(Prose((note,), tuple(stopped), "Asking stopped as soon as a cell was decided.", quiet=False))
        blocks.append(Prose((" ".join(prose.decided(summary)), FULL_TABLE), quiet=False))
    if summary.planned is not None:
        blocks.append(Findings(tuple(plan_report.findings(summary.planned))))
    shared = prose.shared(views)
    by_model = [*prose.by_model(views), *_further(summary, views, answers)]
    if not shared and not by_model:
        by_model = prose.unedited(summary)
        shared = [] if by_model else [Finding("", ("No cut has been measured yet.",))]
    folded = len(shared) + len(by_model) > 3 and bool(shared)
    blocks.append(Findings(tuple(shared), tuple(by_model)) if folded else Findings((*shared, *by_model)))
    if summary.notes:
        blocks.append(Prose(items=summary.notes, title="Notes", quiet=False))
    kind = "confidence sequences, which hold at whatever number of items asking stopped" if stopped else "intervals"
    method = "Each block in turn was changed alone; items, prompts and decoding are those of the unedited model."
    blocks.append(Prose((f"{method} {summary.rule} Brackets are {_level(summary)} {kind}.",)))
    if summary.curves:
        blocks.append(tables.baselines(summary))
    if sensitivities := tables.sensitivities(summary):
        label = "How large a loss this study can find, and what is critical at other shares"
        blocks.append(Folded(label, (Prose(items=tuple(prose.sensitivity(summary))), sensitivities)))
    return blocks


def _further(summary: AblationSummary, views: Sequence[View], answers: pd.DataFrame | None) -> list[Finding]:
    """Findings beyond which blocks are critical; those from single answers where these are at hand."""
    at_equal_difficulty = [] if answers is None else matched.compared(views, answers, summary.study.level)
    return [
        *parts_report.findings(summary),
        *forced_report.findings(summary),
        *kinds.findings(summary),
        *doses.findings(summary, answers),
        *dissociation.findings(views),
        *matched.findings(at_equal_difficulty),
        *clusters.findings(summary),
        *perplexity.findings(summary),
    ]


def _level(summary: AblationSummary) -> str:
    return f"{100 * summary.study.level:g}{wording.SPACE}%"


def _items(curves: Iterable[Curve]) -> str:
    return ", ".join(sorted({wording.of_drawn(*curve.counts) for curve in curves}))


def _view_name(view: View) -> str:
    place = "one block" if view.unit == "block" else f"the {wording.UNIT_NAMES[view.unit]} of one block"
    return f"{place} {wording.changed(view.factor)} at a time"


def _accuracy(summary: AblationSummary, views: Sequence[View]) -> Section:
    figures: list[Block] = []
    for view in (group for whole in views for group in _groups_of(summary, whole)):
        idle = tuple(task for task, curves in view.panels.items() if all(map(_idle, curves)))
        shown = tuple(task for task in view.panels if task not in idle) or idle
        figures.append(_curves(summary, view, f"accuracy-{view.slug}", shown))
        if idle and shown != idle:
            label = f"Tasks that no cut changes by {wording.points(IDLE, 0)} points: {wording.listed(idle)}"
            figures.append(Folded(label, (_curves(summary, view, f"accuracy-{view.slug}-idle", idle),)))
    note = (
        "Where a line stays at its dashed baseline, the task does without that block. Point at a block to read its"
        " numbers; click it to see the answers."
    )
    return Section("Accuracy", "Accuracy against the block that is cut", (Prose((note,)), *figures))


def _idle(curve: Curve) -> bool:
    """Whether no cut changes the curve by as much as `IDLE`."""
    return not curve.marked and all(abs(cell.drop.value or 0.0) < IDLE for cell in curve.cells)


def _curves(summary: AblationSummary, view: View, name: str, tasks: Sequence[str]) -> Figure:
    same, kind = "on the same n items", "Wilson interval"
    if view.stopped:
        same, kind = "on the items that the cell of each block was asked", "confidence sequence"
    undecided = any(cell.decided == "open" for curve in view.curves for cell in curve.cells)
    panels = [
        Panel((charts.accuracy(view, task),), f"{task}, n{wording.SPACE}={wording.SPACE}{_items(view.panels[task])}")
        for task in tasks
    ]
    return Figure(
        name,
        tuple(panels),
        f"Accuracy with {_view_name(view)}. Dashed: the unedited model {same}. Shaded: {_level(summary)} {kind}s."
        f" Filled marks with a number: {wording.call(view.stopped)}.{' ?: left open.' if undecided else ''}",
        charts.legend(view, summary.study.level),
        small=len(tasks) > 2,
    )


def _drops(summary: AblationSummary, views: Sequence[View]) -> Section:
    figures = []
    for view in views:
        counts = ", ".join(f"{task} n = {_items(curves)}" for task, curves in view.panels.items())
        full = wording.points(full_drop(view.curves), 0)
        kind = "confidence sequences" if view.stopped else "intervals"
        more = " n: items until the cell was decided; ?: left open." if view.stopped else ""
        figures.append(
            Figure(
                f"drop-{view.slug}",
                tuple(Panel((chart,), title) for title, chart in charts.drop_panels(view)),
                f"Drop in accuracy, in points, with {_view_name(view)}: baseline minus edited, on the same items:"
                f" {counts}. Orange: lost, blue: gained; full colour at {full} points. Boxed:"
                f" {wording.call(view.stopped)}; the {_level(summary)} {kind} stand in the table.{more}",
                wide=len(view.layers) > WIDE,
            )
        )
    return Section("Drops", "How much each cut takes", tuple(figures))


def _groups(summary: AblationSummary, breakdowns: Sequence[Breakdown]) -> Section:
    several_models, several_edits = summary.several
    note = (
        f"Accuracy in % with its {_level(summary)} Wilson interval, per group (number of items in brackets) and block"
        " cut. The groups are small: compare with care."
    )
    figures = []
    for breakdown in breakdowns:
        curve = breakdown.curve
        title = f"{curve.model} · {curve.task}" if several_models else curve.task
        title += f" · {wording.edit_name(curve.unit, curve.factor)}" if several_edits else ""
        caption = f"{title}: accuracy in %, its interval beneath it."
        figures.append(Figure("", (Panel((charts.by_group(breakdown),)),), caption))
    rest = [Folded("More models and tasks", tuple(figures[OPEN_GROUPS:]))] if len(figures) > OPEN_GROUPS else []
    return Section("Groups", "Accuracy by group of items", (Prose((note,)), *figures[:OPEN_GROUPS], *rest))


def _study(summary: AblationSummary) -> Section:
    every, does = ("exceeds the effect", "exceeding the effect") if summary.stopped else ("is critical", "critical")
    reading = [
        f"A block that {every} for every task may only keep the model speaking at all. Look for blocks of which that"
        " holds for one task and not for another that also has to be generated.",
        "An answer that was truncated or could not be parsed counts as wrong if the judge found no right answer in it."
        " Where those rates rise with the drop, read the answers before speaking of a lost skill.",
        f"What is not called {does} may still be used: only *spared* says that little is lost, and the interval of the"
        " drop says what was ruled out.",
    ]
    if summary.stopped:
        reading.append(
            "Marked places are those whose drop exceeds the effect. Which are critical, losing more than half of the"
            " baseline's accuracy, only the full table says: the two sets can differ."
        )
    how = Prose(items=tuple(reading), title="How to read this", quiet=False)
    return Section("Study", "The study", (Facts(tuple(_facts(summary))), how))


def _facts(summary: AblationSummary) -> list[tuple[str, str]]:
    """The study's own entries and what follows from its cells, for whoever wants to repeat it."""
    study = summary.study.model_dump(mode="json", exclude_none=True, exclude={"title"})
    facts = [(name.replace("_", " "), wording.entry(value)) for name, value in study.items()]
    counts = dict.fromkeys(f"{curve.task}: {wording.of_drawn(*curve.counts)}" for curve in summary.curves)
    edits = dict.fromkeys(
        f"{wording.edit_name(curve.unit, curve.factor)} on layers "
        f"{wording.layer_runs(cell.layer for cell in curve.cells) or 'none yet'}"
        for curve in summary.curves
    )
    facts += [("answered by", summary.engine), ("items answered", ", ".join(counts)), ("measured", "; ".join(edits))]
    return [(name, visible(value)) for name, value in facts if value]


def offered(summary: AblationSummary) -> list[Offered]:
    """What the item browser offers: every model and task unedited, then under every edit."""
    entries = []
    for curve in summary.curves:
        entries.append(Offered(curve.model, curve.task, str(BASELINE), "unedited"))
        how = "off" if curve.factor == 0 else wording.changed(curve.factor)
        for cell in curve.cells:
            label = f"{wording.place(curve.unit, cell.layer)} {how}, drop {wording.points(cell.drop.value)}"
            label += f", {wording.call(curve.stopped)}" if cell.marked else ""
            entries.append(Offered(curve.model, curve.task, cell.edit, label))
    known = set(entries)
    return [*entries, *(entry for entry in parts_report.offered(summary) if entry not in known)]
