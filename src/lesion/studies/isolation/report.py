"""The report of an isolation and of its evaluation, in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult, refuse_unfinished
from lesion.edits.edit import BASELINE
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import (
    Block,
    Chapter,
    Choice,
    Figure,
    Findings,
    Folded,
    Opening,
    Page,
    Panel,
    Prose,
    Section,
    entries,
    study_section,
)
from lesion.report.finding import Finding
from lesion.report.table import Table
from lesion.report.wording import ALPHA
from lesion.studies.isolation import charts, findings, selection_charts, sweeps, tables, terminal
from lesion.studies.isolation.evaluation import ABOVE_CHANCE, EvaluatedTask, Evaluation
from lesion.studies.isolation.recall import recall_isolation
from lesion.studies.isolation.result import Isolation, IsolationSummary

MOST_MAPS = 16
"""At most so many distributions are drawn; the CSV file has them all."""
WAYS: dict[sweeps.Along, str] = {
    "keep": "Against the share taken of every matrix (logarithmic)",
    "factor": "Against the factor on the selected weights",
}
READING = (
    "An edit is selective when it changes the skill, changes it more than its matched random controls, and more than"
    " every control that is answered and informative: each by its interval, and with a p on the skill, corrected"
    f" for all edits tried (Holm), of at most {ALPHA:g}. Running text is reported apart.",
    f"A control is uninformative when the lower limit of the unedited accuracy is not {wording.points(ABOVE_CHANCE, 0)}"
    " points above chance: it has nothing to lose.",
    "At least one control should be generated: damage to all generation would otherwise look like a loss of the skill.",
    "Matched random controls show whether the same change anywhere would do as much: as many random weights of every"
    " matrix; of blocks, branches and spectra, the same change at other blocks. Few draws show little of their spread.",
    "A truncated or unparsed answer counts as wrong if the judge found no right answer in it. Where those rates rise"
    " with the drop, read the answers before speaking of a lost skill.",
    "No evidence is not evidence of nothing: the interval says what was ruled out.",
)


@dataclass(frozen=True)
class IsolationResult(StudyResult[IsolationSummary]):
    """A skill that has been isolated, or edits that have been evaluated: the numbers, and the edits as files.

    Attributes:
        table: one row per task and edit, random controls beside it, as `evaluation.csv` holds it; where nothing was
            evaluated, one row per selection and matrix, as `selections.csv`.
    """

    TABLE, TEXT = tables.main, terminal.text_tables

    @classmethod
    @override
    def recall(cls, folder: Path) -> IsolationResult | None:
        recalled = recall_isolation(folder)
        if recalled is None:
            refuse_unfinished(folder, "isolation")
            return None
        kind = EvaluationResult if recalled.summary.isolation is None else cls
        return kind(folder, recalled.summary)

    @property
    def edits(self) -> dict[str, Path]:
        """The `.edit` files by name: `mathneuro-0.05`."""
        selections = self.summary.isolation.selections if self.summary.isolation else ()
        return {Path(entry.file).stem: self.folder / entry.file for entry in selections if entry.file}

    @override
    def found(self) -> list[Finding]:
        return findings.findings(self.summary)

    @override
    def shown(self) -> Table:
        evaluation = self.summary.evaluation
        return tables.main(self.summary) if evaluation is None else tables.cells(evaluation)

    @override
    def page(self) -> Page:
        recalled = recall_isolation(self.folder)
        assert recalled is not None
        return report(*recalled)

    @override
    def chapter(self) -> Chapter:
        summary = self.summary
        evaluation = summary.evaluation
        return Chapter(
            "Which single weights does arithmetic need that other skills do not?",
            "Forward passes on texts of each task show which weights matter to it; those of arithmetic alone are cut,"
            " beside random ones, as many in every matrix.",
            tuple(findings.findings(summary)),
            () if evaluation is None else tuple(_drops(summary, evaluation)),
            short="Weights",
        )


class EvaluationResult(IsolationResult):
    """Edits of files that have been evaluated on a model."""


def report(summary: IsolationSummary, answers: pd.DataFrame | None = None, items: pd.DataFrame | None = None) -> Page:
    """What the page holds."""
    evaluation, isolation = summary.evaluation, summary.isolation
    carried = browser.NOTHING
    if evaluation is not None and answers is not None and items is not None:
        carried = browser.data(list(_offered(evaluation, answers)), answers, items)
    browsable = bool(carried["cells"])
    sections = [_findings(summary)]
    if evaluation is not None:
        sections += _evaluation(summary, evaluation, browsable=browsable)
    if isolation is not None:
        sections += _isolation(isolation)
    sections.append(_study(summary, browsable=browsable))
    files = [tables.matrices(isolation)] if isolation is not None and isolation.selections else []
    files += [tables.evaluation(summary)] if evaluation is not None else []
    title = f"Edits of {evaluation.model}" if evaluation else "Edits"
    if isolation is not None:
        title = f"Where {isolation.study.skill} lies in {isolation.model}"
    return Page(
        title=visible(summary.study.title or title),
        eyebrow="isolation of a skill" if isolation is not None else "evaluation of edits",
        sections=tuple(sections),
        version=summary.version,
        approximate=summary.approximate or "",
        carried=carried,
        tables=tuple(files),
        opening=_opening(summary),
    )


def _opening(summary: IsolationSummary) -> Opening:
    """What the edits do to the skill and the controls, side by side."""
    evaluation = summary.evaluation
    figures = [] if evaluation is None else _drops(summary, evaluation)
    if evaluation is None or not figures:
        return Opening()
    first = findings.findings(summary)[0]
    numbers = [text.partition(". ")[0].rstrip(".") + "." for text in first.sentences[:1]]
    numbers += [text for text in first.sentences[:1] for text in text.split(". ")[-1:] if text.endswith("read them.")]
    verdict = (*first.headline[:1], *numbers) if evaluation.skills else (*first.headline, *first.sentences)[:2]
    return Opening(verdict, figures[0])


def _drops(summary: IsolationSummary, evaluation: Evaluation) -> list[Figure]:
    """The figure of the first screen; none where no task has an accuracy."""
    chart = charts.drops(evaluation)
    if chart is None:
        return []
    random = any(effect.random is not None for task in evaluation.tasks for effect in task.effects.values())
    first = "the skill" if evaluation.skills else "the first task"
    caption = (
        "Drop in accuracy under the edits that take most, on the same items; to the left of 0 is a gain."
        f"{f' Orange: {first}, blue: the other tasks.' if len(evaluation.tasks) > 1 else ''} Bars: {_level(summary)}"
        f" intervals.{' Grey dots: lowest, mean and highest of the matched random controls.' if random else ''}"
    )
    return [Figure("drops", (Panel((chart,)),), caption)]


def _offered(evaluation: Evaluation, answers: pd.DataFrame) -> Iterator[browser.Offered]:
    """The baseline and every edit that is no random control, on tasks with answers."""
    present = set(zip(answers["model_name"], answers["task"], answers["edit"], strict=True))
    labels = {str(BASELINE): "unedited"} | {edit.edit: evaluation.name_of(edit.edit) for edit in evaluation.tried}
    for task in evaluation.tasks:
        for edit, label in labels.items():
            drop = task.effects[edit].change.value if edit in task.effects else None
            if not task.scored and (evaluation.model, task.name, edit) in present:
                about = label if drop is None else f"{label}, drop {wording.points(drop)}"
                yield browser.Offered(evaluation.model, task.name, edit, about)


def _findings(summary: IsolationSummary) -> Section:
    blocks: list[Block] = [Findings(tuple(findings.findings(summary)))]
    if summary.evaluation is not None:
        how = (
            "Baseline and edits answered the same items, with the same prompts and decoding. Brackets are"
            f" {_level(summary)} intervals, which are not corrected; a change is claimed where the"
            " corrected p is at most .05 and the interval excludes 0."
        )
        blocks += [Prose((how,)), tables.unedited(summary.evaluation, loops=bool(summary.approximate))]
    return Section("Findings", "Findings", tuple(blocks))


def _level(summary: IsolationSummary) -> str:
    return f"{100 * summary.study.level:g}{wording.SPACE}%"


def _evaluation(summary: IsolationSummary, evaluation: Evaluation, *, browsable: bool) -> Iterator[Section]:
    level = _level(summary)
    figures = tuple(_tradeoffs(evaluation, level))
    if figures:
        click = "; click it to see the answers" if browsable else ""
        how = (
            "A point is the edited model. Cutting is the more selective the further left a point lies at the height of"
            f" the dashed line; boosting, the further right. Point at a mark to read its numbers{click}."
        )
        yield Section("Trade-off", "What the skill loses, and what its controls keep", (Prose((how,)), *figures))
    along = tuple(_sweeps(evaluation, level))
    if along:
        yield Section("Sweeps", "Every task along the sweep", along)
    how = (
        "Accuracies in %, drops in percentage points, perplexities and their ratio to the unedited model's, with"
        f" {level} intervals; p by the exact paired test. Random: mean, lowest and highest of the matched random"
        " controls; beyond random: how much more the edit drops."
    )
    blocks: list[Block] = [Prose((how,)), tables.cells(evaluation)]
    for table in (tables.matched(evaluation), tables.selectivity(evaluation), tables.candidates(evaluation)):
        if len(table.frame):
            blocks += [Prose(title=table.title), table]
    yield Section("Table", "Every task under every edit", tuple(blocks))


def _tradeoffs(evaluation: Evaluation, level: str) -> Iterator[Figure]:
    """One figure per skill and direction (pruning, boosting), with a panel per control that was answered."""
    for number, skill in enumerate(evaluation.skills):
        for regime, edits in sweeps.regimes(evaluation.tried).items():
            lines, boost = sweeps.paths(edits), regime == "boost"
            controls = sweeps.comparable(evaluation, skill, edits)
            if not controls:
                continue
            less = " Perplexity is drawn with less at the top." if any(task.scored for task in controls) else ""
            yield Figure(
                name=f"tradeoff-{regime}" if len(evaluation.skills) == 1 else f"tradeoff-{number}-{regime}",
                panels=tuple(
                    Panel((charts.tradeoff(evaluation, lines, skill, control, boost=boost),), _heading(control))
                    for control in controls
                ),
                caption=f"{'Boosting' if boost else 'Cutting'}: {_heading(skill)} against each control. Bars: {level}"
                " intervals; small dots: repeats, with their mean. Grey, tied to its edit: its matched random controls,"
                " from the lowest to the highest draw. Labelled (share taken of every matrix, or the factor): edits"
                f" that no other edit beats on both tasks.{less}",
                legend=charts.legend(evaluation, lines, [skill, *controls]),
            )


def _sweeps(evaluation: Evaluation, level: str) -> Iterator[Block]:
    """Accuracy along the share kept and along the factor, where at least one line has two places.

    Tasks that no edit changes are folded away: a flat line needs no room beside the result.
    """
    for along, words in WAYS.items():
        lines = sweeps.swept(evaluation.tried, along)
        drawn = {edit.edit for line in lines for edit in line.edits}
        tasks = [task for task in evaluation.tasks if drawn & set(task.effects)]
        flat = [task for task in tasks if task.role != "skill" and charts.unchanged(task, lines)]
        flat = flat if len(flat) < len(tasks) else []
        for some, after in (([task for task in tasks if task not in flat], ""), (flat, "-unchanged")):
            if not some:
                continue
            figure = Figure(
                name=f"sweep-{along}{after}",
                panels=tuple(Panel((charts.sweep(evaluation, lines, task, along),), _heading(task)) for task in some),
                caption=f"{words}. Bars: {level} intervals; grey beside them: matched random controls, from the lowest"
                " to the highest draw. Marks of several methods at one place stand side by side.",
                legend=charts.legend(evaluation, lines, some),
            )
            most = f"at most {100 * charts.UNCHANGED:.0f} points from the baseline"
            label = f"{wording.listed([task.name for task in some])}: {most}"
            yield Folded(label, (figure,)) if after else figure


def _heading(task: EvaluatedTask) -> str:
    """`primer:atlas (control, n = 200)`."""
    about = f"n{wording.SPACE}={wording.SPACE}{task.items:,}"
    return f"{task.name} ({f'{task.role}, ' if task.role else ''}{about})"


def _isolation(isolation: Isolation) -> Iterator[Section]:
    maps = list(_maps(isolation))
    if maps:
        blocks: list[Block] = [Choice("Selection", tuple(maps))]
        if len(maps) < len(isolation.selections):
            left = f"{len(maps)} of {len(isolation.selections)} selections are drawn; all are in selections.csv."
            blocks.append(Prose((left,)))
        yield Section("Distribution", "Where the selected weights lie", tuple(blocks))
    overlaps = isolation.agreements
    if overlaps:
        single = (
            " Two repeats are one pair, without a bar." if any(overlap.repeats == 2 for overlap in overlaps) else ""
        )
        figure = Figure(
            name="consistency",
            panels=(Panel((selection_charts.consistency(overlaps),)),),
            caption="Overlap (intersection over union, IoU) between the sets selected from repeated draws of texts,"
            f" mean over pairs; bars from the lowest to the highest pair.{single}",
            legend=selection_charts.overlap_legend(overlaps),
        )
        numbers = Folded("The numbers", (tables.overlap(isolation),))
        yield Section("Consistency", "Would other texts have selected the same?", (figure, numbers))
    if isolation.selections:
        own: list[Block] = [tables.selections(isolation)]
        if isolation.excluded is not None:
            table = tables.super_weights(isolation, isolation.excluded)
            own += [Prose(title=table.title), table]
        if isolation.texts:
            own += [Prose(title="Calibration texts"), tables.texts(isolation)]
        yield Section("Selections", "The selections", tuple(own))
    if isolation.coverage:
        yield Section("Coverage", "What was scored, and what was not", (tables.coverage(isolation),))


def _maps(isolation: Isolation) -> Iterator[tuple[str, Figure]]:
    """Where each of the first selections lies, by its name."""
    slugs = selection_charts.slugs(isolation)
    for place in selection_charts.first(isolation.selections, MOST_MAPS):
        name, selection = isolation.names[place], isolation.selections[place]
        if not selection.density:
            continue
        full = selection_charts.share(selection_charts.full(selection_charts.counts(selection)))
        figure = Figure(
            name=f"distribution-{slugs[place]}",
            panels=(Panel((selection_charts.distribution(selection),), name),),
            caption=f"{name}: {selection.selected:,} of {selection.total:,} scored weights,"
            f" {wording.percent(selection.share, 2)}. Share selected, in %, per block (columns) and matrix (rows);"
            f" experts of a block are summed up. The colour is full at {full}{wording.SPACE}%.",
        )
        yield name, figure


def _study(summary: IsolationSummary, *, browsable: bool) -> Section:
    reading = READING if summary.evaluation is not None else READING[-1:]
    if browsable:
        reading = (*reading, "Answers under the random controls are left out of this page; they are in the store.")
    return study_section(_facts(summary), summary.notes, reading)


def _facts(summary: IsolationSummary) -> list[tuple[str, str]]:
    """The study's own entries, and those of the isolation and the evaluation that are not tables."""
    isolation, evaluation = summary.isolation, summary.evaluation
    facts = list(
        entries(summary.study.model_dump(mode="json", by_alias=False, exclude_none=True, exclude={"kind", "title"}))
    )
    if isolation is not None:
        if isolation.study != summary.study:
            names = {"skill", "controls", "methods", "share", "samples", "repeats", "seed", "replacement"}
            names |= {"exclude_super_weights"}
            own = isolation.study.model_dump(mode="json", by_alias=False, include=names)
            facts += [(f"{name} of the isolation", value) for name, value in entries(own)]
        facts += entries(isolation.model_dump(include={"fingerprint", "family", "blocks", "disjoint"}))
        facts.append(("weights in", isolation.dtype))
    if evaluation is not None:
        if isolation is None or evaluation.dtype != isolation.dtype:
            facts.append(("weights in" if isolation is None else "weights in the evaluation", evaluation.dtype))
        random = len(evaluation.edits) - len(evaluation.tried)
        facts.append(("edits", f"{len(evaluation.tried)}, and {wording.counted(random, 'random control')}"))
    return facts
