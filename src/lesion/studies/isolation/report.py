"""The report of an isolation and of its evaluation, in reading order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lesion.edits.edit import BASELINE
from lesion.plain import visible
from lesion.report import browser, wording
from lesion.report.blocks import Block, Chapter, Choice, Facts, Figure, Findings, Folded, Page, Panel, Prose, Section
from lesion.report.publishing import html, publish
from lesion.report.wording import ALPHA
from lesion.studies.isolation import charts, findings, sweeps, tables
from lesion.studies.isolation.distribution import Distribution, distributions, first, share
from lesion.studies.isolation.evaluation import ABOVE_CHANCE, EvaluatedTask, Evaluation
from lesion.studies.isolation.result import Isolation, IsolationSummary
from lesion.studies.isolation.sweeps import Along
from lesion.studies.isolation.tradeoff import tradeoff

MOST_MAPS = 16
"""At most so many distributions are drawn; the CSV file has them all."""
UNTOLD = {"kind", "title"}
"""Entries of the study that the page tells elsewhere."""
READING = (
    "An edit is selective when it changes the skill, changes it more than as many random weights per matrix, and more"
    " than every control that is answered and informative: each by its interval, and p on the skill, corrected for all"
    f" edits tried (Holm), is at most {ALPHA:g}. Running text is not answered; whether it suffers is said apart.",
    f"A control is uninformative when the unedited model is not at least {wording.points(ABOVE_CHANCE, 0)} points above"
    " chance by the lower limit of its interval: it has nothing to lose.",
    "At least one control should also be generated: damage to generating any text would otherwise look like a loss of"
    " the skill.",
    "Random controls show whether this many weights anywhere would have done as well. Few draws show little of their"
    " spread.",
    "A truncated or unparsed answer counts as wrong if the judge found no right answer in it. Where those rates rise"
    " with the drop, read the answers before speaking of a lost skill.",
    "No evidence is not evidence of nothing: the interval says what was ruled out.",
)


def write(
    folder: Path,
    summary: IsolationSummary,
    answers: pd.DataFrame | None = None,
    items: pd.DataFrame | None = None,
) -> Path:
    """Write `report.html`, `summary.json`, the tables as CSV and the figures as PNG and SVG, each whole.

    Args:
        folder: made if it is not there; files of an earlier report are replaced.
        summary: all numbers.
        answers: from `Store.answers`; without them the page has no item browser.
        items: from `Store.items`.

    Returns:
        The path of `report.html`.

    Raises:
        LesionError: the folder cannot be written.
    """
    path = publish(Path(folder), "isolation", report(summary, answers, items))
    summary.write(Path(folder))
    return path


def page(
    summary: IsolationSummary,
    answers: pd.DataFrame | None = None,
    items: pd.DataFrame | None = None,
    budget: int = browser.BUDGET,
) -> str:
    """The text of `report.html`; `budget`: characters of questions and answers that it carries at most."""
    return html(report(summary, answers, items, budget))


def report(
    summary: IsolationSummary,
    answers: pd.DataFrame | None = None,
    items: pd.DataFrame | None = None,
    budget: int = browser.BUDGET,
) -> Page:
    """What the page holds."""
    evaluation, isolation = summary.evaluation, summary.isolation
    carried = _carried(evaluation, answers, items, budget)
    sections = [_findings(summary)]
    if evaluation is not None:
        sections += _evaluation(summary, evaluation, browsable=bool(carried["cells"]))
    if isolation is not None:
        sections += _isolation(isolation)
    sections.append(_study(summary, browsable=bool(carried["cells"])))
    files = [tables.matrices(isolation)] if isolation is not None and isolation.selections else []
    files += [tables.evaluation(summary)] if evaluation is not None else []
    return Page(
        title=visible(summary.study.title or _title(summary)),
        eyebrow="isolation of a skill" if isolation is not None else "evaluation of edits",
        sections=tuple(sections),
        version=summary.version,
        approximate=summary.approximate or "",
        carried=carried,
        tables=tuple(files),
    )


def chapter(summary: IsolationSummary) -> Chapter:
    """What the study adds to a page over several studies."""
    evaluation = summary.evaluation
    return Chapter(
        "Which single weights does arithmetic need that other skills do not?",
        "Forward passes on texts of each task show which weights matter to it; those of arithmetic alone are cut,"
        " beside random ones, as many in every matrix.",
        tuple(findings.findings(summary)),
        () if evaluation is None else tuple(tradeoffs(evaluation, _level(summary))),
    )


def _findings(summary: IsolationSummary) -> Section:
    blocks: list[Block] = [Findings(tuple(findings.findings(summary)))]
    if summary.evaluation is not None:
        blocks.append(
            Prose((
                "Baseline and edits answered the same items, with the same prompts and decoding. Brackets are"
                f" {_level(summary)} intervals; where one reaches across 0, nothing is claimed.",
            ))
        )  # fmt: skip
        blocks.append(tables.unedited(summary.evaluation, loops=bool(summary.approximate)))
    return Section("Findings", "Findings", tuple(blocks))


def _level(summary: IsolationSummary) -> str:
    return f"{100 * summary.study.level:g}{wording.SPACE}%"


def _evaluation(summary: IsolationSummary, evaluation: Evaluation, *, browsable: bool) -> Iterator[Section]:
    figures = list(tradeoffs(evaluation, _level(summary)))
    if figures:
        click = "; click it to see the answers" if browsable else ""
        how = (
            "A point is the edited model. Cutting is the more selective the further left a point lies at the height of"
            f" the dashed line; boosting, the further right. Point at a mark to read its numbers{click}."
        )
        yield Section("Trade-off", "What the skill loses, and what its controls keep", (Prose((how,)), *figures))
    figures = list(_sweeps(evaluation, _level(summary)))
    if figures:
        yield Section("Sweeps", "Every task along the sweep", tuple(figures))
    cells = tables.cells(evaluation)
    if not len(cells.frame) and not cells.caption:
        return
    how = (
        f"Accuracies in %, drops in percentage points, perplexities and their ratio to the unedited model's, with"
        f" {_level(summary)} intervals; p by the exact paired test. Random: the mean of as many random weights per"
        " matrix, from the lowest to the highest draw; beyond random: how much more the edit drops than they do."
    )
    blocks: list[Block] = [Prose((how,)), cells]
    for table in (tables.selectivity(evaluation), tables.candidates(evaluation)):
        if len(table.frame):
            blocks += [Prose(title=table.title), table]
    yield Section("Table", "Every task under every edit", tuple(blocks))


def tradeoffs(evaluation: Evaluation, level: str) -> Iterator[Figure]:
    """One figure per skill and direction (pruning, boosting), with a panel per control that was answered."""
    for skill in evaluation.skills:
        for regime, edits in sweeps.regimes(evaluation.tried).items():
            lines, boost = sweeps.paths(edits), regime == "boost"
            controls = sweeps.comparable(evaluation, skill, edits)
            if not controls:
                continue
            name = "tradeoff" if len(evaluation.skills) == 1 else f"tradeoff-{evaluation.skills.index(skill)}"
            less = " Perplexity is drawn with less at the top." if any(task.scored for task in controls) else ""
            yield Figure(
                name=f"{name}-{regime}",
                panels=tuple(
                    Panel((tradeoff(evaluation, lines, skill, control, boost=boost),), _heading(control))
                    for control in controls
                ),
                caption=f"{'Boosting' if boost else 'Cutting'} the weights selected for {_heading(skill)}, a panel per"
                f" control. Bars: {level} intervals; small dots: repeats, with their mean. Grey, tied to its edit: as"
                " many random weights per matrix, from the lowest to the highest draw. Labelled (share taken of every"
                f" matrix, or the factor): edits that no other edit beats on both tasks.{less}",
                legend=charts.legend(evaluation, lines, [skill, *controls]),
            )


def _sweeps(evaluation: Evaluation, level: str) -> Iterator[Figure]:
    """Accuracy along the share kept and along the factor, where at least one line has two places."""
    ways: dict[Along, str] = {
        "keep": "Against the share taken of every matrix (logarithmic)",
        "factor": "Against the factor on the selected weights",
    }
    for along, words in ways.items():
        lines = sweeps.swept(evaluation.tried, along)
        edits = [edit.edit for line in lines for stop in line.stops for edit in stop.edits]
        tasks = [task for task in evaluation.tasks if any(edit in task.effects for edit in edits)]
        if lines and tasks:
            yield Figure(
                name=f"sweep-{along}",
                panels=tuple(Panel((charts.sweep(evaluation, lines, task, along),), _heading(task)) for task in tasks),
                caption=f"{words}. Bars: {level} intervals; grey beside them: matched random controls, from the lowest"
                " to the highest draw. Marks of several methods at one place stand side by side.",
                legend=charts.legend(evaluation, lines, tasks),
            )


def _heading(task: EvaluatedTask) -> str:
    """`primer:atlas (control, n = 200)`."""
    about = f"n{wording.SPACE}={wording.SPACE}{task.items:,}"
    return f"{task.name} ({f'{task.role}, ' if task.role else ''}{about})"


def _isolation(isolation: Isolation) -> Iterator[Section]:
    every = distributions(isolation)
    drawn = [one for one in first(every, MOST_MAPS) if one.blocks]
    if drawn:
        options = tuple((one.name, _map(one)) for one in drawn)
        blocks: list[Block] = [Choice("Selection", options)]
        if len(drawn) < len(every):
            blocks.append(Prose((f"{len(drawn)} of {len(every)} selections are drawn; all are in selections.csv.",)))
        yield Section("Distribution", "Where the selected weights lie", tuple(blocks))
    overlaps = isolation.agreements
    if overlaps:
        single = " Two repeats are one pair, which has no bar." if any(one.repeats == 2 for one in overlaps) else ""
        figure = Figure(
            name="consistency",
            panels=(Panel((charts.consistency(overlaps),)),),
            caption="Overlap (intersection over union, IoU) between the sets selected from repeated draws of texts,"
            f" mean over pairs; bars from the lowest to the highest pair.{single}",
            legend=charts.overlap_legend(overlaps),
        )
        numbers = Folded("The numbers", (tables.overlap(isolation),))
        yield Section("Consistency", "Would other texts have selected the same?", (figure, numbers))
    if isolation.selections:
        own: list[Block] = [tables.selections(isolation)]
        if isolation.texts:
            own += [Prose(title="Calibration texts"), tables.texts(isolation)]
        yield Section("Selections", "The selections", tuple(own))
    if isolation.coverage:
        yield Section("Coverage", "What was scored, and what was not", (tables.coverage(isolation),))


def _map(one: Distribution) -> Figure:
    return Figure(
        name=f"distribution-{one.slug}",
        panels=(Panel((charts.distribution(one),), one.name),),
        caption=f"{one.name}: {one.whole.selected:,} of {one.whole.total:,} scored weights,"
        f" {wording.percent(one.whole.share, 2)}. Share of weights selected, in %, per block (columns) and matrix"
        " (rows); experts of a block are summed up. The colour is full at"
        f" {share(one.full)}{wording.SPACE}%.",
    )


def _study(summary: IsolationSummary, *, browsable: bool) -> Section:
    blocks: list[Block] = [Facts(tuple(_facts(summary)))]
    if summary.notes:
        blocks.append(Prose(items=summary.notes, title="Notes", quiet=False))
    reading: Sequence[str] = READING if summary.evaluation is not None else READING[-1:]
    if browsable:
        reading = [*reading, "Answers under the random controls are left out of this page; they are in the store."]
    blocks.append(Prose(items=tuple(reading), title="How to read this", quiet=False))
    return Section("Study", "The study", tuple(blocks))


def _title(summary: IsolationSummary) -> str:
    """The title of a study that has none of its own."""
    if summary.isolation is not None:
        return f"Where {summary.isolation.study.skill} lies in {summary.isolation.model}"
    return f"Edits of {summary.evaluation.model}" if summary.evaluation else "Edits"


def _facts(summary: IsolationSummary) -> list[tuple[str, str]]:
    """The study's own entries, and those of the isolation and the evaluation that are not tables."""
    isolation, evaluation = summary.isolation, summary.evaluation
    facts = _entries(summary.study.model_dump(mode="json", exclude_none=True, exclude=UNTOLD))
    if isolation is not None:
        if isolation.study != summary.study:
            names = {"skill", "controls", "methods", "keep", "samples", "repeats", "seed", "replacement"}
            own = isolation.study.model_dump(mode="json", include=names)
            facts += [(f"{name} of the isolation", value) for name, value in _entries(own)]
        facts += _entries(isolation.model_dump(include={"fingerprint", "family", "blocks", "disjoint"}))
        facts.append(("weights in", isolation.dtype))
    if evaluation is not None:
        if isolation is None or evaluation.dtype != isolation.dtype:
            facts.append(("weights in" if isolation is None else "weights in the evaluation", evaluation.dtype))
        random = len(evaluation.edits) - len(evaluation.tried)
        facts.append(("edits", f"{len(evaluation.tried)}, and {wording.counted(random, 'random control')}"))
    return [(name, visible(value)) for name, value in facts if value]


