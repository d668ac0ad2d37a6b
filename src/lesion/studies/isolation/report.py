"""The result of an isolation and of an evaluation: its rows, how they are drawn, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from typing_extensions import override

from lesion.core.changes import changed
from lesion.core.clustered_intervals import ClusteredTask, OverClusters, copied_questions, note
from lesion.core.options import asking
from lesion.core.result import StudyResult, refuse_unfinished
from lesion.core.store import Store
from lesion.edits.edit import BASELINE
from lesion.report import browser, checks, wording
from lesion.report.blocks import Block, Check, Example, Folded, Page, entries, examples
from lesion.report.checks import flags, untried
from lesion.report.marks import Bars, Curves, Map, Mark, Points
from lesion.report.parts import Part, excerpt
from lesion.report.rows import Row, Rows
from lesion.report.table import Table
from lesion.report.values import POINTS, WHOLE_POINTS
from lesion.report.wording import ALPHA, WORTH_SAYING
from lesion.statistics.detectable import smallest_drop
from lesion.studies.isolation import claims
from lesion.studies.isolation.evaluation import (
    ABOVE_CHANCE,
    AgainstControl,
    Candidate,
    EditedModel,
    Evaluation,
    Line,
    Measured,
    RandomControls,
    Sizes,
    UnderEdit,
    against_controls,
    matched,
    measured,
)
from lesion.studies.isolation.result import (
    CalibrationTexts,
    Coverage,
    HeldBy,
    Isolation,
    IsolationSummary,
    MatrixCount,
    Overlap,
    Selected,
    Selection,
    SuperWeight,
)
from lesion.studies.isolation.study import IsolationStudy
from lesion.studies.isolation.summary import recall_isolation

FEWEST = 3
"""Points of a curve, or edits of a figure; with fewer, bars or a table show as much."""
READING = (
    "An edit takes the skill alone when it changes the skill, changes it more than its matched random controls, and"
    " more than every informative control: each by its interval, and with a p on the skill, corrected for all edits"
    f" tried (Holm), of at most {ALPHA:g}. A control is uninformative when the lower limit of its unedited accuracy is"
    f" not {POINTS(ABOVE_CHANCE)} points above guessing: it has nothing to lose.",
    "MathNeuro selects the weights of every matrix that are in the top share for the skill and for no control: fewer"
    " than that share. Matched random controls: as many random weights; of other edits, the same change elsewhere.",
    "A boost stands beside the whole block and MLP that hold most of its weights, each enlarged by the factor that is"
    " best for it.",
)
METHOD = (
    "Forward passes on texts of each task show which weights matter to it; those of arithmetic alone are cut, beside"
    " random ones, as many in every matrix."
)


@dataclass(frozen=True)
class IsolationResult(StudyResult[IsolationSummary]):
    """A skill that has been isolated, or edits that have been evaluated: the numbers, and the edits as files.

    Attributes:
        table: one row per task and edit, as in `evaluation.csv`; else one per selection and matrix.
    """

    SUMMARY = IsolationSummary
    TEXTLESS = True
    EYEBROW = "isolation of a skill"
    CHAPTER = (METHOD, "Weights")
    READING = READING
    TESTED = (
        "Changes are tested by exact paired tests, with p corrected by Holm's method over all edits tried. Brackets"
        " and bands: {level} intervals, not corrected."
    )

    @classmethod
    @override
    def recall(cls, folder: Path) -> IsolationResult | None:
        summary = recall_isolation(folder)
        if summary is None:
            refuse_unfinished(folder, "isolation")
            return None
        kind = EvaluationResult if summary.isolation is None else cls
        return kind(folder, summary)

    @property
    @override
    def tested(self) -> str:
        return super().tested if self.summary.evaluation is not None else ""

    @property
    def edits(self) -> dict[str, Path]:
        """The `.edit` files by name: `mathneuro-0.05`."""
        selections = self.summary.isolation.selections if self.summary.isolation else ()
        return {entry.stem: self.folder / entry.file for entry in selections if entry.file}

    @cached_property
    def lines(self) -> list[Line]:
        """What was measured, a line per task and edit."""
        return [] if self.summary.evaluation is None else measured(self.summary.evaluation)

    @override
    def parts(self) -> list[Part]:
        evaluation, isolation = self.summary.evaluation, self.summary.isolation
        return [
            *(_evaluation(evaluation, self.lines) if evaluation is not None else ()),
            *(_isolation(isolation) if isolation is not None else ()),
        ]

    @property
    @override
    def basis(self) -> str:
        evaluation = self.summary.evaluation
        if evaluation is None or not evaluation.tasks:
            return ""
        answered = [task for task in evaluation.tasks if not task.scored] or list(evaluation.tasks)
        counts = [task.items for task in answered]
        texts = [f"{wording.span(min(counts), max(counts))} items{' a task' * (len(counts) > 1)}"]
        main, tried = (evaluation.skills or answered)[0], len(evaluation.tried)
        if tried and not main.scored and (drop := smallest_drop(main.items, tried)) is not None:
            texts.append(f"changes of {main.name} under about {WHOLE_POINTS.text(drop)} can be missed")
        if draws := max((line.random_draws or 0 for line, _ in self.lines), default=0):
            texts.append(f"{wording.counted(draws, 'random control')} per edit")
        return f"{'; '.join(texts)}."

    @override
    def checks(self) -> list[Check]:
        evaluation = self.summary.evaluation
        if evaluation is None:
            return [Check("open", "Whether the skill needs the selected weights: test them with lesion evaluate.")]
        if not evaluation.tried:
            return []
        study, tasks = self.summary.study, [task.name for task in self.summary.study.tasks]
        if isinstance(study, IsolationStudy):
            command, own = "isolate", [*flags("--skill", [study.skill]), *flags("--control", study.controls)]
        else:
            command, own = "evaluate", flags("--edit", study.edits)
        own = [study.model.name, *own]

        def again(what: str, option: str) -> Check:
            return untried(what, command, own, tasks, option, asking(study, option))

        grounds = list(_checks(evaluation, self.lines, again))
        if command == "evaluate" and len(tasks) == 1:
            grounds.append(checks.second_skill("What another skill loses", command, own, tasks[0], asking(study)))
        return grounds

    @property
    @override
    def facts(self) -> list[tuple[str, str]]:
        summary, isolation, evaluation = self.summary, self.summary.isolation, self.summary.evaluation
        own: dict[str, Any] = {"mode": "json", "by_alias": False, "exclude_none": True, "exclude": {"kind", "title"}}
        facts = list(entries(summary.study.model_dump(**own)))
        if isolation is not None:
            if isolation.study != summary.study:
                facts += [(f"{name} (isolation)", value) for name, value in entries(isolation.study.model_dump(**own))]
            facts += entries(isolation.model_dump(include={"fingerprint", "family", "blocks", "disjoint", "dtype"}))
        return facts + ([] if evaluation is None else [("dtype evaluated", evaluation.dtype)])

    @override
    def page(self) -> Page:
        if self.summary.evaluation is None:
            return super().page()
        with Store.read(self.folder) as store:
            return self.with_answers(store.answers(), store.items())

    def with_answers(self, answers: pd.DataFrame | None = None, items: pd.DataFrame | None = None) -> Page:
        """The page, with the answers that its browser offers."""
        page, evaluation = super().page(), self.summary.evaluation
        if evaluation is None or answers is None or items is None:
            return page
        carried = browser.data(list(_offered(evaluation, answers, self.lines)), answers, items)
        carried = browser.in_short(carried, self.names)
        return replace(page, carried=carried, examples=tuple(_broken(answers, self.lines)))


class EvaluationResult(IsolationResult):
    """Edits of files that have been evaluated on a model."""

    EYEBROW = "evaluation of edits"


def _evaluation(evaluation: Evaluation, measured: Sequence[Line]) -> Iterator[Part]:
    skills = wording.listed([task.name for task in evaluation.skills])
    rates = {"nonfinite": 0.0} | dict.fromkeys(("truncated", "looped", "unclosed", "unparsed"), WORTH_SAYING)
    clustered: list[ClusteredTask] = [
        (task.name, task.items, task.shared, [cell.clustered for cell in task.cells]) for task in evaluation.tasks
    ]
    seldom = {name for name, bar in rates.items() if all((getattr(line, name) or 0) <= bar for line, _ in measured)}
    rows = Rows(
        "evaluation", [(line, line.clustered, edit) for line, edit in measured], (Measured, OverClusters, EditedModel),
        f"{evaluation.model} · edited",
        "Beyond random: how much more the edit drops than the mean of its random controls; they and the rivals of"
        f" boosts have rows too. {note(clustered)}".rstrip(),
        marked="changed", only_marked="shown changes only", most="strength",
        hidden=frozenset({"keep", "factor", *seldom}),
    )  # fmt: skip
    main_claims = (
        *claims.what_the_skill_loses(evaluation, measured),
        *claims.what_changes_most(evaluation, measured),
        *claims.what_the_model_can(evaluation),
        *copied_questions(clustered),
    )
    verb = "raise" if all(edit.boosts for edit in evaluation.tried) else "take"
    title = f"Does an edit {verb} {skills} alone?" if skills else f"What do edits of {evaluation.model} change?"
    against = Rows(
        "", against_controls(evaluation, measured), (UnderEdit, AgainstControl, Row), "Skill against control"
    )
    yield Part(title, rows, _marks(evaluation), main_claims, wide=True)
    if choice := evaluation.choice:
        named = [each.model_copy(update={"edit": evaluation.name_of(each.edit)}) for each in choice.candidates]
        candidates = Rows("", named, (Candidate,), "Candidates", choice.rule)
        chosen = claims.what_the_chosen_edit_does(evaluation)
        yield Part("What does the chosen edit do on other items?", candidates, claims=chosen, short="Chosen edit")
    if against.records:
        mark = Points(
            "control_drop", "drop", "method_name", panel=("direction", "control"), name="tradeoff",
            caption="An edit that cuts the skill alone lies far to the right at the height of 0; one that raises it"
            " alone far to the left.",
        )  # fmt: skip
        marks = (mark,) * (len(evaluation.tried) >= FEWEST)
        yield Part("What do the controls lose?", against, marks, short="Controls", wide=True)
    if controls := matched(evaluation, measured):
        yield Part(
            "Do random weights of the same size do as much?",
            Rows(
                "matched-controls", controls, (UnderEdit, RandomControls, Sizes),
                "The edits and their random controls",
                "Count: as many weights of every matrix. Magnitude: and of every size |W|, none of the edit's own."
                " Importance: and of every |W| times the inputs of the controls' texts.",
            ),
            (Bars("beyond", ("under", "task"), by="matched_in", name="matched"),),
            short="Matched controls",
        )  # fmt: skip


def _marks(evaluation: Evaluation) -> tuple[Mark, ...]:
    """The drops under the edits that change most, and accuracies along the share and the factor where these vary."""
    marks: list[Mark] = [
        Bars(
            "drop", "task", by="role" if evaluation.skills else "task", runs="random_drops", panel="under",
            only={"drawn": True, "kind": ("generate", "choose", "contrast")}, name="drops",
            caption="Drop in accuracy on the same items; left of 0 is a gain. Small: least, mean and largest drop under"
            " the matched random controls.",
        )
    ]  # fmt: skip
    kinds = tuple({task.kind for task in evaluation.tasks if not task.scored})
    for name, series, unusual in (("keep", "by_share", set()), ("factor", "by_factor", {0.0})):
        places = {getattr(edit, name) for edit in evaluation.tried} - {None}
        if len(places) < FEWEST:
            continue
        places -= unusual
        marks.append(
            Curves(
                "accuracy", name, series, log=name == "keep", panel="task", name=f"sweep-{name}",
                lines={"unedited": "baseline", "guessing": "chance"},
                only={"tried": True, "kind": kinds, name: tuple(places)},
            )
        )  # fmt: skip
    return tuple(marks)


def _isolation(isolation: Isolation) -> Iterator[Part]:
    skill = isolation.study.skill
    matrices = [(each, matrix) for each in isolation.selections for matrix in each.matrices]
    most = max(each.samples for each in isolation.selections)
    drawn = [each for each in isolation.selections if each.samples == most and not each.repeat]
    share = Map(
        "share", "block", "matrix", hue="share", shown="written", panel="name", wide=True,
        caption="Share selected of each block and kind of matrix, in %, from the first draw of the most texts.",
    ).figure([(each, kind) for each in drawn for kind in each.by_kind], "distribution")  # fmt: skip
    blocks: list[Block] = []
    if share is not None:
        shown = excerpt(share, wide=True)
        blocks = [shown, *[Folded("The other selections", (share,))] * (shown is not share)]
    for table in (
        Rows("", isolation.selections, (Selected,), "Selections"),
        Rows("", isolation.texts, (CalibrationTexts,), "Calibration texts"),
        Rows("", [each for each in isolation.coverage if not each.scored], (Coverage,), "What was not scored"),
    ):
        if table.records:
            blocks.append(Folded(table.title, (Table.of(table),)))
    yield Part(
        f"Where do the weights selected for {skill} lie?",
        Rows("selections", matrices, (Selection, MatrixCount), "Selected weights", hidden=frozenset({"file"})),
        claims=claims.where_the_weights_lie(isolation), short="Weights", own=tuple(blocks), wide=True,
    )  # fmt: skip
    if isolation.overlaps:
        labels = {overlap.label for overlap in isolation.agreements}
        curves = Curves("mean", "samples", "label", log=True, low=0.0, high=1.0, name="consistency",
                        lines={"random sets of that size": "chance"} if len(labels) == 1 else {},
                        only={"label": tuple(labels)})  # fmt: skip
        yield Part(
            "Would other texts have selected the same?",
            Rows(
                "overlap", isolation.overlaps, (Overlap,), "Overlap of repeats",
                "IoU: intersection over union. Interval: jackknife over repeats, from three on.",
            ),
            (curves,) * (len({overlap.samples for overlap in isolation.agreements}) > 1),
            claims.what_other_texts_select(isolation), short="Consistency",
        )  # fmt: skip
    if isolation.excluded is not None:
        held = [
            (weight, HeldBy(selected_by="; ".join(e.stem for e in isolation.selections if place in e.super_weights)))
            for place, weight in enumerate(isolation.excluded.weights)
        ]
        yield Part(
            "Which super weights were excluded?",
            Rows(
                "super-weights", held, (SuperWeight, HeldBy), "Excluded super weights",
                "Rows and columns are outputs and inputs of the matrix. Product: |value| times the largest magnitude of"
                " its input. Spike: input and output are the largest of their matrix, the rule of Yu et al. (2024).",
            ),
            claims=claims.which_super_weights(isolation), short="Super weights",
        )  # fmt: skip


def _checks(evaluation: Evaluation, measured: Sequence[Line], again: Callable[[str, str], Check]) -> Iterator[Check]:
    """Whether the evaluation can be believed; `again` says with which option what was not tried is tried."""
    answered = [task for task in evaluation.tasks if not task.scored]
    near = [task.name for task in answered if task.near_guessing or (task.role == "control" and not task.informative)]
    if near:
        yield Check("bad", f"Too near guessing to show a loss, so not counted: {wording.listed(near)}.")
    else:
        known = ((task.name, task.baseline.result.value, task.chance or 0.0, task.items) for task in answered)
        yield from checks.baselines(known)
    rates = [(max(e.truncated or 0.0, e.unparsed or 0.0), e) for e, _ in measured if e.drawn and e.tried]
    for rate, worst in sorted(rates, key=lambda each: -each[0])[:1]:
        yield from checks.readable(rate, f"{worst.under} ({worst.task})")
    kinds = {each.matched_in for _, each in measured if each.random_of is not None}
    if not kinds:
        yield again("Random controls", "--random-controls 3")
    elif kinds == {"count"} and any(edit.selects for edit in evaluation.tried):
        yield again("Random weights of the same size |W|", "--matched-in count,magnitude")
    elif evaluation.choice is None and len(evaluation.tried) > 1:
        yield again("The strongest of these edits on items that did not choose it", "--validation 0.5")


def _offered(evaluation: Evaluation, answers: pd.DataFrame, measured: Sequence[Line]) -> Iterator[browser.Offered]:
    """The baseline and every edit that is no random control, on tasks with answers."""
    present = set(zip(answers["model_name"], answers["task"], answers["edit"], strict=True))
    known = [line for line, _ in measured if line.drop.value is not None]
    drops = {(line.task, line.edit): f", drop {POINTS(line.drop.value)}" for line in known}
    labels = {str(BASELINE): "unedited"} | {edit.edit: evaluation.name_of(edit.edit) for edit in evaluation.tried}
    for task in evaluation.tasks:
        for edit, label in labels.items():
            if not task.scored and (evaluation.model, task.name, edit) in present:
                yield browser.Offered(evaluation.model, task.name, edit, label + drops.get((task.name, edit), ""))


def _broken(answers: pd.DataFrame, measured: Sequence[Line]) -> Iterator[Example]:
    """Answers that the edit that takes most broke."""
    drawn = [line for line, _ in measured if line.drawn and line.tried]
    for most in sorted(drawn, key=lambda line: -line.strength)[:1]:
        of_task = answers[answers["task"] == most.task]
        if most.edit in set(of_task["edit"]):
            yield from examples(changed(of_task, most.edit, right=False), most.under, most.task)
