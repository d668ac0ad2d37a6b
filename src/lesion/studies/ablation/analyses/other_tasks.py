"""Whether other tasks lose far less at the blocks that are critical for mathematics, in the models of a family."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from lesion.report import wording
from lesion.report.claims import Claim, rule
from lesion.report.marks import Bars
from lesion.report.parts import Part
from lesion.report.rows import Row, Rows, column
from lesion.report.values import POINTS, WHOLE_SHARE
from lesion.studies.ablation.analyses.invariance import STANDING
from lesion.studies.ablation.invariance.judged import between_claimed
from lesion.studies.ablation.invariance.result import BetweenTasks, FamilyResult
from lesion.studies.ablation.result import Material


class InModel(Row):
    """Which model of which family a line is about.

    Attributes:
        name: of the model in its family.
        claimed: whether the word of the family is about the first task, and not about the other.
    """

    family: str = column("Family", label=True)
    name: str = column("Model", label=True)
    claimed: bool


@rule
def less_elsewhere(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """What the tasks that a family's word is about lose at their critical blocks, against what other tasks do.

    Says: Cutting a block critical for A costs it S % of its accuracy on average, other tasks T %. | … nearly all of it
    through blocks that are critical for both. | Whether others lose less than half as much cannot be told.
    Needs: what the other task loses ÷ what A loses, at the blocks critical for A: below 0.5 by its bootstrap interval
    over items in every model and task (far less), above it in one (not)
    """
    for family in families:
        entries = between_claimed(family.tasks, family.between_tasks)
        if not entries or family.verdict.between is None:
            continue
        skill = wording.listed(list(dict.fromkeys(entry.a for entry in entries)))
        others = wording.listed(list(dict.fromkeys(entry.b for entry in entries)))
        own, other = (
            WHOLE_SHARE.text(fmean(getattr(entry, f"relative_{side}") or 0.0 for entry in entries)) for side in "ab"
        )
        lead = f"Cutting a block critical for {skill} costs it {own} of its accuracy on average, {others} {other}"
        yield Claim(
            (f"{lead}{_alone(entries)}.", _extreme(family, entries)),
            tuple(entries),
            family.family * (len(families) > 1),
            standing=STANDING[family.verdict.between],
        )


def _alone(entries: Sequence[BetweenTasks]) -> str:
    """How much of it is left without the blocks that are critical for both."""
    both = sorted({layer for entry in entries for layer in entry.critical_shared})
    alone = [entry.alone_b for entry in entries if entry.alone_b is not None]
    if not both or not alone:
        return ""
    return f" ({WHOLE_SHARE.text(fmean(alone))} without {wording.numbered('block', both)}, critical for both)"


def _extreme(family: FamilyResult, entries: Sequence[BetweenTasks]) -> str:
    """The comparison that decides: the one in which the other task loses most beside the first."""
    most = max(entries, key=lambda entry: entry.ratio.value or 0.0)
    difference = f"the difference is {POINTS.text(most.difference)} ({most.b} in {family.labels[most.model]})"
    begin, end = {"holds": ("E", ""), "does not hold": ("Not e", ""), "cannot tell": ("Whether e", " cannot be told")}[
        family.verdict.between or "cannot tell"
    ]
    return f"{begin}very other task loses less than half as much{end}; where it is least clear, {difference}."


def part(material: Material) -> Part | None:
    """Every two tasks of every model of the families; None where there are none."""
    families = material.summary.families
    records = []
    for family in families:
        relevant = between_claimed(family.tasks, family.between_tasks)
        records += [
            (InModel(family=family.family, name=family.labels[entry.model], claimed=entry in relevant), entry)
            for entry in family.between_tasks
        ]
    if not records:
        return None
    rows = Rows(
        "between-tasks", records, (InModel, BetweenTasks), "Pairs of tasks",
        "Lost: share of the model's accuracy (where answers are chosen, above guessing) that is lost without a block,"
        " averaged over the blocks critical for the first task.",
    )  # fmt: skip
    mark = Bars(
        "difference", ("name", "b"), panel=("family", "a"), only={"claimed": True}, name="other-tasks",
        caption="What the task loses at its critical blocks minus what the other loses there, as shares of accuracy.",
    )  # fmt: skip
    own_claims = less_elsewhere(families)
    return Part("Do other tasks need these blocks?", rows, (mark,), own_claims, short="Other tasks", wide=True)
