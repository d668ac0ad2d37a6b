"""The result of a layer study: its parts, the page over them, and what of it can be believed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.changes import changed
from lesion.core.clustered_intervals import ClusteredTask, OverClusters, copied_questions, note
from lesion.core.database import FILE as DATABASE
from lesion.core.options import asking, of_tasks
from lesion.core.result import StudyResult
from lesion.core.values import alike
from lesion.edits.edit import BASELINE
from lesion.edits.replace import REPLACED_UNITS
from lesion.report import browser, checks, wording
from lesion.report.blocks import Check, Example, Page, examples
from lesion.report.browser import Offered
from lesion.report.marks import Map, Mark, Profile
from lesion.report.names import Names
from lesion.report.parts import Part
from lesion.report.rows import Rows
from lesion.report.table import Table
from lesion.report.values import POINTS, WHOLE_SHARE
from lesion.statistics.critical import rule
from lesion.studies.ablation import claims
from lesion.studies.ablation.analyses import (
    chains,
    dissociation,
    doses,
    groups,
    invariance,
    kinds,
    matched,
    perplexity,
    plan,
    screen,
    sensitivity,
    unfinished,
    units,
)
from lesion.studies.ablation.cell import Cell, Labels, Scores, Unedited, named, under
from lesion.studies.ablation.drops import Forced
from lesion.studies.ablation.recall import recall
from lesion.studies.ablation.result import AblationSummary, Material

QUESTION = "Which blocks does each skill depend on?"
METHOD = (
    "Each block in turn was changed alone, and the model answered the same items, prompted and decoded as without the"
    " change."
)
ANALYSES: tuple[Callable[[Material], Part | None], ...] = (
    unfinished.part,
    plan.part,
    units.part,
    chains.part,
    kinds.part,
    doses.part,
    dissociation.part,
    matched.part,
    invariance.part,
    invariance.other_tasks,
    invariance.training,
    perplexity.part,
    screen.part,
    groups.part,
    sensitivity.part,
)
"""What a layer study is looked at for besides its main table, in the order of the page; None where it has nothing."""
FEW_TASKS = 3
"""Of more tasks the first figure is a map."""
PROFILES = 6
"""So many panels of bars are drawn at most beside a map."""
HALF = 0.5
READABLE = 0.1
"""From this share of answers on that are cut off or unparsed, a loss may be one of form."""


@dataclass(frozen=True)
class AblationResult(StudyResult[AblationSummary]):
    """A layer study: its numbers, and every answer behind them.

    Attributes:
        stored: answers and items as they were read with the summary; None: they are read when they are needed.
    """

    SUMMARY = AblationSummary
    TEXTLESS = True
    EYEBROW = "layer ablation"
    CHAPTER = (METHOD, "Layers", QUESTION)
    READING = (
        rule(chosen=True),
        "A block that is critical for every task may only keep the model speaking at all. Look for blocks that are"
        " critical for one task and spare another that also has to be generated. What is not called critical may still"
        " be used: only *spared* says that little is lost.",
    )
    FIRST = (
        *("model", "task", "unit", "factor", "layer", "accuracy", "low", "high", "drop"),
        *("p_corrected", "p_critical_corrected", "critical"),
    )

    stored: tuple[pd.DataFrame, pd.DataFrame] | None = field(default=None, repr=False, compare=False)

    @classmethod
    @override
    def recall(cls, folder: Path) -> AblationResult:
        _, summary, answers, items = recall(folder)
        return cls(folder, summary, stored=(answers, items))

    @override
    def shown(self) -> Table:
        """One row per model, task, unit, factor and layer, the baseline beside it: what `layers.csv` holds."""
        return Table.of(cells(self.material))

    @property
    @override
    def answers(self) -> pd.DataFrame:
        return self._stored[0]

    @cached_property
    def _stored(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        return self.stored or recall(self.folder)[2:]

    @cached_property
    def material(self) -> Material:
        """What the analyses are made from; without answers where the folder is gone."""
        if self.stored is not None or (self.folder / DATABASE).is_file():
            answers, items = self._stored
            if answers.empty or answers["question"].any() or answers["text"].any():  # not shared without texts
                return Material(self.summary, answers, items)
        return Material(self.summary)

    @override
    def parts(self) -> tuple[Part, ...]:
        material = self.material
        analyses = [part for analysis in ANALYSES if (part := analysis(material)) is not None]
        main = _main(material)
        first = next((part for part in analyses if part.claims and not material.curves), main)
        return (first, *(part for part in (*analyses, main) if part is not first))

    @property
    @override
    def basis(self) -> str:
        results = [result for _, result in self.summary.results]
        if not results:
            return ""
        items = sorted({result.items for result in results})
        right = [result.baseline.accuracy.value or 0.0 for result in results]
        chances = {result.task: result.guessing for result in results if result.guessing}
        several = " a task" * (len({result.task for _, result in self.summary.results}) > 1)
        text = f"{wording.span(items[0], items[-1])} items{several}; unedited"
        text += f" {wording.from_to(right, WHOLE_SHARE)}{wording.SPACE}% right"
        if chances:
            where = f" on {wording.listed(list(chances))}" * (len(chances) < len({result.task for result in results}))
            text += f"; guessing gives {wording.from_to(chances.values(), WHOLE_SHARE)}{wording.SPACE}%{where}"
        return f"{text}. {claims.smallest_loss(self.material)}".strip()

    @property
    @override
    def tested(self) -> str:
        study = self.summary.study
        if study.stop is not None:
            error = "chance of any wrong call" if study.stop.rule == "e-Holm" else "expected share of wrong calls"
            return (
                f"A place was evaluated until an e-value decided it; {study.stop.rule} limits the {error} to"
                f" {100 * study.stop.level:g}{wording.SPACE}%. Brackets and bars: {self.level} confidence sequences."
            )
        above = " above guessing" * any(result.guessing for _, result in self.summary.results)
        stated = any(cell.stated for _, result in self.summary.results for cell in result.cells)
        cut = " Answers that state the gold answer and were cut off count as right in the first test." * stated
        what = "block" if list(study.edits.unit) == ["block"] else "place"
        return (
            f"A {what} is critical where an exact paired test rejects a loss of half or less of the accuracy{above},"
            f" and spared where one rejects a loss of a quarter or more.{cut} p are corrected by Holm's method over the"
            f" {what}s of a model and task. Brackets and bars: {self.level} intervals."
        )

    @override
    def checks(self) -> list[Check]:
        return list(_checks(self.material, self.folder))

    @override
    def page(self) -> Page:
        answers, items = self._stored
        carried = browser.data(offered(self.material), answers, items, browser.BUDGET)
        shown = browser.in_short(carried, self.names)
        return replace(super().page(), carried=shown, examples=tuple(_examples(self.material, self.names)))


def cells(material: Material) -> Rows:
    """Every cell, with the unedited model on its items."""
    summary = material.summary
    caption = (
        "Corrected p: the cut changes nothing (exact McNemar test). p critical: it takes at most half of the accuracy"
        " above guessing. Both are Holm-corrected over the blocks of one model and task."
    )
    if summary.stopped:
        caption = "Over the items of the cell until it was decided."
    caption = f"{caption} {note(_clustered(material))}".strip()
    blocks = _blocks(material)
    lines = [
        (curve.labels.model_copy(update={"blocks": blocks[curve.model]}), *curve.columns(cell))
        for curve in material.curves
        for cell in curve.cells
    ]
    return Rows(
        "layers", lines,
        (Labels, Unedited, Forced, OverClusters, Cell), "Every cell", caption, "marked",
        f"only what {wording.call(True)}" if summary.stopped else "critical only", most="size",
        brief=("model", "task", "unit", "factor", "layer", "accuracy", "outcome", "decided"),
    )  # fmt: skip


def _clustered(material: Material) -> list[ClusteredTask]:
    tasks = alike((curve for curve in material.curves if not curve.stopped), "task")
    firsts = [own[0].result for own in tasks]
    intervals = [[cell.clustered for curve in own for cell in curve.cells] for own in tasks]
    return [(of.task, of.items, of.shared, over) for of, over in zip(firsts, intervals, strict=True)]


def _blocks(material: Material) -> dict[str, int]:
    """How many blocks every model has; of one without a family, as many as are planned."""
    known: dict[str, int] = {}
    for curve in material.curves:
        known[curve.model] = max(known.get(curve.model, 0), *(layer + 1 for layer in curve.layers))
    return known | {m.model: m.blocks for family in material.summary.families for m in family.members if m.blocks}


def _main(material: Material) -> Part:
    own_claims = (
        *claims.which_blocks(material),
        *claims.unedited(material),
        *claims.what_rises(material),
        *copied_questions(_clustered(material)),
        *claims.form_or_choice(material),
        *claims.what_was_decided(material),
    )
    return Part(QUESTION, cells(material), tuple(_marks(material)), own_claims, short="Blocks", wide=True)


def _marks(material: Material) -> Iterator[Mark]:
    """Bars per block for one model and edit on few tasks, a map for more; the other one behind it."""
    summary = material.summary
    differing = {name for name in ("model", "unit", "factor") if len(alike(material.curves, name)) > 1}
    call = wording.call(summary.stopped)
    above = " above guessing" * any(result.guessing for _, result in summary.results)
    some_spared = any(cell.spared for curve in material.curves for cell in curve.cells)
    spared = "; spared: less than a quarter, likewise" * some_spared
    meaning = (
        f" Critical: more than half of the right answers{above} are lost, beyond chance, allowing for all blocks tried"
        f"{spared}." * (not summary.stopped)
    )
    mapped = len(differing) > 0 or len({curve.task for curve in material.curves}) > FEW_TASKS
    bars = Profile(
        "accuracy", "layer", lines={"unedited": "baseline_accuracy", "chance": "chance"},
        filled="marked", base="baseline_accuracy", full=call,
        panel=("model", "unit", "factor", "task"), wide=True, name="accuracy",
        caption=(meaning * (not mapped)).strip(),
    )  # fmt: skip
    rows = "model" if "model" in differing else "factor" if differing else "task"
    panel = tuple(name for name in ("unit", "factor", "task") if name != rows)
    cells_map = Map(
        "drop", "layer", rows, "marked", panel=panel, wide=True, name="drop", depth="blocks",
        caption=f"Accuracy lost without each block, in points. Boxed: {call}.{meaning * mapped}",
    )  # fmt: skip
    if mapped:
        yield cells_map
        yield from [bars] * (len(material.curves) <= PROFILES)
    else:
        yield from (bars, cells_map)


def _checks(material: Material, folder: Path) -> Iterator[Check]:
    """Baseline off floor and ceiling, answers readable, other kinds of ablation, and the share of blocks."""
    summary, edits = material.summary, material.summary.study.edits
    # Answers of the folder are not given again, where options can ask as its study does.
    in_folder = [*asking(summary.study)]
    if not of_tasks(summary.study).keys() - {"items"}:
        in_folder += ["--out", str(folder)]
    low = {curve.task: curve.untold for curve in material.curves if curve.untold}
    if low:
        why = wording.listed([f"{task} ({reason})" for task, reason in low.items()])
        text = f"Too few unedited answers are right to tell what is critical: {why}. More items may do (--items)."
        yield Check("bad", text)
    else:
        # Of several models the one that is right least often.
        results = sorted((r for _, r in summary.results), key=lambda r: -(r.baseline.accuracy.value or 0.0))
        measured = {r.task: (r.baseline.accuracy.value, r.guessing, r.items) for r in results}
        yield from checks.baselines((task, *numbers) for task, numbers in measured.items())
    critical = [(curve, cell) for curve in material.curves for cell in curve.marked]
    models, tasks = ([choice.name for choice in choices] for choices in (summary.study.models, summary.study.tasks))
    cut = {curve.task for curve in material.curves for cell in curve.cells if claims.may_be_cut(curve, cell)}
    if cut and not material.answers.empty:
        longest = material.answers["tokens"].max()
        longer = f"--max-new-tokens {2 * longest} --out {shlex.quote(f'{folder}-longer')}"
        text = f"Lost answers to {wording.listed(sorted(cut))} state the gold answer and are cut off; with more tokens"
        yield checks.untried(text, "ablate", models[:1], tasks, longer, asking(summary.study, longer))
    elif critical:
        broken = sum(_unreadable(cell) - _unreadable(curve.baseline_of(cell)) >= READABLE for curve, cell in critical)
        share = WHOLE_SHARE.text(READABLE)
        read = (
            f"In {broken} of the {len(critical)} losses, at least {share} more answers than unedited are cut off or"
            " unreadable: the form may be lost, not the skill."
        )
        unread = {curve.task for curve, cell in critical if _unreadable(curve.baseline_of(cell)) >= HALF}
        if broken:
            yield Check("bad", read)
        elif unread:
            text = "Most unedited answers are cut off or unreadable already, so losses may be of any kind"
            yield Check("open", f"{text}: {wording.listed(sorted(unread))}.")
        else:
            yield Check("good", "The answers behind the losses are not cut off and can be judged; read some.")
    if compared := kinds.compared(material.curves):
        stays = [of.first.task for of in compared if of.groups and of.groups[0][0] == tuple(of.curves)]
        if stays:
            stable = wording.listed(list(dict.fromkeys(stays)))
            check = Check("good", f"Blocks stay critical for {stable} under every kind of ablation tried.")
            if critical and "head" not in edits.unit and len(tasks) > 1:
                layers = ",".join(map(str, sorted({cell.layer for _, cell in critical})))
                heads = shlex.join(["--unit", "head", "--layers", layers, "--out", f"{folder}-heads"])
                check = replace(check, command="ablate", options=heads)
            yield check
        else:
            yield Check("bad", "No block is shown to be critical under every kind of ablation tried.")
    elif material.curves and not edits.replace and set(edits.unit) <= set(REPLACED_UNITS):
        mean = f"--layers {edits.layers} " * (edits.layers != "all") + "--replace mean"
        yield checks.untried("Another kind of ablation", "ablate", models[:1], tasks, mean, in_folder)
    if critical and len(tasks) == 1:
        yield checks.second_skill("Another skill at these blocks", "ablate", models, tasks[0], in_folder)
    if critical and not summary.stopped:
        places = {(curve.model, cell.layer) for curve in material.curves for cell in curve.cells}
        marked = {(curve.model, cell.layer) for curve in material.curves for cell in curve.marked}
        if 2 * len(marked) >= len(places):
            many = f"{len(marked)} of the {len(places)} blocks measured" if marked != places else "All blocks measured"
            yield Check("bad", f"{many} are critical for some task: to be critical is common here.")


def _unreadable(scores: Scores) -> float:
    """The share of answers that were cut off or in which none could be read; at least, since both may hold of one."""
    return max(scores.truncated, scores.unparsed)


def _examples(material: Material, names: Names) -> Iterator[Example]:
    for first in alike((curve for curve in material.curves if not curve.untold), "model", "unit", "factor")[:1]:
        example = claims.largest_loss(first, claims.grouped(first))
        if example is None or material.answers.empty:
            return
        curve, cell = example
        broken = changed(material.answers, cell.edit, right=False, task=curve.task, model=curve.model)
        yield from examples(broken, under(named([cell]), cell.factor), names(curve.task))


def offered(material: Material) -> list[Offered]:
    """What the item browser offers: every model and task unedited, then under every edit, of parts by falling drop."""
    entries = []
    for curve in (*material.curves, *material.maps):
        entries.append(Offered(curve.model, curve.task, str(BASELINE), "unedited"))
        cells = curve.cells if curve in material.curves else sorted(curve.cells, key=lambda cell: -cell.size)
        for cell in cells:
            label = f"{named([cell])} {wording.changed(curve.factor)}, drop {POINTS(cell.drop.value)}"
            label += f", {wording.call(curve.stopped)}" * cell.marked
            entries.append(Offered(curve.model, curve.task, cell.edit, label))
    return list(dict.fromkeys(entries))
