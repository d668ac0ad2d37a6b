"""The report of an interaction study, in reading order: per task, what the designs show."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from typing_extensions import override

from lesion.core.result import StudyResult
from lesion.plain import visible
from lesion.report import wording
from lesion.report.blocks import Block, Figure, Findings, Folded, Page, Panel, Prose, Section, entries, study_section
from lesion.report.finding import Finding
from lesion.studies.interaction import charts, tables
from lesion.studies.interaction import findings as prose
from lesion.studies.interaction.result import InteractionSummary

METHOD = (
    "The unedited model and every edit answered the same items. A set's interaction is its drop minus the sum of the"
    " drops of its places alone. The test is corrected by Holm's method over all sets of one design and task."
)
READING = (
    "Redundant: the places cost more together than the sum of each alone. While one is there it does (in part) what the"
    " other does. In pharmacology two cuts that add up to more are called synergistic; here the word is about the"
    " places, of which either alone suffices.",
    "One path: the places cost less together than the sum. They are needed for the same items, so that an answer that"
    " one removal has spoilt cannot be spoilt again. In the words of game theory they are complements: their worth"
    " together is more than the sum (synergy).",
    "Cannot tell: the drops alone add up to all that there is to lose until the model guesses (accuracy 0, that of"
    " guessing among choices, or the log-probability of a guesser who knows how often each answer occurs), so that a"
    " smaller drop of both is arithmetic.",
    "More than the sum can also be damage that grows: later blocks meet states that they never saw. Where the drop is"
    " far beyond what guessing costs, the model is confidently wrong, and little is said about who backs up whom.",
    "If places acted independently, each leaving its own share of the right answers, the drop of both would be less"
    " than the sum: the column `independent` of interactions.csv (Bliss 1939). Log-probabilities (--measure gold) then"
    " add up.",
    "Shapley value: what removing a place costs in addition to the places removed before it, averaged over orders of"
    " removal; the values add up to the drop of all. Its interval is for other items and other orders; the second one"
    " for other orders on the same items.",
    "An order by importance is chosen on the items that it is shown on.",
)


@dataclass(frozen=True)
class InteractionResult(StudyResult[InteractionSummary]):
    """Several places removed together. `table` has one row per set and task, as `interactions.csv`; of a study without
    pairs and windows it is `steps.csv` or `shapley.csv`.
    """

    SUMMARY, TABLE, TEXT = InteractionSummary, tables.main, tables.text_tables

    @property
    def removals(self) -> pd.DataFrame:
        """One row per set removed and task, as `removals.csv`."""
        return tables.removals(self.summary).frame

    @property
    def steps(self) -> pd.DataFrame:
        """One row per task, order and removal, as `steps.csv`."""
        return tables.steps(self.summary).frame

    @property
    def shapley(self) -> pd.DataFrame:
        """One row per task and place, as `shapley.csv`."""
        return tables.shares(self.summary).frame

    @override
    def found(self) -> list[Finding]:
        return prose.findings(self.summary)

    @override
    def page(self) -> Page:
        summary = self.summary
        study = summary.study
        findings = Section("Findings", "Findings", (Findings(tuple(prose.findings(summary))), Prose((METHOD,))))
        every = (tables.sets(summary), tables.steps(summary), tables.shares(summary), tables.removals(summary))
        shown = tuple(Folded(_LABELS[table.name], (table,)) for table in every if len(table.frame))
        facts = study.model_dump(mode="json", exclude_none=True, exclude={"kind", "title"})
        return Page(
            title=visible(study.title or f"Places of {summary.model} {prose.done(study)} together"),
            eyebrow="interaction of places",
            sections=(
                findings,
                *(_task(summary, task.name, number) for number, task in enumerate(summary.tasks)),
                Section("Numbers", "All numbers", shown),
                study_section(entries(facts), summary.notes, READING),
            ),
            version=summary.version,
            approximate=summary.approximate or "",
        )


_LABELS = {
    "interactions": "Every set against the sum of its places",
    "steps": "Every step, in every order",
    "shapley": "Shapley values",
    "removals": "Every set",
}


def _task(summary: InteractionSummary, task: str, number: int) -> Section:
    after = f"-{number}" if number else ""
    study = summary.study
    items, noun, done = wording.counted(summary.removal(task).items, "item"), prose.noun(study), prose.done(study)
    blocks: list[Block] = []
    if summary.of(task, "pairs"):
        blocks.append(
            Figure(
                f"pairs{after}",
                (Panel((charts.pairs_chart(summary, task),)),),
                f"{task}, {items}: {prose.unit(study)} that a pair costs beyond the sum of its {noun}s alone. Boxed:"
                f" corrected p ≤ {wording.ALPHA:g}. ?: cannot tell, the sum is all that guessing leaves.",
            )
        )
    if summary.of(task, "windows"):
        blocks.append(
            Figure(
                f"windows{after}",
                (Panel((charts.windows_chart(summary, task),)),),
                f"{task}, {items}: drop with {study.window} consecutive blocks {done}, with {study.level:.0%}"
                " intervals, and the sum of the drops of each alone.",
            )
        )
    if any(step.task == task for step in summary.steps):
        order = ", ".join(summary.order)
        blocks.append(
            Figure(
                f"cumulative{after}",
                (Panel((charts.cumulative_chart(summary, task),)),),
                f"{task}, {items}: {noun}s {done} one after another, in the order {order}. Band: {study.level:.0%}"
                " interval.",
                charts.cumulative_legend(summary),
            )
        )
    if any(share.task == task for share in summary.shares):
        of = f"all {summary.orders} orders, exact," if summary.every_order else f"{summary.orders} random orders"
        blocks.append(
            Figure(
                f"shapley{after}",
                (Panel((charts.shapley_chart(summary, task),)),),
                f"{task}, {items}: Shapley values, the mean over {of} of removal, with {study.level:.0%} intervals"
                f" for other items; small marks: the {noun}'s drop when nothing else is {done}.",
            )
        )
    return Section(visible(task), visible(task), tuple(blocks))
