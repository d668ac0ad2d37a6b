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
from lesion.studies.ablation.analyses.invariance import FamilyPlace, InFamily, cells
from lesion.studies.ablation.cell import Cell, alike
from lesion.studies.ablation.invariance.judged import claimed
from lesion.studies.ablation.invariance.result import FamilyResult, Onset, axes, moment
from lesion.studies.ablation.result import Material


@rule
def over_training(families: Sequence[FamilyResult]) -> Iterable[Claim]:
    """When a training learned a task, and since when the blocks that are critical at its end are.

    Says: In the training of M, A is learned between step S and step T, with blocks L critical by then. | Later block L
    becomes critical. | At the end of the training of M no block is shown to be critical for A.
    Needs: critical at a checkpoint and at all later ones, where the model can do the task
    """
    tasks = [(InFamily.of(family, task), task) for family in families for task in claimed(family.tasks)]
    every = [labels for labels, _ in tasks]
    for labels, onsets in ((labels, own) for labels, task in tasks for own in alike(task.onset, "source")):
        source = onsets[0].source
        ending = [onset for onset in onsets if onset.model is not None]
        sentences = [f"At the end of the training of {source} no block is shown to be critical for {labels.task}."]
        if ending:
            able = ending[0].able_from
            at_once = [onset.layer for onset in ending if onset.step == able]
            by_then = f", with {wording.numbered('block', at_once)} critical by then" * bool(at_once)
            learned = moment(ending[0].able_after, able)
            later = [f"block{wording.SPACE}{onset.layer} {onset.begins}" for onset in ending if onset.step != able]
            sentences = [f"In the training of {source}, {labels.task} is learned {learned}{by_then}."]
            sentences += [f"Critical later: {wording.listed(later)}."] * bool(later)
        yield Claim(tuple(sentences), tuple((labels, onset) for onset in ending), subject(labels, every))


def part(material: Material) -> Part | None:
    """Drops over every training, a line per checkpoint; None where there are no checkpoints."""
    families = material.summary.families
    records = []
    for family, place, cell in cells(material):
        for axis in axes(family.members):
            models = [member.model for member in (*axis.checkpoints, axis.end)]
            if place.model in models:
                records.append((models.index(place.model), (_named(family, place), cell)))
    if not records:
        return None
    drawn = [cell for _, cell in sorted(records, key=lambda each: each[0])]
    onsets = [
        (InFamily.of(family, task), onset) for family in families for task in family.tasks for onset in task.onset
    ]
    table = Table.of(Rows("onset", onsets, (InFamily, Onset), "Since when blocks are critical"))
    mark = Map(
        "drop", "layer", "name", boxed="critical", panel=("family", "task"), name="training",
        caption="Drop in points without a block, a line per checkpoint, with what the unedited model has right. Boxed:"
        " critical. Nothing can be critical before the model can do the task.",
    )  # fmt: skip
    return Part(
        "When do blocks become critical?",
        Rows("training", drawn, (FamilyPlace, Cell)),
        (mark,),
        over_training(families),
        short="Training",
        own=(Folded(table.title, (table,)),),
        table=False,
    )


def _named(family: FamilyResult, place: FamilyPlace) -> FamilyPlace:
    """The place under the name of its checkpoint with the accuracy of the unedited model."""
    skills = [task.skill(place.model) for task in family.tasks if task.task == place.task]
    whole = [f" ({100 * skill.accuracy:.0f}{wording.SPACE}%)" for skill in skills if skill is not None]
    return place.model_copy(update={"name": place.name + "".join(whole)})