def _entries(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), wording.entry(value)) for name, value in values.items()]


def _carried(
    evaluation: Evaluation | None, answers: pd.DataFrame | None, items: pd.DataFrame | None, budget: int
) -> dict[str, Any]:
    """What the item browser reads: the baseline and every edit that is no random control, on tasks with answers."""
    if evaluation is None or answers is None or items is None or answers.empty or items.empty:
        return dict(browser.NOTHING)
    names = [task.name for task in evaluation.tasks if not task.scored]
    labels = {str(BASELINE): "unedited"} | {edit.edit: edit.name for edit in evaluation.tried}
    wanted = answers[answers["task"].isin(names) & answers["edit"].isin(labels)]
    said = browser.said(wanted)
    models = list(dict.fromkeys(model for model, _, _ in said))
    cells = [
        browser.Cell(model, task.name, edit, _with_drop(label, task, edit), said[model, task.name, edit])
        for model in models
        for task in evaluation.tasks
        for edit, label in labels.items()
        if (model, task.name, edit) in said
    ]
    shown = [name for name in names if any(cell.task == name for cell in cells)]
    return browser.bundled(cells, models, shown, items, budget) if cells else dict(browser.NOTHING)


def _with_drop(label: str, task: EvaluatedTask, edit: str) -> str:
    drop = task.effects[edit].change.value if edit in task.effects else None
    return label if drop is None else f"{label}, drop {wording.points(drop)}"
