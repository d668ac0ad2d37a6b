"""When blocks become critical over a training of which there are checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lesion.report import wording
from lesion.report.blocks import Folded
from lesion.report.claims import Claim, rule
from lesion.report.marks import Map
from lesion.report.parts import Part
from lesion.report.rows import Rows, subject
from lesion.report.table import Table
from lesion.studies.ablation.analyses.invariance import FamilyCell, InFamily, cells
from lesion.studies.ablation.invariance.judged import claimed
from lesion.studies.ablation.invariance.result import FamilyResult, Onset, axes, moment
from lesion.studies.ablation.material import Material


@rule(
    "In the training of M, A is learned between step S and step T, with blocks L critical by then.",
    "Later block L becomes critical.",
    "At the end of the training of M no block is shown to be critical for A.",
    needs="critical at a checkpoint and at all later ones, where the model can do the task",
)
def over_training(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """When a training learned a task, and since when the blocks that are critical at its end are."""
    about = [
        (InFamily(family=family.family, task=task.task), source, [each for each in task.onset if each.source == source])
        for family in families
        for task in claimed(family.tasks)
        for source in dict.fromkeys(onset.source for onset in task.onset)
    ]
    every = [labels for labels, _, _ in about]
    for labels, source, onsets in about:
        ending = [onset for onset in onsets if onset.model is not None]
        sentences = [f"At the end of the training of {source} no block is shown to be critical for {labels.task}."]
        if ending:
            able = ending[0].able_from
            at_once = [onset.layer for onset in ending if onset.step == able]
            by_then = f", with {wording.numbered('block', at_once)} critical by then" if at_once else ""
            learned = moment(ending[0].able_after, able)
            later = [
                f"{wording.numbered('block', [onset.layer])} {onset.begins}" for onset in ending if onset.step != able
            ]
            sentences = [f"In the training of {source}, {labels.task} is learned {learned}{by_then}."]
            sentences += [f"Critical later: {wording.listed(later)}."] if later else []
        yield Claim(tuple(sentences), tuple((labels, onset) for onset in ending), subject(labels, every))


def part(material: Material) -> Part | None:
    """Drops over every training, a line per checkpoint; None where there are no checkpoints."""
    families = material.summary.invariance.families if material.summary.invariance else ()
    records = []
    for family, cell in cells(material):
        for axis in axes(family.members):
            models = [*axis.checkpoints, axis.end]
            records += [(models.index(member), _named(family, cell)) for member in models if member.model == cell.model]
    if not records:
        return None
    drawn = [cell for _, cell in sorted(records, key=lambda each: each[0])]
    onsets = [
        (InFamily(family=family.family, task=task.task), onset)
        for family in families
        for task in family.tasks
        for onset in task.onset
    ]
    table = Table.of(Rows("onset", onsets, (InFamily, Onset), "Since when blocks are critical"))
    mark = Map(
        "drop", "layer", "name", boxed="critical", panel=("family", "task"), name="training",
        caption="Drop in points without a block, a line per checkpoint, with what the unedited model has right. Boxed:"
        " critical. Nothing can be critical before the model can do the task.",
    )  # fmt: skip
    return Part(
        "When do blocks become critical?",
        Rows("training", drawn, (FamilyCell,)),
        (mark,),
        over_training(families),
        short="Training",
        own=(Folded("Since when every block is critical", (table,)),) if onsets else (),
        table=False,
    )


def _named(family: FamilyResult, cell: FamilyCell) -> FamilyCell:
    """The cell under the name of its checkpoint with the accuracy of the unedited model."""
    task = next(task for task in family.tasks if task.task == cell.task)
    skill = task.skill(cell.model)
    whole = "" if skill is None else f" ({100 * skill.accuracy:.0f}{wording.SPACE}%)"
    return cell.model_copy(update={"name": f"{cell.name}{whole}"})
